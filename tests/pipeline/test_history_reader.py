"""The history, read as it is: what it spans, where it has gaps, and the picture of any of its cycles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kept_histories import AT, LOAD, keep, merge
from trimtab_pipeline.history.reader import Gap, HistoryReader, NoHistoryError, policies
from trimtab_strategies.model import CPU


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_policies_are_found_by_their_folders(tmp_path: Path) -> None:
    for name in ("prod/one", "prod/two", ".import-x/one"):
        keep(tmp_path, name, [0])
    assert policies(tmp_path) == ("prod/one", "prod/two")


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
    keep(tmp_path, "prod/one", [0, 1, 2, 3, 5, 6, 9, *range(130, 135)])
    before = HistoryReader(tmp_path, "prod/one").summary()
    assert (before.begin, before.end, before.cycles, before.interval) == (AT, AT + 134 * 60, 12, 60.0)
    assert before.gaps == (Gap(AT + 6 * 60, AT + 9 * 60), Gap(AT + 9 * 60, AT + 130 * 60))
    assert before.files == 48
    merge(tmp_path, "prod/one", 134)
    after = HistoryReader(tmp_path, "prod/one").summary()
    assert after.files == 4 + 5 * 4
    assert after.bytes < before.bytes
    assert replace(after, bytes=before.bytes, files=before.files) == before


def test_bytes_per_day_are_those_of_the_usual_interval(tmp_path: Path) -> None:
    keep(tmp_path, "prod/one", [0, 1, 2, 60])
    summary = HistoryReader(tmp_path, "prod/one").summary()
    assert summary.bytes == sum(map(len, files(tmp_path).values()))
    assert summary.bytes_per_day == pytest.approx(summary.bytes / 4 * 1440)


def test_of_a_single_cycle_interval_and_bytes_per_day_are_unknown(tmp_path: Path) -> None:
    keep(tmp_path, "prod/one", [0])
    summary = HistoryReader(tmp_path, "prod/one").summary()
    assert np.isnan([summary.interval, summary.bytes_per_day]).all()
    assert summary.gaps == ()


def test_reading_changes_nothing_and_tells_of_damaged_files(tmp_path: Path) -> None:
    keep(tmp_path, "prod/one", [0, 1, 2])
    bundles = tmp_path / "prod/one/bundles"
    hour = bundles / "20250615T15Z.parquet"
    hour.write_bytes(b"damaged")
    (bundles / "20250615T140000.000000Z.bad").write_bytes(b"worse")
    before = files(tmp_path)
    past = HistoryReader(tmp_path, "prod/one")
    assert past.summary().cycles == 3
    past.load()
    told = {Path(file).name: why for file, why in past.summary().damaged}
    assert told["20250615T140000.000000Z.bad"] == "it was set aside"
    assert told["20250615T15Z.parquet"].startswith("it can't be read")
    assert files(tmp_path) == before


@pytest.mark.parametrize("merged", [False, True])
def test_the_snapshot_of_any_cycle_is_the_one_that_was_trusted(tmp_path: Path, *, merged: bool) -> None:
    hotter = replace(LOAD, brokers=replace(LOAD.brokers, usage=LOAD.brokers.usage + 1))
    keep(tmp_path, "prod/one", [0, 1])
    keep(tmp_path, "prod/one", [2], hotter)
    keep(tmp_path, "prod/one", [150])
    if merged:
        merge(tmp_path, "prod/one", 150)
    past = HistoryReader(tmp_path, "prod/one")
    then = past.load(AT + 170)
    assert then.now == AT + 120
    np.testing.assert_array_equal(then.brokers.usage[:, CPU], hotter.brokers.usage[:, CPU])
    assert past.load(AT + 60).brokers.usage[:, CPU].tolist() == LOAD.brokers.usage[:, CPU].tolist()
    np.testing.assert_array_equal(then.bundles.short, LOAD.bundles.short)
    assert then.bundles.owner.tolist() == LOAD.bundles.owner.tolist()
    assert then.quality == LOAD.quality


def test_before_the_first_cycle_there_is_no_snapshot(tmp_path: Path) -> None:
    keep(tmp_path, "prod/one", [0])
    with pytest.raises(NoHistoryError, match="no cycle up to then: the oldest is of 2025-06-15T15:00:00"):
        HistoryReader(tmp_path, "prod/one").load(AT - 1)
