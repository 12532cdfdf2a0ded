"""Export of a window of history to one file, and a folder of such a file for those who read histories.

A ``.tar`` has every table of its policies. Each table is a Parquet file. A row group has the rows
of one cycle, or of a part of an hour. A ``.parquet`` has the demand of one policy, for a notebook.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.history.anonymizer import Renaming
from trimtab_pipeline.history.dataset import DECISIONS, DEMAND, POLICIES, TABLES, HistoryDataset, PolicyDataset
from trimtab_pipeline.history.files import (
    HOUR,
    HistoryFile,
    HistoryTable,
    cycle_times,
    hour_of,
    opened,
    put,
)
from trimtab_pipeline.history.location import Location
from trimtab_pipeline.history.reader import HistoryReader
from trimtab_pipeline.prometheus.response_limits import joined, json_of

_MANIFEST = "manifest.json"
_FORMAT = "trimtab-history/2"
_LATEST = 253_402_300_800.0  # epoch s of the year 10000, too long for a file name
_TEXTS = (DECISIONS, POLICIES)  # tables whose values may contain names anywhere
_MOST_ROWS = 2**21  # of a row group, as in an hour of refreshes of 5,000 brokers
_MOST_BYTES = 2**28  # of a row group in memory
_BATCH = 4096  # rows that are read before their size is checked
_LARGEST = 2**16  # bytes of a manifest
_MEMBER = re.compile(r"(?P<policy>[a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*)/(?P<table>[a-z]+)\.parquet")


class ExchangeError(ValueError):
    """A window that can't be exported, or a file that can't be read. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class ExportedWindow:
    """The exported window. cycles: number of cycles of each policy, by its name in the file."""

    cycles: dict[str, int]
    begin: float
    end: float


def export(
    pasts: Sequence[HistoryReader], begin: float, end: float, target: Path, renaming: Renaming | None
) -> ExportedWindow:
    """Write the cycles from `begin` to `end` (epoch s) to `target`. A file of that name is replaced at the end.

    Raises `ExchangeError` for a window without cycles, `ForeignFileError` for cycles that can't be read, `OSError`.
    """
    times = {past: some for past in pasts if (some := past.times(begin, end))}
    if not times:
        raise ExchangeError("the window holds no cycle; `trimtab history --dir DIR` shows the span of each policy")
    if target.suffix == ".parquet":
        if len(times) > 1:
            raise ExchangeError(
                f"{target.name} can hold one policy, the window has {len(times)}: name one, or use .tar"
            )
        _write_table(next(iter(times)), DEMAND, (begin, end), target, renaming)
    elif target.suffix == ".tar":
        _write_tar(list(times), (begin, end), target, renaming)
    else:
        raise ExchangeError(f"{target.name} must end in .tar (all tables) or .parquet (the demand)")
    return _window({_named(past, renaming): some for past, some in times.items()})


def _window(times: Mapping[str, Sequence[float]]) -> ExportedWindow:
    begins, ends = [some[0] for some in times.values()], [some[-1] for some in times.values()]
    return ExportedWindow({policy: len(some) for policy, some in times.items()}, min(begins), max(ends))


def _named(past: HistoryReader, renaming: Renaming | None) -> str:
    return renaming.policy(past.policy) if renaming else past.policy


def _write_table(
    past: HistoryReader, table: HistoryTable, window: tuple[float, float], target: Path, renaming: Renaming | None
) -> None:
    written: list[float] = []

    def groups() -> Iterator[pa.Table]:
        for rows in past.rows(table.name, *window):
            yield renaming.table(rows) if renaming else rows

    def cycles() -> Iterator[pa.Table]:
        for time, rows in past.cycles(table.name, *window):
            written.append(time)
            yield renaming.table(rows) if renaming else rows

    put(Location.of(target), table, cycles() if table.by_cycle else groups(), lambda: written)


def _write_tar(
    pasts: Sequence[HistoryReader], window: tuple[float, float], target: Path, renaming: Renaming | None
) -> None:
    with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as folder:
        aside = Path(folder, target.name)
        with tarfile.open(aside, "w") as tar:
            _add(tar, _MANIFEST, _manifest(Path(folder), hashed=renaming is not None))
            for past, table in itertools.product(pasts, TABLES.values()):
                if renaming and table in _TEXTS:
                    continue
                file = Path(folder, f"{table.name}.parquet")
                _write_table(past, table, window, file, renaming)
                _add(tar, f"{_named(past, renaming)}/{table.name}.parquet", file)
        aside.replace(target)


