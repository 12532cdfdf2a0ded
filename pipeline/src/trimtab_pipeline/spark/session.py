"""The Spark session, the one thread that uses it, and its temporary files.

Every PySpark call blocks, so no event loop may make one. A session that is built in the main thread takes over SIGINT,
which breaks the shutdown of the event loop. So `Engine` has one thread that builds the session and runs every job, one
after the other. Jobs use only features that Spark Connect has, so for ``sc://host`` only the URL differs.

No call of PySpark has a deadline, so a Spark that hangs would block that thread for ever. Spark is given up when it
does not answer a question, does not start, or does not end an interrupted job: its JVM is killed, or its connection
closed. Then every call that waits for it fails, and the next job starts another session.

For ``local[N]``, the number of parallel tasks is known. A cluster grows and shrinks, so a remote Spark is asked for
this number once a minute. Each time, the number of shuffle partitions is set to the answer.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pyspark.sql import SparkSession

from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.spark.connect import ConnectedSpark
from trimtab_pipeline.spark.outcomes import SPARK_ERRORS, as_source_error, described, promised, settle
from trimtab_pipeline.spark.settings import SparkSettings

_LOGGER = logging.getLogger(__name__)
PREFIX = "trimtab-spark-"
_LOCK = "in-use"
_INTERRUPT_EVERY = 0.3  # seconds
_MEASURE_EVERY = 60.0  # seconds
_ANSWERS_WITHIN = 30.0  # seconds for a question that needs no task; a busy machine needs several
_STARTS_WITHIN = 300.0  # seconds; a busy machine needs one minute or two, an unreachable master one minute more
_ENDS_WITHIN = 300.0  # seconds for a job that is being interrupted; a cold JVM on a busy machine needs one minute
T = TypeVar("T")
Job = Callable[[SparkSession], T]


class Scratch:
    """A folder below `parent` (default: the system's temporary folder), locked while this process runs.

    The constructor removes the folders of processes that have exited or were killed: the kernel releases their locks.
    """

    def __init__(self, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        _remove_abandoned(parent)
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        aside = self.folder / f"{_LOCK}.new"
        self._lock = aside.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        aside.rename(self.folder / _LOCK)  # so there is never an unlocked file of this name

    def remove(self) -> None:
        """Remove the folder and what is in it. Idempotent."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()


def _remove_abandoned(parent: Path) -> None:
    for lock in parent.glob(f"{PREFIX}*/{_LOCK}"):
        with suppress(OSError), lock.open("rb") as held:  # another user's, in use, or already gone: not ours to remove
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


class Spark(Protocol):
    """A source of sessions. Only the engine's thread calls it, except for `give_up` and `await_stop`."""

    def start(self, closed: Callable[[], bool]) -> SparkSession:
        """A new session; dropped if `closed` is true when it is ready."""

    def lost(self, session: SparkSession) -> str:
        """A sentence on how the session was lost and what happens next; empty while it is usable."""

    def forget(self, session: SparkSession) -> None:
        """Drop a lost session, so another one can start."""

    def give_up(self, why: str) -> None:
        """Make all calls fail that wait for a Spark that hangs, and log why."""

    def stop(self, session: SparkSession) -> None:
        """Stop a session and its processes."""

    def await_stop(self, stopped: Future[None]) -> None:
        """Wait for `stop`, which runs in the engine's thread, and kill processes of ours that hang."""


def _backend(settings: SparkSettings, folder: Path) -> Spark:
    if settings.connects:
        return ConnectedSpark(settings)
    from trimtab_pipeline.spark.embedded import EmbeddedSpark  # noqa: PLC0415  (`pyspark-client` can't load it)

    return EmbeddedSpark(settings, folder)


class Engine:
    """A Spark session in its own thread; the constructor starts it in the background.

    Raises `JavaMissingError` if Java is missing, or `ConnectMissingError` if the client of a Connect server is missing.
    """

    def __init__(self, settings: SparkSettings) -> None:
        self.settings = settings
        self._parallelism = max(1, settings.cores)
        self._measure_at = 0.0  # on the monotonic clock
        self._scratch = Scratch()
        self._folder = self._scratch.folder
        try:
            self._spark = _backend(settings, self._folder)
        except SourceUnavailableError:
            self._scratch.remove()
            raise
        self._tags = (f"trimtab-{n}" for n in itertools.count(1))
        self._closed = False
        self._starts, self._given_up = 0, -1  # the number of the last start, and of the last one that was given up
        self._giving_up = threading.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark")
        self._session: Future[SparkSession] = self._thread.submit(self._start)

    def run(self, job: Job[T], deadline: float) -> Future[T]:
        """The outcome of ``job(session)``.

        The future fails with `SourceUnavailableError` when Spark can't run the job or `deadline` (seconds from now,
        including the wait) passes. Its Spark jobs are then cancelled, as when the caller cancels the future.
        """
        outcome: Future[T] = promised(deadline)
        outcome.add_done_callback(self.check_after)
        if self._closed:
            outcome.set_exception(closed())
        else:
            self._thread.submit(self._carry_out, job, next(self._tags), outcome)
        return outcome

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at once. For a remote Spark, `measure` learns it; until then it is 1."""
        return self._parallelism

    @property
    def reads_files(self) -> bool:
        """Whether tasks see the files of this process: ``local[...]`` tasks run on the same machine."""
        return not self.settings.remote

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Cancel what runs, stop the session and its JVM, remove temporary files. Idempotent."""
        if self._closed:
            return
        self._closed = True
        stopped = self._thread.submit(self._stop)
        if self._session.done() and not self._session.exception():
            interrupt_until(stopped, self._session.result().interruptAll)
        self._spark.await_stop(stopped)
        stopped.result()
        self._thread.shutdown()
        self._scratch.remove()

    def check_after(self, outcome: Future[Any]) -> None:
        """Check in the background that Spark still answers, if `outcome` failed: its deadline may have passed."""
        if unavailable(outcome) and self._session.done() and not self._session.exception():
            threading.Thread(target=self._ask, args=(self._session.result(),), name="spark-check", daemon=True).start()

    def interrupt(self, session: SparkSession, tag: str, ended: Future[None]) -> None:
        """Cancel the tagged jobs until `ended`, and give Spark up if they do not end. Does not block."""
        if ended.done():
            return
        interrupt_until(ended, lambda: session.interruptTag(tag))
        why = f"Spark did not end a job within {_ENDS_WITHIN:g} s after its deadline"
        timer = self._timer(_ENDS_WITHIN, why)
        ended.add_done_callback(lambda _: timer.cancel())

    def error_of(self, error: Exception) -> Exception:
        """The error of a job as a caller gets it: `closed`, why Spark failed, or the error itself."""
        if self._closed:
            return closed()
        if self._hangs:
            return SourceUnavailableError(f"Spark could not run the cycle: it did not answer ({described(error)})")
        return as_source_error(error)

    def measure(self, session: SparkSession) -> None:
        """Ask a remote Spark for its current parallelism, and set the number of shuffle partitions to it."""
        if self.settings.remote and time.monotonic() >= self._measure_at:
            self._parallelism = parallelism(session)
            session.conf.set("spark.sql.shuffle.partitions", self._parallelism)
            self._measure_at = time.monotonic() + _MEASURE_EVERY

    def _ask(self, session: SparkSession) -> None:
        with self._answering(), suppress(*SPARK_ERRORS, OSError, ValueError):  # an error is an answer, too
            session.conf.get("spark.sql.session.timeZone")

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Give Spark up if the block takes too long."""
        timer = self._timer(_ANSWERS_WITHIN, f"Spark did not answer for {_ANSWERS_WITHIN:g} s")
        try:
            yield
        finally:
            timer.cancel()

    def _timer(self, seconds: float, why: str) -> threading.Timer:
        """A timer that has started, and gives this Spark up after `seconds`."""
        timer = threading.Timer(seconds, self._give_up, (self._starts, why))
        timer.daemon = True
        timer.start()
        return timer

    def _give_up(self, start: int, why: str) -> None:
        with self._giving_up:
            if start != self._starts or self._hangs:
                return
            self._given_up = start
        self._spark.give_up(why)

    @property
    def _hangs(self) -> bool:
        """Whether the session was given up."""
        return self._given_up == self._starts

    def _carry_out(self, job: Job[T], tag: str, outcome: Future[T]) -> None:
        if self._closed:
            settle(outcome.set_exception, closed())
        if outcome.done():
            return
        ended: Future[None] = Future()
        try:
            session = self._living_session()
            session.addTag(tag)
            outcome.add_done_callback(
                lambda done: self.interrupt(session, tag, ended) if unavailable(done) or done.cancelled() else None
            )
            try:
                value = job(session)
            finally:
                ended.set_result(None)
                session.removeTag(tag)
        except Exception as error:  # noqa: BLE001  (the future carries it)
            settle(outcome.set_exception, self.error_of(error))
        else:
            settle(outcome.set_result, value)

    def _living_session(self) -> SparkSession:
        """The session; a new one when the start failed or it is gone (killed, out of memory, server restarted)."""
        if (error := self._session.exception()) is not None:
            why = f"Spark did not start ({described(error)}); trying again"
        elif not (why := self._lost(self._session.result())):
            return self._session.result()
        if self._closed:  # meanwhile: no job needs another session
            raise closed()
        _LOGGER.warning("%s", why)
        if error is None:
            self._spark.forget(self._session.result())
        self._session, self._measure_at = Future(), 0.0
        try:
            self._session.set_result(self._start())
        except Exception as error:
            self._session.set_exception(error)
            raise
        return self._session.result()

    def _lost(self, session: SparkSession) -> str:
        """See `Spark.lost`."""
        with self._answering():
            lost = "" if self._hangs else self._spark.lost(session)
        return "making another session in place of the one that hung" if self._hangs else lost

    def _start(self) -> SparkSession:
        self._starts += 1
        timer = self._timer(_STARTS_WITHIN, f"Spark did not start within {_STARTS_WITHIN:g} s")
        try:
            with _environment_of_python():
                return self._spark.start(lambda: self._closed)
        finally:
            timer.cancel()

    def _stop(self) -> None:
        if not self._session.exception():
            self._spark.stop(self._session.result())


@contextmanager
def _environment_of_python() -> Iterator[None]:
    """Keep this thread's changes of `os.environ`, by us and by PySpark, from C's environment.

    Other threads call C's `getenv`, as for each lookup of a host. It crashes if C's environment changes meanwhile.
    """
    changes, here = (os.putenv, os.unsetenv), threading.get_ident()

    def by_others(change: Callable[..., None]) -> Callable[..., None]:
        return lambda *words: None if threading.get_ident() == here else change(*words)

    os.putenv, os.unsetenv = by_others(os.putenv), by_others(os.unsetenv)
    try:
        yield
    finally:
        os.putenv, os.unsetenv = changes


def parallelism(session: SparkSession) -> int:
    """Spark's default parallelism: the number of partitions that it makes if no number is given.

    Connect has no call for it, so a query finds the number of the last partition, where `range` puts its last row.
    """
    (row,) = session.range(1).selectExpr("spark_partition_id()").collect()
    return int(row[0]) + 1


def closed() -> SourceUnavailableError:
    """The error of a job for a closed session."""
    return SourceUnavailableError("the Spark session was closed")


def unavailable(done: Future[Any]) -> bool:
    """Whether a job failed with `SourceUnavailableError`, as at its deadline."""
    return not done.cancelled() and isinstance(done.exception(), SourceUnavailableError)


def interrupt_until(ended: Future[None], interrupt: Callable[[], object]) -> None:
    """Call `interrupt` repeatedly until `ended`, in its own thread: calls block, and the caller may run an event loop.

    A single call could find nothing to cancel, because a job may be on its way from Python to the JVM.
    """

    def insist() -> None:
        with suppress(*SPARK_ERRORS, OSError, ValueError):  # a JVM that is gone, or a closed channel, cancels nothing
            while not ended.done():
                interrupt()
                wait([ended], timeout=_INTERRUPT_EVERY)

    if not ended.done():
        threading.Thread(target=insist, name="spark-interrupt", daemon=True).start()
