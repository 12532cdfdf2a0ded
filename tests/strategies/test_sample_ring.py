"""The ring of recent samples: what a row holds, and rings made of past cycles or filled with them.

How rows follow cycles, gaps and names stands in `trim/test_trim_samples.py`.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from strategy_testing.clusters import cluster
from trim_world import cycle_samples
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import RecentSamples
from trimtab_strategies.shedding.trim.replay import WINDOW
from trimtab_strategies.shedding.trim.samples import MINUTES, REPLAYED, SampleRing

MIB = 2**20
NAMES = ("a", "b", "c", "d", "e")


def measured(at: float, loads: dict[str, float], brokers: dict[str, float]) -> ClusterLoad:
    """Bundles (bytes/s in, 2 bytes/s out for each, 3 and 4 msg/s) and brokers (cores) at `at` (epoch s)."""
    made = cluster(bundles=0, **brokers)
    value = np.array(list(loads.values()))
    columns = {"names": tuple(loads), "newest": np.stack([3 * value, 4 * value, value, 2 * value], axis=1)}
    some = cluster(bundles={"a": [1.0] * len(loads)}, a=0.1).bundles if loads else made.bundles
    bundles = replace(some, **columns, owner=np.full(len(loads), -1), namespace=np.zeros(len(loads), np.int64))
    return replace(made, bundles=bundles, namespaces=("t/n",), now=at)


def seen(ring: SampleRing, loads: Iterable[ClusterLoad]) -> RecentSamples:
    """The recent samples after `loads`."""
    recent = [ring.add(load).recent for load in loads][-1]
    assert recent is not None
    return recent


def test_a_row_holds_bytes_in_and_out_and_messages_both_ways() -> None:
    recent = seen(SampleRing(), [measured(0.0, {"x": 1.0, "y": 10.0}, {"a": 0.5})])
    assert np.stack(recent.bundles).tolist() == [[[1.0, 2.0, 7.0], [10.0, 20.0, 70.0]]]
    assert recent.cpu.tolist() == [[0.5]]
    assert recent.time.tolist() == [0.0]


def test_a_minute_of_cycles_is_one_row_of_their_mean() -> None:
    loads = [measured(10.0 * k, {"x": float(k)}, {"a": 0.1 * k}) for k in range(7)]
    recent = seen(SampleRing(), loads)
    assert np.stack(recent.bundles)[:, 0, 0].tolist() == pytest.approx([2.5, 6.0])
    assert recent.cpu[:, 0].tolist() == pytest.approx([0.25, 0.6])
    assert recent.time.tolist() == [50.0, 60.0]


def test_the_last_rows_stay() -> None:
    recent = seen(SampleRing(), [measured(60.0 * k, {"x": float(k)}, {"a": 0.5}) for k in range(MINUTES + 12)])
    assert np.stack(recent.bundles)[:, 0, 0].tolist() == [float(k) for k in range(12, MINUTES + 12)]


def test_names_keep_their_past_in_any_order_and_new_ones_have_none() -> None:
    first = measured(0.0, {"x": 1.0, "y": 2.0}, {"a": 0.1, "b": 0.2})
    second = measured(60.0, {"z": 3.0, "x": 4.0}, {"c": 0.3, "b": 0.4})
    recent = seen(SampleRing(), [first, second])
    np.testing.assert_array_equal(np.stack(recent.bundles)[:, :, 0], [[np.nan, 1.0], [3.0, 4.0]])
    np.testing.assert_array_equal(recent.cpu, [[np.nan, 0.2], [0.3, 0.4]])
    np.testing.assert_array_equal(recent.traffic[:, :, 0], [[np.nan, 0.0], [0.0, 0.0]])


def test_what_was_given_away_never_changes() -> None:
    ring, load = SampleRing(), measured(0.0, {"x": 1.0}, {"a": 0.5})
    first = seen(ring, [load])
    ring.add(measured(10.0, {"x": 5.0}, {"a": 0.5}))
    assert [minute[0, 0] for minute in first.bundles] == [1.0]
    with pytest.raises(ValueError, match="read-only"):
        first.bundles[0][0, 0] = 2.0


drawn_loads = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1e9), max_size=5),
        st.dictionaries(st.sampled_from(NAMES), st.floats(0, 64), min_size=1, max_size=5),
        st.floats(55, 100),
    ),
    min_size=1,
    max_size=12,
)


@given(drawn_loads, st.data())
def test_a_ring_of_past_cycles_is_the_ring_that_saw_them(drawn: Sequence[Any], data: st.DataObject) -> None:
    """Of the names that are still there, whatever came and went, as if the operator had never restarted."""
    times = np.cumsum([step for *_, step in drawn])
    loads = [measured(float(at), *names) for at, (*names, _) in zip(times, drawn, strict=True)]
    lived, begun = SampleRing(), data.draw(st.integers(0, len(loads) - 1))
    for load in loads:
        expected = seen(lived, [load])
    rebuilt = SampleRing.of(map(cycle_samples, loads[:begun]))
    found = seen(rebuilt, loads[begun:])
    np.testing.assert_array_equal(found.time, expected.time)
    always = [name for name in loads[-1].bundles.names if all(name in load.bundles.names for load in loads)]
    rows = [loads[-1].bundles.index[name] for name in always]
    filled, all_seen = np.stack(found.bundles), np.stack(expected.bundles)
    np.testing.assert_array_equal(filled[:, rows], all_seen[:, rows])
    known = ~np.isnan(all_seen)  # it may know more: a bundle that one cycle did not measure kept its past
    np.testing.assert_array_equal(filled[known], all_seen[known])


def test_a_bundle_that_one_past_cycle_did_not_measure_keeps_its_past() -> None:
    past = [measured(0.0, {"x": 1.0, "gone": 8.0}, {"a": 0.1}), measured(60.0, {}, {"b": 0.2})]
    recent = seen(SampleRing.of(map(cycle_samples, past)), [measured(120.0, {"x": 3.0}, {"a": 0.3})])
    np.testing.assert_array_equal(np.stack(recent.bundles)[:, 0, 0], [1.0, np.nan, 3.0])
    np.testing.assert_array_equal(recent.cpu[:, 0], [0.1, np.nan, 0.3])


def test_a_ring_of_no_cycles_is_empty() -> None:
    assert len(SampleRing.of([])) == 0
    assert len(seen(SampleRing.of([]), [measured(0.0, {"x": 1.0}, {"a": 0.5})])) == 1


@pytest.mark.slow
def test_sixty_thousand_bundles_are_held_once() -> None:
    many = cluster(
        bundles={f"b{k}": [1.0] * 600 for k in range(100)}, **dict.fromkeys((f"b{k}" for k in range(100)), 0.5)
    )
    many = replace(many, bundles=replace(many.bundles, newest=many.bundles.short))
    ring = SampleRing()
    tracemalloc.start()
    try:
        for minute in range(MINUTES + 3):
            ring.add(replace(many, now=60.0 * minute))
        gc.collect()
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    size = MINUTES * 60_000 * 3 * 8
    assert held < size + MIB
    assert most < 3 * size


@pytest.mark.slow
@given(drawn_loads, st.data())
def test_the_newest_rows_of_a_filled_ring_are_those_of_the_ring_that_saw_all_cycles(
    drawn: Sequence[Any], data: st.DataObject
) -> None:
    """Whichever cycles are filled in, and when. Before them are only rows of cycles that the ring has seen."""
    times = np.cumsum([step for *_, step in drawn])
    loads = [measured(float(at), *names) for at, (*names, _) in zip(times, drawn, strict=True)]
    begun, end = data.draw(st.integers(0, len(loads) - 1)), len(loads)
    parts = data.draw(st.lists(st.integers(0, 2), min_size=begun, max_size=begun))  # recalled, filled at once, later
    recalled, soon, late = ([cycle_samples(loads[k]) for k in range(begun) if parts[k] == part] for part in range(3))
    ring, expected = SampleRing.of(recalled), SampleRing.of(map(cycle_samples, loads[:begun]))
    ring.fill(data.draw(st.permutations(soon)))
    late_at = data.draw(st.integers(begun, end - 1))
    for k in range(begun, end):
        if k == late_at:
            ring.fill(late)
        found, wanted = seen(ring, [loads[k]]), seen(expected, [loads[k]])
    filled_in = {one.time for one in (*soon, *late)}
    places = [k for k, at in enumerate(wanted.time) if k >= len(wanted) - REPLAYED or at not in filled_in]
    np.testing.assert_array_equal(found.time, wanted.time[places])
    for name in ("bundles", "cpu", "traffic"):
        lived, filled = np.stack(getattr(wanted, name))[places], np.stack(getattr(found, name))
        known = ~np.isnan(lived) & ~np.isnan(filled)  # a name that one cycle lacks loses the past that is there by then
        np.testing.assert_array_equal(filled[known], lived[known])
        if late_at == begun:
            np.testing.assert_array_equal(filled, lived)


def test_what_is_filled_in_gives_way_to_rows_that_are_there() -> None:
    ring = SampleRing()
    for second in (0.0, 30.0, 120.0):
        ring.add(measured(second, {"x": 10.0 + second}, {"a": 0.5}))
    past = [cycle_samples(measured(at, {"x": 1.0}, {"a": 0.1})) for at in (-60.0, -10.0, 54.0, 60.0, 119.0)]
    ring.fill(past)
    recent = seen(ring, [measured(130.0, {"x": 110.0}, {"a": 0.5})])
    assert recent.time.tolist() == [-60.0, 30.0, 60.0, 130.0]
    assert np.stack(recent.bundles)[:, 0, 0].tolist() == [1.0, 25.0, 1.0, 120.0]


def test_what_was_measured_replaces_what_was_assumed() -> None:
    ring = SampleRing(averaged=True)
    ring.add(measured(600.0, {"x": 3.0}, {"a": 0.5}))
    ring.fill([cycle_samples(measured(540.0, {"x": 2.0}, {"a": 0.4}))])
    recent = seen(ring, [measured(660.0, {"x": 4.0}, {"a": 0.5})])
    assert (recent.time.tolist(), recent.assumed) == ([540.0, 600.0, 660.0], 0)
    assert np.stack(recent.bundles)[:, 0, 0].tolist() == [2.0, 3.0, 4.0]


def test_the_newest_rows_stay_when_too_many_are_filled_in() -> None:
    ring = SampleRing(rows=3)
    ring.add(measured(600.0, {"x": 9.0}, {"a": 0.5}))
    ring.fill([cycle_samples(measured(600.0 - 60 * ago, {"x": float(ago)}, {"a": 0.5})) for ago in range(5, 0, -1)])
    newest = seen(ring, [measured(601.0, {"x": 9.0}, {"a": 0.5})]).bundles
    assert [minute[0, 0] for minute in newest] == [2.0, 1.0, 9.0]


def test_what_was_filled_in_is_replayed_and_is_never_what_is_usual() -> None:
    ring = SampleRing()
    ring.fill([cycle_samples(measured(-60.0 * ago, {"x": 1.0}, {"a": 0.5})) for ago in range(1, REPLAYED)])
    rows = [len(seen(ring, [measured(60.0 * minute, {"x": 2.0}, {"a": 0.5})])) for minute in range(12)]
    assert rows == [REPLAYED] * REPLAYED + [9, 10, 11, 12]
    assert REPLAYED == WINDOW
