"""The brokers' models: what a byte costs and what else runs there, found from what is measured alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from strategy_testing.compare import reordered
from trim_world import CORES, COST, START, World, spread
from trimtab_strategies.model.cluster_load import FloatArray, IntArray, RecentSamples
from trimtab_strategies.shedding.trim.model import BrokerModel, learned
from trimtab_strategies.shedding.trim.readings import PRICES, without_repeats
from trimtab_strategies.shedding.trim.replay import WINDOW
from trimtab_strategies.shedding.trim.samples import SampleRing


class Lesson:
    """A model that learns a world, minute by minute."""

    def __init__(self, world: World, *, jitter: float = 0.0, cycle: float = 60.0) -> None:
        """Jitter: relative standard deviation of each bundle's traffic. cycle: seconds between two samples."""
        self.world, self.jitter, self.cycle = world, jitter, cycle
        self.ring, self.rng = SampleRing(), np.random.default_rng(3)
        self.memory: Mapping[str, Any] = {}
        self.model: BrokerModel | None = None

    def minutes(self, count: float, *, cpu: FloatArray | None = None) -> BrokerModel:
        """Learn from so many minutes; cpu: (n,) cores that metrics show instead of the truth."""
        for _ in range(round(count * 60 / self.cycle)):
            factor = np.maximum(0.0, 1 + self.jitter * self.rng.standard_normal(len(self.world.load)))
            cluster = self.ring.add(self.world.cluster(factor, cpu=cpu))
            assert cluster.recent is not None
            self.model, memory = learned(cluster, cluster.recent.last(WINDOW), self.memory)
            self.memory = json.loads(json.dumps(memory, allow_nan=False))
            self.world.now += self.cycle
        assert self.model is not None
        return self.model

    def known(self, what: str) -> list[float]:
        """What is remembered of each broker."""
        of = self.memory["brokers"].get(what, {})
        return [of.get(name, 0.0) for name in self.world.brokers]


def messages(size: list[float], price: float) -> World:
    """Four brokers of ten cores at 5 % without the price of messages, each with bundles of one size of message."""
    points = (spread(5, 10, seed) for seed in range(4))
    return World.of(*points, size=np.repeat(size, 10), message=price)


def four(cost: list[float] | None = None, background: list[float] | None = None, **given: Any) -> World:
    """Four brokers of ten cores, with ten bundles of 40 % together each. cost: in times `COST`."""
    return World.of(
        *(spread(40, 10, seed) for seed in range(4)),
        cost=COST * np.array(cost or [1.0, 1, 1, 1]),
        background=np.array(background or [0.0, 0, 0, 0]),
        **given,
    )


def test_the_speed_of_machines_is_found_though_all_declare_the_same_cores() -> None:
    cost = [1.0, 0.5, 2.0, 1.0]
    model = Lesson(four(cost), jitter=0.1).minutes(20)

    assert model.slope / COST == pytest.approx(cost, rel=0.05)
    assert model.background.max() < 0.05 * CORES


def test_the_speed_of_machines_of_several_sizes_is_found() -> None:
    cost = [1.0, 1.0, 2.0, 2.0]
    model = Lesson(four(cost, cores=np.array([32.0, 32.0, 8.0, 8.0])), jitter=0.1).minutes(12)

    assert model.slope / COST == pytest.approx(cost, rel=0.05)


def test_the_first_minute_already_tells_machines_apart() -> None:
    model = Lesson(four([1.0, 1.0, 2.0, 1.0])).minutes(1)

    assert model.slope[2] > 1.2 * model.slope[0]


@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_a_jump_of_cpu_without_traffic_is_background_not_slope(jitter: float) -> None:
    lesson = Lesson(four(), jitter=jitter)
    before = lesson.minutes(15).slope[0]
    lesson.world.background[0] = 3.0
    for _ in range(10):
        model = lesson.minutes(1)
        assert model.slope[0] == pytest.approx(before, rel=0.06)
        assert model.background[-1, 0] == pytest.approx(3.0, abs=0.35)
        assert model.background[-1, 1:].max() < 0.35


