"""The next state of bundles: fresh samples joined with the last file, and what nobody measured."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab_pipeline.columns import BUNDLE_STATE, LONG, SHORT, TRAFFIC
from trimtab_pipeline.prometheus.queries import BUNDLES
from trimtab_pipeline.transform.averages import BySamples, ByTime, next_state, remembered
from trimtab_strategies.usage import UNSEEN

AT = 1000.0
KNOWN = {"topics": 3.0, "sessions": 9.0, "seen": 940.0, "time": 940.0, "count": 400.0}


def row(bundle: str, rate: float | None, **others: float | str | None) -> dict[str, float | str | None]:
    """A fresh row: the same rate of everything."""
    counts = {"topics": 5.0, "producers": 1.0, "consumers": 2.0}
    return {"bundle": bundle, "pod": "p", **dict.fromkeys(TRAFFIC, rate), **counts, "at": AT, "time": AT} | others


def fresh(*rows: dict[str, float | str | None]) -> pa.RecordBatch:
    names = (*BUNDLES.keys, *BUNDLES.columns, "at", "time")
    fields = [(name, pa.string() if name in BUNDLES.keys else pa.float64()) for name in names]
    return pa.RecordBatch.from_pylist(list(rows), schema=pa.schema(fields))


def state(folder: Path, **averages: float | None) -> Path:
    """The file of a state in which each bundle named has that average of everything."""
    rows = [
        {"bundle": name, "pod": "old", **dict.fromkeys((*TRAFFIC, *SHORT, *LONG), value), **KNOWN}
        for name, value in averages.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=BUNDLE_STATE), path := folder / "state.parquet")
    return path


def test_a_sample_moves_an_average_by_the_time_since_the_one_before(tmp_path: Path) -> None:
    (seen,) = next_state(fresh(row("x", 110.0)), state(tmp_path, x=10.0), ByTime(60.0, 600.0)).to_pylist()
    assert seen["short_rate_in"] == pytest.approx(10 + 100 * (1 - math.exp(-1)))
    assert seen["long_throughput_out"] == pytest.approx(10 + 100 * (1 - math.exp(-0.1)))
    assert (seen["pod"], seen["topics"], seen["sessions"], seen["seen"], seen["time"]) == ("p", 5.0, 3.0, AT, AT)
    assert seen["count"] == 401.0


@pytest.mark.parametrize(("count", "weight"), [(2, 1 / 2), (3, 1 / 3), (10, 1 / 10), (11, 1 - math.exp(-0.1))])
def test_the_first_samples_count_alike(tmp_path: Path, count: int, weight: float) -> None:
    begun = pq.read_table(state(tmp_path, x=10.0)).to_pylist()
    path = tmp_path / "begun.parquet"
    pq.write_table(pa.Table.from_pylist([{**begun[0], "count": float(count)}], schema=BUNDLE_STATE), path)
    (seen,) = next_state(fresh(row("x", 110.0)), path, ByTime(60.0, 600.0)).to_pylist()
    assert seen["long_rate_in"] == pytest.approx(10 + 100 * weight)
    assert seen["short_rate_in"] == pytest.approx(10 + 100 * max(weight, 1 - math.exp(-1)))


def test_a_first_sample_is_its_own_average(tmp_path: Path) -> None:
    (seen,) = next_state(fresh(row("new", 7.0)), state(tmp_path, x=10.0), ByTime(60.0, 600.0)).to_pylist()
    assert [seen[name] for name in (*SHORT, *LONG)] == [7.0] * 8


def test_a_sample_that_is_shown_again_counts_nothing(tmp_path: Path) -> None:
    again = fresh(row("x", 110.0, time=KNOWN["time"]), row("y", 110.0, time=900.0))
    seen = next_state(again, state(tmp_path, x=10.0, y=10.0), ByTime(60.0, 600.0))
    assert seen["short_rate_in"].to_pylist() == [10.0, 10.0]
    assert seen["time"].to_pylist() == [940.0, 940.0]


def test_what_was_not_good_leaves_average_time_and_count_as_they_were(tmp_path: Path) -> None:
    bad = fresh(row("x", 110.0, rate_out=None, topics=None, consumers=None))
    (seen,) = next_state(bad, state(tmp_path, x=10.0), ByTime(60.0, 600.0)).to_pylist()
    assert (seen["rate_out"], seen["short_rate_out"], seen["long_rate_out"]) == (None, 10.0, 10.0)
    assert seen["short_rate_in"] > 10.0
    assert {name: seen[name] for name in ("topics", "sessions", "time", "count")} == {
        name: KNOWN[name] for name in ("topics", "sessions", "time", "count")
    }


def test_pulsars_averages_begin_with_its_default_statistics(tmp_path: Path) -> None:
    seen = next_state(fresh(row("new", 100.0), row("x", 100.0)), state(tmp_path, x=10.0), BySamples()).to_pylist()
    assert [seen[0][name] for name in SHORT] == [pytest.approx((first + 100.0) / 2) for first in UNSEEN]
    assert [seen[1][name] for name in LONG] == [pytest.approx((400 * 10.0 + 100.0) / 401)] * 4


def test_a_bundle_on_two_pods_is_two_rows_with_the_same_past(tmp_path: Path) -> None:
    both = fresh(row("x", 110.0), row("x", 10.0, pod="q"))
    seen = next_state(both, state(tmp_path, x=10.0), ByTime(60.0, 600.0))
    assert seen["pod"].to_pylist() == ["p", "q"]
    assert seen["short_rate_in"][1].as_py() == 10.0


def test_what_no_one_measured_keeps_its_averages_until_it_is_too_old(tmp_path: Path) -> None:
    last = state(tmp_path, x=10.0, y=20.0)
    measured = next_state(fresh(row("x", 1.0)), last, ByTime(60.0, 600.0))
    assert remembered(measured, last, not_before=941.0)["bundle"].to_pylist() == ["x"]
    _, kept = remembered(measured, last, not_before=940.0).to_pylist()
    assert (kept["bundle"], kept["pod"], kept["rate_in"], kept["short_rate_in"]) == ("y", "old", None, 20.0)
    assert (kept["seen"], kept["time"], kept["count"]) == (940.0, 940.0, 400.0)


def test_an_empty_state_is_joined_like_any_other(tmp_path: Path) -> None:
    last = state(tmp_path)
    seen = next_state(fresh(row("x", 7.0)), last, ByTime(60.0, 600.0))
    assert remembered(seen, last, 0.0)["count"].to_pylist() == [2.0]
