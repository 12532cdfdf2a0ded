"""A history as backtests replay it: cycle by cycle, with all inputs that the strategies had then.

demand    the rates of each bundle; its owner is the broker whose pod reported it
brokers   usage, limits, readiness and trust
facts     pins, isolation, anti-affinity, fixed weights, publish gaps; the owner of a bundle that was not measured
moves     those under way, and those that landed so recently that the brokers' usage lacks them; from the facts
averages  computed again from the demand, by the rule of `transform.averages`
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import TRAFFIC
from trimtab_pipeline.history.anonymizer import ISOLATION_LEFT_OUT
from trimtab_pipeline.history.averages import cycle_of
from trimtab_pipeline.history.dataset import BROKERS, FACTS, POLICIES
from trimtab_pipeline.history.facts import COMPLETE
from trimtab_pipeline.history.files import HOUR
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.history.reader import HistoryReader, HistorySummary
from trimtab_pipeline.history.recorded_facts import (
    RecordedMemory,
    RecordedMoves,
    fact_value,
    foreign_values,
    newest_memory,
    policy_of,
    traits_of,
)
from trimtab_pipeline.history.recorded_topics import RecordedTopics, by_cycle
from trimtab_pipeline.history.snapshot_tables import brokers_of
from trimtab_pipeline.transform.arrays import block, floats, positions
from trimtab_pipeline.transform.running_averages import RunningAverages
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import Bundles, ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray


class RecordedPolicy(NamedTuple):
    """The specification of the policy in force from `at` (epoch s) on, as JSON values."""

    at: float
    spec: Mapping[str, Any]


class Recording:
    """The history of one policy (``namespace/name``, or its name). Raises `NoHistoryError` when there is none."""

    def __init__(self, root: Place, policy: str) -> None:
        self._reader = HistoryReader(root, policy)
        self.policy = self._reader.policy

    @cached_property
    def summary(self) -> HistorySummary:
        """Span, usual interval and gaps. Raises `NoHistoryError` when no cycle can be read."""
        return self._reader.summary()

    def times(self, begin: float, end: float) -> list[float]:
        """Epoch seconds of the cycles from `begin` to `end`, oldest first."""
        return self._reader.times(begin, end)

    def damaged(self, begin: float, end: float) -> list[str]:
        """Unreadable files of that time, each with the cause."""
        return self._reader.damaged(begin, end)

    def specs(self, begin: float, end: float) -> tuple[RecordedPolicy, ...]:
        """The policies in force from `begin` to `end` (epoch s), oldest first: one for each change.

        Raises `ForeignFileError` for a file that can't be read.
        """
        found: list[RecordedPolicy] = []
        for table in self._reader.rows(POLICIES.name, begin - HOUR, end):
            for row in table.filter(pc.equal(table["kind"], "spec")).to_pylist():
                spec = fact_value(row["value"])
                if not found or found[-1].spec != spec:
                    found.append(RecordedPolicy(row["at"].timestamp(), spec))
        before = [one for one in found if one.at <= begin]
        return tuple(before[-1:] + [one for one in found if one.at > begin])

    def memory(self, before: float) -> RecordedMemory | None:
        """What the strategies remembered when the cycle at `before` (epoch s) began; None if that is not recorded.

        Raises `ForeignFileError` for a file that can't be read.
        """
        return newest_memory(self._reader.rows(POLICIES.name, before - 2 * HOUR, before), before)

    def _facts(self, begin: float, end: float) -> Iterator[pa.Table]:
        """Rows of `FACTS` from the hour of `begin` to `end` (epoch s). Raises `ForeignFileError`."""
        return self._reader.rows(FACTS.name, begin // HOUR * HOUR, end)

    def knows_bundles(self, at: float) -> bool:
        """Whether there are facts about bundles at `at` (epoch s), such as their owners and which are pinned.

        Raises `ForeignFileError` for a file that can't be read.
        """
        return any(pc.any(pc.equal(rows["kind"], "bundle")).as_py() for rows in self._facts(at, at))

    def hidden_isolation(self, begin: float, end: float) -> int:
        """Number of namespaces whose isolation an export with hashed names left out.

        Only the first and the last hour are read, because every hour has all facts. Raises `ForeignFileError` for a
        file that can't be read.
        """
        found = set()
        for rows in (*self._facts(begin, begin), *self._facts(end, end)):
            values = rows.filter(pc.equal(rows["kind"], "namespace")).select(["name", "value"]).to_pylist()
            found |= {row["name"] for row in values if ISOLATION_LEFT_OUT in fact_value(row["value"] or "{}")}
        return len(found)

    def topics(self, begin: float, end: float) -> RecordedTopics:
        """The recorded topics and sketches of bundles from `begin` to `end` (epoch s)."""
        return RecordedTopics(self._reader, begin, end)

    def cycles(self, begin: float, end: float) -> Iterator[ClusterLoad]:
        """The cluster in each cycle from `begin` to `end` (epoch s), oldest first, one in memory at a time.

        Raises `ForeignFileError` for a file that can't be read.
        """
        known, averages = _Facts(), RunningAverages()
        facts = by_cycle(self._facts(begin, end))
        brokers = by_cycle(map(_of_cycles, self._reader.rows(BROKERS.name, begin, end)))
        waiting, there = next(facts, None), next(brokers, None)
        for at, demand in self._reader.demand(begin, end):
            while waiting is not None and waiting[0] <= at:
                with foreign_values():
                    known.learn(waiting[1])
                waiting = next(facts, None)
            while there is not None and there[0] < at:
                there = next(brokers, None)
            if there is None or there[0] != at:
                continue  # the brokers' file is lost: nothing can be said about this cycle
            with foreign_values():
                load = _load(at, demand, there[1], known, averages)
            yield load


def _of_cycles(brokers: pa.Table) -> pa.Table:
    """The rows of `BROKERS` that were written with a cycle, not between two."""
    return brokers.filter(pc.equal(brokers["kind"], "cycle"))


@dataclass(frozen=True, eq=False)
class _KnownBundles:
    """The bundles that have facts, and those that were measured but have none; sorted by name, m rows.

    values: the facts about each bundle, as JSON values.
    """

    names: tuple[str, ...]
    values: Sequence[Mapping[str, Any]]

    @cached_property
    def column(self) -> pa.StringArray:
        """The names as a column."""
        return pa.array(self.names, pa.string())

    @cached_property
    def namespaces(self) -> tuple[str, ...]:
        """Names of their namespaces, sorted."""
        return tuple(sorted({name.rpartition("/")[0] for name in self.names}))

    @cached_property
    def namespace(self) -> IntArray:
        """(m,) row of each bundle's namespace."""
        place = {name: row for row, name in enumerate(self.namespaces)}
        return np.array([place[name.rpartition("/")[0]] for name in self.names], dtype=np.int64)

    @cached_property
    def pinned(self) -> BoolArray:
        """(m,) whether a user pinned it."""
        return np.array([one.get("pinned", False) for one in self.values], dtype=bool)

    @cached_property
    def last_unload(self) -> FloatArray:
        """(m,) epoch seconds of its last move, NaN if never moved."""
        return np.array([one.get("lastUnload", math.nan) for one in self.values], dtype=np.float64)

    @cached_property
    def moves(self) -> RecordedMoves:
        """The moves that were under way or had just landed."""
        return RecordedMoves(self.values)

    def owners(self, brokers: Sequence[str], measured: IntArray) -> IntArray:
        """(m,) row of each owner: the `measured` one (m,), else the one in the facts, else -1.

        A moving bundle belongs to its destination, as in `Bundles`, although its source may still report it.
        """
        at, owner = {name: row for row, name in enumerate(brokers)}, measured.copy()
        for row in {*np.flatnonzero(owner < 0).tolist(), *self.moves.rows}:
            owner[row] = at.get(self.values[row].get("owner") or "", measured[row])
        return owner


