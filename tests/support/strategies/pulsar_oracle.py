"""Sends scenarios to the oracle, which runs Pulsar's own classes in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FOLDER = Path(__file__).parents[3] / ".trimtab" / "oracle"
PATIENCE = 60.0
"""Seconds that one answer may take."""


class OracleError(RuntimeError):
    """The oracle is missing, could not run a scenario, or did not answer. The text says which, and what to do."""


class Oracle:
    """A running oracle, to be used in a ``with`` statement. Raises `OracleError` if it has not been built.

    asked: how many scenarios it answered.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        if not (folder / ".built").is_file():
            raise OracleError(f"the oracle is not in {folder}: `make oracle` builds it")
        self._program = folder / "run"
        self.asked = 0

    def __enter__(self) -> Self:
        environment = {**os.environ, "ORACLE_JAVA_OPTS": "-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
        self._process = subprocess.Popen(
            [self._program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            encoding="utf-8",
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, scenario: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of Pulsar's class. Raises `OracleError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        impatient = threading.Timer(PATIENCE, self._process.kill)
        impatient.start()
        try:
            self._process.stdin.write(json.dumps(scenario) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            impatient.cancel()
        if not line:
            raise OracleError(
                f"the oracle ended, or took over {PATIENCE:g} s, at {scenario['id']}: run {self._program}"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise OracleError(f"the oracle could not run {scenario['id']}:\n{answer['error']}")
        self.asked += 1
        java: dict[str, Any] = answer["java"]
        return java
