"""Spark whose driver is a JVM that this process starts, monitors and stops.

Tasks run in that JVM's own workers (``local[N]``) or on the executors of a standalone cluster (``spark://``). The JVM
gets little memory, the serial collector (the heap is small, and pauses do not matter), and Unix sockets to its Python
workers (a Python task costs 5 ms instead of 24 ms over TCP). The JVM exits when it runs out of memory, because it is
not reliable afterwards. The next cycle then starts another JVM.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.spark.java import Java, await_file, command, launch, require_java
from trimtab_pipeline.spark.outcomes import described
from trimtab_pipeline.spark.settings import SparkSettings

_LOGGER = logging.getLogger(__name__)
_DYING = 5.0  # seconds that a JVM without sockets has to exit
_IDLE = 2.0  # seconds after which a JVM that should exit but does nothing is killed
_AT_MOST = 60.0  # seconds after which a JVM that should exit is killed even if it is busy
_LOOK_EVERY = 0.1
_WORK = 0.2  # seconds; threads that run or wait for a core for less than this in `_IDLE` only do housekeeping
_OUT_OF_MEMORY = 3  # exit status of a JVM under -XX:+ExitOnOutOfMemoryError


class EmbeddedSpark:
    """One JVM at a time, which writes to `folder`. The constructor raises `JavaMissingError` if there is no Java."""

    def __init__(self, settings: SparkSettings, folder: Path) -> None:
        self._java: Java | None = require_java()
        self._settings = settings
        self._folder = folder
        self._jvm: subprocess.Popen[bytes] | None = None
        self._log, self._log_begin = folder / "spark.log", 0  # earlier JVMs wrote the text before that position

    def start(self, closed: Callable[[], bool]) -> SparkSession:
        """A session on a new JVM. Raises `SourceUnavailableError` if Spark does not start, or is `closed` meanwhile."""
        if not self._settings.remote:  # a cluster's executors have a Python of their own, and call the driver back
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # the JVM has 100 threads; each arena keeps memory for itself
        _hush_py4j()
        with as_file(files("trimtab_pipeline.spark") / "log4j2.properties") as packaged:
            log_config = Path(shutil.copy(packaged, self._folder))
        self._log_begin = self._log.stat().st_size if self._log.exists() else 0
        options = self._settings.driver_options(self._folder, log_config)
        conf = SparkConf(loadDefaults=False).setAll(list(options.items())).setAppName("trimtab")
        gateway = self._gateway(conf, options)
        if closed():
            _end_jvm(gateway)
            raise SourceUnavailableError("the Spark session was closed")
        try:
            return SparkSession(_hushed(SparkContext(conf=conf, gateway=gateway)))
        except Exception as error:
            told = self._reason() or described(error)  # asks the JVM, which still runs
            _end_jvm(gateway)
            raise SourceUnavailableError(f"Spark did not start on {self._settings.master}: {told}") from error

    def _gateway(self, conf: SparkConf, options: Mapping[str, str]) -> Any:
        """PySpark's connection to a new JVM."""
        home, told, printed = Path(_find_spark_home()), self._folder / "gateway", self._folder / "console.log"
        told.unlink(missing_ok=True)
        java, self._java = self._java or require_java(), None  # by another start, it may have been replaced
        with printed.open("wb") as console:  # the JVM prints warnings that no user can act on
            self._jvm = launch(command(java, home, options), home, told, console)
        await_file(told, self._jvm, printed)
        with told.open("rb") as written:
            port, secret = read_int(written), UTF8Deserializer().loads(written)  # type: ignore[no-untyped-call]
        # With these PySpark connects to a JVM that runs, instead of starting one.
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        try:
            gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
        finally:
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        gateway.proc = self._jvm
        return gateway

    def lost(self, session: SparkSession) -> str:
        """What happened to the JVM or its context, and what happens next; empty while both are usable."""
        gateway = SparkContext._gateway  # noqa: SLF001  (no public way to the process)
        stopped = None if gateway is None or gateway.proc.poll() is not None else _stopped(session)
        if gateway is None or stopped is False:
            return ""
        if stopped:
            return (
                f"{self._settings.master} dropped the application ({self._reason() or 'no reason'}); "
                "starting another driver"
            )
        return f"Spark's JVM is gone ({self._cause(_ended(gateway.proc))}); starting another one"

    def _reason(self) -> str:
        """Why a cluster stopped the context, as this JVM logged it; empty if it logged nothing.

        Python's error says only that the context has stopped.
        """
        with suppress(OSError), self._log.open() as log:
            log.seek(self._log_begin)
            reasons: list[str] = re.findall(r"Reason: (.+)", log.read())
            return reasons[-1] if reasons else ""
        return ""

    def _cause(self, status: int) -> str:
        if status == _OUT_OF_MEMORY:
            return f"it ran out of its {self._settings.memory} of memory: give it more"
        if status == -signal.SIGKILL:
            return "it was killed: by the kernel, if the machine or container ran out of memory"
        return f"it exited with status {status}"

    def forget(self, session: SparkSession) -> None:  # noqa: ARG002  (as above)
        """Let this process start another session after its JVM has exited or its context has stopped."""
        _end_jvm(SparkContext._gateway)  # noqa: SLF001  (as above)

    def give_up(self, why: str) -> None:
        """Kill the JVM, even one that is still starting, and log why."""
        _LOGGER.warning("%s; killing its JVM", why)
        if self._jvm is not None:
            self._jvm.kill()

    def stop(self, session: SparkSession) -> None:
        """Stop the session and its JVM."""
        gateway = SparkContext._gateway  # noqa: SLF001  (no public way to end the JVM)
        warnings.filterwarnings(
            "ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning
        )  # `await_stop` logs it
        with suppress(Py4JError, ConnectionError):  # `await_stop` may have killed the JVM
            session.stop()
        if gateway is not None:
            _end_jvm(gateway)

    def await_stop(self, stopped: Future[None]) -> None:
        """Wait for `stop`, and kill a JVM that hangs; callers that wait for this JVM then get an error."""
        while not _within(stopped, _LOOK_EVERY):
            gateway = SparkContext._gateway  # noqa: SLF001  (no public way to the process)
            if gateway is not None and hangs(gateway.proc.pid, lambda seconds: _within(stopped, seconds)):
                _LOGGER.warning("Spark did not stop: its JVM did nothing for %g s; killing it", _IDLE)
                gateway.proc.kill()
                break


