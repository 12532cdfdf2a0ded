"""Outcomes of jobs: futures with a deadline, and Spark's errors as one line for a user, with the cause."""

from __future__ import annotations

import math
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from trimtab_pipeline.api import SourceUnavailableError


def _of_spark() -> tuple[type[Exception], ...]:
    """Errors of PySpark; none if it is not installed. The package `pyspark-client` has no JVM, so no errors of Py4J."""
    if find_spec("pyspark") is None:
        return ()
    from pyspark.errors import PySparkException  # noqa: PLC0415  (as above)

    if find_spec("py4j") is None:
        return (PySparkException,)
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415  (as above)

    return PySparkException, Py4JError


SPARK_ERRORS: tuple[type[Exception], ...] = (ConnectionError, *_of_spark())
"""What PySpark raises when Spark fails or is gone."""

_GRPC_DETAILS = re.compile(r'details = "(.*)"')
_TOKEN = re.compile(r"(token=)[^;'\"\s]+")
_TRACEBACK = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE)
_JAVA_CAUSE = re.compile(r"^(?:|Caused by): (?:[\w.$]+\.)?(\w+: .+)$", re.MULTILINE)
_FOREIGN = re.compile(r"^((?:ModuleNotFound|Import|Attribute)Error: .*trimtab_.*)$", re.MULTILINE)
_NO_SPACE = "No space left on device"
_ROOM = 2**20  # bytes: a folder with less is full
_REMEDY = "install the same version of Trimtab in the Python of Spark's workers (PYSPARK_PYTHON)"


def promised(deadline: float) -> Future[Any]:
    """A future that fails with `SourceUnavailableError` unless it is done within `deadline` seconds (may be inf)."""
    outcome: Future[Any] = Future()
    if math.isinf(deadline):
        return outcome
    timer = threading.Timer(deadline, _expire, (weakref.ref(outcome), deadline))  # else the two would keep each other
    timer.daemon = True
    outcome.add_done_callback(lambda _: timer.cancel())
    timer.start()
    return outcome


def settle(setter: Callable[[Any], None], value: object) -> None:
    """Set an outcome, unless it has expired or was cancelled."""
    with suppress(InvalidStateError):
        setter(value)


def _expire(expected: weakref.ref[Future[Any]], deadline: float) -> None:
    error = SourceUnavailableError(f"the cycle was cancelled: it took longer than its deadline of {deadline:g} s")
    if (outcome := expected()) is not None:
        settle(outcome.set_exception, error)


def without_token(text: str) -> str:
    """`text` without the token that the address of a Spark Connect server may carry (``sc://host/;token=...``)."""
    return _TOKEN.sub(r"\1***", text)


def described(error: BaseException) -> str:
    """The cause in one line, without a token.

    That is the last line of the last traceback of a worker's Python, else gRPC's details, else the innermost Java
    exception, else the error's type and first line. If a worker lacks this package or has another version of it, the
    cause is Python's import error.
    """
    text = without_token(_text(error).strip())
    if foreign := _FOREIGN.findall(text):
        return f"{foreign[-1]}; {_REMEDY}"
    if raised := _TRACEBACK.findall(text):
        return f"{raised[-1]} (in a task)"
    if details := _GRPC_DETAILS.search(text):
        return f"{type(error).__name__}: {details[1]}"
    if causes := _JAVA_CAUSE.findall(text):
        return str(causes[-1])
    return f"{type(error).__name__}: {text.split(chr(10), 1)[0]}"


def _text(error: BaseException) -> str:
    """The error's text. To get it, Py4J asks the JVM, which may have exited by then."""
    with suppress(*SPARK_ERRORS):
        return str(error)
    return str(error.args[0])


def as_source_error(error: Exception) -> Exception:
    """A `SourceUnavailableError` with the cause, if Spark or the history failed; else the error itself."""
    if not isinstance(error, SPARK_ERRORS):
        return as_history_error(error)
    cause = described(error)
    wrapped = SourceUnavailableError(f"Spark could not run the cycle: {cause}{_full_folder(cause)}")
    wrapped.__cause__ = error
    return wrapped


def as_history_error(error: Exception) -> Exception:
    """A `SourceUnavailableError` with the cause, if the history failed; else the error itself."""
    if not isinstance(error, (OSError, pa.ArrowException)):
        return error
    place = str(getattr(error, "filename", None) or tempfile.gettempdir())
    if place.startswith(tempfile.gettempdir()) and (full := _full_folder(str(error))):
        wrapped = SourceUnavailableError(f"a temporary file can't be written: {error}{full}")
    else:
        wrapped = SourceUnavailableError(
            f"the history can't be used: {error}; give a folder that can be read and written"
        )
    wrapped.__cause__ = error
    return wrapped


def _full_folder(cause: str) -> str:
    """Which folder is full, and what to do, if `cause` says that one is, and it is that of temporary files."""
    folder = tempfile.gettempdir()
    if _NO_SPACE not in cause or shutil.disk_usage(folder).free >= _ROOM:
        return ""
    return f"; {folder} is full: free space there, or set TMPDIR to another folder"