class _Lookup:
    """Caches the result of `positions` until a column changes."""

    def __init__(self) -> None:
        self._columns: tuple[Any, ...] = ()
        self._rows: IntArray = np.empty(0, dtype=np.int64)

    def __call__(self, wanted: pa.ChunkedArray, names: pa.Array | pa.ChunkedArray) -> IntArray:
        """See `positions`. Do not change the array."""
        if not (self._columns and wanted.equals(self._columns[0]) and names.equals(self._columns[1])):
            self._columns, self._rows = (wanted, names), positions(wanted, names)
        return self._rows


class _Counts:
    """Caches the numbers of a column by known bundle, until the column or the rows change."""

    def __init__(self) -> None:
        self._given: tuple[Any, ...] = ()
        self._counts: FloatArray = np.empty(0)

    def __call__(self, column: pa.ChunkedArray, row: IntArray, m: int) -> FloatArray:
        """(m,) the numbers, NaN where a bundle has none. Do not change the array. row: (k,) row of each number."""
        if not self._given or row is not self._given[1] or m != self._given[2] or not column.equals(self._given[0]):
            self._given, self._counts = (column, row, m), np.full(m, np.nan)
            self._counts[row] = column.to_numpy()
        return self._counts


class _Facts:
    """The newest facts about resources in the rows of `FACTS` that were read so far.

    values: kind -> name -> value, for all facts except those of bundles. brokers: names of the brokers in the last
    cycle.
    """

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        self.bundles = _KnownBundles((), ())
        self._texts: dict[str, str] = {}  # of the bundles, as written
        self._parsed: dict[str, Any] = {"{}": {}}  # most bundles share their text with others
        self._row, self.pod = _Lookup(), _Lookup()
        self.topics, self.sessions = _Counts(), _Counts()
        self.brokers: tuple[str, ...] = ()

    def learn(self, rows: pa.Table) -> None:
        """Take over the facts of a cycle, in the order in which they were written."""
        new: dict[str, str | None] = {}
        told = [*zip(*(rows[column].to_pylist() for column in FACTS.columns.names), strict=True)]
        for of in [name for kind, name, _ in told if kind == COMPLETE]:
            self.values.pop(of, None)
            new |= dict.fromkeys(self._texts) if of == "bundle" else {}
        for kind, name, text in told:
            if kind == "bundle":
                new[name] = text
            elif text is None:
                self.values.get(kind, {}).pop(name, None)
            else:
                self.values.setdefault(kind, {})[name] = fact_value(text)
        self._take(new)

    def see(self, bundles: pa.ChunkedArray) -> IntArray:
        """Rows (k,) of the measured `bundles` (k,) among the known ones. Bundles without a fact become known, too."""
        rows = self._row(bundles, self.bundles.column)
        if not (rows < 0).any():
            return rows
        new: dict[str, str | None] = dict.fromkeys(bundles.filter(pa.array(rows < 0)).to_pylist(), "{}")
        self._take({**self._replaced(new, {*bundles.to_pylist()}), **new})
        return self._row(bundles, self.bundles.column)

    def _replaced(self, new: Mapping[str, str | None], measured: Collection[str]) -> dict[str, str | None]:
        """Bundles that are gone: they have no fact, are no longer measured, and overlap some of the `new` bundles."""
        lost = [name for name, text in self._texts.items() if text == "{}" and name not in measured]
        ranges: dict[str, list[tuple[int, int]]] = {}
        for space, lower, upper in map(parse_bundle, new if lost else ()):
            ranges.setdefault(space, []).append((lower, upper))
        found: dict[str, str | None] = {}
        for name in lost:
            space, lower, upper = parse_bundle(name)
            if any(low < upper and lower < high for low, high in ranges.get(space, ())):
                found[name] = None
        return found

    def _take(self, new: Mapping[str, str | None]) -> None:
        """Take over the facts of bundles. None: the bundle is gone."""
        changed = {name: text for name, text in new.items() if self._texts.get(name) != text}
        if not changed:
            return
        self._texts = {name: text for name, text in {**self._texts, **changed}.items() if text is not None}
        parsed = self._parsed
        parsed |= {text: fact_value(text) for text in {*changed.values()} if text is not None and text not in parsed}
        names = tuple(sorted(self._texts))
        names = self.bundles.names if names == self.bundles.names else names
        self.bundles = _KnownBundles(names, [parsed[self._texts[name]] for name in names])