def test_a_jump_that_ends_leaves_no_background() -> None:
    lesson = Lesson(four(), jitter=0.1)
    lesson.minutes(15)
    lesson.world.background[0] = 3.0
    lesson.minutes(5)
    lesson.world.background[0] = 0.0
    model = lesson.minutes(1)

    assert model.background[-1, 0] < 0.3


def test_one_landed_move_tells_slope_from_background() -> None:
    """A program that ran there before Trim began looks like a slow machine until the load changes."""
    lesson = Lesson(four(background=[3.0, 0, 0, 0]))
    before = lesson.minutes(10)
    lesson.world.owner[np.flatnonzero(lesson.world.owner == 0)[:5]] = 1
    after = lesson.minutes(1)
    wrong = abs(before.slope[0] / COST - 1)

    assert wrong > 0.3  # nothing could tell
    assert abs(after.slope[0] / COST - 1) < min(0.1, wrong / 3)
    assert after.background[-1, 0] == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("traffic", [0.0, 1e3, 1e5])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_brokers_that_only_beat_their_hearts_tell_nothing_about_costs(n: int, traffic: float) -> None:
    """All load is on one broker; the CPU of the others is background, not the price of a few bytes."""
    world = World.of(spread(60, 16, 1), *([0.0] for _ in range(n - 1)), background=np.full(n, 0.3))
    world.load[-(n - 1) :] = traffic
    world.size[-(n - 1) :] = 50.0
    model = Lesson(world).minutes(3)

    assert model.message == 0.0
    assert model.slope / COST == pytest.approx([1.0] * n, rel=0.06)
    assert model.background[-1, 1:] == pytest.approx([0.3] * (n - 1), abs=0.01)


def test_a_slow_machine_stays_slow_after_a_landed_move() -> None:
    lesson = Lesson(four([1.75, 1, 1, 1]))
    lesson.minutes(10)
    lesson.world.owner[np.flatnonzero(lesson.world.owner == 0)[:5]] = 1
    model = lesson.minutes(1)

    assert model.slope / COST == pytest.approx([1.75, 1, 1, 1], rel=0.05)
    assert model.background[-1].max() < 0.2


def test_the_price_of_a_message_is_found() -> None:
    model = Lesson(messages([100, 400, 4000, 16000], 400)).minutes(3)

    assert model.message == 400.0
    assert model.slope / COST == pytest.approx([1, 1, 1, 1], rel=0.05)


def test_messages_cost_nothing_where_cpu_follows_bytes() -> None:
    lesson = Lesson(messages([100, 400, 4000, 16000], 0), jitter=0.2)

    assert lesson.minutes(12).message == 0.0


@pytest.mark.parametrize("truth", [50.0, 250.0, 1000.0])
def test_a_price_between_those_considered_is_met_closely_enough(truth: float) -> None:
    lesson = Lesson(messages([200, 800, 2000, 8000], truth))
    model = lesson.minutes(3)
    cost = 1 + truth / lesson.world.size
    found = model.work(np.stack([lesson.world.load, 0 * lesson.world.load, lesson.world.load / lesson.world.size], 1))
    ratio = (model.slope[lesson.world.owner] * found) / (COST * lesson.world.load * cost)

    assert model.message in PRICES
    assert ratio == pytest.approx(np.ones(40), rel=0.25)


