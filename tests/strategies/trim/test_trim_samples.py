"""The ring of recent samples: rows of a minute, whatever the cycle and whoever comes and goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trim_world import POINT, START, World, unmeasured
from trimtab_strategies.model import CPU, ClusterLoad
from trimtab_strategies.model.cluster_load import IntArray, RecentSamples
from trimtab_strategies.shedding.trim.samples import MINUTES, SampleRing
from trimtab_strategies.testing.compare import reordered

LEVEL = ([10, 20, 5], [15, 15], [30])


def at(seconds: float, factor: float = 1.0, world: World | None = None) -> ClusterLoad:
    """Three brokers, `seconds` after the start, whose bundles carry `factor` times their load."""
    world = World.of(*LEVEL) if world is None else world
    world.now = START + seconds
    return world.cluster(factor)


def only(cluster: ClusterLoad, bundles: list[int]) -> ClusterLoad:
    """The cluster with some of its bundles, in the given order."""
    return reordered(cluster, bundles=np.array(bundles, dtype=np.int64))


def filled(cycle: float, count: int, ring: SampleRing | None = None) -> RecentSamples:
    """The rows after `count` cycles in which the load grows by a tenth of its first value a minute."""
    ring = SampleRing() if ring is None else ring
    for step in range(count):
        cluster = ring.add(at(step * cycle, 1 + step * cycle / 600))
    assert cluster.recent is not None
    return cluster.recent


@pytest.mark.parametrize("cycle", [10, 12, 15, 20, 30, 60])
def test_a_row_is_a_minute_however_often_the_load_is_read(cycle: float) -> None:
    recent = filled(cycle, int(1800 / cycle))

    assert len(recent) == MINUTES
    assert np.diff(recent.time) == pytest.approx(np.full(MINUTES - 1, 60.0))


@pytest.mark.parametrize("cycle", [90, 120])
def test_cycles_longer_than_a_minute_make_a_row_each(cycle: float) -> None:
    recent = filled(cycle, 20)

    assert np.diff(recent.time) == pytest.approx(np.full(len(recent) - 1, cycle))
    assert len(recent) >= 6


@pytest.mark.parametrize("late", [-4.0, 4.0])
def test_a_cycle_of_a_minute_that_comes_seconds_early_or_late_makes_a_row(late: float) -> None:
    ring = SampleRing()
    for step in range(6):
        cluster = ring.add(at(60 * step + (late if step % 2 else 0)))
    assert cluster.recent is not None
    assert len(cluster.recent) == 6


def test_a_row_is_the_mean_of_its_samples() -> None:
    ring = SampleRing()
    for seconds, factor in ((0, 0.5), (20, 1.0), (40, 2.4)):
        cluster = ring.add(at(seconds, factor))
    recent = cluster.recent
    assert recent is not None
    world = World.of(*LEVEL)

    assert len(recent) == 1
    assert recent.time[0] == START + 40
    assert recent.bundles[0, :, :2].sum(axis=1) == pytest.approx(1.3 * world.load)
    assert recent.bundles[0, :, 2] == pytest.approx(1.3 * world.load / world.size)
    assert recent.cpu[0] == pytest.approx(1.3 * world.cpu(world.load))
    assert recent.traffic[0, :, :2].sum(axis=1) == pytest.approx(1.3 * world.carried(world.load))


def test_an_earlier_answer_stays_as_it_was() -> None:
    ring = SampleRing()
    first = ring.add(at(0)).recent
    assert first is not None
    kept = (first.bundles.copy(), first.cpu.copy(), first.traffic.copy())
    for step in range(1, 20):
        ring.add(at(30 * step, 2.0))

    assert (first.bundles == kept[0]).all()
    assert (first.cpu == kept[1]).all()
    assert (first.traffic == kept[2]).all()


@pytest.mark.parametrize("seconds", [60, 0, -600])
def test_a_time_that_was_seen_or_is_past_changes_no_figure(seconds: float) -> None:
    ring = SampleRing()
    ring.add(at(0))
    before = ring.add(at(60)).recent
    after = ring.add(at(seconds, 5.0)).recent
    assert before is not None
    assert after is not None

    assert after.time.tolist() == before.time.tolist()
    assert (after.bundles == before.bundles).all()
    assert (after.cpu == before.cpu).all()


def test_a_time_that_was_seen_still_follows_the_names() -> None:
    ring = SampleRing()
    ring.add(at(0))
    recent = ring.add(only(at(0, 5.0), [4, 0])).recent
    assert recent is not None

    assert recent.bundles[0, :, :2].sum(axis=1) == pytest.approx(np.array([15, 10]) * POINT)


@pytest.mark.parametrize(("early", "kept"), [(0.0, []), (1.0, [420.0]), (61.0, [360.0, 420.0])])
def test_minutes_before_a_long_gap_are_dropped(early: float, kept: list[float]) -> None:
    """A row counts for one and a half times as long as the ring is."""
    ring = SampleRing()
    for step in range(8):
        ring.add(at(60 * step))
    now = 420 + ring.span - early
    recent = ring.add(at(now)).recent
    assert recent is not None

    assert ring.span == 1.5 * MINUTES * 60
    assert (recent.time - START).tolist() == [*kept, now]


def test_a_short_gap_keeps_the_minutes_before_it() -> None:
    ring = SampleRing()
    for step in range(4):
        ring.add(at(60 * step))
    recent = ring.add(at(180 + 180)).recent
    assert recent is not None

    assert (recent.time - START).tolist() == [0, 60, 120, 180, 360]


def test_a_bundle_that_comes_was_not_measured_before_and_one_that_goes_is_dropped() -> None:
    ring = SampleRing()
    ring.add(only(at(0), [0, 1, 2]))
    recent = ring.add(only(at(60), [1, 2, 3])).recent
    assert recent is not None
    measured = recent.bundles[:, :, :2].sum(axis=2) / POINT

    assert measured[0, :2] == pytest.approx([20, 5])
    assert np.isnan(measured[0, 2])
    assert measured[1] == pytest.approx([20, 5, 15])


def test_a_broker_that_joins_was_not_measured_before_and_one_that_comes_back_has_a_gap() -> None:
    ring = SampleRing()
    three, two = World.of(*LEVEL), World.of(*LEVEL[:2])
    for step, world in enumerate((three, two, three)):
        world.now = START + 60 * step
        recent = ring.add(world.cluster()).recent
    assert recent is not None

    assert recent.cpu.shape == (3, 3)
    assert np.isfinite(recent.cpu[:, :2]).all()
    assert np.isnan(recent.cpu[:2, 2]).all()  # what it did before it left is forgotten
    assert recent.cpu[2, 2] == pytest.approx(3.0)


@settings(max_examples=40)
@given(data=st.data())
def test_figures_follow_names_through_every_order(data: st.DataObject) -> None:
    ring, cycle = SampleRing(), 60
    truth: dict[str, dict[float, float]] = {}
    for step in range(data.draw(st.integers(1, 10))):
        whole = at(step * cycle, 1 + step)
        rows = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True))
        brokers: IntArray = np.array(data.draw(st.permutations(range(3))), dtype=np.int64)
        shown = reordered(whole, brokers=brokers, bundles=np.array(rows, dtype=np.int64))
        truth = {name: truth.get(name, {}) for name in shown.bundles.names}
        for row, name in enumerate(shown.bundles.names):
            truth[name][shown.now] = float(shown.bundles.newest[row, 2:].sum())
        recent = ring.add(shown).recent
        assert recent is not None
        for row, name in enumerate(shown.bundles.names):
            for minute, time in enumerate(recent.time.tolist()):
                known = truth[name].get(time, np.nan)
                assert recent.bundles[minute, row, :2].sum() == pytest.approx(known, nan_ok=True)
        newest = dict(zip(shown.brokers.names, recent.cpu[-1].tolist(), strict=True))
        expected = dict(zip(whole.brokers.names, whole.brokers.usage[:, CPU].tolist(), strict=True))
        assert newest == pytest.approx(expected)


def test_a_gap_within_a_minute_does_not_count_as_a_sample() -> None:
    ring, cluster = SampleRing(), at(0, 2.0)
    ring.add(cluster)
    newest = cluster.bundles.newest.copy()
    newest[0] = np.nan
    recent = ring.add(replace(cluster, now=START + 20, bundles=replace(cluster.bundles, newest=newest))).recent
    assert recent is not None

    assert recent.bundles[0, 0, :2].sum() == pytest.approx(20 * POINT)


@pytest.mark.parametrize("column", ["ready", "trusted"])
def test_a_broker_that_is_not_believed_is_not_measured(column: str) -> None:
    cluster = at(0)
    recent = SampleRing().add(replace(cluster, brokers=replace(cluster.brokers, **{column: np.arange(3) != 1}))).recent
    assert recent is not None

    assert np.isnan(recent.cpu[0]).tolist() == [False, True, False]
    assert np.isnan(recent.traffic[0]).all(axis=1).tolist() == [False, True, False]
    assert np.isfinite(recent.bundles).all()


def test_cpu_and_traffic_are_measured_together_or_not_at_all() -> None:
    """A sample without CPU, merged into a minute, must not add its traffic to the CPU of others."""
    ring, whole = SampleRing(), at(0)
    ring.add(whole)
    recent = ring.add(replace(unmeasured(at(20, 2.0), 1), now=START + 20)).recent
    assert recent is not None

    assert recent.cpu[0, 1] == pytest.approx(whole.brokers.usage[1, CPU])
    assert recent.traffic[0, 1, :2].sum() == pytest.approx(30 * POINT)
    assert recent.traffic[0, 0, :2].sum() == pytest.approx(1.5 * 35 * POINT)


def test_a_broker_without_a_limit_of_cpu_is_not_measured() -> None:
    world = World.of(*LEVEL, cores=np.array([10.0, 0.0, 10.0]))
    recent = SampleRing().add(world.cluster()).recent
    assert recent is not None

    assert np.isnan(recent.cpu[0]).tolist() == [False, True, False]


def test_averages_stand_for_the_minutes_before_the_first_sample() -> None:
    ring = SampleRing(averaged=True)
    recent = ring.add(at(0, 3.0)).recent
    assert recent is not None
    work = recent.bundles[:, 0, :2].sum(axis=1) / POINT

    assert recent.assumed == MINUTES - 1
    assert work == pytest.approx([10] * (MINUTES - 1) + [30])
    assert np.isnan(recent.cpu[:-1]).all()
    assert (np.diff(recent.time) == 60).all()


def test_measured_minutes_replace_assumed_ones() -> None:
    ring = SampleRing(averaged=True)
    assumed = []
    for step in range(MINUTES + 1):
        recent = ring.add(at(60 * step)).recent
        assert recent is not None
        assumed.append(recent.assumed)

    assert assumed == [*range(MINUTES - 1, -1, -1), 0]


def test_an_empty_cluster_has_rows_without_figures() -> None:
    ring = SampleRing()
    nothing = only(at(0), [])
    recent = ring.add(nothing).recent
    assert recent is not None

    assert recent.bundles.shape == (1, 0, 3)
