"""Cancels what runs on Spark for nobody: insistently, and without making anybody wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trimtab_pipeline.api import SourceUnavailableError

_INTERRUPT_EVERY = 0.3  # seconds


def interrupt_abandoned(session: SparkSession, tag: str, done: Future[Any], ended: Future[None]) -> None:
    """Cancel the tagged jobs when nobody waits for them any more."""
    if done.cancelled() or isinstance(done.exception(), SourceUnavailableError):
        interrupt_until(ended, lambda: session.interruptTag(tag))


def interrupt_until(ended: Future[None], interrupt: Callable[[], object]) -> None:
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
