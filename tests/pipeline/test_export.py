"""A window of history goes out as one file and comes back as the history it was."""

from __future__ import annotations

import errno
import io
import json
import math
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kept_histories import AT, LOAD, dataset, keep, merge
from trimtab_pipeline.history import row_groups
from trimtab_pipeline.history.anonymizer import Renaming
from trimtab_pipeline.history.dataset import BROKERS, DEMAND, FACTS, TABLES
from trimtab_pipeline.history.export import ExchangeError, export, unpack
from trimtab_pipeline.history.files import put, stamped
from trimtab_pipeline.history.location import Location
from trimtab_pipeline.history.reader import HistoryReader

POLICY = "prod/one"
EVER = (-math.inf, math.inf)
AT_MS = round(AT * 1000)
SECRETS = ("prod", "one", "public", "default", "-pod", "acme", "store 2", "refused")


@pytest.fixture
def past(tmp_path: Path) -> HistoryReader:
    """A cycle every ten minutes of three hours, the first hour merged."""
    keep(tmp_path / "from", POLICY, range(0, 180, 10))
    merge(tmp_path / "from", POLICY, 170)
    return HistoryReader(tmp_path / "from", POLICY)


def test_what_was_exported_is_imported_as_it_was(tmp_path: Path, past: HistoryReader) -> None:
    out = export([past], *EVER, tmp_path / "window.tar", None)
    back = unpack(tmp_path / "window.tar", tmp_path / "to")
    assert out == back
    assert out.cycles == {POLICY: 18}
    imported = HistoryReader(tmp_path / "to", POLICY)
    for table in TABLES:
        before, after = (
            [row for rows in one.rows(table, *EVER) for row in rows.to_pylist()] for one in (past, imported)
        )
        assert after == before, table
    assert imported.load(AT + 3600).quality == past.load(AT + 3600).quality


def test_refreshes_that_an_older_version_wrote_into_the_next_hour_are_imported(
    tmp_path: Path, past: HistoryReader
) -> None:
    rows = next(iter(past.rows(BROKERS.name, AT + 3600, AT + 3600)))
    early = rows.set_column(0, "at", pa.array([AT_MS + 3_590_000] * len(rows), rows.schema.field("at").type))
    put(dataset(tmp_path / "from", POLICY).cycle_file(BROKERS, AT + 3600, "refresh"), BROKERS, [early])

    export([past], *EVER, tmp_path / "window.tar", None)
    unpack(tmp_path / "window.tar", tmp_path / "to")

    before, after = (
        sorted(str(row) for found in one.rows(BROKERS.name, *EVER) for row in found.to_pylist())
        for one in (past, HistoryReader(tmp_path / "to", POLICY))
    )
    assert after == before
    (first, *_) = dataset(tmp_path / "to", POLICY).files(BROKERS)
    assert AT + 3590 in pq.read_table(first.place.path)["at"].cast(pa.int64()).to_numpy() / 1000


def test_an_imported_history_is_a_file_an_hour(tmp_path: Path, past: HistoryReader) -> None:
    export([past], *EVER, tmp_path / "window.tar", None)
    unpack(tmp_path / "window.tar", tmp_path / "to")
    names = [file.place.name for file in dataset(tmp_path / "to", POLICY).files(DEMAND)]
    assert names == ["20250615T15Z.parquet", "20250615T16Z.parquet", "20250615T17Z.parquet"]
    assert not (tmp_path / "to" / "state").exists(), "averages follow from the demand"


def test_a_window_holds_both_of_its_ends_and_nothing_else(tmp_path: Path, past: HistoryReader) -> None:
    window = export([past], AT + 30 * 60, AT + 70 * 60, tmp_path / "window.tar", None)
    assert (window.begin, window.end, window.cycles) == (AT + 30 * 60, AT + 70 * 60, {POLICY: 5})
    unpack(tmp_path / "window.tar", tmp_path / "to")
    assert HistoryReader(tmp_path / "to", POLICY).times() == [AT + 60 * minute for minute in range(30, 80, 10)]


def test_a_parquet_file_holds_the_demand_for_a_notebook(tmp_path: Path, past: HistoryReader) -> None:
    export([past], AT, AT + 600, tmp_path / "demand.parquet", None)
    frame = pd.read_parquet(tmp_path / "demand.parquet")
    assert sorted(frame["bundle"].unique()) == sorted(LOAD.bundles.names)
    assert frame["at"].dt.minute.unique().tolist() == [0, 10]


def texts(name: str, content: bytes) -> list[str]:
    """All strings of an archive's member, its name among them."""
    if not name.endswith(".parquet"):
        return [name, content.decode()]
    table = pq.read_table(io.BytesIO(content))
    words = [column.to_pylist() for column in table.columns if column.type == pa.string()]
    return [name, *(word for column in words for word in column if word)]


@pytest.mark.slow
def test_hashed_names_show_no_name_and_keep_ranges_owners_and_numbers(tmp_path: Path, past: HistoryReader) -> None:
    export([past], *EVER, tmp_path / "report.tar", Renaming(b"key"))
    with tarfile.open(tmp_path / "report.tar") as tar:
        everything = [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]
    for name, content in everything:
        shown = [text for text in texts(name, content) if any(secret in text for secret in SECRETS)]
        assert not shown, name
    (policy,) = unpack(tmp_path / "report.tar", tmp_path / "to").cycles
    hashed, plain = HistoryReader(tmp_path / "to", policy).load(), past.load()
    assert hashed.brokers.usage.tolist() == plain.brokers.usage.tolist()
    rename = Renaming(b"key")
    row = [hashed.bundles.names.index(rename.bundle(name)) for name in plain.bundles.names]
    assert hashed.bundles.owner[row].tolist() == plain.bundles.owner.tolist()
    np.testing.assert_allclose(hashed.bundles.short[row], plain.bundles.short, rtol=5e-4)
    ranges = [sorted(name.rpartition("/")[2] for name in load.bundles.names) for load in (hashed, plain)]
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


