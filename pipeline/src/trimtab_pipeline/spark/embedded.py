"""Spark in a JVM that this process starts, monitors and ends.

The JVM gets little memory, the serial collector (the heap is small, and pauses do not matter), and Unix sockets to its
Python workers (a Python task costs 5 ms instead of 24 ms over TCP). It exits when it runs out of memory, as it is not
reliable afterwards, and the next cycle starts another one.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.spark.settings import SparkSettings, require_java

_LOGGER = logging.getLogger(__name__)
_DYING = 5.0  # seconds that a JVM without sockets has to end
_ENDING = 10.0  # and one that was asked to end
_OUT_OF_MEMORY = 3  # exit status of a JVM under -XX:+ExitOnOutOfMemoryError


class EmbeddedSpark:
    """One JVM at a time; its files go to `folder`. Raises `JavaMissingError` at once when there is no Java."""

    def __init__(self, settings: SparkSettings, folder: Path) -> None:
        require_java()
        self._settings = settings
        self._folder = folder

    def start(self, closed: Callable[[], bool]) -> SparkSession:
        """A session on a new JVM. Raises `SourceUnavailableError` if it was `closed` meanwhile."""
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        with as_file(files("trimtab_pipeline.spark") / "log4j2.properties") as packaged:
            log_config = Path(shutil.copy(packaged, self._folder))
        options = self._settings.jvm_options(self._folder, log_config)
        conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
        conf = conf.setMaster(f"local[{self._settings.cores}]").setAppName("trimtab")
        with (self._folder / "console.log").open("wb") as console:  # the JVM prints warnings that no user can act on
            gateway = launch_gateway(conf, {"stdout": console, "stderr": subprocess.STDOUT})  # type: ignore[no-untyped-call]
        if closed():
            _end_jvm(gateway, _ENDING)
            raise SourceUnavailableError("the Spark session was closed")
        try:
            return SparkSession(_hushed(SparkContext(conf=conf, gateway=gateway)))
        except BaseException:
            _end_jvm(gateway, _ENDING)
            raise

    def lost(self, session: SparkSession) -> str:
        """What happened to the JVM and what to do; empty while it runs."""
        gateway = SparkContext._gateway  # noqa: SLF001  (no public way to the process)
        if gateway is None or (gateway.proc.poll() is None and _answers(session)):
            return ""
        return f"Spark's JVM is gone ({self._cause(_ended(gateway.proc))}); starting another one"

    def _cause(self, status: int) -> str:
        if status == _OUT_OF_MEMORY:
            return f"it ran out of its {self._settings.memory} of memory: give it more"
        if status == -signal.SIGKILL:
            return "it was killed: by the kernel, if the machine or container ran out of memory"
        return f"it ended with status {status}"

    def forget(self, session: SparkSession) -> None:  # noqa: ARG002  (as above)
        """Let this process start another session after its JVM has ended."""
        _forget_jvm(SparkContext._gateway)  # noqa: SLF001  (as above)

    def stop(self, session: SparkSession) -> None:
        """Stop the session and end its JVM."""
        gateway = SparkContext._gateway  # noqa: SLF001  (no public way to end the JVM)
        with suppress(Py4JError, ConnectionError):  # killed, as it did not stop
            session.stop()
        if gateway is not None:
            _end_jvm(gateway, max(_ENDING, self._settings.close_within))

    def kill(self, after: float) -> None:
        """Kill a JVM that did not stop within `after` seconds; callers that wait for it get an error."""
        if (gateway := SparkContext._gateway) is not None:  # noqa: SLF001  (no public way to the process)
            _LOGGER.warning("Spark did not stop within %g s; killing its JVM", after)
            gateway.proc.kill()


def _hushed(context: SparkContext) -> SparkContext:
    """The context, whose accumulator server logs one line instead of a traceback when the JVM dies."""

    def lost(_request: object, _address: object) -> None:
        _LOGGER.debug("the JVM no longer reports its accumulators")

    server: Any = context._accumulatorServer  # noqa: SLF001  (no public way to it)
    server.handle_error = lost
    return context


def _answers(session: SparkSession) -> bool:
    """Whether the JVM takes calls. A dying one has no sockets, but is still a process for a moment."""
    try:
        session.conf.get("spark.sql.session.timeZone")
    except (Py4JError, PySparkException, OSError):
        return False
    return True


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Exit status of a JVM that does not answer."""
    try:
        return process.wait(timeout=_DYING)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _end_jvm(gateway: Any, within: float) -> None:
    """End the JVM behind `gateway`, which PySpark would keep until the process exits, and drop it.

    within: seconds after which it is killed.
    """
    with suppress(Py4JError, OSError):  # it is gone already
        gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM exits when its standard input ends
    try:
        gateway.proc.wait(timeout=within)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    _forget_jvm(gateway)


def _forget_jvm(gateway: Any) -> None:
    gateway.proc.stdin.close()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001
