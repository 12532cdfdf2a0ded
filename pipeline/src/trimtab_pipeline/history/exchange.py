"""Export of a window of history to one file, and its import into a folder.

A ``.tar`` holds every table of its policies, each a Parquet file with a row group per cycle, and can be imported. A
``.parquet`` holds the bundles of one policy, for a notebook.
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

from trimtab_pipeline.history.anonymizer import Renaming
from trimtab_pipeline.history.files import (
    HOUR,
    ForeignFileError,
    HistoryFile,
    cycle_file,
    cycle_times,
    hour_file,
    put,
    read_cycle,
)
from trimtab_pipeline.history.reader import SCHEMAS, HistoryReader
from trimtab_pipeline.prometheus.bodies import joined, json_of

_MANIFEST = "manifest.json"
_FORMAT = "trimtab-history/1"
_LATEST = 253_402_300_800.0  # epoch s of the year 10000, too long for a file name
_LARGEST = 2**16  # bytes of a manifest
_MEMBER = re.compile(r"(?P<policy>[a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*)/(?P<table>[a-z]+)\.parquet")


class ExchangeError(ValueError):
    """A window that can't be exported, or a file that can't be imported. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class ExportedWindow:
    """The exported or imported window: number of cycles of each policy by its name in the file."""

    cycles: dict[str, int]
    begin: float
    end: float


def export(
    pasts: Sequence[HistoryReader], begin: float, end: float, target: Path, renaming: Renaming | None
) -> ExportedWindow:
    """Write the cycles from `begin` to `end` (epoch s) to `target`, and replace an earlier file at the end.

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
        _write_table(next(iter(times)), "bundles", (begin, end), target, renaming)
    elif target.suffix == ".tar":
        _write_tar(list(times), (begin, end), target, renaming)
    else:
        raise ExchangeError(f"{target.name} must end in .tar (all tables) or .parquet (the bundles)")
    return _window({_named(past, renaming): some for past, some in times.items()})


def _window(times: Mapping[str, Sequence[float]]) -> ExportedWindow:
    begins, ends = [some[0] for some in times.values()], [some[-1] for some in times.values()]
    return ExportedWindow({policy: len(some) for policy, some in times.items()}, min(begins), max(ends))


def _named(past: HistoryReader, renaming: Renaming | None) -> str:
    return renaming.policy(past.policy) if renaming else past.policy


def _write_table(
    past: HistoryReader, table: str, window: tuple[float, float], target: Path, renaming: Renaming | None
) -> None:
    written: list[float] = []

    def cycles() -> Iterator[pa.Table]:
        for time, rows in past.cycles(table, *window):
            written.append(time)
            yield renaming.table(rows) if renaming else rows

    put(target, SCHEMAS[table], cycles(), lambda: written)


def _write_tar(
    pasts: Sequence[HistoryReader], window: tuple[float, float], target: Path, renaming: Renaming | None
) -> None:
    with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as folder:
        aside = Path(folder, target.name)
        with tarfile.open(aside, "w") as tar:
            _add(tar, _MANIFEST, _manifest(Path(folder), hashed=renaming is not None))
            for past, table in itertools.product(pasts, SCHEMAS):
                file = Path(folder, f"{table}.parquet")
                _write_table(past, table, window, file, renaming)
                _add(tar, f"{_named(past, renaming)}/{table}.parquet", file)
        aside.replace(target)


def _manifest(folder: Path, *, hashed: bool) -> Path:
    path = folder / _MANIFEST
    path.write_text(json.dumps({"format": _FORMAT, "namesHashed": hashed}))
    return path


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    """Add a file under `name`, without the names of user and machine."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    tar.add(path, name, filter=anonymous)


def import_window(archive: Path, root: Path) -> ExportedWindow:
    """Unpack a ``.tar`` of `export` below `root`: hours, and the newest cycle of each policy as its state.

    All or nothing. Raises `ExchangeError` for another kind of file, or a policy that already has a history.
    """
    root.mkdir(parents=True, exist_ok=True)
    with _opened(archive) as tar, tempfile.TemporaryDirectory(prefix=".import-", dir=root) as folder:
        members = _members(tar)
        taken = sorted(policy for policy in members if (root / policy).exists())
        if taken:
            raise ExchangeError(f"{', '.join(taken)} has a history below {root} already; import into another folder")
        times = {
            (policy, table): _unpack(tar, member, Path(folder), policy, table)
            for policy, tables in members.items()
            for table, member in tables.items()
        }
        found = {policy: times.get((policy, "bundles"), []) for policy in members}
        if not all(found.values()):
            raise ExchangeError(f"{archive} holds a policy without cycles")
        for policy in members:
            (root / policy).parent.mkdir(exist_ok=True)
            Path(folder, policy).rename(root / policy)
    return _window(found)


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(archive, "r:") as tar:
            yield tar
    except tarfile.TarError as error:
        raise ExchangeError(f"{archive} is no .tar that `trimtab history export` wrote ({error})") from error


def _members(tar: tarfile.TarFile) -> dict[str, dict[str, tarfile.TarInfo]]:
    """Policy -> table -> its file. Everything that an export does not write is refused."""
    policies: dict[str, dict[str, tarfile.TarInfo]] = {}
    manifest: Any = None
    for member in tar:
        found = _MEMBER.fullmatch(member.name)
        if member.name == _MANIFEST:
            manifest = _manifest_of(tar, member)
        elif not member.isreg() or found is None or found["table"] not in SCHEMAS:
            raise ExchangeError(f"{tar.name!s} holds {member.name!r}, which no export writes")
        else:
            policies.setdefault(found["policy"], {})[found["table"]] = member
    if not policies:
        raise ExchangeError(f"{tar.name!s} holds no policy")
    if manifest != _FORMAT:
        raise ExchangeError(f"{tar.name!s} is of format {manifest!r}, this program imports {_FORMAT}")
    return policies


def _manifest_of(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    file = tar.extractfile(member)
    try:
        return json_of(joined(iter(lambda: file.read(_LARGEST), b""), _LARGEST))["format"] if file else None
    except (ValueError, KeyError, TypeError):
        return None


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, policy: str, table: str) -> list[float]:
    """Write the cycles of a member as a history's files, the newest in its own file. Returns their times."""
    source, target = folder / "member", folder / policy / table
    target.mkdir(parents=True)
    with tar.extractfile(member) as packed, source.open("wb") as unpacked:  # type: ignore[union-attr]
        shutil.copyfileobj(packed, unpacked)
    try:
        return _unmerge(source, target, SCHEMAS[table])
    except ForeignFileError as error:
        raise ExchangeError(f"{tar.name!s} holds {member.name}, but {error}") from error


def _unmerge(source: Path, target: Path, schema: pa.Schema) -> list[float]:
    whole = HistoryFile(0.0, _LATEST, source)
    times = cycle_times(whole, schema)
    if times != sorted(set(times)) or (times and not 0 <= times[0] <= times[-1] < _LATEST):
        raise ForeignFileError("its cycles are not in the order of time")
    for _, hour in itertools.groupby(times[:-1], key=lambda time: time // HOUR):
        held = list(hour)
        cycles = (read_cycle(whole, time, schema) for time in held)
        put(hour_file(target, held[0]).path, schema, cycles, held.copy)
    for time in times[-1:]:
        put(cycle_file(target, time).path, schema, [read_cycle(whole, time, schema)], times=None)
    return times
