"""Reader of a policy's history, without Spark and without any change to the files.

It may run while an operator writes them. Unreadable files are skipped and reported; only the operator renames them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.history.files import ForeignFileError, HistoryFile, cycle_times, listed, pinned, read_cycle
from trimtab_pipeline.history.snapshot_tables import load_of
from trimtab_pipeline.history.writer import TABLES
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray

SCHEMAS = {name: pinned(*table) for name, table in TABLES.items()}
"""Schema of each table's files."""
DamagedError = ForeignFileError
"""A file of the history that can't be read; the message says why."""
DAY = 86_400.0
_USUAL = 2.0  # times the usual interval: longer is a gap
_MERGES = 3  # attempts to find a cycle that an operator has just moved to another file


@dataclass(frozen=True, slots=True)
class Course:
    """Load over time; t cycles of n brokers.

    times:      (t,) epoch s. brokers: names.
    cpu:        (t, n) percent of the limit; NaN where it was unknown or not trusted.
    throughput: (t,) bytes/s in and out of all brokers, as they reported it; NaN where none did.
    damaged:    for each unreadable cycle why it is missing.
    """

    times: FloatArray
    brokers: tuple[str, ...]
    cpu: FloatArray
    throughput: FloatArray
    damaged: tuple[str, ...] = ()


class NoHistoryError(ValueError):
    """There is no such folder, policy or cycle. The message says what exists instead."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Two cycles (epoch s) that follow each other after more than twice the usual interval."""

    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """The content of a history.

    begin, end: epoch s of the oldest and the newest cycle. interval: usual seconds between two; NaN for a single one.
    bytes:      of all tables, in `files` files. damaged: (file, cause) of unreadable or renamed files.
    """

    policy: str
    begin: float
    end: float
    cycles: int
    interval: float
    gaps: tuple[Gap, ...]
    bytes: int
    files: int
    damaged: tuple[tuple[str, str], ...]

    @property
    def bytes_per_day(self) -> float:
        """Size of a day of cycles at the usual interval; NaN for a single cycle."""
        return self.bytes / self.cycles * DAY / self.interval


def policies(root: Path) -> tuple[str, ...]:
    """Names (``namespace/name``) of the policies with a history below `root`. Raises `NoHistoryError` without any."""
    if not root.is_dir():
        raise NoHistoryError(f"{root} is not a folder; give the one that `trimtab run --history` writes to")
    found = sorted(str(path.parent.relative_to(root)) for path in root.glob("[!.]*/[!.]*/bundles") if path.is_dir())
    if not found:
        raise NoHistoryError(f"no history below {root}; give the folder that `trimtab run --history` writes to")
    return tuple(found)


