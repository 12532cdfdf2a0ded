"""A file of the history is complete or absent, whatever file system it is on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.history.dataset import FACTS
from trimtab_pipeline.history.files import opened, put, stamped
from trimtab_pipeline.history.location import Location

AT = 1_750_000_000.0


class Hdfs:
    """A file system of another machine, as HDFS: it renames over no file."""

    type_name = "hdfs"

    def __init__(self, folder: Path) -> None:
        self._inner = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def move(self, source: str, target: str) -> None:
        if self._inner.get_file_info(target).type != fs.FileType.NotFound:
            raise FileExistsError(target)
        self._inner.move(source, target)


def facts(value: str) -> pa.Table:
    rows = pa.Table.from_pylist([{"kind": "broker", "name": "a", "value": value}], FACTS.columns)
    return stamped(rows, AT, FACTS.schema)


def test_on_hdfs_a_file_has_its_name_only_once_it_is_complete(tmp_path: Path) -> None:
    place, seen = Location(Hdfs(tmp_path), "facts/x.parquet", "hdfs://"), []

    def groups(value: str) -> Iterator[pa.Table]:
        seen.append((tmp_path / "facts" / "x.parquet").exists())
        yield facts(value)

    put(place, FACTS, groups("1"))
    assert [file.name for file in (tmp_path / "facts").iterdir()] == ["x.parquet"]
    put(place, FACTS, groups("2"), list[str])
    assert [file.name for file in (tmp_path / "facts").iterdir()] == ["x.parquet"]
    assert pq.read_table(tmp_path / "facts" / "x.parquet")["value"].to_pylist() == ["2"]
    assert seen == [False, True]


def test_on_hdfs_a_failed_write_leaves_the_earlier_file_and_no_other(tmp_path: Path) -> None:
    place = Location(Hdfs(tmp_path), "facts/x.parquet", "hdfs://")
    put(place, FACTS, [facts("1")])

    def broken() -> Iterator[pa.Table]:
        yield facts("2")
        raise OSError("no route to host")

    with pytest.raises(OSError, match="no route"):
        put(place, FACTS, broken())
    assert [file.name for file in (tmp_path / "facts").iterdir()] == ["x.parquet"]
    assert pq.read_table(tmp_path / "facts" / "x.parquet")["value"].to_pylist() == ["1"]


@pytest.mark.parametrize(
    ("filesystem", "renames"),
    [
        (fs.LocalFileSystem(), True),
        (fs.S3FileSystem(anonymous=True, region="us-east-1"), False),
        (fs.GcsFileSystem(anonymous=True), False),
    ],
)
def test_objects_are_written_under_their_own_name(filesystem: fs.FileSystem, renames: bool) -> None:  # noqa: FBT001
    assert Location(filesystem, "x").renames == renames


def test_a_file_whose_column_names_are_no_text_is_foreign(tmp_path: Path) -> None:
    place = Location.of(str(tmp_path / "x.parquet"))
    put(place, FACTS, [facts("1")])
    file = tmp_path / "x.parquet"
    file.write_bytes(file.read_bytes().replace(b"value", b"v\x9clue"))

    with pytest.raises(ForeignFileError, match="can't be read"):
        opened(place, FACTS.schema)
