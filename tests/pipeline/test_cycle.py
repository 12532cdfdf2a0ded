"""The next state of bundles: fresh samples joined with the last state, and what nobody measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pyarrow as pa
import pytest

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import BUNDLE_STATE, LONG, SHORT, TRAFFIC
from trimtab_pipeline.transform.averages import averaged
from trimtab_pipeline.transform.relations import BUNDLE_SUMS, POD_TIMES, Cycle
from trimtab_strategies.usage import UNSEEN

AT = 1000.0
BY_TIME = Cycle.of("ns/policy", PrometheusSettings("http://x", "ns", short_tau=60.0, long_tau=600.0), AT)
BY_SAMPLES = replace(BY_TIME, by_samples=True)
KNOWN = {"topics": 3.0, "sessions": 9.0, "seen": 940.0, "time": 940.0, "count": 400.0}
Row = dict[str, float | str | None]


def row(bundle: str, rate: float | None, **others: float | str | None) -> Row:
    """A fresh row: the same rate of everything."""
    counts = {"topics": 5.0, "sessions": 3.0}
    return {"bundle": bundle, "pod": "p", **dict.fromkeys(TRAFFIC, rate), **counts} | others


def state(**averages: float | None) -> pa.Table:
    """A state in which each bundle named has that average of everything."""
    rows = [
        {
            "bundle": name,
            "pod": "old",
            **dict.fromkeys((*TRAFFIC, *SHORT, *LONG), value),
            **KNOWN,
        }
        for name, value in averages.items()
    ]
    return pa.Table.from_pylist(rows, BUNDLE_STATE)


def after(*rows: Row, last: pa.Table, cycle: Cycle = BY_TIME, **traffic_times: float) -> list[Row]:
    """The state after these rows, whose pods' traffic was sampled at these times (default: now)."""
    times = [{"pod": pod, "traffic_time": time} for pod, time in traffic_times.items()]
    fresh = pa.Table.from_pylist(list(rows), BUNDLE_SUMS)
    found: list[Row] = averaged(fresh, pa.Table.from_pylist(times, POD_TIMES), last, cycle).to_pylist()
    return found


def test_a_sample_moves_an_average_by_the_time_since_the_one_before() -> None:
    (seen,) = after(row("x", 110.0), last=state(x=10.0))
    assert seen["short_rate_in"] == pytest.approx(10 + 100 * (1 - math.exp(-1)))
    assert seen["long_throughput_out"] == pytest.approx(10 + 100 * (1 - math.exp(-0.1)))
    assert (seen["pod"], seen["topics"], seen["sessions"], seen["seen"], seen["time"]) == ("p", 5.0, 3.0, AT, AT)
    assert seen["count"] == 401.0


@pytest.mark.parametrize(("count", "weight"), [(2, 1 / 2), (3, 1 / 3), (10, 1 / 10), (11, 1 - math.exp(-0.1))])
def test_the_first_samples_count_alike(count: int, weight: float) -> None:
    begun = pa.Table.from_pylist([{**state(x=10.0).to_pylist()[0], "count": float(count)}], BUNDLE_STATE)
    (seen,) = after(row("x", 110.0), last=begun)
    assert seen["long_rate_in"] == pytest.approx(10 + 100 * weight)
    assert seen["short_rate_in"] == pytest.approx(10 + 100 * max(weight, 1 - math.exp(-1)))


def test_a_first_sample_is_its_own_average() -> None:
    seen, _ = after(row("new", 7.0), last=state(x=10.0))
    assert [seen[name] for name in (*SHORT, *LONG)] == [7.0] * 8


def test_a_sample_that_is_shown_again_counts_nothing() -> None:
    seen = after(row("x", 110.0), row("y", 110.0, pod="q"), last=state(x=10.0, y=10.0), p=940.0, q=900.0)
    assert [one["short_rate_in"] for one in seen] == [10.0, 10.0]
    assert [one["time"] for one in seen] == [940.0, 940.0]


def test_a_sample_of_the_future_is_one_of_now() -> None:
    (seen,) = after(row("x", 110.0), last=state(x=10.0), p=AT + 60.0)
    assert seen["time"] == AT


def test_what_was_not_good_leaves_averages_time_and_count_as_they_were() -> None:
    bad = row("x", 110.0, rate_out=None, topics=None, sessions=None)
    (seen,) = after(bad, last=state(x=10.0))
    assert (seen["rate_in"], seen["rate_out"], seen["seen"]) == (110.0, None, AT)
    assert [seen[name] for name in (*SHORT, *LONG)] == [10.0] * 8
    assert {name: seen[name] for name in ("topics", "sessions", "time", "count")} == {
        name: KNOWN[name] for name in ("topics", "sessions", "time", "count")
    }


def test_averages_do_not_run_away_while_one_signal_is_bad() -> None:
    """The next good sample weighs as much as the time since the last good one, for all signals alike."""
    last = state(x=10.0)
    for second in range(10, 60, 10):
        cycle = replace(BY_TIME, at=AT + second)
        last = pa.Table.from_pylist(after(row("x", 110.0, rate_in=None), last=last, cycle=cycle), BUNDLE_STATE)
    (seen,) = after(row("x", 110.0), last=last, cycle=replace(BY_TIME, at=AT + 60))
    expected = 10 + 100 * (1 - math.exp(-2))
    assert [seen[name] for name in SHORT] == [pytest.approx(expected)] * 4


def test_pulsars_averages_begin_with_its_default_statistics() -> None:
    seen = after(row("new", 100.0), row("x", 100.0), last=state(x=10.0), cycle=BY_SAMPLES)
    assert [seen[0][name] for name in SHORT] == [pytest.approx((first + 100.0) / 2) for first in UNSEEN]
    assert [seen[1][name] for name in LONG] == [pytest.approx((400 * 10.0 + 100.0) / 401)] * 4


def test_a_bundle_on_two_pods_is_two_rows_with_the_same_past() -> None:
    seen = after(row("x", 110.0), row("x", 10.0, pod="q"), last=state(x=10.0))
    assert [one["pod"] for one in seen] == ["p", "q"]
    assert seen[1]["short_rate_in"] == 10.0


def test_what_no_one_measured_keeps_its_averages_until_it_is_too_old() -> None:
    last = state(x=10.0, y=20.0)
    too_old = after(row("x", 1.0), last=last, cycle=replace(BY_TIME, horizon=59.0))
    assert [one["bundle"] for one in too_old] == ["x"]
    _, kept = after(row("x", 1.0), last=last, cycle=replace(BY_TIME, horizon=60.0))
    assert (kept["bundle"], kept["pod"], kept["rate_in"], kept["short_rate_in"]) == ("y", "old", None, 20.0)
    assert (kept["seen"], kept["time"], kept["count"]) == (940.0, 940.0, 400.0)


def test_an_empty_state_is_joined_like_any_other() -> None:
    (seen,) = after(row("x", 7.0), last=state())
    assert seen["count"] == 2.0


def test_topics_outside_bundles_pass_through() -> None:
    (seen,) = after({"topics": 3.0}, last=state())
    assert (seen["bundle"], seen["topics"], seen["seen"]) == (None, 3.0, None)
