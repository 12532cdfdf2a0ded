"""The decisions in a policy's history: a table beside those of load, written by the operator.

A cycle's rows are its decisions, and updates of earlier decisions; `record` is text that only its writer understands.
Files and retention are those of the other tables. A decision follows the writing of its load, so it has its own file; a
disk that can't be written loses only the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

import pyarrow as pa

from trimtab_pipeline.api import DecisionEntry
from trimtab_pipeline.history.files import ForeignFileError, cycle_times, listed, pinned, read_cycle
from trimtab_pipeline.history.store import History

FOLDER = "decisions"
"""Folder of the table in a policy's folder."""
COLUMNS = pa.schema(
    [("of", pa.timestamp("ms", "UTC")), ("outcome", pa.string()), ("moves", pa.int32()), ("record", pa.string())]
)
VERSION = "decisions/1"
_SCHEMA = pinned(COLUMNS, VERSION)
_KNOWN_LATER = 7200.0
"""Seconds within which the outcome of a decision is searched for."""


class DecisionHistories:
    """The decision tables of all policies below `root`."""

    def __init__(self, root: Path) -> None:
        self._root, self._tables, self._lock = root, dict[str, History](), Lock()

    def keep_decisions(self, policy: str, at: float, entries: Sequence[DecisionEntry]) -> None:
        """See `KeepsDecisions`."""
        with self._lock:
            table = self._tables.setdefault(policy, decision_history(self._root / policy))
            table.write(_rows(entries), at)


def decision_history(folder: Path) -> History:
    """The table of the policy whose history is in `folder`."""
    return History(folder / FOLDER, COLUMNS, VERSION)


def _rows(entries: Sequence[DecisionEntry]) -> pa.Table:
    return pa.table(
        {
            "of": pa.array([_milliseconds(entry.of) for entry in entries], pa.timestamp("ms", "UTC")),
            "outcome": [entry.outcome for entry in entries],
            "moves": pa.array([entry.moves for entry in entries], pa.int32()),
            "record": [entry.record for entry in entries],
        },
        schema=COLUMNS,
    )


def decisions(folder: Path, at: float = float("inf"), count: int = 10) -> tuple[DecisionEntry, ...]:
    """The last `count` decisions up to `at` (epoch seconds) of the policy whose history is in `folder`, oldest first.

    Each in its latest version: its outcome is searched for in the two hours after `at`. Unreadable files are skipped.
    """
    known: dict[int, DecisionEntry] = {}
    chosen: list[int] = []
    for cycle, entry in _backwards(folder / FOLDER, at + _KNOWN_LATER):
        of = _milliseconds(entry.of)
        known.setdefault(of, entry)
        if of == _milliseconds(cycle) and cycle <= at:
            chosen.append(of)
            if len(chosen) == count:
                break
    return tuple(known[of] for of in reversed(chosen))


def _milliseconds(at: float) -> int:
    return round(at * 1000)


def _backwards(folder: Path, until: float) -> Iterator[tuple[float, DecisionEntry]]:
    """(cycle, entry) up to `until`, the newest first; in a cycle its own decisions come before updates."""
    for file in reversed(listed(folder)):
        if file.begin > until:
            continue
        try:
            for time in sorted(cycle_times(file, _SCHEMA), reverse=True):
                if time <= until:
                    yield from ((time, entry) for entry in _entries(read_cycle(file, time, _SCHEMA)))
        except (ForeignFileError, FileNotFoundError):
            continue


def _entries(rows: pa.Table) -> list[DecisionEntry]:
    columns = (rows[name].to_pylist() for name in ("of", "outcome", "moves", "record"))
    found = [
        DecisionEntry(of.timestamp(), outcome, moves, text) for of, outcome, moves, text in zip(*columns, strict=True)
    ]
    return sorted(found, key=lambda entry: -entry.of)
