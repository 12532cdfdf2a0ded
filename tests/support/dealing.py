"""How `make test` deals the files of tests out to its workers: file by file, but those that share a stage together.

A stage is a fixture that takes ten seconds of two cores and more to begin, and lives as long as its worker: in each
worker that gets one of its files it would begin anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

SHARED: Mapping[str, frozenset[str]] = {
    "tests/endtoend": frozenset({"approval", "faults", "hot_bundle", "killed_split", "plan", "why", "desired_owners"}),
    "tests/pipeline": frozenset(
        {"connected", "custom_queries", "direct_source", "faults", "real_prometheus", "secrecy", "spark_source"}
        | {"statistics", "topic_cycle"}
    ),
    "tests/security": frozenset({"canaries", "shipped_role"}),
}
"""Folder -> what its files (``test_NAME.py``) are called that use the stage of its conftest.py."""


def part_of(path: str) -> str:
    """What is given to one worker as a whole: the path's folder, where its file shares a stage, or the file itself."""
    folder, _, file = path.rpartition("/")
    return folder if shares(folder, Path(file).stem) else path


def shares(folder: str, stem: str) -> bool:
    """Whether the file uses the stage of its folder."""
    return stem.removeprefix("test_") in SHARED.get(folder, ())


class ByStage(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist says no types
    """Deals out parts, see `part_of`."""

    def _split_scope(self, nodeid: str) -> Any:
        return part_of(nodeid.split("::", 1)[0])
