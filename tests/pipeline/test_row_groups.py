"""Row groups read one after the other: what a reader of single cycles finds, with equal columns shared."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recorded_history import POLICY, RecordedHistory
from trim_world import START, World, spread
from trimtab_pipeline.api import ForeignFileError, Retention
from trimtab_pipeline.history import row_groups
from trimtab_pipeline.history.dataset import DEMAND, HistoryDataset
from trimtab_pipeline.history.housekeeping import Housekeeping
from trimtab_pipeline.history.reader import HistoryReader


def write(root: Path) -> None:
    """Ten cycles: the load always changes, an owner at the fourth, and one bundle is not there from the seventh on."""
    history, world = RecordedHistory(root), World.of(spread(60, 3, 1), spread(20, 3, 2))
    for number in range(10):
        if number == 3:
            world.owner[0] = 1
        if number == 6:
            world = World.of(spread(60, 3, 1), spread(20, 2, 2), now=world.now)
        history.cycle(world.cluster(1 + number / 10))
        world.now += 60


def read(root: Path) -> dict[float, pa.Table]:
    return dict(HistoryReader(str(root), POLICY).demand(0, 1e12))


def second_file(root: Path) -> Path:
    """The file of the second cycle."""
    files = sorted(HistoryDataset(str(root)).of(POLICY).files(DEMAND), key=lambda file: file.begin)
    return Path(files[1].place.path)


def address(column: pa.ChunkedArray) -> int:
    """Where a column's values are in memory."""
    return int(column.chunk(0).buffers()[-1].address)


@pytest.mark.parametrize("merged", [False, True], ids=["a file for each cycle", "an hour's file"])
def test_a_replay_reads_what_a_reader_of_single_cycles_reads(tmp_path: Path, merged: bool) -> None:  # noqa: FBT001
    write(tmp_path)
    if merged:
        Housekeeping(HistoryDataset(str(tmp_path)).of(POLICY), Retention()).tidy(START + 36_000, lambda: False)
        assert any(file.merged for file in HistoryDataset(str(tmp_path)).of(POLICY).files(DEMAND))
    reader = HistoryReader(str(tmp_path), POLICY)

    found = read(tmp_path)

    assert len(found) == 10
    for time, rows in found.items():
        assert rows.equals(reader.cycle(DEMAND.name, time).select(DEMAND.columns.names))


@pytest.mark.parametrize("rows", [1, 13, 1000], ids=["one by one", "some", "all"])
def test_it_does_not_matter_how_many_groups_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    write(tmp_path)
    alone = read(tmp_path)
    Housekeeping(HistoryDataset(str(tmp_path)).of(POLICY), Retention()).tidy(START + 36_000, lambda: False)
    monkeypatch.setattr(row_groups, "_TOGETHER", rows)

    found = read(tmp_path)

    assert found.keys() == alone.keys()
    assert all(found[time].equals(alone[time]) for time in alone)


def test_cycles_share_a_column_that_did_not_change(tmp_path: Path) -> None:
    write(tmp_path)

    rows = list(read(tmp_path).values())

    assert {address(each["bundle"]) for each in rows[:6]} == {address(rows[0]["bundle"])}
    assert address(rows[6]["bundle"]) != address(rows[0]["bundle"])
    assert address(rows[2]["pod"]) == address(rows[0]["pod"])
    assert address(rows[3]["pod"]) != address(rows[0]["pod"]), "an owner changed"


def test_a_damaged_row_group_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    reader = HistoryReader(str(tmp_path), POLICY).demand(0, 1e12)
    next(reader)
    place = second_file(tmp_path)
    whole = place.read_bytes()
    place.write_bytes(whole[:4] + bytes(len(whole) // 2 - 4) + whole[len(whole) // 2 :])

    with pytest.raises(ForeignFileError, match="can't be read"):
        list(reader)


def test_names_that_are_not_text_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    place = second_file(tmp_path)
    table = pq.read_table(place)
    offsets, odd = np.arange(len(table) + 1, dtype=np.int32), b"\xff" * len(table)
    names = pa.StringArray.from_buffers(len(table), pa.py_buffer(offsets), pa.py_buffer(odd))
    field = table.schema.get_field_index("bundle")
    pq.write_table(table.set_column(field, table.schema.field(field), names), place)

    with pytest.raises(ForeignFileError, match="can't be read"):
        read(tmp_path)


_CODEC = rb"\x15\x0c"
_NUMBER = rb"\x16[\x80-\xff]*[\x00-\x7f]"


def damage(root: Path, field: bytes, value: bytes) -> None:
    """Replace a field of every column in the footer of the second cycle's file. field: pattern of its bytes."""
    place = second_file(root)
    whole = place.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    damaged, count = re.subn(field, lambda _: value, whole[footer:-8])
    assert count == len(DEMAND.schema)
    place.write_bytes(whole[:footer] + damaged + len(damaged).to_bytes(4, "little") + whole[-4:])


def test_an_unknown_compression_does_not_end_the_process(tmp_path: Path) -> None:
    """PyArrow's metadata of columns would: their C++ exceptions reach no Python code."""
    write(tmp_path)
    damage(tmp_path, _CODEC + rb"(?=\x16)", b"\x15\x70")

    with pytest.raises(ForeignFileError, match="can't be read"):
        read(tmp_path)


@pytest.mark.parametrize("size", [b"\x16\x01", b"\x16\xfe\xff\x03"], ids=["negative", "larger than the file"])
def test_a_column_outside_of_the_file_is_refused(tmp_path: Path, size: bytes) -> None:
    write(tmp_path)
    # the compression, the number of values, the size without compression, the size
    damage(tmp_path, _CODEC + 3 * _NUMBER, b"\x15\x0c\x16\x0c\x16\x0c" + size)

    with pytest.raises(ForeignFileError, match="can't be read"):
        read(tmp_path)
