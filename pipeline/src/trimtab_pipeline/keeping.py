"""What a cycle leaves behind: four tables of history, of which two are the next cycle's state.

A disk that refuses costs the history, not the cycle. It is told once, and once more when it takes files again.
"""

from __future__ import annotations

import logging
import math
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

from trimtab_pipeline.align import Measured
from trimtab_pipeline.cycle import BROKER_STATE, BUNDLE_STATE
from trimtab_pipeline.decisions import decision_history
from trimtab_pipeline.history import History
from trimtab_pipeline.housekeeping import Housekeeping
from trimtab_pipeline.picture import BROKER_PICTURE, QUALITY, broker_table, quality_table
from trimtab_pipeline.source import Retention, Topology
from trimtab_strategies.model import ClusterLoad

_LOGGER = logging.getLogger(__name__)
_UNWRITTEN = ("can't be written, averages go on from its last file", "is written again")
_UNTIDY = ("can't be tidied up and grows", "is tidied up again")

TABLES = {
    "bundles": (BUNDLE_STATE, "bundles/4"),
    "brokers": (BROKER_STATE, "brokers/3"),
    "picture": (BROKER_PICTURE, "picture/2"),
    "quality": (QUALITY, "quality/2"),
}
"""Folder of each table in a policy's history -> its columns and their version."""


class Background:
    """One thread that tidies the histories of all policies, one after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history")
        self._closing = Event()

    def tidy(self, housekeeping: Housekeeping, at: float) -> Future[None]:
        """Tidy up as of `at`; the future fails with `OSError` when the disk refuses."""
        try:
            return self._thread.submit(housekeeping.tidy, at, self._closing.is_set)
        except RuntimeError:  # closed meanwhile: the last cycle of a program that ends
            never = Future[None]()
            never.cancel()
            return never

    def close(self) -> None:
        """Drop what has not begun, and stop what has within a cycle's writing. Idempotent."""
        self._closing.set()
        self._thread.shutdown(cancel_futures=True)


class Keeping:
    """The history of one policy below `folder`."""

    def __init__(self, folder: Path, retention: Retention, background: Background) -> None:
        self.folder = folder
        self._tables = {name: History(folder / name, *columns) for name, columns in TABLES.items()}
        self.bundles, self.brokers = self._tables["bundles"], self._tables["brokers"]
        self._housekeeping = Housekeeping([*self._tables.values(), decision_history(folder)], retention)
        self._background = background
        self._tidied: Future[None] | None = None
        self._troubles: set[tuple[str, str]] = set()

    def doubt(self) -> None:
        """Check the states again before they are used: something went wrong with what was read."""
        self.brokers.doubt()
        self.bundles.doubt()

    def keep(self, measured: Measured, load: ClusterLoad, topology: Topology, max_age: float = math.inf) -> None:
        """Write a cycle, its bundles last, then tidy up in the background unless that is still going on.

        max_age: seconds up to which its data was believed.

        A cycle in which nobody is believed removes nothing: a clock that is days ahead would call everything too old.
        If the disk refuses, the next cycle starts from an older state: averages know time.
        """
        tables = {
            "quality": quality_table(load.quality),
            "picture": broker_table(load.brokers, topology.pods, load.quality.doubts, max_age),
            "brokers": measured.brokers,
            "bundles": measured.bundles,
        }
        try:
            for name, rows in tables.items():
                self._tables[name].write(rows, load.now)
        except OSError as error:
            self._told(_UNWRITTEN, error)
            return
        self._told(_UNWRITTEN, None)
        if load.brokers.trusted.any() and (self._tidied is None or self._tidied.done()):
            self._tidied = self._background.tidy(self._housekeeping, load.now)
            self._tidied.add_done_callback(self._tell_tidied)

    def _tell_tidied(self, tidied: Future[None]) -> None:
        error = None if tidied.cancelled() else tidied.exception()
        if error is None or isinstance(error, OSError):
            self._told(_UNTIDY, error)
        else:
            _LOGGER.error("the history below %s was not tidied up", self.folder, exc_info=error)

    def _told(self, trouble: tuple[str, str], error: OSError | None) -> None:
        """Say once that there is trouble, and once that it is over. trouble: what to say then, and then."""
        begun, over = trouble
        if error is not None and trouble not in self._troubles:
            _LOGGER.warning("the history %s: %s", begun, error)
            self._troubles.add(trouble)
        elif error is None and trouble in self._troubles:
            _LOGGER.info("the history below %s %s", self.folder, over)
            self._troubles.remove(trouble)