def _hush_py4j() -> None:
    """Silence Py4J. It logs a stack trace for each call that the JVM does not answer, although it also raises an error.

    At DEBUG it would log all traffic, with credentials.
    """
    for name in ("py4j.java_gateway", "py4j.clientserver"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_from_py4j)  # some traces go to the root logger


def _not_from_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _hushed(context: SparkContext) -> SparkContext:
    """The context, whose accumulator server logs one line instead of a traceback when the JVM dies."""

    def lost(_request: object, _address: object) -> None:
        _LOGGER.debug("the JVM no longer reports its accumulators")

    server: Any = context._accumulatorServer  # noqa: SLF001  (no public way to it)
    server.handle_error = lost
    return context


def _stopped(session: SparkSession) -> bool | None:
    """Whether the context has stopped by itself; None if the JVM answers no calls.

    A JVM that is exiting has no sockets, but is still a process for a moment.
    """
    try:
        return bool(session.sparkContext._jsc.sc().isStopped())  # noqa: SLF001  (no public way to it)
    except (Py4JError, PySparkException, OSError):
        return None


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Exit status of a JVM that does not answer."""
    try:
        return process.wait(timeout=_DYING)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _end_jvm(gateway: Any) -> None:
    """Stop the JVM of `gateway`, and remove PySpark's references to it. PySpark keeps both until the process exits."""
    with suppress(Py4JError, OSError):  # it is gone already
        gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM exits when its standard input ends
    if hangs(gateway.proc.pid, lambda seconds: exits(gateway.proc, seconds)):
        gateway.proc.kill()
    gateway.proc.wait()
    server: Any = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)  # noqa: SLF001
    if server is not None:
        server.shutdown()  # its thread would outlive the JVM
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001


def hangs(pid: int, over: Callable[[float], bool]) -> bool:
    """Wait until ``over(seconds)`` is true. Returns true if process `pid` hangs before that.

    A process counts as hanging after `_IDLE` seconds in which its threads neither run nor wait for a core or a disk,
    and in any case after `_AT_MOST` seconds. A short time limit alone would not do: a busy machine makes a JVM slow.
    """
    begin = active = time.monotonic()
    before = _seconds_runnable(pid)
    while not over(_LOOK_EVERY):
        now, total = time.monotonic(), _seconds_runnable(pid)
        if abs(total - before) > _WORK or _waits_for_disk(pid):  # a lower total: a thread has ended
            active, before = now, total
        if now > min(active + _IDLE, begin + _AT_MOST):
            return True
    return False


def _seconds_runnable(pid: int) -> float:
    """Seconds that the threads of a process ran or waited for a core; 0 where the kernel does not count them."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # it has ended
            total += sum(map(int, thread.read_text().split()[:2]))
    return total / 1e9


def _waits_for_disk(pid: int) -> bool:
    with suppress(OSError):  # it has ended
        states = (stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat"))
        return "D" in states
    return False


def _within(outcome: Future[None], seconds: float) -> bool:
    return bool(wait([outcome], timeout=seconds).done)


def exits(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process exits within `seconds`."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)
    return process.returncode is not None
