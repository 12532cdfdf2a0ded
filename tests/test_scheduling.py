"""Files that share a cluster go to one worker, and every file that uses one is listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scheduling import SHARED, part_of

ROOT = Path(__file__).parents[1]
USES = {
    "tests/endtoend": r"\bstage: SmallCluster\b",
    "tests/pipeline": r"\b(sources: (Spark|Policy)\w*Sources|observing: \w+)\b",
    "tests/pipeline/transform": r"\bsession: SparkSession\b",
    "tests/security": r"\bstage: SmallCluster\b",
}
"""How a test requests the shared cluster of its folder."""


@pytest.mark.parametrize("folder", SHARED)
def test_exactly_the_files_that_use_a_shared_cluster_are_listed(folder: str) -> None:
    asks = re.compile(rf"(def test_\w+|@pytest.fixture.*\ndef \w+)\([^)]*{USES[folder]}")
    users = {file.stem for file in (ROOT / folder).glob("test_*.py") if asks.search(file.read_text())}

    assert {f"test_{name}" for name in SHARED[folder]} == users


def test_a_part_is_a_folder_or_a_file() -> None:
    assert part_of("tests/security/test_canaries.py") == "tests/security"
    assert part_of("tests/security/test_files.py") == "tests/security/test_files.py"
    assert part_of("tests/test_scheduling.py") == "tests/test_scheduling.py"