def test_a_stale_report_is_no_sample() -> None:
    """The same figures, although the broker's bundles changed: the report is from before."""
    lesson = Lesson(four(), jitter=0.1)
    lesson.minutes(10)
    expected = lesson.minutes(1).slope[0]
    counted = lesson.known("count")[0]
    stale = lesson.ring.add(lesson.world.cluster(1.5))
    assert stale.recent is not None
    cpu, traffic = stale.recent.cpu.copy(), stale.recent.traffic.copy()
    cpu[-1, 0], traffic[-1, 0] = cpu[-2, 0], traffic[-2, 0]
    model, memory = learned(stale, replace(stale.recent, cpu=cpu, traffic=traffic).last(WINDOW), lesson.memory)

    assert memory["brokers"]["count"]["broker-0"] == counted
    assert memory["brokers"]["count"]["broker-1"] == counted + 1
    assert model.slope[0] == pytest.approx(expected, rel=0.001)


def recent_of(cpu: list[list[float]], bundles: list[list[float]], traffic: list[list[float]]) -> RecentSamples:
    """Rows of two brokers and two bundles."""
    wide = [np.repeat(np.array(values)[..., np.newaxis], 3, axis=2) for values in (bundles, traffic)]
    return RecentSamples(
        START + 60 * np.arange(len(cpu), dtype=float), [*wide[0].astype(np.float32)], np.array(cpu), wide[1]
    )


OWN: IntArray = np.array([0, 1])


def test_equal_figures_are_a_sample_where_the_bundles_did_not_change() -> None:
    cpu, _ = without_repeats(recent_of([[1, 2], [1, 2]], [[5, 6], [5, 9]], [[5, 6], [5, 6]]), OWN)

    assert np.isnan(cpu).tolist() == [[False, False], [False, True]]


def test_equal_cpu_with_other_traffic_is_a_sample() -> None:
    cpu, _ = without_repeats(recent_of([[1, 2], [1, 2]], [[5, 6], [7, 9]], [[5, 6], [7, 9]]), OWN)

    assert np.isfinite(cpu).all()


def test_a_false_reading_is_no_sample() -> None:
    lesson = Lesson(four())
    lesson.minutes(2)
    lesson.minutes(1, cpu=np.array([CORES, 4.0, 4.0, 4.0]))

    assert lesson.known("count") == [2, 3, 3, 3]


def noisy(world: World, seed: int, minutes: int = 20) -> list[BrokerModel]:
    """What is learned in each minute from the third on, if CPU is measured with 15 % noise."""
    lesson, rng = Lesson(world), np.random.default_rng(seed)
    used = world.cpu(world.load)
    models = [lesson.minutes(1, cpu=used * rng.normal(1, 0.15, len(used)).clip(0.2)) for _ in range(minutes)]
    return models[2:]


@pytest.mark.parametrize("seed", range(8))
def test_noise_of_cpu_makes_no_broker_look_slow(seed: int) -> None:
    """One of ten brokers is off by a good part in the median of eight samples, by chance."""
    models = noisy(World.of(*(spread(45, 10, seed) for seed in range(10))), seed)
    slopes = np.stack([model.slope / np.median(model.slope) for model in models])

    assert np.abs(slopes - 1).max() < 0.1


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_machine_is_found_in_noise(seed: int) -> None:
    model = noisy(four([1.0, 1.0, 1.6, 1.0]), seed)[-1]

    assert model.slope[2] > 1.4 * np.median(model.slope)


def test_brokers_without_two_samples_in_a_row_do_not_hide_the_noise_of_others() -> None:
    lesson, never = Lesson(four()), np.nan
    for cpu in ([4.0, never, 5, 4], [5, 4, never, never], [4, never, 5, 4], [5, 5, never, never], [4, 4, 5, 4]):
        model = lesson.minutes(1, cpu=np.array(cpu))

    assert model.slope[2] == pytest.approx(model.slope[1], rel=0.01)


def test_a_full_machine_gives_no_evidence() -> None:
    lesson = Lesson(four(), jitter=0.2)
    lesson.minutes(10)
    before = (lesson.known("information")[0], lesson.known("drift")[0])
    lesson.world.load[lesson.world.owner == 0] *= 4  # 160 % are wanted
    lesson.minutes(3)
    after = (lesson.known("information")[0], lesson.known("drift")[0])

    assert after[0] <= before[0]
    assert after[1] <= before[1]
    assert lesson.known("information")[1] > 0


