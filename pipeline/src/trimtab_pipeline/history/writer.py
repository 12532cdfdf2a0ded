"""Writer of a policy's history and state.

If the disk can't be written, only the cycle's history is lost. The state for the next cycle stays in memory, and old
files are still removed. The problem is logged once when it begins, and once when it is over.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Lock

import pyarrow as pa

from trimtab_pipeline.api import Retention, Topology
from trimtab_pipeline.columns import INSIDE
from trimtab_pipeline.history.dataset import (
    BROKERS,
    DEMAND,
    FACTS,
    FINDINGS,
    SKETCHES,
    TABLES,
    TOPICS,
    HistoryDataset,
)
from trimtab_pipeline.history.facts import FactLog
from trimtab_pipeline.history.files import HOUR, hour_of, put, stamped
from trimtab_pipeline.history.housekeeping import Housekeeping, Stopping
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.history.sketch import sketched
from trimtab_pipeline.history.snapshot_tables import (
    Bounds,
    broker_table,
    demand_table,
    quality_table,
    rounded_traffic,
    rounded_usage,
)
from trimtab_pipeline.history.state import LastState, StateStore, clean
from trimtab_pipeline.transform.trust import Drop
from trimtab_strategies.model import ClusterLoad, Reason

_LOGGER = logging.getLogger(__name__)
_UNWRITTEN = ("can't be written, averages continue in memory", "is written again")
_UNTIDY = ("can't be tidied up and grows", "is tidied up again")
_WAITING = 120.0  # seconds that refreshes wait for a cycle, to be written together with it
_NO_BOUNDS = Bounds()
_NO_TOPICS = pa.schema(list(INSIDE)).empty_table()


class HistoryTidier:
    """One thread for the housekeeping of all policies, one after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history")
        self._closing = Event()

    def tidy(self, housekeeping: Callable[[float, Stopping], None], at: float) -> Future[None]:
        """Run the housekeeping as of `at`; the future fails with `OSError` when the disk can't be written."""
        try:
            return self._thread.submit(housekeeping, at, self._closing.is_set)
        except RuntimeError:  # closed meanwhile, as the program exits after this cycle
            never = Future[None]()
            never.cancel()
            return never

    def close(self) -> None:
        """Cancel waiting runs. The current one stops before the next part that it would merge. Idempotent."""
        self._closing.set()
        self._thread.shutdown(cancel_futures=True)


