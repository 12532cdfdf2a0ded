"""A window of history goes out as one file and comes back as the history it was."""

from __future__ import annotations

import io
import json
import math
import tarfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kept_histories import AT, LOAD, keep, merge
from trimtab_pipeline.history.anonymizer import Renaming
from trimtab_pipeline.history.exchange import ExchangeError, export, import_window
from trimtab_pipeline.history.reader import HistoryReader
from trimtab_pipeline.history.store import History
from trimtab_pipeline.history.writer import TABLES

POLICY = "prod/one"
EVER = (-math.inf, math.inf)
SECRETS = ("prod", "one", "public", "default", "-pod", "acme", "store 2", "refused")


@pytest.fixture
def past(tmp_path: Path) -> HistoryReader:
    """A cycle every ten minutes of three hours, the first hour merged."""
    keep(tmp_path / "from", POLICY, range(0, 180, 10))
    merge(tmp_path / "from", POLICY, 170)
    return HistoryReader(tmp_path / "from", POLICY)


def test_what_was_exported_is_imported_as_it_was(tmp_path: Path, past: HistoryReader) -> None:
    out = export([past], *EVER, tmp_path / "window.tar", None)
    back = import_window(tmp_path / "window.tar", tmp_path / "to")
    assert out == back
    assert out.cycles == {POLICY: 18}
    imported = HistoryReader(tmp_path / "to", POLICY)
    for table in TABLES:
        for time, rows in past.cycles(table, *EVER):
            assert imported.cycle(table, time).equals(rows), (table, time)


def test_an_imported_history_is_merged_and_goes_on_from_its_newest_cycle(tmp_path: Path, past: HistoryReader) -> None:
    export([past], *EVER, tmp_path / "window.tar", None)
    import_window(tmp_path / "window.tar", tmp_path / "to")
    names = sorted(path.name for path in (tmp_path / "to" / POLICY / "bundles").iterdir())
    assert names == [
        "20250615T15Z.parquet",
        "20250615T16Z.parquet",
        "20250615T175000.000000Z.parquet",
        "20250615T17Z.parquet",
    ]
    history = History(tmp_path / "to" / POLICY / "bundles", *TABLES["bundles"])
    assert history.state(AT + 3 * 3600, 3600).name == "20250615T175000.000000Z.parquet"


def test_a_window_holds_both_of_its_ends_and_nothing_else(tmp_path: Path, past: HistoryReader) -> None:
    window = export([past], AT + 30 * 60, AT + 70 * 60, tmp_path / "window.tar", None)
    assert (window.begin, window.end, window.cycles) == (AT + 30 * 60, AT + 70 * 60, {POLICY: 5})
    import_window(tmp_path / "window.tar", tmp_path / "to")
    assert HistoryReader(tmp_path / "to", POLICY).times() == [AT + 60 * minute for minute in range(30, 80, 10)]


def test_a_parquet_file_holds_the_bundles_for_a_notebook(tmp_path: Path, past: HistoryReader) -> None:
    export([past], AT, AT + 600, tmp_path / "bundles.parquet", None)
    frame = pd.read_parquet(tmp_path / "bundles.parquet")
    assert frame["bundle"].unique().tolist() == list(LOAD.bundles.names)
    assert frame["at"].dt.minute.unique().tolist() == [0, 10]


def texts(name: str, content: bytes) -> list[str]:
    """All strings of an archive's member, its name among them."""
    if not name.endswith(".parquet"):
        return [name, content.decode()]
    table = pq.read_table(io.BytesIO(content))
    words = [column.to_pylist() for column in table.columns if column.type == pa.string()]
    return [name, *(word for column in words for word in column if word)]