def _manifest(folder: Path, *, hashed: bool) -> Path:
    path = folder / _MANIFEST
    path.write_text(json.dumps({"format": _FORMAT, "namesHashed": hashed}))
    return path


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    """Add a file under `name`, without its user and group."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    tar.add(path, name, filter=anonymous)


@contextmanager
def readable(history: str) -> Iterator[str]:
    """A folder with a history, open for the block. A ``.tar`` of `export` is unpacked into a temporary one.

    Raises `ExchangeError` for a ``.tar`` of anything else, and `OSError`.
    """
    if not history.endswith(".tar"):
        yield history
        return
    with tempfile.TemporaryDirectory(prefix="trimtab-history-") as folder:
        unpack(Path(history), Path(folder))
        yield folder


def unpack(archive: Path, folder: Path) -> ExportedWindow:
    """Unpack a ``.tar`` of `export` into a new or empty folder, with a file per hour. It never has a policy's state.

    Raises `ExchangeError` for another kind of file; then the folder has a part of it.
    """
    folder.mkdir(exist_ok=True)
    with _opened(archive) as tar:
        members = _members(tar)
        target, found = HistoryDataset(folder), dict[str, list[float]]()
        for policy, theirs in members.items():
            for name, member in theirs.items():
                times = _unpack(tar, member, target.of(policy), TABLES[name])
                if name == DEMAND.name:
                    found[policy] = times
        if not all(found.get(policy) for policy in members):
            raise ExchangeError(f"{tar.name!s} holds a policy without cycles")
    return _window(found)


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(archive, "r:") as tar:
            yield tar
    except ExchangeError:
        raise
    except (tarfile.TarError, EOFError, MemoryError, OverflowError, RecursionError, ValueError) as error:
        raise ExchangeError(f"{archive} is not a .tar from `trimtab history export` ({error})") from error


def _members(tar: tarfile.TarFile) -> dict[str, dict[str, tarfile.TarInfo]]:
    """Policy -> table -> its file. Everything that an export does not write is refused."""
    policies: dict[str, dict[str, tarfile.TarInfo]] = {}
    manifest: Any = None
    for member in tar:
        found = _MEMBER.fullmatch(member.name)
        if member.name == _MANIFEST:
            manifest = _manifest_of(tar, member)
        elif not member.isreg() or member.issparse() or found is None or found["table"] not in TABLES:
            raise ExchangeError(f"{tar.name!s} holds {member.name!r:.200}, which no export writes")
        elif policies.setdefault(found["policy"], {}).setdefault(found["table"], member) is not member:
            raise ExchangeError(f"{tar.name!s} holds {member.name!r} twice")
    if not policies:
        raise ExchangeError(f"{tar.name!s} holds no policy")
    if manifest != _FORMAT:
        raise ExchangeError(f"{tar.name!s} is of format {manifest!r:.100}, this program reads {_FORMAT}")
    return policies


def _manifest_of(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    file = tar.extractfile(member)
    try:
        return json_of(joined(iter(lambda: file.read(_LARGEST), b""), _LARGEST))["format"] if file else None
    except (ValueError, KeyError, TypeError):
        return None


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, target: PolicyDataset, table: HistoryTable) -> list[float]:
    """Write a member as one file per hour. Returns the times of its cycles, if it is the demand."""
    source = Path(target.root.path).parent / "member"
    with tar.extractfile(member) as packed, source.open("wb") as unpacked:  # type: ignore[union-attr]
        shutil.copyfileobj(packed, unpacked)
    whole = HistoryFile(0.0, _LATEST, Location.of(source))
    try:
        return _unmerge_cycles(whole, target, table) if table.by_cycle else _unmerge_hours(whole, target, table)
    except ForeignFileError as error:
        raise ExchangeError(f"{tar.name!s} holds {member.name}, but {error}") from error
    finally:
        source.unlink()


def _unmerge_cycles(whole: HistoryFile, target: PolicyDataset, table: HistoryTable) -> list[float]:
    times = cycle_times(whole, table)
    if times != sorted(set(times)) or (times and not 0 <= times[0] <= times[-1] < _LATEST):
        raise ForeignFileError("its cycles are not in the order of time")
    with opened(whole.place, table.schema) as file:
        for hour, positions in itertools.groupby(range(len(times)), key=lambda position: hour_of(times[position])):
            groups = list(positions)
            held = [times[group] for group in groups]
            put(target.hour_file(table, hour), table, (_bounded(file, group, table) for group in groups), held.copy)
    return times


def _unmerge_hours(whole: HistoryFile, target: PolicyDataset, table: HistoryTable) -> list[float]:
    """Write one file per hour. In older histories, an hour's row group also has the last refreshes before the hour."""
    with opened(whole.place, table.schema) as file:
        for hour, parts in itertools.groupby(_parts(file, table), key=lambda part: part[0]):
            put(target.hour_file(table, hour), table, (rows for _, rows in parts), list[str])
    return []


def _parts(file: pq.ParquetFile, table: HistoryTable) -> Iterator[tuple[float, pa.Table]]:
    """The rows of a file with their hour (epoch s), sorted by time. Raises `ForeignFileError`."""
    last = 0.0
    for group in range(file.num_row_groups):
        for hour, rows in _hours(_bounded(file, group, table)):
            if not last <= hour < _LATEST:
                raise ForeignFileError("its rows are not in the order of time")
            yield hour, rows
            last = hour


def _hours(rows: pa.Table) -> Iterator[tuple[float, pa.Table]]:
    """The rows of each hour (epoch s), oldest first. Raises `ForeignFileError`."""
    if rows["at"].null_count:
        raise ForeignFileError("a row has no time")
    times = rows["at"].cast(pa.int64())
    if len(rows) and pc.min(times).as_py() < 0:
        raise ForeignFileError("a row is from before 1970")
    hours = pc.divide(times, round(HOUR * 1000))
    for hour in sorted(pc.unique(hours).to_pylist()):
        yield hour * HOUR, rows.filter(pc.equal(hours, hour))


def _bounded(file: pq.ParquetFile, group: int, table: HistoryTable) -> pa.Table:
    """The rows of a row group. Raises `ForeignFileError` for too many: equal rows make a huge group in a small file."""
    count = file.metadata.row_group(group).num_rows
    if count > _MOST_ROWS:
        raise ForeignFileError(f"its row group {group} has {count:,} rows, more than {_MOST_ROWS:,}")
    batches: list[pa.RecordBatch] = []
    size = 0
    try:
        for batch in file.iter_batches(_BATCH, row_groups=[group], use_threads=False):
            batch.validate(full=True)
            batches.append(batch)
            if (size := size + batch.nbytes) > _MOST_BYTES:
                raise ForeignFileError(f"its row group {group} takes more than {_MOST_BYTES / 2**20:.0f} MiB of memory")
    except (pa.ArrowException, OSError) as error:
        raise ForeignFileError(f"it can't be read ({error})") from error
    return pa.Table.from_batches(batches, file.schema_arrow).cast(table.schema)
