"""Spark loads no class from the jars that the image leaves out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATTERNS = [
    line.partition("#")[0].strip()
    for line in (ROOT / "image" / "unused.txt").read_text().splitlines()
    if line.partition("#")[0].strip()
]


def packages() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parents[1]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_something(pattern: str) -> None:
    assert list(packages().glob(pattern))


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_no_class_comes_out_of_a_jar_that_is_left_out(tmp_path: Path) -> None:
    options = f"-Xlog:class+load=info:file={tmp_path}/classes-%p.log"
    env = {**os.environ, "JAVA_TOOL_OPTIONS": options}
    warm = [sys.executable, ROOT / "image" / "warm.py", tmp_path / "history"]
    subprocess.run(warm, env=env, check=False, capture_output=True)
    log = "".join(file.read_text() for file in tmp_path.glob("classes-*.log"))
    assert "org.apache.spark.sql.execution.python." in log, "it did not come as far as a cycle's tasks"
    loaded = set(re.findall(r"source: \S*/(pyspark/jars/\S+\.jar)", log))
    left_out = {str(path.relative_to(packages())) for pattern in PATTERNS for path in packages().glob(pattern)}
    assert not loaded & left_out
