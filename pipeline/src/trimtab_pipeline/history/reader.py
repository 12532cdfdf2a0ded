"""Reads a policy's history without Spark. It never changes the files.

It may run while an operator writes them. Unreadable files are skipped and reported. Only the operator renames them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import groupby, pairwise
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import DecisionEntry, ForeignFileError
from trimtab_pipeline.history.averages import HORIZON, averages_at
from trimtab_pipeline.history.dataset import BROKERS, DEMAND, FACTS, FINDINGS, TABLES, HistoryDataset
from trimtab_pipeline.history.decisions import decisions
from trimtab_pipeline.history.facts import known_bundles
from trimtab_pipeline.history.files import (
    HOUR,
    HistoryFile,
    HistoryTable,
    between,
    cycle_times,
    cycles_in,
    damage,
    hour_of,
    listed,
    merged_from,
    parsed,
    read_all,
    read_cycle,
)
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.history.row_groups import RowGroupReader, TimedGroup, in_order, parts_of
from trimtab_pipeline.history.snapshot_tables import load_of
from trimtab_pipeline.history.state import BUNDLES
from trimtab_strategies.model import ClusterLoad

DAY = 86_400.0
_USUAL = 2.0  # times the usual interval; a longer pause is a gap
T = TypeVar("T")
_MERGES = 3  # attempts to read a cycle that an operator has just moved to another file


class NoHistoryError(ValueError):
    """There is no such folder, policy or cycle. The message says what exists instead."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Two successive cycles (epoch s) that are more than twice the usual interval apart."""

    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """The content of a history.

    begin, end: epoch s of the oldest and newest cycle. interval: usual seconds between cycles; NaN for a single cycle.
    tables:     name of a table -> its bytes. files: number of files. damaged: (file, cause) of unreadable or renamed
                files.
    """

    policy: str
    begin: float
    end: float
    cycles: int
    interval: float
    gaps: tuple[Gap, ...]
    tables: Mapping[str, int]
    files: int
    damaged: tuple[tuple[str, str], ...]

    @property
    def bytes(self) -> int:
        """Size of all tables."""
        return sum(self.tables.values())

    def a_day(self, size: float) -> float:
        """Bytes per day, if these cycles take `size` bytes, at the usual interval; NaN for a single cycle."""
        return size / self.cycles * DAY / self.interval

    @property
    def bytes_per_day(self) -> float:
        """Size of a day of cycles at the usual interval; NaN for a single cycle."""
        return self.a_day(self.bytes)


def policies(root: Place) -> tuple[str, ...]:
    """Names (``namespace/name``) of the policies with a history below `root`. Raises `NoHistoryError` without any."""
    dataset = HistoryDataset(root)
    if not dataset.root.exists():
        raise NoHistoryError(f"{root} is not a folder; give the one that `trimtab run --history` writes to")
    found = dataset.policies()
    if not found:
        raise NoHistoryError(f"no history below {root}; give the folder that `trimtab run --history` writes to")
    return tuple(found)


