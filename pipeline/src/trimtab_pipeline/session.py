"""The Spark session, and the one thread that talks to it.

Every PySpark call blocks, so no event loop may make one; and a session that is built in the main thread takes over
SIGINT, which breaks the shutdown of whoever runs the loop. Hence `Engine`: one thread that builds the session and runs
every job, one after the other. Jobs use only what Spark Connect has too: ``sc://host`` differs in nothing but the URL.

The embedded JVM gets little memory, the serial collector (the heap is small, pauses are not our concern), and Unix
sockets to its Python workers (a Python task costs 5 ms instead of 24 ms over TCP).
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from trimtab_pipeline.datasource import PrometheusDataSource
from trimtab_pipeline.scratch import Scratch
from trimtab_pipeline.source import SourceUnavailableError

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")
Job = Callable[[SparkSession], T]
_MIN_JAVA = 17
_CLOSE_WITHIN = 2.0  # seconds until a JVM that does not stop is killed
_INTERRUPT_EVERY = 0.3  # seconds


class JavaMissingError(SourceUnavailableError):
    """No Java that Spark runs on. Says what was found and what is needed."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs.

    master: ``local[N]``, ``local[*]`` (all cores this process may use), or ``sc://host:port`` of a Connect server.
    memory: heap of the embedded JVM; its resident size is about 450 MB more.
    """

    master: str = "local[*]"
    memory: str = "700m"

    @property
    def remote(self) -> bool:
        """Whether a Connect server does the work."""
        return self.master.startswith("sc://")

    @property
    def cores(self) -> int:
        """How many tasks run at once: one shard of brokers each. A Connect server is assumed to have two cores."""
        local = re.fullmatch(r"local\[(\d+|\*)\]", self.master)
        if not local and not self.remote:
            raise ValueError(f"master {self.master!r} must be local[N], local[*] or sc://host:port")
        if not local:
            return 2
        return len(os.sched_getaffinity(0)) if local[1] == "*" else max(1, int(local[1]))

    def sql_options(self) -> dict[str, str]:
        """What a session sets, wherever it runs."""
        return {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": str(self.cores),
            "spark.sql.adaptive.enabled": "false",  # plans are small and known; adapting costs more than it gains
            "spark.sql.execution.arrow.maxRecordsPerBatch": "40000",
        }

    def jvm_options(self, folder: Path, log_config: Path) -> dict[str, str]:
        """What the embedded JVM is started with; its temporary files go to `folder`."""
        java = (
            "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError "
            f"-Dlog4j2.configurationFile={log_config.as_uri()} -Dtrimtab.log={folder / 'spark.log'}"
        )
        return self.sql_options() | {
            "spark.driver.memory": self.memory,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": java,
            "spark.default.parallelism": str(self.cores),
            "spark.local.dir": str(folder),
            "spark.python.task.killTimeout": "200ms",  # a slow server keeps no later cycle waiting
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": str(folder),
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
            "spark.ui.enabled": "false",
            "spark.ui.retainedJobs": "10",  # kept for the pages of a UI nobody sees: a thousand by default
            "spark.ui.retainedStages": "10",
            "spark.ui.retainedTasks": "100",
            "spark.sql.ui.retainedExecutions": "10",
            "spark.ui.showConsoleProgress": "false",
        }


def require_java() -> str:
    """Path of a Java of version 17 or later: ``$JAVA_HOME``, else the search path. Raises `JavaMissingError`."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "the search path"
    if java is None or not os.access(java, os.X_OK):
        raise JavaMissingError(
            f"no java in {where}; install Java {_MIN_JAVA} or later (a JRE is enough) or set JAVA_HOME"
        )
    told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr  # noqa: S603
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < _MIN_JAVA:
        found = version[1] if version else told.strip() or "no answer"
        raise JavaMissingError(f"{java} is Java {found}; Spark needs {_MIN_JAVA} or later: set JAVA_HOME to one")
    return java


