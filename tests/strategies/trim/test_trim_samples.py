"""The ring of recent samples: rows of a minute at any cycle, also when brokers and bundles come and go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from strategy_testing.compare import reordered
from trim_world import POINT, START, World, cycle_samples, unmeasured
from trimtab_strategies.model import CPU, ClusterLoad
from trimtab_strategies.model.cluster_load import IntArray, RecentSamples
from trimtab_strategies.shedding.trim.samples import MINUTES, SampleRing

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
    assert recent.bundles[0][:, :2].sum(axis=1) == pytest.approx(1.3 * world.load)
    assert recent.bundles[0][:, 2] == pytest.approx(1.3 * world.load / world.size)
    assert recent.cpu[0] == pytest.approx(1.3 * world.cpu(world.load))
    assert recent.traffic[0, :, :2].sum(axis=1) == pytest.approx(1.3 * world.carried(world.load))


def test_an_earlier_answer_stays_as_it_was() -> None:
    ring = SampleRing()
    first = ring.add(at(0)).recent
    assert first is not None
    kept = (np.stack(first.bundles), first.cpu.copy(), first.traffic.copy())
    for step in range(1, 20):
        ring.add(at(30 * step, 2.0))

    assert (np.stack(first.bundles) == kept[0]).all()
    assert (first.cpu == kept[1]).all()
    assert (first.traffic == kept[2]).all()


@pytest.mark.parametrize("seconds", [60, 59, 0, -600])
def test_a_time_that_was_seen_or_is_past_changes_no_figure(seconds: float) -> None:
    ring = SampleRing()
    ring.add(at(0))
    before = ring.add(at(60)).recent
    after = ring.add(at(seconds, 5.0)).recent
    assert before is not None
    assert after is not None

    assert after.time.tolist() == before.time.tolist()
    np.testing.assert_array_equal(np.stack(after.bundles), np.stack(before.bundles))
    assert (after.cpu == before.cpu).all()


def test_a_time_that_was_seen_still_follows_the_names() -> None:
    ring = SampleRing()
    ring.add(at(0))
    recent = ring.add(only(at(0, 5.0), [4, 0])).recent
    assert recent is not None

    assert recent.bundles[0][:, :2].sum(axis=1) == pytest.approx(np.array([15, 10]) * POINT)


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
    measured = np.stack(recent.bundles)[:, :, :2].sum(axis=2) / POINT

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
                assert recent.bundles[minute][row, :2].sum() == pytest.approx(known, nan_ok=True)
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

    assert recent.bundles[0][0, :2].sum() == pytest.approx(20 * POINT)


@pytest.mark.parametrize("column", ["ready", "trusted"])
def test_a_broker_that_is_not_believed_is_not_measured(column: str) -> None:
    cluster = at(0)
    recent = SampleRing().add(replace(cluster, brokers=replace(cluster.brokers, **{column: np.arange(3) != 1}))).recent
    assert recent is not None

    assert np.isnan(recent.cpu[0]).tolist() == [False, True, False]
    assert np.isnan(recent.traffic[0]).tolist() == [[False] * 3, [True] * 3, [False] * 3]
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
    assert np.isnan(recent.traffic[0]).tolist() == [[False] * 3, [True] * 3, [False] * 3]


def test_averages_stand_for_the_minutes_before_the_first_sample() -> None:
    ring = SampleRing(averaged=True)
    recent = ring.add(at(0, 3.0)).recent
    assert recent is not None
    work = np.stack(recent.bundles)[:, 0, :2].sum(axis=1) / POINT

    assert recent.assumed == MINUTES - 1
    assert work == pytest.approx([10] * (MINUTES - 1) + [30])
    assert np.isnan(recent.cpu[:-1]).all()
    assert np.isfinite(recent.cpu[-1]).all()
    assert (np.diff(recent.time) == 60).all()


def test_measured_minutes_replace_assumed_ones() -> None:
    ring = SampleRing(averaged=True)
    assumed = []
    for step in range(MINUTES + 1):
        recent = ring.add(at(60 * step)).recent
        assert recent is not None
        assumed.append(recent.assumed)

    assert assumed == [*range(MINUTES - 1, -1, -1), 0]


@pytest.mark.parametrize("minutes", [1, 5, 12, 13, 100])
def test_the_last_minutes_are_the_newest_rows(minutes: int) -> None:
    recent = filled(60, 12)
    last = recent.last(minutes)
    first = max(12 - minutes, 0)

    assert len(last) == min(minutes, 12)
    assert (last.time == recent.time[first:]).all()
    assert (np.stack(last.bundles) == np.stack(recent.bundles[first:])).all()
    assert (last.cpu == recent.cpu[first:]).all()
    assert (last.traffic == recent.traffic[first:]).all()


def test_the_last_no_minutes_are_no_rows() -> None:
    last = filled(60, 3).last(0)

    assert len(last) == 0
    assert last.bundles == ()


@pytest.mark.parametrize(("minutes", "assumed"), [(1, 0), (3, 0), (4, 1), (MINUTES, MINUTES - 3), (99, MINUTES - 3)])
def test_of_the_last_minutes_only_those_that_were_not_measured_are_assumed(minutes: int, assumed: int) -> None:
    last = filled(60, 3, SampleRing(averaged=True)).last(minutes)

    assert last.assumed == assumed
    assert np.isnan(last.cpu).all(axis=1).tolist() == [True] * assumed + [False] * (len(last) - assumed)


def test_the_last_rows_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        filled(60, 3).last(2).bundles[0][0, 0] = 1.0


def test_the_samples_of_a_cycle_are_its_newest_figures_with_both_directions_of_messages() -> None:
    world = World.of(*LEVEL)
    world.long = 0 * world.load  # averages don't count
    cluster = at(120, 2.0, world)
    found = cycle_samples(cluster)
    load = 2 * world.load

    assert (found.time, found.bundles, found.brokers) == (START + 120, world.bundles, world.brokers)
    assert found.load == pytest.approx(np.stack([load / 3, load * 2 / 3, load / 1000], axis=1))
    assert found.cpu == pytest.approx(world.cpu(load))
    assert found.traffic[:, :2].sum(axis=1) == pytest.approx(world.carried(load))
    assert found.traffic[:, 2] == pytest.approx(world.carried(load) / 1000)


@pytest.mark.parametrize("missing", ["cpu", "traffic", "limit", "ready", "trusted"])
def test_of_a_cycle_a_broker_counts_with_all_its_figures_or_with_none(missing: str) -> None:
    cluster = at(0)
    brokers = cluster.brokers
    usage, limit, traffic = brokers.usage.copy(), brokers.limit.copy(), brokers.traffic.copy()
    usage[1, CPU] = np.nan if missing == "cpu" else usage[1, CPU]
    limit[1, CPU] = 0.0 if missing == "limit" else limit[1, CPU]
    traffic[1, 2] = np.nan if missing == "traffic" else traffic[1, 2]
    flags = {missing: np.arange(3) != 1} if missing in {"ready", "trusted"} else {}
    found = cycle_samples(
        replace(cluster, brokers=replace(brokers, usage=usage, limit=limit, traffic=traffic, **flags))
    )

    assert np.isnan(found.cpu).tolist() == [False, True, False]
    assert np.isnan(found.traffic).tolist() == [[False] * 3, [True] * 3, [False] * 3]
    assert np.isfinite(found.load).all()


def test_past_cycles_fill_a_ring_as_if_it_had_seen_them() -> None:
    """A restart loses no minute, also if brokers and bundles came and went before it."""
    shown = [only(at(20 * step, 1 + step % 4), [0, 2, 4] if step < 20 else [4, 1, 0, 5]) for step in range(100)]
    seen = SampleRing()
    for cluster in shown:
        expected = seen.add(cluster).recent
    restored = SampleRing.of(map(cycle_samples, shown[:-1]))
    found = restored.add(shown[-1]).recent
    assert expected is not None
    assert found is not None

    assert len(restored) == len(seen) == MINUTES
    for what in ("time", "bundles", "cpu", "traffic"):
        assert np.array(getattr(found, what)) == pytest.approx(np.array(getattr(expected, what)), nan_ok=True)


def test_an_empty_cluster_has_rows_without_figures() -> None:
    ring = SampleRing()
    nothing = only(at(0), [])
    recent = ring.add(nothing).recent
    assert recent is not None

    assert [minute.shape for minute in recent.bundles] == [(0, 3)]
