"""On clusters of the benchmark's size, too, every strategy makes as many decisions as its Java class."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab_strategies import registry

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_as_many_decisions_as_in_java(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--java", "recorded", "--sizes", "10x600", "100x600", "--seconds", "0.01", "--json", str(figures)]

    subprocess.run([sys.executable, ROOT / "benchmarks" / "decide.py", *options], check=True, capture_output=True)

    rows = json.loads(figures.read_text())["results"]
    tables = (registry.SHEDDERS, registry.PLACEMENTS, registry.SPLITTERS)
    assert {row["strategy"] for row in rows if row["method"] in ("shed", "place", "split")} == {
        name for table in tables for name in table
    }
    beside = [row for row in rows if "java_decisions" in row]
    assert len(beside) >= 12 * 4
    assert [(row["strategy"], row["decisions"]) for row in beside] == [
        (row["strategy"], row["java_decisions"]) for row in beside
    ]
    assert sum(row["decisions"] for row in beside if row["method"] == "shed") > 1000