class HistoryReader:
    """The history of one policy. Raises `NoHistoryError` when there is none."""

    def __init__(self, root: Path, policy: str) -> None:
        known = policies(root)
        named = [name for name in known if policy in (name, name.partition("/")[2])]
        if len(named) != 1:
            problem = "is in several namespaces" if named else "has no history"
            raise NoHistoryError(f"policy {policy!r} {problem} below {root}; there are: {', '.join(named or known)}")
        self.policy = named[0]
        self.folder = root / self.policy

    @cached_property
    def _found(self) -> tuple[dict[float, HistoryFile], list[tuple[str, str]]]:
        """The file of the bundles of each cycle, oldest first; and the unreadable files."""
        held: dict[float, HistoryFile] = {}
        damaged = [(str(path), "it was set aside") for path in sorted(self.folder.glob("*/*.bad"))]
        for file in sorted(listed(self.folder / "bundles"), key=lambda file: not file.merged):  # a cycle's own is newer
            try:
                held |= dict.fromkeys(cycle_times(file, SCHEMAS["bundles"]), file)
            except ForeignFileError as error:
                damaged.append((str(file.path), str(error)))
            except FileNotFoundError:  # it was merged in the meantime
                continue
        return dict(sorted(held.items())), damaged

    def times(self, begin: float = float("-inf"), end: float = float("inf")) -> list[float]:
        """Evaluation times (epoch s) of the cycles from `begin` to `end`, oldest first."""
        return [time for time in self._found[0] if begin <= time <= end]

    def summary(self) -> HistorySummary:
        """Span, size and gaps. Raises `NoHistoryError` when not one cycle can be read."""
        times = self.times()
        if not times:
            raise NoHistoryError(f"policy {self.policy} has no cycle that can be read below {self.folder}")
        steps = [after - before for before, after in pairwise(times)]
        usual = statistics.median(steps) if steps else float("nan")
        gaps = tuple(Gap(a, b) for a, b in pairwise(times) if b - a > _USUAL * usual)
        sizes = [size for path in self.folder.glob("*/*.parquet") if (size := _size(path)) is not None]
        return HistorySummary(
            self.policy, times[0], times[-1], len(times), usual, gaps, sum(sizes), len(sizes), tuple(self._found[1])
        )

    def cycle(self, table: str, at: float) -> pa.Table:
        """Rows of `table` (one of `TABLES`) in the cycle at `at`; none where that table has no such cycle.

        Raises `ForeignFileError` when they can't be read.
        """
        for _ in range(_MERGES):
            try:
                return self._rows(table, at)
            except FileNotFoundError:  # merged between listing and reading; its hour has the cycle now
                continue
        return self._rows(table, at)

    def _rows(self, table: str, at: float) -> pa.Table:
        """The result of `cycle`. Raises `FileNotFoundError` when a file disappeared during the search."""
        schema, folder = SCHEMAS[table], self.folder / table
        for file in reversed([file for file in listed(folder) if file.begin <= at <= file.end]):
            try:
                if at in cycle_times(file, schema):
                    return read_cycle(file, at, schema)
            except ForeignFileError as error:
                raise ForeignFileError(f"{file.path}: {error}") from error
        return schema.empty_table()

    def cycles(self, table: str, begin: float, end: float) -> Iterator[tuple[float, pa.Table]]:
        """(evaluation time, rows) of each cycle from `begin` to `end` (epoch s), one in memory at a time."""
        for time in self.times(begin, end):
            yield time, self.cycle(table, time)

    def course(self, begin: float, end: float, points: int) -> Course:
        """Load from `begin` to `end` (epoch s), of at most `points` cycles at equal distances.

        One that can't be read is left out. Raises `NoHistoryError` when there is none left.
        """
        times = self.times(begin, end)
        if not times:
            raise NoHistoryError(f"policy {self.policy} has no cycle in that time")
        read: dict[float, pa.Table] = {}
        damaged: list[str] = []
        for time in times[:: -(-len(times) // points)]:
            try:
                read[time] = self.cycle("picture", time)
            except ForeignFileError as error:
                damaged.append(str(error))
        if not read:
            raise NoHistoryError(f"policy {self.policy} has no cycle in that time that can be read: {damaged[0]}")
        snapshots = list(read.values())
        brokers = tuple(sorted({name for snapshot in snapshots for name in snapshot["broker"].to_pylist()}))
        cpu = np.stack([_cpu(snapshot, brokers) for snapshot in snapshots])
        flow = np.array([_throughput(snapshot) for snapshot in snapshots])
        return Course(np.array(list(read)), brokers, cpu, flow, tuple(damaged))

    def load(self, at: float = float("inf")) -> ClusterLoad:
        """The snapshot of the newest cycle not after `at`. Raises `NoHistoryError` if there is none."""
        times = self.times(end=at)
        if not times:
            first = [datetime.fromtimestamp(time, UTC).isoformat() for time in self.times()[:1]]
            there = f"the oldest is of {first[0]}" if first else "there is none at all"
            raise NoHistoryError(f"policy {self.policy} has no cycle up to then: {there}")
        tables = (self.cycle(name, times[-1]) for name in ("bundles", "picture", "quality"))
        return load_of(times[-1], *tables)


def _size(path: Path) -> int | None:
    """Bytes of a file, None when it no longer exists."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _cpu(snapshot: pa.Table, brokers: tuple[str, ...]) -> FloatArray:
    """(n,) percent of CPU of the `brokers` that were trusted, NaN of the others."""
    trusted = snapshot.filter(snapshot["trusted"])
    row = pc.index_in(pa.array(brokers, pa.string()), value_set=trusted["broker"])
    percent = pc.multiply(pc.divide(trusted["cpu"], trusted["cpu_limit"]), 100.0).take(row)
    cpu: FloatArray = percent.to_numpy().astype(np.float64)
    return cpu


def _throughput(snapshot: pa.Table) -> float:
    total = pc.sum(pc.add(snapshot["throughput_in"], snapshot["throughput_out"])).as_py()
    return float("nan") if total is None else float(total)