@pytest.mark.parametrize("name", ["window.parquet", "window.tar"])
def test_a_full_disk_while_exporting_leaves_what_was_there(
    tmp_path: Path, past: HistoryReader, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "window.parquet").write_text("an older one")
    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(OSError, match="No space"):
        export([past], *EVER, tmp_path / name, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["from", "window.parquet"]
    assert (tmp_path / "window.parquet").read_text() == "an older one"


def packed(path: Path, members: dict[str, bytes], form: str = "trimtab-history/2") -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in {"manifest.json": json.dumps({"format": form}).encode(), **members}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"../outside/demand.parquet": b""}, "which no export writes"),
        ({"/etc/one/demand.parquet": b""}, "which no export writes"),
        ({"prod/one/other.parquet": b""}, "which no export writes"),
        ({"prod/one/demand.parquet": b"damaged"}, "holds prod/one/demand.parquet, but it can't be read"),
        ({}, "holds no policy"),
        ({"manifest.json": b"[" * 60_000, "prod/one/demand.parquet": b""}, "is of format None"),
        ({"manifest.json": b" " * 70_000 + b'{"format": 1}', "prod/one/demand.parquet": b""}, "is of format None"),
    ],
)
def test_an_archive_of_anything_else_is_refused_and_leaves_nothing(
    tmp_path: Path, members: dict[str, bytes], told: str
) -> None:
    with pytest.raises(ExchangeError, match=told):
        unpack(packed(tmp_path / "odd.tar", members), tmp_path / "to")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "odd.tar"]


def test_an_archive_of_another_format_is_refused_with_both_names(tmp_path: Path) -> None:
    archive = packed(tmp_path / "odd.tar", {"prod/one/demand.parquet": b""}, "trimtab-history/1")
    with pytest.raises(ExchangeError, match="of format 'trimtab-history/1', this program reads trimtab-history/2"):
        unpack(archive, tmp_path / "to")


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.tar").write_text("not a tar" * 200)
    with pytest.raises(ExchangeError, match=r"is not a \.tar from"):
        unpack(tmp_path / "odd.tar", tmp_path / "to")


def member(path: Path, groups: list[pa.Table], times: list[float]) -> bytes:
    """A member of an archive with these row groups of demand."""
    put(Location.of(path), DEMAND, groups, lambda: times)
    return path.read_bytes()


def demand(count: int, bundle: str = "t/n/1") -> pa.Table:
    values = {"bundle": [bundle] * count}
    rows = {name: values.get(name, pa.nulls(count)) for name in DEMAND.columns.names}
    return stamped(pa.table(rows).cast(DEMAND.columns), AT, DEMAND.schema)


def test_an_import_reads_no_more_rows_than_fit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = member(tmp_path / "many.parquet", [demand(2**21 + 1)], [AT])
    assert len(many) < 100_000, "equal rows take next to nothing"
    with pytest.raises(ExchangeError, match="its row group 0 has 2,097,153 rows, more than 2,097,152"):
        unpack(packed(tmp_path / "many.tar", {"prod/one/demand.parquet": many}), tmp_path / "to")
    monkeypatch.setattr("trimtab_pipeline.history.export._MOST_BYTES", 2**24)
    long = member(tmp_path / "long.parquet", [demand(2**12, "x" * 2**13)], [AT])
    assert len(long) < 100_000
    with pytest.raises(ExchangeError, match="its row group 0 takes more than 16 MiB of memory"):
        unpack(packed(tmp_path / "long.tar", {"prod/one/demand.parquet": long}), tmp_path / "to")


def test_an_hour_that_does_not_fit_in_memory_is_exported_and_imported_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_GROUP", 1)
    keep(tmp_path / "from", POLICY, range(0, 60, 10))
    past = HistoryReader(tmp_path / "from", POLICY)
    before = [rows.to_pylist() for rows in past.rows(BROKERS.name, *EVER)]
    assert [len(rows) for rows in before] == [2] * 6
    export([past], *EVER, tmp_path / "window.tar", None)
    unpack(tmp_path / "window.tar", tmp_path / "to")
    imported = HistoryReader(tmp_path / "to", POLICY)
    assert [rows.to_pylist() for rows in imported.rows(BROKERS.name, *EVER)] == before


def test_cycles_out_of_order_are_refused(tmp_path: Path) -> None:
    odd = member(tmp_path / "odd.parquet", [demand(1), demand(1)], [AT + 60, AT])
    with pytest.raises(ExchangeError, match="its cycles are not in the order of time"):
        unpack(packed(tmp_path / "odd.tar", {"prod/one/demand.parquet": odd}), tmp_path / "to")


def test_hours_out_of_order_are_refused(tmp_path: Path) -> None:
    fact = pa.table({"kind": ["bundle"], "name": ["x"], "value": ["{}"]})
    groups = [stamped(fact, AT + later, FACTS.schema) for later in (3600, 0)]
    put(Location.of(tmp_path / "odd.parquet"), FACTS, groups, list)
    odd = (tmp_path / "odd.parquet").read_bytes()
    with pytest.raises(ExchangeError, match="its rows are not in the order of time"):
        unpack(packed(tmp_path / "odd.tar", {"prod/one/facts.parquet": odd}), tmp_path / "to")
