"""How `make test` distributes test files over workers: file by file, but files with a shared cluster stay together.

A shared cluster is a fixture that takes ten seconds or more on two cores to start, and lives as long as its worker. If
the files that use it were spread over several workers, each worker would start the cluster again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

SHARED: Mapping[str, frozenset[str]] = {
    "tests/endtoend": frozenset(
        {
            "approval",
            "backtest",
            "faults",
            "hot_bundle",
            "killed_split",
            "plan",
            "saved_plan",
            "why",
            "desired_owners",
        }
    ),
    "tests/pipeline": frozenset(
        {
            "batches",
            "spark_connect",
            "custom_queries",
            "direct_source",
            "faults",
            "real_prometheus",
            "secrecy",
            "cycle_averages",
        }
        | {"broker_refresh", "data_quality", "sources", "state_files"}
        | {"history_tools", "statistics", "topic_cycle"}
    ),
    "tests/security": frozenset({"canaries", "shipped_role"}),
}
"""Folder -> names of the files (``test_NAME.py``) that use the cluster of its conftest.py."""


def part_of(path: str) -> str:
    """The unit that one worker gets: the folder if the file shares a cluster, otherwise the file."""
    folder, _, file = path.rpartition("/")
    return folder if shares(folder, Path(file).stem) else path


def shares(folder: str, stem: str) -> bool:
    """Whether the file uses the cluster of its folder."""
    return stem.removeprefix("test_") in SHARED.get(folder, ())


class SharedClusterScheduling(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist says no types
    """Distributes the units that `part_of` returns."""

    def _split_scope(self, nodeid: str) -> Any:
        return part_of(nodeid.split("::", 1)[0])
