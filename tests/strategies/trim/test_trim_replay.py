"""The replay: what the brokers would have used with the owners that bundles have now, and the level they can reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from trim_world import COST, POINT, START, World, spread, unmeasured
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.shedding.trim.model import BrokerModel, learned
from trimtab_strategies.shedding.trim.readings import middle
from trimtab_strategies.shedding.trim.replay import FEWEST_EARLIER, WINDOW, Replay, level, replayed
from trimtab_strategies.shedding.trim.samples import SampleRing

FACTORS = (1.0, 1.3, 0.7, 1.1, 0.4, 1.2)


def replay_of(cluster: ClusterLoad) -> Replay:
    assert cluster.recent is not None
    model, _ = learned(cluster, cluster.recent.last(WINDOW), {})
    return replayed(cluster, cluster.recent, model)


def shown(world: World, *factors: float, ring: SampleRing | None = None) -> ClusterLoad:
    """The snapshot after a minute of each factor."""
    ring = SampleRing() if ring is None else ring
    for factor in factors:
        cluster = ring.add(world.cluster(factor))
        world.now += 60
    return cluster


def model_of(cores: FloatArray, slope: FloatArray, nic: FloatArray | None = None) -> BrokerModel:
    n = len(cores)
    wire = np.full((n, 2), np.inf) if nic is None else nic
    return BrokerModel(slope, np.zeros((1, n)), np.zeros(n), np.zeros(n), cores, wire, 0.0)


def fits(at: float, model: BrokerModel, total: FloatArray, background: FloatArray) -> bool:
    """Whether all of `total` (work, in, out) fits below the level `at`: broker by broker, share by share."""
    share = 0.0
    for i in range(len(model.cores)):
        limits = [max(at * model.cores[i] - background[i], 0) / (model.slope[i] * total[0])]
        limits += [at * model.nic[i, way] / total[1 + way] for way in (0, 1) if np.isfinite(model.nic[i, way])]
        share += min(limits)
    return share >= 1


def level_of(model: BrokerModel, total: FloatArray, background: FloatArray) -> float:
    carried = np.zeros((1, len(model.cores), 3))
    carried[0, 0] = total
    return float(level(model, carried, background[np.newaxis])[0])


@settings(max_examples=100)
@given(data=st.data())
def test_all_load_fits_below_the_level_and_not_below_less(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))

    def drawn(least: float, most: float, *, size: int = n) -> FloatArray:
        return np.array(data.draw(st.lists(st.floats(least, most), min_size=size, max_size=size)))

    nic = np.stack([drawn(1e8, 1e10), drawn(1e8, 1e10)], axis=1)
    nic = np.where(nic > data.draw(st.sampled_from([0.0, 5e9, 1e11])), nic, np.inf)
    model, background = model_of(drawn(2, 64), COST * drawn(0.3, 3), nic), drawn(0, 4)
    into, out = drawn(1e7, 1e9, size=2)
    total = np.array([into + out, into, out])
    found = level_of(model, total, background)

    assert fits(found + 1e-6, model, total, background)
    assert not fits(found - 1e-6, model, total, background)


def test_the_level_of_equal_brokers_is_their_mean() -> None:
    model = model_of(np.full(4, 10.0), np.full(4, COST))

    assert level_of(model, np.array([4 * 40 * POINT, 0, 0]), np.zeros(4)) == pytest.approx(0.40)


def test_a_faster_machine_carries_more_at_the_same_level() -> None:
    """Ten cores at 1 and ten at a third of the cost per byte: they carry 1 and 3 parts of the load."""
    model = model_of(np.full(2, 10.0), np.array([COST, COST / 3]))

    assert level_of(model, np.array([80 * POINT, 0, 0]), np.zeros(2)) == pytest.approx(0.20)


def test_the_level_is_above_the_mean_where_a_network_is_the_bottleneck() -> None:
    """Half of the work may go to each by CPU, but the first can send only 100 MB/s in all."""
    nic = np.array([[np.inf, 1e8], [np.inf, np.inf]])
    found = level_of(model_of(np.full(2, 10.0), np.full(2, COST), nic), np.array([8e8, 2e8, 6e8]), np.zeros(2))

    # the first carries the share s at the usage 6e8 s / 1e8, the second (1 - s) 8e8 / 1e9: both are at the level
    assert found == pytest.approx(0.8 * 6 / 6.8)


def test_a_broker_that_another_program_fills_takes_nothing() -> None:
    model = model_of(np.full(3, 10.0), np.full(3, COST))

    assert level_of(model, np.array([40 * POINT, 0, 0]), np.array([9.0, 0, 0])) == pytest.approx(0.20)


def test_no_load_has_the_level_zero() -> None:
    assert level_of(model_of(np.full(3, 10.0), np.full(3, COST)), np.zeros(3), np.ones(3)) == 0.0


def test_work_that_costs_no_cpu_fits_above_the_background() -> None:
    model = model_of(np.full(2, 10.0), np.zeros(2))

    assert level_of(model, np.array([1e9, 0, 0]), np.array([1.0, 2.0])) == pytest.approx(0.1)


def test_a_broker_whose_limits_are_unknown_takes_nothing() -> None:
    """It would be bottomless, and all others above their level."""
    world = World.of([40], [40], [], cores=np.array([10.0, 10.0, 0.0]))

    assert replay_of(shown(world, 1, 1)).away[-1, :2] == pytest.approx([0, 0], abs=0.01)


def test_a_broker_cannot_get_below_its_own_background() -> None:
    world = World.of([20], [20], [0])
    ring = SampleRing()
    for _ in range(10):
        cluster = shown(world, 1, ring=ring)
    world.background[2] = 6.0
    cluster = shown(world, 1, ring=ring)
    away = replay_of(cluster).away

    assert away[-1] == pytest.approx([0, 0, 0], abs=0.1)  # the others must carry it all; they are level


@settings(max_examples=40)
@given(data=st.data())
def test_the_replay_is_what_happened_if_nothing_changes(data: st.DataObject) -> None:
    """With the owners that the bundles always had, usage is what was measured in each minute, in every resource.

    Three machines of unlike speed may look like three equal ones that take CPU without load.
    """
    cost = COST * np.array(data.draw(st.lists(st.sampled_from([1.0, 0.5, 2.0]), min_size=3, max_size=3)))
    nic = np.array(data.draw(st.lists(st.sampled_from([0.0, 1e9, 2e9]), min_size=6, max_size=6))).reshape(3, 2)
    world = World.of(spread(20, 5, 1), spread(30, 5, 2), spread(10, 5, 3), cost=cost, nic=nic)
    ring, happened = SampleRing(), []
    memory: Mapping[str, Any] = {}
    for factor in data.draw(st.lists(st.floats(0.5, 1.5), min_size=3, max_size=8)):  # two minutes tell no speed
        load = world.load * factor
        wire = np.stack([world.carried(load / 3), world.carried(load * 2 / 3)], axis=1)
        used = np.divide(wire, nic, out=np.zeros((3, 2)), where=nic > 0)
        happened.append(np.column_stack([world.cpu(load) / world.cores, used]))
        cluster = shown(world, factor, ring=ring)
        assert cluster.recent is not None
        model, memory = learned(cluster, cluster.recent.last(WINDOW), memory)
        assume(not model.idle.any())

    usage = replayed(cluster, cluster.recent, model).usage
    assert usage == pytest.approx(np.array(happened), rel=1e-6)


def test_background_that_comes_and_goes_is_replayed_as_it_was() -> None:
    world = World.of(spread(30, 10, 1), spread(30, 10, 2), spread(30, 10, 3))
    ring = SampleRing()
    for _ in range(10):
        shown(world, 1, ring=ring)
    happened = []
    for cores in (0.0, 2.0, 4.0, 1.0):
        world.background[1] = cores
        happened.append(world.cpu(world.load) / world.cores)
        cluster = shown(world, 1, ring=ring)

    assert replay_of(cluster).usage[-4:, :, 0] == pytest.approx(np.array(happened), abs=0.002)


def test_a_move_changes_the_past() -> None:
    """A bundle of 20 % that moves now would always have been there."""
    world, ring = World.of([20, 30], [10]), SampleRing()
    shown(world, *FACTORS, ring=ring)
    world.owner[0] = 1
    usage = replay_of(shown(world, 1.0, ring=ring)).usage[:, :, 0]
    factors = np.array([*FACTORS, 1.0])

    assert usage[:, 0] == pytest.approx(0.30 * factors)
    assert usage[:, 1] == pytest.approx(0.30 * factors)


def test_an_open_move_counts_as_landed() -> None:
    """The destination owns the bundle to be, while the source's metrics still contain it."""
    world, ring = World.of([20, 30], [10]), SampleRing()
    shown(world, *FACTORS, ring=ring)
    cluster = ring.add(world.cluster())
    owner, flight = cluster.bundles.owner.copy(), np.zeros(3, dtype=bool)
    owner[0], flight[0] = 1, True
    moving = np.array([0, -1, -1])
    bundles = replace(cluster.bundles, owner=owner, in_flight=flight, moving_from=moving, moving_share=flight * 1.0)
    usage = replay_of(replace(cluster, bundles=bundles)).usage[-1, :, 0]

    assert usage == pytest.approx([0.30, 0.30], rel=0.01)


