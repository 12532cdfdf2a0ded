"""The history that a cycle writes: four tables, two of which are the next cycle's state.

If the disk can't be written, the cycle's history is lost, but neither the cycle nor the averages: the next cycle's
state stays in memory, and old files are still removed. The problem is logged once, and its end is logged once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pyarrow as pa

from trimtab_pipeline.api import Retention, Topology
from trimtab_pipeline.columns import BROKER_STATE, BUNDLE_STATE
from trimtab_pipeline.history.decisions import decision_history
from trimtab_pipeline.history.housekeeping import Housekeeping
from trimtab_pipeline.history.snapshot_tables import BROKER_SNAPSHOT, QUALITY, broker_table, quality_table
from trimtab_pipeline.history.store import History
from trimtab_pipeline.transform.snapshot import Measurement
from trimtab_strategies.model import ClusterLoad

_LOGGER = logging.getLogger(__name__)
_UNWRITTEN = ("can't be written, averages continue in memory", "is written again")
_UNTIDY = ("can't be tidied up and grows", "is tidied up again")

TABLES = {
    "bundles": (BUNDLE_STATE, "bundles/4"),
    "brokers": (BROKER_STATE, "brokers/4"),
    "picture": (BROKER_SNAPSHOT, "picture/2"),
    "quality": (QUALITY, "quality/2"),
}
"""Folder of each table in a policy's history -> its columns and their version."""


class HistoryTidier:
    """One thread for the housekeeping of all policies, one after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history")
        self._closing = Event()

    def tidy(self, housekeeping: Housekeeping, at: float) -> Future[None]:
        """Run the housekeeping as of `at`; the future fails with `OSError` when the disk can't be written."""
        try:
            return self._thread.submit(housekeeping.tidy, at, self._closing.is_set)
        except RuntimeError:  # closed in the meantime: the last cycle of a program that ends
            never = Future[None]()
            never.cancel()
            return never

    def close(self) -> None:
        """Cancel waiting runs, and stop the current one once the cycle it works on is written. Idempotent."""
        self._closing.set()
        self._thread.shutdown(cancel_futures=True)


class HistoryWriter:
    """The history of one policy below `folder`."""

    def __init__(self, folder: Path, retention: Retention, background: HistoryTidier) -> None:
        self.folder = folder
        self._tables = {name: History(folder / name, *columns) for name, columns in TABLES.items()}
        self.bundles, self.brokers = self._tables["bundles"], self._tables["brokers"]
        self._housekeeping = Housekeeping([*self._tables.values(), decision_history(folder)], retention)
        self._background = background
        self._tidied: Future[None] | None = None
        self._troubles: set[tuple[str, str]] = set()

    def doubt(self) -> None:
        """Check the states again before their next use, because reading them failed."""
        self.brokers.doubt()
        self.bundles.doubt()

    def keep(self, measured: Measurement, load: ClusterLoad, topology: Topology, max_age: float = math.inf) -> str:
        """Write a cycle, its bundles last, then start housekeeping in the background unless it still runs.

        max_age: age in seconds up to which samples were trusted. Returns why the cycle could not be written, or "".

        A cycle without a trusted broker removes nothing: a clock that is days ahead would make everything too old.
        """
        tables = {
            "quality": quality_table(load.quality),
            "picture": broker_table(load.brokers, topology.pods, load.quality.doubts, max_age),
            "brokers": measured.brokers,
            "bundles": measured.bundles,
        }
        error = self._written(tables, load.now)
        self._log_once(_UNWRITTEN, error)
        if load.brokers.trusted.any() and (self._tidied is None or self._tidied.done()):
            self._tidied = self._background.tidy(self._housekeeping, load.now)
            self._tidied.add_done_callback(self._log_tidied)
        return "" if error is None else f"the history below {self.folder} can't be written: {error}"

    def _written(self, tables: Mapping[str, pa.Table], at: float) -> OSError | None:
        """Write the tables. After a failure hold those that the next cycle needs in memory, and return the error."""
        try:
            for name, rows in tables.items():
                self._tables[name].write(rows, at)
        except OSError as error:
            self.brokers.hold(tables["brokers"], at)
            self.bundles.hold(tables["bundles"], at)
            return error
        return None

    def _log_tidied(self, tidied: Future[None]) -> None:
        error = None if tidied.cancelled() else tidied.exception()
        if error is None or isinstance(error, OSError):
            self._log_once(_UNTIDY, error)
        else:
            _LOGGER.error("the history below %s was not tidied up", self.folder, exc_info=error)

    def _log_once(self, trouble: tuple[str, str], error: OSError | None) -> None:
        """Log once that a problem began, and once that it is over. trouble: the two texts."""
        begun, over = trouble
        if error is not None and trouble not in self._troubles:
            _LOGGER.warning("the history %s: %s", begun, error)
            self._troubles.add(trouble)
        elif error is None and trouble in self._troubles:
            _LOGGER.info("the history below %s %s", self.folder, over)
            self._troubles.remove(trouble)
