"""The history, read as it is: what it spans, where it has gaps, and the snapshot of any of its cycles."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kept_histories import AT, LOAD, dataset, keep, merge
from trimtab_pipeline.history import row_groups
from trimtab_pipeline.history.dataset import BROKERS, DEMAND, TABLES
from trimtab_pipeline.history.reader import Gap, HistoryReader, NoHistoryError, policies
from trimtab_pipeline.history.snapshot_tables import Bounds
from trimtab_strategies.model import CPU
from trimtab_strategies.usage import UNSEEN

POLICY = "prod/one"
ROUNDED = 5e-4


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_policies_are_found_by_their_folders(tmp_path: Path) -> None:
    for name in ("prod/one", "prod/two.b"):
        keep(tmp_path, name, [0])
    (tmp_path / "history/demand/_odd").mkdir()
    assert policies(tmp_path) == ("prod/one", "prod/two.b")


@pytest.mark.parametrize("folder", ["", "nowhere"])
def test_a_folder_without_history_is_named(tmp_path: Path, folder: str) -> None:
    with pytest.raises(NoHistoryError, match="trimtab run --history"):
        policies(tmp_path / folder)


def test_a_policy_is_found_by_its_last_name_if_that_is_clear(tmp_path: Path) -> None:
    for name in ("prod/one", "test/one", "test/two"):
        keep(tmp_path, name, [0])
    assert HistoryReader(tmp_path, "two").policy == HistoryReader(tmp_path, "test/two").policy == "test/two"
    with pytest.raises(NoHistoryError, match=r"'one' is in several namespaces below .*: prod/one, test/one$"):
        HistoryReader(tmp_path, "one")
    with pytest.raises(NoHistoryError, match=r"'mian' has no history below .*: prod/one, test/one, test/two"):
        HistoryReader(tmp_path, "mian")


def test_span_interval_and_gaps_are_the_same_before_and_after_merging(tmp_path: Path) -> None:
    keep(tmp_path, POLICY, [0, 1, 2, 3, 5, 6, 9, *range(130, 135)])
    before = HistoryReader(tmp_path, POLICY).summary()
    assert (before.begin, before.end, before.cycles, before.interval) == (AT, AT + 134 * 60, 12, 60.0)
    assert before.gaps == (Gap(AT + 6 * 60, AT + 9 * 60), Gap(AT + 9 * 60, AT + 130 * 60))
    assert before.files == 4 * 12 + 2 * 2
    merge(tmp_path, POLICY, 134)
    after = HistoryReader(tmp_path, POLICY).summary()
    assert after.files == 6 + 4 * 5 + 2
    assert after.bytes < before.bytes
    assert replace(after, tables=before.tables, files=before.files) == before


def test_bytes_per_day_are_those_of_the_usual_interval(tmp_path: Path) -> None:
    keep(tmp_path, POLICY, [0, 1, 2, 60])
    summary = HistoryReader(tmp_path, POLICY).summary()
    assert summary.bytes == sum(map(len, files(tmp_path / "history").values()))
    assert summary.bytes_per_day == pytest.approx(summary.bytes / 4 * 1440)
    demand = sum(map(len, files(tmp_path / "history/demand").values()))
    assert summary.a_day(summary.tables["demand"]) == pytest.approx(demand / 4 * 1440)


def test_of_a_single_cycle_interval_and_bytes_per_day_are_unknown(tmp_path: Path) -> None:
    keep(tmp_path, POLICY, [0])
    summary = HistoryReader(tmp_path, POLICY).summary()
    assert np.isnan([summary.interval, summary.bytes_per_day]).all()
    assert summary.gaps == ()


def test_reading_changes_nothing_and_tells_of_damaged_files(tmp_path: Path) -> None:
    keep(tmp_path, POLICY, [0, 1, 2])
    history = dataset(tmp_path, POLICY)
    hour = Path(history.hour_file(DEMAND, AT).path)
    hour.write_bytes(b"damaged")
    hour.with_name("_20250615T150300.000000Z.bad").write_bytes(b"worse")
    before = files(tmp_path)
    past = HistoryReader(tmp_path, POLICY)
    assert past.summary().cycles == 3
    past.load()
    told = {Path(file).name: why for file, why in past.summary().damaged}
    assert told["_20250615T150300.000000Z.bad"] == "it was set aside"
    assert told["20250615T15Z.parquet"].startswith("it can't be read")
    assert files(tmp_path) == before


@pytest.mark.parametrize("merged", [False, True])
def test_the_snapshot_of_any_cycle_is_the_one_that_was_trusted(tmp_path: Path, *, merged: bool) -> None:
    hotter = replace(LOAD, brokers=replace(LOAD.brokers, usage=LOAD.brokers.usage + 1))
    keep(tmp_path, POLICY, [0, 1])
    keep(tmp_path, POLICY, [2], hotter)
    keep(tmp_path, POLICY, [150])
    if merged:
        merge(tmp_path, POLICY, 150)
    past = HistoryReader(tmp_path, POLICY)
    then = past.load(AT + 170)
    assert then.now == AT + 120
    np.testing.assert_array_equal(then.brokers.usage[:, CPU], hotter.brokers.usage[:, CPU])
    assert past.load(AT + 60).brokers.usage[:, CPU].tolist() == LOAD.brokers.usage[:, CPU].tolist()
    np.testing.assert_allclose(then.bundles.short, LOAD.bundles.short, rtol=ROUNDED)
    np.testing.assert_allclose(then.bundles.newest, LOAD.bundles.short, rtol=ROUNDED)
    assert then.bundles.owner.tolist() == LOAD.bundles.owner.tolist()
    assert then.quality == LOAD.quality
    owners = [LOAD.brokers.names[row] for row in LOAD.bundles.owner]
    assert past.owners(AT + 170) == dict(zip(LOAD.bundles.names, owners, strict=True))


def test_the_newest_cycles_have_the_averages_that_were_kept(tmp_path: Path) -> None:
    double = replace(LOAD, bundles=replace(LOAD.bundles, short=LOAD.bundles.short * 2))
    keep(tmp_path, POLICY, [0])
    keep(tmp_path, POLICY, [1], double)
    past = HistoryReader(tmp_path, POLICY)
    np.testing.assert_array_equal(past.load().bundles.short, double.bundles.short)
    np.testing.assert_array_equal(past.load(AT).bundles.short, LOAD.bundles.short)


@pytest.mark.slow
def test_older_averages_are_computed_from_the_demand(tmp_path: Path) -> None:
    """Of demand that alternates, the long average is the mean and the short one follows."""
    keep(tmp_path, POLICY, range(60))
    high = replace(LOAD, bundles=replace(LOAD.bundles, short=LOAD.bundles.short * 3))
    keep(tmp_path, POLICY, range(60, 64), high)
    keep(tmp_path, POLICY, range(64, 70))
    past = HistoryReader(tmp_path, POLICY).load(AT + 63 * 60).bundles
    ratio = past.short / LOAD.bundles.short
    assert ratio == pytest.approx(np.full_like(ratio, 1 + 2 * (1 - np.exp(-4 * 60 / 120))), rel=1e-3)
    ratio = past.long / LOAD.bundles.long
    assert ratio == pytest.approx(np.full_like(ratio, 1 + 2 * 4 / 64), rel=1e-2)


def test_averages_of_pulsar_are_computed_by_its_rule(tmp_path: Path) -> None:
    keep(tmp_path, POLICY, range(3), bounds=Bounds(120.0, math.nan, math.nan))
    keep(tmp_path, POLICY, range(3, 6))
    past = HistoryReader(tmp_path, POLICY).load(AT + 120).bundles
    expected = (UNSEEN + 3 * LOAD.bundles.short) / 4  # Pulsar begins with its default statistics
    np.testing.assert_allclose(past.long, expected, rtol=ROUNDED)


def test_before_the_first_cycle_there_is_no_snapshot(tmp_path: Path) -> None:
    keep(tmp_path, POLICY, [0])
    with pytest.raises(NoHistoryError, match="no cycle up to then: the oldest is of 2025-06-15T15:00:00"):
        HistoryReader(tmp_path, POLICY).load(AT - 1)


@pytest.mark.parametrize("merged", [False, True])
def test_rows_of_a_window_come_in_the_order_of_time(tmp_path: Path, *, merged: bool) -> None:
    keep(tmp_path, POLICY, range(0, 180, 20))
    if merged:
        merge(tmp_path, POLICY, 240)
    past = HistoryReader(tmp_path, POLICY)
    for table in TABLES:
        found = [at for rows in past.rows(table, AT + 1200, AT + 8400) for at in rows["at"].to_pylist()]
        minutes = sorted({(at.timestamp() - AT) / 60 for at in found})
        assert found == sorted(found)
        expected = {"decisions": [], "policies": [], "facts": [60, 120], "sketches": [60, 120]}
        assert minutes == expected.get(table, [20, 40, 60, 80, 100, 120, 140])


def test_an_hour_that_is_merged_while_it_is_read_gives_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_GROUP", 1)
    keep(tmp_path, POLICY, range(0, 60, 5))
    past = HistoryReader(tmp_path, POLICY)
    expected = [row for rows in past.rows(BROKERS.name, AT, AT + 3600) for row in rows.to_pylist()]
    reading = past.rows(BROKERS.name, AT, AT + 3600)
    found = next(reading).to_pylist()
    assert len(found) < len(expected)
    monkeypatch.setattr(row_groups, "_GROUP", len(found) + 1)  # so that no part begins where it did
    merge(tmp_path, POLICY, 240)
    assert found + [row for rows in reading for row in rows.to_pylist()] == expected