class HistoryWriter:
    """The history and the state of `policy` (``namespace/name``) below `root`, a folder or a URI.

    Raises `ValueError` for a policy whose name would lead out of `root`, or a URI that can't be opened.
    """

    def __init__(self, root: Place, policy: str, retention: Retention, background: HistoryTidier) -> None:
        dataset = HistoryDataset(root)
        self.root = dataset.root
        self._history = dataset.of(policy)
        self._state = StateStore(dataset.state(policy), policy)
        self._housekeeping = Housekeeping(self._history, retention)
        self._background = background
        self._tidied: Future[None] | None = None
        self._troubles: set[tuple[str, str]] = set()
        self._facts, self._sketched = FactLog(), 0.0
        self._refreshes: list[tuple[float, pa.Table]] = []
        self._cleaned = False
        self._lock = Lock()  # `keep_refresh` may run during a cycle

    def state(self, at: float, horizon: float) -> LastState:
        """The state of the last cycle before `at` (epoch s), at most `horizon` seconds old; empty without one."""
        return self._state.last(at, horizon)

    def doubt(self) -> None:
        """Check the state again before its next use, because reading it failed."""
        self._state.doubt()

    def keep(
        self,
        brokers: pa.Table,
        bundles: pa.Table,
        load: ClusterLoad,
        topology: Topology,
        *,
        inside: pa.Table = _NO_TOPICS,
        bounds: Bounds = _NO_BOUNDS,
    ) -> str:
        """Write a cycle, then start housekeeping in the background unless it still runs.

        brokers, bundles: tables with the columns `BROKER_STATE` and `BUNDLE_STATE`, the next cycle's state. load: what
        the strategies get. inside: topics of hot bundles (`INSIDE`). Returns why the cycle could not be written, or "".

        Without sign that the operator's clock is right, nothing is removed: if it is days ahead, all files look too
        old.
        """
        at, error = load.now, None
        try:
            self._state.write(brokers, bundles, at, trusted=bool(load.brokers.trusted.any()))
            asked = {**self._inside(inside, at), DEMAND.name: demand_table(bundles, at, DEMAND.columns)}
            self._write({**self._known(brokers, load, topology, bounds), **asked}, at)
            self._sketched = hour_of(at) if SKETCHES.name in asked else self._sketched
        except OSError as failure:
            self._facts.forget()
            error = failure
        self._log_once(_UNWRITTEN, error)
        if _clock_is_right(load) and (self._tidied is None or self._tidied.done()):
            self._tidied = self._background.tidy(self._housekeeping.tidy, at)
            self._tidied.add_done_callback(self._log_tidied)
        return "" if error is None else f"the history below {self.root} can't be written: {error}"

    def keep_refresh(self, load: ClusterLoad, topology: Topology, bounds: Bounds = _NO_BOUNDS) -> None:
        """Keep the brokers of a refresh. They are written with the next cycle, or after two minutes if it is late."""
        with self._lock:
            self._refreshes.append((load.now, self._broker_rows("refresh", load, topology, bounds, None)))
            if load.now - self._refreshes[0][0] < _WAITING:
                return
            waiting = self._taken()
        try:
            self._put_refreshes(waiting)
        except OSError as error:
            self._log_once(_UNWRITTEN, error)

    def _taken(self) -> list[tuple[float, pa.Table]]:
        """The refreshes (epoch s, rows) that no file holds yet."""
        refreshes, self._refreshes = self._refreshes, []
        return refreshes

    def _put_refreshes(self, waiting: Sequence[tuple[float, pa.Table]]) -> None:
        """Write refreshes (epoch s, rows) to files of their own, one for each hour. Raises `OSError`."""
        for _, found in itertools.groupby(waiting, key=lambda one: hour_of(one[0])):
            times, rows = zip(*found, strict=True)
            put(self._history.cycle_file(BROKERS, times[-1], "refresh"), BROKERS, [_joined(rows)])

    def _known(self, brokers: pa.Table, load: ClusterLoad, topology: Topology, bounds: Bounds) -> dict[str, pa.Table]:
        """Rows about the brokers and the resources, by table; a table without rows is left out.

        Refreshes of an earlier hour go to a file of that hour. Raises `OSError`.
        """
        with self._lock:
            waiting = self._taken()
        now = hour_of(load.now)
        self._put_refreshes([one for one in waiting if hour_of(one[0]) != now])
        refreshes = [rows for at, rows in waiting if hour_of(at) == now]
        found = {
            FINDINGS.name: quality_table(load.quality),
            BROKERS.name: _joined([self._broker_rows("cycle", load, topology, bounds, brokers), *refreshes]),
            FACTS.name: self._facts.changes(load.now, topology),
        }
        return {name: rows for name, rows in found.items() if len(rows)}

    def _inside(self, topics: pa.Table, at: float) -> dict[str, pa.Table]:
        """Rows about the topics of hot bundles, and once an hour their sketch."""
        if not len(topics):
            return {}
        rows = {TOPICS.name: rounded_traffic(topics.sort_by([("bundle", "ascending"), ("place", "ascending")]))}
        if hour_of(at) == self._sketched:
            return rows
        return {**rows, SKETCHES.name: sketched(topics)}

    def _broker_rows(
        self, kind: str, load: ClusterLoad, topology: Topology, bounds: Bounds, measured: pa.Table | None
    ) -> pa.Table:
        rows = broker_table(load.brokers, topology.pods, load.quality.doubts, bounds, measured)
        rows = (rows if kind == "cycle" else rounded_usage(rows)).add_column(0, "kind", pa.repeat(kind, len(rows)))
        return stamped(rows, load.now, BROKERS.schema)

    def _write(self, tables: Mapping[str, pa.Table], at: float) -> None:
        """Write the tables of a cycle. Raises `OSError`."""
        if not self._cleaned:
            for table in TABLES.values():
                clean(self._history.hour(table, at))
            self._cleaned = True
        for name, rows in tables.items():
            table = TABLES[name]
            ready = rows if "at" in rows.column_names else stamped(rows, at, table.schema)
            put(self._history.cycle_file(table, at), table, [ready])

    def _log_tidied(self, tidied: Future[None]) -> None:
        error = None if tidied.cancelled() else tidied.exception()
        if error is None or isinstance(error, OSError):
            self._log_once(_UNTIDY, error)
        else:
            _LOGGER.error("the history below %s was not tidied up", self.root, exc_info=error)

    def _log_once(self, trouble: tuple[str, str], error: OSError | None) -> None:
        """Log once that a problem began, and once that it is over. trouble: the two texts."""
        begun, over = trouble
        if error is not None and trouble not in self._troubles:
            _LOGGER.warning("the history %s: %s", begun, error)
            self._troubles.add(trouble)
        elif error is None and trouble in self._troubles:
            _LOGGER.info("the history below %s %s", self.root, over)
            self._troubles.remove(trouble)


def _clock_is_right(load: ClusterLoad) -> bool:
    """Whether a broker's samples are recent by the operator's clock, and none is from the future.

    A broker that is not trusted for another reason, such as an unknown limit, shows this, too.
    """
    brokers, quality = load.brokers, load.quality
    if brokers.trusted.any():
        return True
    measured = [name in quality.doubts and quality.doubts[name].reason is Reason.UNTRUSTED for name in brokers.names]
    return Drop.CLOCK_SKEW not in quality.dropped and bool((brokers.age[measured] < HOUR).any())


def _joined(rows: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(rows).sort_by([("at", "ascending"), ("broker", "ascending")])