def test_a_broker_that_was_never_measured_costs_as_much_as_its_kind() -> None:
    lesson = Lesson(four([1.5, 1.5, 1.5, 1.5]))
    model = lesson.minutes(3, cpu=np.array([6.0, 6.0, 6.0, np.nan]))

    assert model.slope / COST == pytest.approx([1.5] * 4, rel=0.01)
    assert np.isfinite(model.background).all()
    assert lesson.known("count") == [3, 3, 3, 0]


def test_a_new_broker_costs_as_much_as_its_kind() -> None:
    world = World.of(*(spread(40, 10, seed) for seed in range(4)), [], cost=COST * np.array([2.0, 2, 2, 2, 2]))
    model = Lesson(world).minutes(3)

    assert model.slope / COST == pytest.approx([2.0] * 5, rel=0.01)


@pytest.mark.parametrize("cycle", [10, 20, 30, 90])
def test_a_cycle_of_any_length_learns(cycle: float) -> None:
    """The same truth, read more or less often: after half an hour the models are alike."""
    lesson = Lesson(four(background=[3.0, 0, 0, 0]), cycle=cycle)
    lesson.minutes(15)
    lesson.world.owner[np.flatnonzero(lesson.world.owner == 0)[:5]] = 1
    model = lesson.minutes(9)

    assert model.slope / COST == pytest.approx([1, 1, 1, 1], rel=0.1)
    assert model.background[-1, 0] == pytest.approx(3.0, rel=0.1)
    assert lesson.known("count")[0] == pytest.approx(24 * 60 / max(60, cycle), abs=1.1)


def test_a_minute_is_learned_from_once() -> None:
    lesson = Lesson(four(), jitter=0.1)
    lesson.minutes(10)
    again = lesson.ring.add(lesson.world.cluster())
    assert again.recent is not None
    first, memory = learned(again, again.recent.last(WINDOW), lesson.memory)
    second, after = learned(again, again.recent.last(WINDOW), memory)

    assert after == memory
    assert (first.slope == second.slope).all()


def test_rows_may_change_their_order() -> None:
    lesson, other = Lesson(four([1, 0.5, 2, 1])), Lesson(four([1, 0.5, 2, 1]))
    expected = lesson.minutes(6).slope
    other.minutes(5)
    order: IntArray = np.array([2, 0, 3, 1])
    shown = other.ring.add(reordered(other.world.cluster(), brokers=order))
    assert shown.recent is not None
    model, _ = learned(shown, shown.recent.last(WINDOW), other.memory)

    assert model.slope == pytest.approx(expected[order])


odd = st.one_of(st.floats(1e-6, 1e9), st.sampled_from([0.0, np.nan, 1e-30, 1e15]))


@pytest.mark.slow
@settings(max_examples=80)
@given(data=st.data())
def test_any_figures_make_a_finite_model(data: st.DataObject) -> None:
    world, ring = four(), SampleRing()
    memory: Mapping[str, Any] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        cpu = np.array(data.draw(st.lists(odd, min_size=4, max_size=4)))
        cores = np.array(data.draw(st.lists(st.sampled_from([10.0, 4.0, 0.0]), min_size=4, max_size=4)))
        world.cores = cores
        cluster = ring.add(world.cluster(data.draw(st.sampled_from([0.0, 1.0, 3.0])), cpu=cpu))
        assert cluster.recent is not None
        model, memory = learned(cluster, cluster.recent, memory)
        memory = json.loads(json.dumps(memory, allow_nan=False))
        world.now += 60

        assert np.isfinite(model.slope).all()
        assert (model.slope >= 0).all()
        assert np.isfinite(model.background).all()
        assert (model.background >= 0).all()
        assert np.isfinite(model.doubt).all()