class Engine:
    """A Spark session in a thread of its own, started in the background on construction.

    Raises `JavaMissingError` at once when the session is to be embedded and there is no Java.
    """

    def __init__(self, settings: SparkSettings) -> None:
        self.settings = settings
        self.cores = settings.cores
        if not settings.remote:
            require_java()
        self._scratch = Scratch()
        self._folder = self._scratch.folder
        self._tags = (f"trimtab-{n}" for n in itertools.count(1))
        self._closed = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark")
        self._session: Future[SparkSession] = self._thread.submit(self._start)

    def run(self, job: Job[T], deadline: float) -> Future[T]:
        """The outcome of ``job(session)``.

        The future fails with `SourceUnavailableError` when Spark can't run the job or `deadline` (seconds from now,
        waiting included) passes; what it started is then cancelled, as it is when the caller cancels the future.
        """
        outcome: Future[T] = Future()
        if self._closed:
            outcome.set_exception(_closed())
            return outcome
        tag = next(self._tags)
        timer = threading.Timer(deadline, _expire, (outcome, deadline))
        timer.daemon = True
        outcome.add_done_callback(lambda _: timer.cancel())
        timer.start()
        self._thread.submit(self._carry_out, job, tag, outcome)
        return outcome

    def close(self) -> None:
        """Cancel what runs, stop the session and its JVM, remove temporary files. Idempotent."""
        if self._closed:
            return
        self._closed = True
        stopped = self._thread.submit(self._stop)
        if self._session.done() and not self._session.exception():
            _interrupt_until(stopped, self._session.result().interruptAll)
        wait([stopped], timeout=_CLOSE_WITHIN)
        if not stopped.done() and not self.settings.remote:
            _kill_jvm()
        stopped.result()
        self._thread.shutdown()
        self._scratch.remove()

    def _carry_out(self, job: Job[T], tag: str, outcome: Future[T]) -> None:
        if self._closed:
            _settle(outcome.set_exception, _closed())
        if outcome.done():
            return
        ended: Future[None] = Future()
        try:
            session = self._living_session()
            session.addTag(tag)
            outcome.add_done_callback(lambda done: _interrupt_abandoned(session, tag, done, ended))
            try:
                value = job(session)
            finally:
                ended.set_result(None)
                session.removeTag(tag)
        except Exception as error:  # noqa: BLE001  (whoever waits for the future gets it)
            _settle(outcome.set_exception, _closed() if self._closed else _translated(error))
        else:
            _settle(outcome.set_result, value)

    def _living_session(self) -> SparkSession:
        """The session; a new one when it could not be started, or its JVM is gone (out of memory, killed)."""
        if (error := self._session.exception()) is not None:
            _LOGGER.warning("Spark did not start (%s); trying again", _first_line(error))
        elif not self.settings.remote and _jvm_is_gone():
            _LOGGER.warning("Spark's JVM is gone; starting another one")
            _forget_jvm(SparkContext._gateway)  # noqa: SLF001
        else:
            return self._session.result()
        self._session = Future()
        try:
            self._session.set_result(self._start())
        except Exception as error:
            self._session.set_exception(error)
            raise
        return self._session.result()

    def _start(self) -> SparkSession:
        session = self._connect() if self.settings.remote else self._embed()
        session.dataSource.register(PrometheusDataSource)
        return session

    def _connect(self) -> SparkSession:
        builder = SparkSession.builder.remote(self.settings.master)
        for key, value in self.settings.sql_options().items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def _embed(self) -> SparkSession:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        with as_file(files("trimtab_pipeline") / "log4j2.properties") as packaged:
            log_config = Path(shutil.copy(packaged, self._folder))
        options = self.settings.jvm_options(self._folder, log_config)
        conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
        conf = conf.setMaster(f"local[{self.cores}]").setAppName("trimtab")
        with (self._folder / "console.log").open("wb") as console:  # the JVM greets with warnings nobody can act on
            gateway = launch_gateway(conf, {"stdout": console, "stderr": subprocess.STDOUT})  # type: ignore[no-untyped-call]
        if self._closed:
            _end_jvm(gateway)
            raise _closed()
        try:
            return SparkSession(SparkContext(conf=conf, gateway=gateway))
        except BaseException:
            _end_jvm(gateway)
            raise

    def _stop(self) -> None:
        if self._session.exception():
            return
        gateway = None if self.settings.remote else SparkContext._gateway  # noqa: SLF001  (no public way to end the JVM)
        with suppress(Py4JError, ConnectionError):  # killed, as it did not stop
            self._session.result().stop()
        if gateway is not None:
            _end_jvm(gateway)


def _end_jvm(gateway: Any) -> None:
    """End the JVM behind `gateway`, which PySpark would keep until the process exits, and forget it."""
    with suppress(Py4JError, OSError):  # it is gone already
        gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM exits when its standard input ends
    try:
        gateway.proc.wait(timeout=10)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    _forget_jvm(gateway)


def _jvm_is_gone() -> bool:
    gateway = SparkContext._gateway  # noqa: SLF001  (no public way to the process)
    return gateway is not None and gateway.proc.poll() is not None


def _kill_jvm() -> None:
    """End a JVM that does not answer; whoever waits for it gets an error."""
    if (gateway := SparkContext._gateway) is not None:  # noqa: SLF001  (no public way to the process)
        _LOGGER.warning("Spark did not stop within %g s; killing its JVM", _CLOSE_WITHIN)
        gateway.proc.kill()


def _forget_jvm(gateway: Any) -> None:
    """Let this process start another session after the JVM behind `gateway` has ended."""
    gateway.proc.stdin.close()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001


def _settle(setter: Callable[[Any], None], value: object) -> None:
    with suppress(InvalidStateError):  # expired or cancelled meanwhile
        setter(value)


def _expire(outcome: Future[Any], deadline: float) -> None:
    error = SourceUnavailableError(f"the cycle was cancelled: it took longer than its deadline of {deadline:g} s")
    _settle(outcome.set_exception, error)


def _interrupt_abandoned(session: SparkSession, tag: str, done: Future[Any], ended: Future[None]) -> None:
    """Cancel the tagged jobs when nobody waits for them any more."""
    if done.cancelled() or isinstance(done.exception(), SourceUnavailableError):
        _interrupt_until(ended, lambda: session.interruptTag(tag))


def _interrupt_until(ended: Future[None], interrupt: Callable[[], object]) -> None:
    """Call `interrupt` until `ended`, in a thread of its own: it blocks, and whoever cancels may run an event loop.

    Again and again, since it finds nothing to cancel while a job is on its way from Python to the JVM.
    """

    def insist() -> None:
        with suppress(PySparkException, Py4JError, OSError):  # a JVM that is gone has nothing to cancel
            while not ended.done():
                interrupt()
                wait([ended], timeout=_INTERRUPT_EVERY)

    if not ended.done():
        threading.Thread(target=insist, name="spark-interrupt", daemon=True).start()


def _closed() -> SourceUnavailableError:
    return SourceUnavailableError("the Spark session was closed")


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().split(chr(10), 1)[0]}"


def _translated(error: Exception) -> Exception:
    if isinstance(error, (PySparkException, Py4JError, ConnectionError)):
        wrapped = SourceUnavailableError(f"Spark could not run the cycle: {_first_line(error)}")
    elif isinstance(error, OSError):
        wrapped = SourceUnavailableError(
            f"the history can't be used: {error}; give a folder that can be read and written"
        )
    else:
        return error
    wrapped.__cause__ = error
    return wrapped