def _load(at: float, demand: pa.Table, table: pa.Table, known: _Facts, averages: RunningAverages) -> ClusterLoad:
    """The cluster at `at` (epoch s). table: rows of `BROKERS` of the cycle."""
    brokers, cycle, row = brokers_of(table, known.brokers), cycle_of(table, at), known.see(demand["bundle"])
    facts, known.brokers = known.bundles, brokers.names
    m = len(facts.names)
    all_in_order = len(row) == m and bool((row[1:] > row[:-1]).all())
    placed = partial(_placed, row=None if all_in_order else row, m=m)
    sample = placed(block(demand, TRAFFIC), unknown=np.nan)
    pod = known.pod(demand["pod"], table["pod"])
    owner = placed(pod, unknown=-1)
    time = placed(np.fmin(np.append(floats(table, "traffic_time"), np.nan)[pod], at), unknown=np.nan)
    after = averages.add(facts.names, sample, time, cycle)
    if (old := at - time > cycle.max_age).any():
        sample[old] = np.nan
    bundles = Bundles(
        names=facts.names,
        namespace=facts.namespace,
        owner=facts.owners(brokers.names, owner),
        short=after.short,
        long=after.long,
        topics=known.topics(demand["topics"], row, m),
        sessions=known.sessions(demand["sessions"], row, m),
        last_unload=facts.last_unload,
        pinned=facts.pinned,
        in_flight=facts.moves.in_flight,
        moving_from=facts.moves.sources(brokers.names),
        moving_share=facts.moves.share,
        newest=sample,
    )
    return ClusterLoad(
        brokers,
        bundles,
        facts.namespaces,
        at,
        traits={name: traits_of(value) for name, value in known.values.get("traits", {}).items()},
        policies={name: policy_of(value) for name, value in known.values.get("namespace", {}).items()},
        publish_gaps={name: float(value["seconds"]) for name, value in known.values.get("publishGap", {}).items()},
    )


def _placed(values: Any, *, row: IntArray | None, m: int, unknown: float) -> Any:
    """(m, ...) the `values` (k, ...) in their rows (k,), `unknown` in the others.

    row: None if each bundle was measured, in the order of the rows.
    """
    if row is None:
        return values
    found = np.full((m, *values.shape[1:]), unknown, dtype=values.dtype, order="F")
    found[row] = values
    return found