def test_a_new_broker_was_always_empty() -> None:
    world, ring = World.of(spread(40, 8, 1), spread(40, 8, 2)), SampleRing()
    shown(world, *FACTORS, ring=ring)
    more = World.of(spread(40, 8, 1), spread(40, 8, 2), [])
    more.now = world.now
    usage = replay_of(shown(more, 1.0, ring=ring)).usage[:, :, 0]

    assert (usage[:, 2] == 0).all()
    assert usage[:, 0] == pytest.approx(0.4 * np.array([*FACTORS, 1.0]))


def test_bundles_of_no_one_are_replayed_nowhere() -> None:
    world = World.of([20, 30], [10])
    world.owner[1] = -1

    assert replay_of(shown(world, 1, 1)).usage[-1, :, 0] == pytest.approx([0.20, 0.10])


def test_a_full_machine_is_replayed_with_what_its_clients_wanted() -> None:
    """It is above 100 %, also in the minute after it was full, and a bundle that leaves it brings all of its load."""
    world, ring = World.of([30, 8, 8, 8, 8, 8], [20]), SampleRing()
    shown(world, 1, 1, 1, ring=ring)
    outgrown = np.array([4.0, 1, 1, 1, 1, 1, 1])
    for _ in range(2):
        squeezed = np.where(world.owner == 0, outgrown * 100 / 160, 1.0)
        ring.add(world.cluster(squeezed))
        world.now += 60
    world.owner[0] = 1
    last = ring.add(world.cluster(np.where(world.owner == 1, 0.5, 1.0)))
    world.now += 60
    usage = replay_of(last).usage[:, :, 0]

    assert usage[3:5] == pytest.approx(np.array([[0.4, 1.4]] * 2), rel=1e-5)
    assert usage[5] == pytest.approx([0.4, 0.25])


