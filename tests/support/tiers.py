"""The tiers of the tests: what `make test`, `make test-full` and `make e2e` run, and what a test of each may start.

A test's tier follows from what it needs. Its markers state these needs (``pyproject.toml`` explains each), and a test
without any of them needs Python only. While such a test runs, an audit hook refuses to start a server, a JVM or a build
tool, except an imitation that the test itself wrote.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

QUICK, FULL, E2E = "quick", "full", "e2e"

SMOKE_TOO = f"{QUICK} or smoke"
"""How `make test` selects tests (``pytest -m``)."""

NEEDS = frozenset(
    {"apiserver", "prometheus", "controllers", "connect", "spark", "java", "oracle", "helm_program", "slow"}
    | {"kube_binaries", "prometheus_binary"}
)
"""Markers and fixtures of tests that need more than Python, or much time. Each puts a test in the tier `FULL`."""

PROGRAMS = frozenset(
    {"etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "prometheus", "promtool"}
    | {"java", "spark-submit", "helm", "go", "mvn", "npm"}
)
"""Programs that a test of the tier `QUICK` must not start."""

_running: list[str] = []


class TierError(Exception):
    """A test starts a program that its tier does not have."""


def tier_of(needs: Iterable[str]) -> str:
    """The tier of a test with these markers and fixtures."""
    names = frozenset(needs)
    if "e2e" in names:
        return E2E
    return FULL if names & NEEDS else QUICK


@contextmanager
def python_only(test: str) -> Iterator[None]:
    """Refuse to start any of `PROGRAMS` in this process inside the block: the attempt raises `TierError`."""
    if not _hooked:
        sys.addaudithook(_refuse)
        _hooked.append(True)
    _running.append(test)
    try:
        yield
    finally:
        _running.remove(test)


_hooked: list[bool] = []


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "subprocess.Popen" or not _running:
        return
    executable, command, _, environment = arguments
    first = command[0] if isinstance(command, Sequence) and not isinstance(command, str) else executable
    path = shutil.which(first, path=(environment or os.environ).get("PATH")) or first
    if Path(path).name in PROGRAMS and not Path(path).is_relative_to(tempfile.gettempdir()):
        raise TierError(
            f"{_running[-1]} starts {path}, which `make test` does not need: "
            f"mark the test with one of {', '.join(sorted(NEEDS))}"
        )