class HistoryReader:
    """The history of one policy. Raises `NoHistoryError` when there is none."""

    def __init__(self, root: Place, policy: str) -> None:
        known = policies(root)
        named = [name for name in known if policy in (name, name.partition("/")[2])]
        if len(named) != 1:
            problem = "is in several namespaces" if named else "has no history"
            raise NoHistoryError(f"policy {policy!r} {problem} below {root}; there are: {', '.join(named or known)}")
        self.policy = named[0]
        dataset = HistoryDataset(root)
        self._history, self._state = dataset.of(self.policy), dataset.state(self.policy)

    @cached_property
    def _found(self) -> tuple[dict[float, HistoryFile], list[tuple[HistoryFile, str]]]:
        """The file with the demand of each cycle, oldest first; and the unreadable files, each with the cause."""
        held: dict[float, HistoryFile] = {}
        damaged: list[tuple[HistoryFile, str]] = []
        # A cycle's own file is newer than a merged one: it comes last, and replaces it.
        for file in sorted(self._history.files(DEMAND), key=lambda file: not file.merged):
            try:
                held |= dict.fromkeys(cycle_times(file, DEMAND), file)
            except ForeignFileError as error:
                damaged.append((file, str(error)))
            except FileNotFoundError:  # it was merged in the meantime
                continue
        return dict(sorted(held.items())), damaged

    def times(self, begin: float = float("-inf"), end: float = float("inf")) -> list[float]:
        """Evaluation times (epoch s) of the cycles from `begin` to `end`, oldest first."""
        return [time for time in self._found[0] if begin <= time <= end]

    def damaged(self, begin: float, end: float) -> list[str]:
        """For each unreadable file of cycles from `begin` to `end` (epoch s), its name and the cause."""
        return [f"{file.place}: {why}" for file, why in self._found[1] if file.begin <= end and file.end >= begin]

    def summary(self, *, whole: bool = False) -> HistorySummary:
        """Span, size and gaps. whole: look for damage in all rows, not only in the metadata of each file.

        Raises `NoHistoryError` when no cycle can be read.
        """
        times = self.times()
        if not times:
            why = "".join(f"; {file.place.name}: {text}" for file, text in self._found[1][:1])
            raise NoHistoryError(f"policy {self.policy} has no cycle that can be read below {self._history.root}{why}")
        steps = [after - before for before, after in pairwise(times)]
        usual = statistics.median(steps) if steps else float("nan")
        gaps = tuple(Gap(a, b) for a, b in pairwise(times) if b - a > _USUAL * usual)
        files = list(self._history.all_files())
        damaged = [(str(place), "it was set aside") for place in self._history.set_aside()]
        damaged += [] if whole else [(str(file.place), why) for file, why in self._found[1]]
        sizes = dict.fromkeys(TABLES, 0)
        for table, file in files:
            sizes[table.name] += file.bytes
            if (table is not DEMAND or whole) and (why := damage(file, table, whole=whole)):
                damaged.append((str(file.place), why))
        return HistorySummary(
            self.policy, times[0], times[-1], len(times), usual, gaps, sizes, len(files), tuple(damaged)
        )

    def cycle(self, table: str, at: float) -> pa.Table:
        """Rows of `table` (a name in `TABLES`) in the cycle at `at`; none if the table has no such cycle.

        Raises `ForeignFileError` when they can't be read.
        """
        for _ in range(_MERGES):
            try:
                return self._rows(table, at)
            except FileNotFoundError:  # merged between listing and reading; the hour's file has the cycle now
                continue
        return self._rows(table, at)

    def _rows(self, name: str, at: float) -> pa.Table:
        """The result of `cycle`. Raises `FileNotFoundError` when a file disappeared during the search."""
        table = TABLES[name]
        files = [file for place in self._history.hour(table, at).files() if (file := parsed(place))]
        for file in sorted(files, key=lambda file: file.merged):  # a cycle's own file is newer
            if not file.merged and (file.begin != at or file.writer):
                continue
            try:
                if table.by_cycle and at not in cycle_times(file, table):
                    continue
                rows = read_cycle(file, at, table) if table.by_cycle else between(read_all(file, table), at, at)
            except ForeignFileError as error:
                raise ForeignFileError(f"{file.place}: {error}") from error
            if table.by_cycle or len(rows):
                return rows
        return table.schema.empty_table()

    def cycles(self, table: str, begin: float, end: float) -> Iterator[tuple[float, pa.Table]]:
        """(evaluation time, rows) of each cycle from `begin` to `end` (epoch s), one in memory at a time."""
        for time in self.times(begin, end):
            yield time, self.cycle(table, time)

    def demand(self, begin: float, end: float) -> Iterator[tuple[float, pa.Table]]:
        """`cycles` of the demand, without the column `AT`. Each file is opened once.

        Raises `ForeignFileError` when one can't be read.
        """
        held, groups = self._found[0], RowGroupReader(DEMAND, ("bundle", "pod", "topics", "sessions"))
        for file, times in groupby(self.times(begin, end), key=held.__getitem__):
            yield from self._demand(groups, file, list(times))

    def _demand(
        self, groups: RowGroupReader, file: HistoryFile, times: Sequence[float]
    ) -> Iterator[tuple[float, pa.Table]]:
        try:
            with groups.opened(file.place) as source:
                there = cycles_in(source, file)
                yield from zip(times, groups.read([there.index(time) for time in times]), strict=True)
        except FileNotFoundError:  # merged since it was listed; the reader of single cycles looks again
            for time in times:
                yield time, self.cycle(DEMAND.name, time).select(DEMAND.columns.names)

    def rows(self, table: str, begin: float, end: float) -> Iterator[pa.Table]:
        """Rows of `table` from `begin` to `end` (epoch s), sorted by time, a part of an hour at a time.

        Raises `ForeignFileError` for a file that can't be read.
        """
        found = TABLES[table]
        if found.by_cycle:
            yield from (rows for _, rows in self.cycles(table, begin, end))
            return
        hours = sorted(
            {file.hour for file in self._history.files(found) if begin - HOUR < file.end and file.begin <= end}
        )
        for hour in hours:
            yield from self._hour(found, hour, begin, end)

    def _hour(self, table: HistoryTable, hour: float, begin: float, end: float) -> Iterator[pa.Table]:
        last = -math.inf  # epoch ms of the last row that was yielded
        for attempt in range(_MERGES):
            try:
                for rows in in_order(self._parts(table, hour, last), partial(_read, table)):
                    held, last = between(rows, max(begin, (last + 1) / 1000), end), rows["at"][-1].value
                    if len(held):
                        yield held
            except FileNotFoundError:  # merged meanwhile
                if attempt == _MERGES - 1:
                    raise
            else:
                return

    def _parts(self, table: HistoryTable, hour: float, last: float) -> list[TimedGroup]:
        """The parts of an hour with rows after `last` (epoch ms)."""
        files = listed(self._history.hour(table, hour))
        merged = {name for file in files if file.merged for name in merged_from(file, table)}
        found = [_named(file, partial(parts_of, file, table)) for file in files if file.place.name not in merged]
        return [part for parts in found for part in parts if part.end > last]

    def decisions(self, at: float = float("inf"), count: int = 10) -> tuple[DecisionEntry, ...]:
        """The last `count` decisions up to `at` (epoch s), oldest first, each in its latest version."""
        return decisions(self._history, at, count)

    def load(self, at: float = float("inf")) -> ClusterLoad:
        """The snapshot of the newest cycle up to `at`, with notes about damaged files. Its bundles existed then.

        The averages are those of the cycle's state. If that no longer exists, they are computed from the demand. Raises
        `NoHistoryError` if there is no such cycle, `ForeignFileError` if it can't be read.
        """
        time = self._newest(at)
        brokers, quality = (self.cycle(table.name, time) for table in (BROKERS, FINDINGS))
        if not len(brokers):
            raise NoHistoryError(f"policy {self.policy}: the brokers' file of its cycle of {_utc(time)} is lost")
        damaged = self.damaged(time - HORIZON, at)
        there = set(self.cycle(DEMAND.name, time)["bundle"].to_pylist())
        try:
            there |= known_bundles(self.rows(FACTS.name, hour_of(time), time))
        except ForeignFileError as error:
            damaged.append(str(error))
        bundles = self._bundles(time, damaged)
        bundles = bundles.filter(pc.is_in(bundles["bundle"], pa.array(sorted(there), pa.string())))
        load = load_of(time, bundles, brokers, quality)
        notes = (*load.quality.notes, *(f"left out, as it is damaged: {text}" for text in damaged))
        return replace(load, quality=replace(load.quality, notes=notes))

    def owners(self, at: float = float("inf")) -> dict[str, str]:
        """Bundle -> its broker (empty without one), for the bundles measured in the newest cycle up to `at`.

        Raises `NoHistoryError` if there is no such cycle.
        """
        time = self._newest(at)
        brokers, demand = self.cycle(BROKERS.name, time), self.cycle(DEMAND.name, time)
        serving = dict(zip(brokers["pod"].to_pylist(), brokers["broker"].to_pylist(), strict=True))
        pods = demand["pod"].to_pylist()
        return dict(zip(demand["bundle"].to_pylist(), (serving.get(pod, "") for pod in pods), strict=True))

    def _newest(self, at: float) -> float:
        times = self.times(end=at)
        if not times:
            first = [_utc(time) for time in self.times()[:1]]
            there = f"the oldest is of {first[0]}" if first else "there is none at all"
            raise NoHistoryError(f"policy {self.policy} has no cycle up to then: {there}")
        return times[-1]

    def _bundles(self, at: float, damaged: list[str]) -> pa.Table:
        """`BUNDLE_STATE` of the cycle at `at`. Earlier cycles that can't be read are added to `damaged`."""
        for file in listed(self._state / BUNDLES.name):
            if file.begin == at:
                try:
                    return read_all(file, BUNDLES)
                except (ForeignFileError, FileNotFoundError):
                    break
        return averages_at(self._readable(at, damaged))

    def _readable(self, at: float, damaged: list[str]) -> Iterator[tuple[float, pa.Table, pa.Table]]:
        """The demand and the brokers of the cycles that the averages at `at` include, oldest first."""
        for time in self.times(at - HORIZON, at):
            try:
                demand, brokers = (self.cycle(table.name, time) for table in (DEMAND, BROKERS))
            except ForeignFileError as error:
                damaged.append(str(error))
                continue
            if len(brokers):  # else their file is lost, and with it the rule of the averages
                yield time, demand, brokers


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _read(table: HistoryTable, part: TimedGroup) -> pa.Table:
    return _named(part.file, partial(part.read, table))


def _named(file: HistoryFile, read: Callable[[], T]) -> T:
    """The result of `read`. Raises `ForeignFileError` with the name of the `file` when it can't be read."""
    try:
        return read()
    except ForeignFileError as error:
        raise ForeignFileError(f"{file.place}: {error}") from error
