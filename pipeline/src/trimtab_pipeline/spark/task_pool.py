"""Spreads independent calls of a function over Spark, with a task for each.

Spark repeats a task that is lost with its executor, so a function must give the same result for the same item. The
function's arguments and results are pickled: the workers need this package in the same version, and executors on other
machines must see the files that the items name.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from trimtab_pipeline.spark.session import Engine, parallelism
from trimtab_pipeline.spark.settings import SparkSettings

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")
Report = Callable[[float], None]
"""Is called with the completed fraction (0-1) of a call."""

_WHOLE = 7 * 86_400.0  # seconds that a job may take
_START = 120.0  # seconds that the session may take to start
_LOOK_EVERY = 0.2
_REPORT_EVERY = 0.5
_RESULT = "item int, result binary"


class TaskPool:
    """A Spark session that calls functions.

    master: as in `SparkSettings`. Raises `ValueError` for a wrong one, and `SourceUnavailableError` if the Java or the
    client that it needs is missing.
    """

    def __init__(self, master: str) -> None:
        self._engine = Engine(SparkSettings(master))

    def close(self) -> None:
        """Cancel what runs, and stop the session. Idempotent."""
        self._engine.close()

    def parallelism(self) -> int:
        """Number of tasks that run at once. Raises `SourceUnavailableError` when Spark does not start."""
        return self._engine.run(parallelism, _START).result()

    def map(self, function: Callable[[I, Report], R], items: Sequence[I], report: Report) -> list[R]:
        """The results of ``function(item, report)``, in the order of `items`.

        report: is called with the completed fraction of all work. On remote executors only completed tasks count.
        Raises what a call raised, as `SourceUnavailableError`.
        """
        with tempfile.TemporaryDirectory(prefix="trimtab-tasks-") as folder:
            local = Path(folder) if self._engine.reads_files else None
            progress = (
                _FileProgress(local, len(items)) if local else _TaskProgress(len(items), self._engine.settings.connects)
            )
            call = _Call(function, list(items), local)
            job = self._engine.run(lambda session: _results(session, call, progress), _WHOLE)
            _watch(job, progress, report)
            return job.result()


class _Call:
    """Calls the function for the items that a task gets. folder: for files with the progress of each item, or None."""

    def __init__(self, function: Callable[[Any, Report], Any], items: list[Any], folder: Path | None) -> None:
        self.function, self.items, self.folder = function, items, folder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for item in batch.column(0).to_pylist():
                result = self.function(self.items[item], self._report(item))
                row = {"item": pa.array([item], pa.int32()), "result": pa.array([pickle.dumps(result)], pa.binary())}
                yield pa.RecordBatch.from_pydict(row)

    def _report(self, item: int) -> Report:
        """A report that writes the ratio to a file from time to time."""
        last = 0.0

        def report(done: float) -> None:
            nonlocal last
            if self.folder is not None and time.monotonic() > last + _REPORT_EVERY:
                last = time.monotonic()
                (self.folder / f"{item}.new").write_text(str(done))
                (self.folder / f"{item}.new").replace(self.folder / str(item))

        return report


class _Progress(Protocol):
    """The progress of a job."""

    def begun(self, session: SparkSession) -> None:
        """The job begins on `session`."""

    def done(self) -> float:
        """Completed fraction (0-1) of the job."""


class _FileProgress:
    """The mean of the ratios that the tasks wrote to their files."""

    def __init__(self, folder: Path, items: int) -> None:
        self._folder, self._items = folder, items

    def begun(self, session: SparkSession) -> None:
        """See `_Progress`."""

    def done(self) -> float:
        """See `_Progress`."""
        files = (self._folder / str(item) for item in range(self._items))
        return sum(float(file.read_text()) for file in files if file.exists()) / self._items


class _TaskProgress:
    """The ratio of completed tasks, as Spark counts them."""

    def __init__(self, items: int, connects: bool) -> None:  # noqa: FBT001
        self._items, self._connects, self._done = items, connects, 0
        self._session: SparkSession | None = None

    def begun(self, session: SparkSession) -> None:
        """See `_Progress`."""
        if self._connects:
            session.registerProgressHandler(self._told)  # type: ignore[arg-type]
        else:
            self._session = session

    def _told(self, stages: Any, *_: Any) -> None:
        self._done = max([self._done, *(stage.num_completed_tasks for stage in stages or ())])

    def done(self) -> float:
        """See `_Progress`."""
        if self._session is not None:
            tracker = self._session.sparkContext.statusTracker()
            stages = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
            self._done = max([self._done, *(stage.numCompletedTasks for stage in stages if stage is not None)])
        return self._done / self._items


def _results(session: SparkSession, call: _Call, progress: _Progress) -> list[Any]:
    """The results of all items, in their order."""
    progress.begun(session)
    items = session.range(0, len(call.items), 1, len(call.items)).selectExpr("int(id) as item")
    found = items.mapInArrow(call, _RESULT).toArrow()
    rows = zip(found["item"].to_pylist(), found["result"].to_pylist(), strict=True)
    return [pickle.loads(result) for _, result in sorted(rows)]  # noqa: S301 - our own tasks made it


def _watch(job: Future[Any], progress: _Progress, report: Report) -> None:
    """Report until the job ends."""
    while not wait([job], timeout=_LOOK_EVERY).done:
        report(progress.done())