def test_hashed_names_show_no_name_and_keep_ranges_owners_and_numbers(tmp_path: Path, past: HistoryReader) -> None:
    export([past], *EVER, tmp_path / "report.tar", Renaming(b"key"))
    with tarfile.open(tmp_path / "report.tar") as tar:
        everything = [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]
    for name, content in everything:
        shown = [text for text in texts(name, content) if any(secret in text for secret in SECRETS)]
        assert not shown, name
    (policy,) = import_window(tmp_path / "report.tar", tmp_path / "to").cycles
    hashed, plain = HistoryReader(tmp_path / "to", policy).load(), past.load()
    assert hashed.bundles.owner.tolist() == plain.bundles.owner.tolist()
    assert hashed.bundles.short.tolist() == plain.bundles.short.tolist()
    assert hashed.brokers.usage.tolist() == plain.brokers.usage.tolist()
    ranges = [[name.rpartition("/")[2] for name in load.bundles.names] for load in (hashed, plain)]
    assert ranges[0] == ranges[1]
    assert hashed.quality.dropped == plain.quality.dropped


@pytest.mark.parametrize(("name", "told"), [("window.zip", r"must end in \.tar"), ("two.parquet", "the window has 2")])
def test_a_file_that_cant_hold_it_is_refused(tmp_path: Path, past: HistoryReader, name: str, told: str) -> None:
    with pytest.raises(ExchangeError, match=told):
        export([past, HistoryReader(tmp_path / "from", POLICY)], *EVER, tmp_path / name, None)
    assert not (tmp_path / name).exists()


def test_a_window_without_cycles_is_refused(tmp_path: Path, past: HistoryReader) -> None:
    with pytest.raises(ExchangeError, match="holds no cycle"):
        export([past], AT - 100, AT - 50, tmp_path / "window.tar", None)


def test_a_full_disk_while_exporting_leaves_what_was_there(tmp_path: Path, past: HistoryReader) -> None:
    (tmp_path / "window.parquet").write_text("an older one")
    (tmp_path / "_window.parquet.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space"):
        export([past], *EVER, tmp_path / "window.parquet", None)
    assert (tmp_path / "window.parquet").read_text() == "an older one"


def test_a_policy_that_has_a_history_is_not_overwritten(tmp_path: Path, past: HistoryReader) -> None:
    export([past], *EVER, tmp_path / "window.tar", None)
    with pytest.raises(
        ExchangeError, match=r"prod/one has a history below .*/from already; import into another folder"
    ):
        import_window(tmp_path / "window.tar", tmp_path / "from")
    assert past.summary().cycles == 18


def packed(path: Path, members: dict[str, bytes], form: str = "trimtab-history/1") -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in {"manifest.json": json.dumps({"format": form}).encode(), **members}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"../outside/bundles.parquet": b""}, "which no export writes"),
        ({"/etc/one/bundles.parquet": b""}, "which no export writes"),
        ({"prod/one/other.parquet": b""}, "which no export writes"),
        ({"prod/one/bundles.parquet": b"damaged"}, "holds prod/one/bundles.parquet, but it can't be read"),
        ({}, "holds no policy"),
        ({"manifest.json": b"[" * 60_000, "prod/one/bundles.parquet": b""}, "is of format None"),
        ({"manifest.json": b" " * 70_000 + b'{"format": 1}', "prod/one/bundles.parquet": b""}, "is of format None"),
    ],
)
def test_an_archive_of_anything_else_is_refused_and_leaves_nothing(
    tmp_path: Path, members: dict[str, bytes], told: str
) -> None:
    with pytest.raises(ExchangeError, match=told):
        import_window(packed(tmp_path / "odd.tar", members), tmp_path / "to")
    assert list((tmp_path / "to").iterdir()) == []


def test_an_archive_of_another_format_is_refused_with_both_names(tmp_path: Path) -> None:
    archive = packed(tmp_path / "odd.tar", {"prod/one/bundles.parquet": b""}, "trimtab-history/2")
    with pytest.raises(ExchangeError, match="of format 'trimtab-history/2', this program imports trimtab-history/1"):
        import_window(archive, tmp_path / "to")


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.tar").write_text("not a tar" * 200)
    with pytest.raises(ExchangeError, match=r"is no \.tar that"):
        import_window(tmp_path / "odd.tar", tmp_path / "to")
