"""Outcomes that somebody waits for, though not for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from trimtab_pipeline.api import SourceUnavailableError


def promised(deadline: float) -> Future[Any]:
    """An outcome that fails with `SourceUnavailableError` unless it is there within `deadline` seconds from now."""
    outcome: Future[Any] = Future()
    timer = threading.Timer(deadline, _expire, (outcome, deadline))
    timer.daemon = True
    outcome.add_done_callback(lambda _: timer.cancel())
    timer.start()
    return outcome


def settle(setter: Callable[[Any], None], value: object) -> None:
    """Set an outcome, unless it has expired or was cancelled meanwhile."""
    with suppress(InvalidStateError):
        setter(value)


def _expire(outcome: Future[Any], deadline: float) -> None:
    error = SourceUnavailableError(f"the cycle was cancelled: it took longer than its deadline of {deadline:g} s")
    settle(outcome.set_exception, error)
