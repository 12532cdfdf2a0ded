"""The figures of real brokers in README.md are those of the recorded runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
RUNS = json.loads((ROOT / "docs" / "data" / "side-by-side.json").read_text())["runs"]


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """The page's generator."""
    sys.path.append(str(ROOT / "docs" / "tools"))
    yield import_module("side_by_side_page")
    sys.path.remove(str(ROOT / "docs" / "tools"))


def test_the_readme_has_the_medians_of_the_recorded_runs(script: Any) -> None:
    assert [line for line in script.readme_table().splitlines() if line not in README.splitlines()] == []


def test_the_medians_of_the_readme_are_of_three_runs_each_on_the_same_machine(script: Any) -> None:
    shown = script._on(RUNS, shared=True)

    assert set(shown) == set(script.SHORT_TITLES)
    assert {len(runs) for runs in shown.values()} == {3}
    assert {run["host"] for runs in shown.values() for run in runs} == {"shared"}
