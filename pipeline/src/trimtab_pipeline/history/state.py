"""The state of a policy: its brokers and bundles after the last cycles, which the next cycle continues from.

The state is the newest cycle whose files of both tables can be read, also after a restart. The folder keeps two cycles.
It is separate from the history, so retention does not touch it. A state that can't be written stays in memory, so
averages survive a full or lost volume.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import TypeVar

import pyarrow as pa

from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.columns import BROKER_STATE, BUNDLE_STATE, LONG, SHORT, TRAFFIC
from trimtab_pipeline.history.files import (
    HistoryFile,
    HistoryTable,
    State,
    cycle_name,
    listed,
    parsed,
    put,
    read_all,
    stamped,
)
from trimtab_pipeline.history.location import Location

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")
_KEPT = 2  # cycles
_POLICY = pa.field("policy", pa.string())

BROKERS = HistoryTable("brokers", pa.schema([_POLICY, *BROKER_STATE]), codec="snappy")
BUNDLES = HistoryTable(
    "bundles",
    pa.schema([_POLICY, *BUNDLE_STATE]),
    plain=dict.fromkeys(("bundle", *TRAFFIC, *SHORT, *LONG, "time"), "PLAIN"),
    codec="snappy",
)
STATE_TABLES = (BROKERS, BUNDLES)
"""Tables of the state, in the order in which a cycle writes them. One query can read the states of several policies,
because the rows have a column ``policy``."""


@dataclass(frozen=True)
class LastState:
    """The state that a cycle continues from.

    bundles: where Spark can read them, or the rows (`BUNDLE_STATE`) in memory. brokers: rows of `BROKER_STATE`.
    """

    bundles: State
    brokers: pa.Table


NO_STATE = LastState(BUNDLE_STATE.empty_table(), BROKER_STATE.empty_table())
"""The state before the first cycle."""


class StateStore:
    """The state of `policy` (``namespace/name``) in `folder`, which is created when it is missing."""

    def __init__(self, folder: Location, policy: str) -> None:
        self.folder, self._policy = folder, policy
        self._held: tuple[float, LastState] | None = None  # evaluation time and state that could not be written
        self._known: tuple[float, LastState] | None = None  # the last one that was written or read
        self._checked: Location | None = None  # the last file that was written, or read as a whole
        self._untrusted: list[float] = []  # evaluation times of the last cycles without a trusted broker
        self._cleaned = False
        self._lock = RLock()  # a broker refresh reads the state while a cycle runs

    def last(self, at: float, horizon: float) -> LastState:
        """The newest state in the `horizon` seconds before `at` (epoch s); `NO_STATE` when there is none.

        While the folder can't be read, this returns the last state that was written or read.
        """
        with self._lock:
            if self._held is not None and at - horizon <= self._held[0] < at:
                return self._held[1]
            try:
                self._clean()
                return self._newest(at, horizon)
            except OSError as error:
                if self._known is not None and at - horizon <= self._known[0] < at:
                    return self._known[1]
                _LOGGER.warning("the state in %s can't be read, so averages begin anew: %s", self.folder, error)
                return NO_STATE

    def write(self, brokers: pa.Table, bundles: pa.Table, at: float, *, trusted: bool = True) -> None:
        """Keep the state at `at` (epoch s, to the millisecond). trusted: whether any of its brokers is trusted.

        A state that is not trusted removes only other untrusted states: the operator's clock may be days ahead, and
        then all states look old.
        Raises `OSError` when the state can't be written. It then stays in memory until a later one is written.
        """
        with self._lock:
            self._held = at, LastState(bundles.select(BUNDLE_STATE.names), brokers.select(BROKER_STATE.names))
            self._clean()
            for table, rows in zip(STATE_TABLES, (brokers, bundles), strict=True):
                place = self.folder / table.name / cycle_name(at)
                owned = rows.append_column(_POLICY, pa.repeat(pa.scalar(self._policy), len(rows)))
                put(place, table, [stamped(owned, at, table.schema)])
            self._known = at, LastState(str(place), self._held[1].brokers)
            self._held, self._checked = None, place
            self._remove_old(at, trusted=trusted)

    def doubt(self) -> None:
        """Check the files again before their next use, because reading them failed."""
        self._checked = None

    def _newest(self, at: float, horizon: float) -> LastState:
        brokers = {file.begin: file for file in self._files(BROKERS)}
        for file in reversed(self._files(BUNDLES)):
            if file.begin < at - horizon:
                break
            if file.begin >= at or file.begin not in brokers:
                continue
            rows = _readable(brokers[file.begin], BROKERS)
            if rows is not None and self._is_readable(file):
                self._known = file.begin, LastState(str(file.place), rows.select(BROKER_STATE.names))
                return self._known[1]
        return NO_STATE

    def _files(self, table: HistoryTable) -> list[HistoryFile]:
        return [file for file in listed(self.folder / table.name) if not file.merged]

    def _is_readable(self, file: HistoryFile) -> bool:
        """Whether the whole file can be read. Each file is tested once, because that takes as long as Spark's read."""
        if file.place != self._checked:
            if _readable(file, BUNDLES) is None:
                return False
            self._checked = file.place
        return True

    def _clean(self) -> None:
        """At the first call, remove partly written files and set foreign files aside."""
        if self._cleaned:
            return
        for table in STATE_TABLES:
            clean(self.folder / table.name)
        self._cleaned = True

    def _remove_old(self, at: float, *, trusted: bool) -> None:
        """Keep the newest two cycles up to `at`. Cycles that are not `trusted` only remove each other.

        A trusted cycle also removes those after `at`: their clock was ahead, and later they would count as the newest.
        """
        self._untrusted = [] if trusted else [*self._untrusted, at]
        for table in STATE_TABLES:
            files = self._files(table)
            past = [file for file in files if file.begin <= at if trusted or file.begin in self._untrusted]
            future = [file for file in files if trusted and file.begin > at]
            for file in [*past[:-_KEPT], *future]:
                file.place.remove()


def clean(folder: Location) -> None:
    """Remove half-written files from `folder`, and set aside those with foreign names. Raises `OSError`."""
    for place in folder.files():
        if place.name.endswith(".tmp"):
            place.remove()
        elif place.name.endswith(".parquet") and parsed(place) is None:
            set_aside(place, "its name is not an evaluation time")


def set_aside(place: Location, why: str) -> None:
    """Rename an unusable file, so it is never read again but stays available for inspection."""
    bad = place.parent / f"_{place.name.removesuffix('.parquet')}.bad"
    place.move(bad)
    _LOGGER.warning("history file %s is set aside as %s: %s", place, bad.name, why)


def usable(file: HistoryFile, read: Callable[[], T]) -> T | None:
    """The result of `read`; None if the file is damaged. Such a file is set aside.

    Raises `OSError` or `MemoryError` when reading failed for another reason, which may be temporary.
    """
    try:
        return read()
    except ForeignFileError as error:
        if (cause := error.__cause__) is not None and _may_pass(cause):
            raise cause from None
        if file.place.exists():  # an hour's file is read for each of its cycles, and may be set aside already
            set_aside(file.place, str(error))
        return None


def _may_pass(error: BaseException) -> bool:
    """Whether the cause lies outside of the file. Arrow's errors about damage have no `errno` and no AWS code."""
    if isinstance(error, OSError):
        return error.errno is not None or "AWS Error" in str(error)
    return isinstance(error, MemoryError)


def _readable(file: HistoryFile, table: HistoryTable) -> pa.Table | None:
    """The rows; None if the file can't be read or is gone."""
    try:
        return usable(file, partial(read_all, file, table))
    except FileNotFoundError:
        return None
