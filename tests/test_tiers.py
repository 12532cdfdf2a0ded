"""Every test is in one tier, and each tier is run by one target of the Makefile and by CI."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tiers import E2E, FULL, NEEDS, QUICK, SMOKE_TOO, TierError, python_only, tier_of

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = {QUICK: "test", FULL: "test-full", E2E: "e2e"}


def expression(target: str) -> Expression:
    """How the target selects tests."""
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert recipe, f"the Makefile has no target {target}"
    selected = re.search(r'pytest.* -m (?:"([^"]+)"|(\w+))', recipe[1])
    assert selected, f"make {target} selects no tier"
    return Expression.compile(selected[1] or selected[2])


@pytest.mark.parametrize("needs", [set(), *({need} for need in NEEDS), *map(set, combinations(NEEDS, 2)), {"e2e"}])
@pytest.mark.parametrize("smoke", [{"smoke"}, set()], ids=["smoke", "no smoke"])
def test_each_test_is_run_by_the_target_of_its_tier(needs: set[str], smoke: set[str]) -> None:
    marks = needs | smoke
    tier = tier_of(marks)
    run_by = {t for t in TARGETS.values() if expression(t).evaluate(lambda name, **_: name in marks | {tier})}

    assert TARGETS[tier] in run_by
    assert run_by - {TARGETS[tier]} <= ({"test"} if smoke else set()) | {"test-full"}


def test_make_test_runs_the_quick_tier_and_the_smoke_tests() -> None:
    assert f'-m "{SMOKE_TOO}"' in MAKEFILE


@pytest.mark.slow
@pytest.mark.parametrize(("selected", "folder"), [(SMOKE_TOO, "e2e"), ("not e2e", "e2e"), ("e2e", "strategies")])
def test_real_pulsar_brokers_are_for_one_tier_alone(selected: str, folder: str) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", selected]
    found = subprocess.run([*command, ROOT / "tests" / folder], capture_output=True, text=True, check=False, cwd=ROOT)
    assert found.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, found.stdout


def test_ci_runs_every_tier() -> None:
    stages = re.findall(r"make ([\w-]+)", (ROOT / ".ci" / "run").read_text())
    assert set(TARGETS.values()) <= set(stages)


def test_a_quick_test_that_starts_a_server_is_refused() -> None:
    with (
        python_only("tests/test_it.py::test_it"),
        pytest.raises(TierError, match=r"test_it starts .*mvn.*mark the test"),
    ):
        subprocess.run(["mvn", "--version"], check=False)


def test_a_quick_test_may_start_python_and_programs_of_its_own(tmp_path: Path) -> None:
    program = tmp_path / "helm"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with python_only("tests/test_it.py::test_it"):
        subprocess.run([sys.executable, "--version"], check=True, capture_output=True)
        subprocess.run([program], check=True)
