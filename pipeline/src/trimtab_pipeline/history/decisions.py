"""What the operator writes into a policy's history: decisions, facts, and the policy in force.

A cycle's rows are its decisions, and updates of earlier decisions. Files and retention work as in the other tables.
When a cycle decides, its load has already been written. So decisions have files of their own. If the disk can't be
written, only the record of the decisions is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from threading import Lock
from typing import Any

import pyarrow as pa

from trimtab_pipeline.api import DecisionEntry, Fact, ForeignFileError
from trimtab_pipeline.history.dataset import DECISIONS, FACTS, POLICIES, HistoryDataset, PolicyDataset
from trimtab_pipeline.history.facts import FactLog, json_text
from trimtab_pipeline.history.files import hour_of, put, read_all, stamped
from trimtab_pipeline.history.location import Place

_OPERATOR = "operator"
"""Marks the operator's files in a table that the pipeline writes, too."""
_KNOWN_LATER = 7200.0
"""Seconds after a decision in which updates of it are searched for."""


class DecisionHistories:
    """The operator's tables of all policies below `root`."""

    def __init__(self, root: Place) -> None:
        self._dataset, self._lock = HistoryDataset(root), Lock()
        self._facts: dict[str, FactLog] = {}
        self._policies: dict[tuple[str, str], tuple[float, str]] = {}

    def keep_decisions(self, policy: str, at: float, entries: Sequence[DecisionEntry]) -> None:
        """See `KeepsDecisions`."""
        with self._lock:
            place = self._dataset.of(policy).cycle_file(DECISIONS, at)
            put(place, DECISIONS, [stamped(_rows(entries), at, DECISIONS.schema)])

    def write_facts(self, policy: str, at: float, facts: Iterable[Fact], complete: Collection[str] = ()) -> None:
        """See `KeepsFacts`."""
        with self._lock:
            log = self._facts.setdefault(policy, FactLog())
            rows = log.changes(at, facts=facts, complete=complete)
            if not len(rows):
                return
            place = self._dataset.of(policy).cycle_file(FACTS, at, _OPERATOR)
            try:
                put(place, FACTS, [stamped(rows, at, FACTS.schema)])
            except OSError:
                log.forget()
                raise

    def keep_policy(self, policy: str, at: float, spec: Any, memory: Any) -> None:
        """See `KeepsFacts`."""
        with self._lock:
            rows = [
                row
                for kind, value in (("spec", spec), ("memory", memory))
                if (row := self._new(policy, at, kind, value))
            ]
            if not rows:
                return
            table = pa.Table.from_pylist(rows, POLICIES.columns)
            put(self._dataset.of(policy).cycle_file(POLICIES, at), POLICIES, [stamped(table, at, POLICIES.schema)])
            for row in rows:
                self._policies[policy, row["kind"]] = hour_of(at), row["hash"]

    def _new(self, policy: str, at: float, kind: str, value: Any) -> dict[str, str] | None:
        text = json_text(value)
        mark = hashlib.sha256(text.encode()).hexdigest()
        known = self._policies.get((policy, kind)) == (hour_of(at), mark)
        return None if known else {"kind": kind, "hash": mark, "value": text}


def _rows(entries: Sequence[DecisionEntry]) -> pa.Table:
    return pa.table(
        {
            "of": pa.array([_milliseconds(entry.of) for entry in entries], pa.timestamp("ms", "UTC")),
            "outcome": [entry.outcome for entry in entries],
            "moves": pa.array([entry.moves for entry in entries], pa.int32()),
            "record": [entry.record for entry in entries],
        },
        schema=DECISIONS.columns,
    )


def decisions(history: PolicyDataset, at: float = float("inf"), count: int = 10) -> tuple[DecisionEntry, ...]:
    """The last `count` decisions up to `at` (epoch seconds) in `history`, oldest first.

    Each is in its latest version: updates are searched for in the two hours after `at`. Unreadable files are skipped.
    """
    known: dict[int, DecisionEntry] = {}
    chosen: list[int] = []
    for cycle, entry in _backwards(history, at + _KNOWN_LATER):
        of = _milliseconds(entry.of)
        known.setdefault(of, entry)
        if of == _milliseconds(cycle) and cycle <= at:
            chosen.append(of)
            if len(chosen) == count:
                break
    return tuple(known[of] for of in reversed(chosen))


def _milliseconds(at: float) -> int:
    return round(at * 1000)


def _backwards(history: PolicyDataset, until: float) -> Iterator[tuple[float, DecisionEntry]]:
    """(cycle, entry) up to `until`, the newest first. Within a cycle, its own decisions come before updates."""
    for file in reversed(history.files(DECISIONS)):
        if file.begin > until:
            continue
        try:
            rows = read_all(file, DECISIONS)
        except (ForeignFileError, FileNotFoundError):
            continue
        for time, entry in _entries(rows):
            if time <= until:
                yield time, entry


def _entries(rows: pa.Table) -> list[tuple[float, DecisionEntry]]:
    """(cycle, entry), the newest cycle first, and within a cycle the newest decision first."""
    columns = (rows[name].to_pylist() for name in ("at", "of", "outcome", "moves", "record"))
    found = [
        (at.timestamp(), DecisionEntry(of.timestamp(), outcome, moves, text))
        for at, of, outcome, moves, text in zip(*columns, strict=True)
    ]
    return sorted(found, key=lambda one: (-one[0], -one[1].of))
