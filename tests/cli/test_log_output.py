"""`trimtab run --log-level --log-format`: what one process writes to stderr."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest

pytestmark = pytest.mark.slow  # it starts many processes

PROGRAM = """
import logging, sys
from trimtab_operator.cli.commands.run import log_to_stderr
log_to_stderr(sys.argv[1], sys.argv[2], verbose=sys.argv[3:] == ["verbose"])
log = logging.getLogger("trimtab_operator.app")
log.debug("a detail")
log.info("bundle %s moved, über alles", "0x10")
logging.getLogger("kopf").info("of Kopf")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("a fault")
"""


@cache
def written(*words: str) -> str:
    return subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True).stderr


def test_json_logs_are_one_object_a_line_with_the_traceback_inside() -> None:
    info, fault = map(json.loads, written("info", "json").splitlines())

    assert info["time"].endswith("Z")
    del info["time"]
    assert info == {
        "level": "info",
        "logger": "trimtab_operator.app",
        "message": "bundle 0x10 moved, über alles",
    }
    assert (fault["level"], fault["message"]) == ("error", "a fault")
    assert "ZeroDivisionError" in fault["error"]


def test_the_level_is_the_least_that_is_written() -> None:
    assert "a detail" in written("debug", "text")
    assert "a detail" not in written("info", "text")
    assert "moved" not in written("warning", "text")
    assert "a fault" in written("error", "text")


def test_libraries_are_quiet_unless_asked_for() -> None:
    assert "of Kopf" not in written("info", "text")
    assert "of Kopf" in written("info", "text", "verbose")