def test_a_gap_is_filled_by_the_minute_before_it_else_by_the_one_after() -> None:
    world, ring = World.of([20, 30], [10]), SampleRing()
    clusters = [world.cluster(factor) for factor in FACTORS]
    for step, cluster in enumerate(clusters):
        newest = cluster.bundles.newest.copy()
        newest[0, :] = np.nan if step in {0, 3} else newest[0]
        newest[1, :] = np.nan
        bundles = replace(cluster.bundles, newest=newest)
        last = ring.add(replace(cluster, now=START + 60 * step, bundles=bundles))
    work = replay_of(last).load[:, :, :2].sum(axis=2) / POINT

    assert work[:, 0] == pytest.approx(20 * np.array([1.3, 1.3, 0.7, 0.7, 0.4, 1.2]))
    assert work[:, 1] == pytest.approx(np.full(6, 30.0))  # never measured: its average


def test_a_bundle_that_was_never_measured_at_all_carries_nothing() -> None:
    world = World.of([20, 30], [10])
    world.long = np.full(3, np.nan)
    cluster = world.cluster()
    newest = cluster.bundles.newest.copy()
    newest[1] = np.nan
    replay = replay_of(SampleRing().add(replace(cluster, bundles=replace(cluster.bundles, newest=newest))))

    assert replay.load[0, :, :2].sum(axis=1) / POINT == pytest.approx([20, 0, 10])
    assert np.isfinite(replay.away).all()
    assert np.isfinite(replay.usual).all()


def test_minutes_that_were_only_assumed_are_believed_within_15_percent() -> None:
    world = World.of([50], [10])
    cluster = SampleRing(averaged=True).add(world.cluster())
    replay = replay_of(cluster)

    assert replay.assumed == 7
    assert (replay.doubt[:7] >= replay.doubt[-1] + 15 * replay.usage[:7].max(axis=2) - 1e-9).all()


def test_usual_is_the_distance_in_the_minutes_before_those_that_are_replayed() -> None:
    """Now 60 and 20 %, but 20 % each until eight minutes ago: nothing of it is usual."""
    world, ring = World.of([60], [20]), SampleRing()
    for minute in range(FEWEST_EARLIER + WINDOW):
        factor = np.array([1.0 if minute >= FEWEST_EARLIER else 1 / 3, 1.0])
        cluster = ring.add(world.cluster(factor))
        world.now += 60
    replay = replay_of(cluster)

    assert replay.away[-1] == pytest.approx([20, -20])
    assert replay.usual == pytest.approx([0, 0], abs=0.01)


@pytest.mark.parametrize(("earlier", "usual"), [(FEWEST_EARLIER - 1, 5), (FEWEST_EARLIER, 0)])
def test_with_enough_earlier_minutes_usual_is_their_median(earlier: int, usual: float) -> None:
    """Before the minutes that are replayed 20 % each, but for a burst; by the long averages 30 and 20 %."""
    world, ring = World.of([20], [20]), SampleRing()
    world.long = np.array([30, 20]) * POINT
    for factor in [4.0, *[1.0] * (earlier - 1), *[3.0] * WINDOW]:
        cluster = ring.add(world.cluster(np.array([factor, 1.0])))
        world.now += 60
    replay = replay_of(cluster)

    assert len(replay) == WINDOW
    assert replay.away[-1] == pytest.approx([20, -20])
    assert replay.usual == pytest.approx([usual, -usual], abs=0.01)


def test_a_broker_whose_metrics_stop_keeps_its_last_background() -> None:
    world, ring = World.of(spread(30, 10, 1), spread(30, 10, 2), spread(30, 10, 3)), SampleRing()
    for _ in range(10):
        shown(world, 1, ring=ring)
    world.background[0] = 3.0
    shown(world, 1, 1, ring=ring)
    replay = replay_of(ring.add(unmeasured(world.cluster(), 0)))

    assert replay.usage[-1, 0, 0] == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8])
def test_middle_is_the_median(rows: int) -> None:
    values = np.random.default_rng(rows).random((rows, 5, 3))

    assert middle(values) == pytest.approx(np.median(values, axis=0))
