"""The ready jobs for GitHub and GitLab run what they say: their scripts, by a real shell, with the real program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab_operator.cli import main

ROOT = Path(__file__).parents[2]
CI, GITOPS = ROOT / "examples/ci", ROOT / "examples/gitops"
BIN = Path(sys.executable).parent

FINE = (GITOPS / "policy.yaml").read_text()
WRONG = FINE.replace("mode: Approve", "mode: Auto").replace("coolDown: 1h", "coolDown: 1s").replace("40", "0")


def load(file: str) -> Any:
    return yaml.safe_load((CI / file).read_text())


def shell(script: str, folder: Path, plan: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a step as its runner does, in a repository `folder`; `trimtab plan` there ends with the code `plan`."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    trimtab = f'#!/bin/sh\n[ "$1" = plan ] && {{ echo "main makes 4 moves"; exit {plan}; }}\nexec {BIN}/trimtab "$@"\n'
    (tools / "trimtab").write_text(trimtab)
    (tools / "trimtab").chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "KUBECONFIG": str(folder / "kubeconfig")}
    env |= {"CLUSTER": "secret", "GITHUB_STEP_SUMMARY": str(folder / "summary"), "TRIMTAB_PLAN_KUBECONFIG": "x"}
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def repository(folder: Path, policy: str) -> Path:
    (folder / "trimtab").mkdir()
    (folder / "trimtab" / "policy.yaml").write_text(policy)
    return folder


def github_steps(job: str) -> list[str]:
    return [step["run"] for step in load("github.yaml")["jobs"][job]["steps"] if "run" in step]


def gitlab(job: str) -> str:
    return "\n".join(load("gitlab.yaml")[job]["script"])


@pytest.mark.slow
@pytest.mark.parametrize("script", [github_steps("lint")[-1], gitlab("trimtab-lint")], ids=["github", "gitlab"])
@pytest.mark.parametrize(("policy", "code"), [(FINE, 0), (WRONG, 1)], ids=["fine", "wrong"])
def test_lint_decides_about_the_request(script: str, policy: str, code: int, tmp_path: Path) -> None:
    done = shell(script, repository(tmp_path, policy))
    assert done.returncode == code, done.stdout + done.stderr
    if code and "github" in script:
        assert "::error file=trimtab/policy.yaml,line=" in done.stdout


def installing(place: str) -> str:
    """The step that installs Trimtab."""
    steps = github_steps("lint") if place == "github" else load("gitlab.yaml")[".trimtab"]["before_script"]
    [found] = (step for step in steps if "pip install" in step)
    return str(found)


@pytest.mark.parametrize("place", ["github", "gitlab"])
def test_trimtab_is_installed_from_a_wheel_that_must_be_named(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRIMTAB_WHEEL", raising=False)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "pip").write_text('#!/bin/sh\necho "$@" > asked\n')
    (tmp_path / "tools" / "pip").chmod(0o755)
    refused = shell(installing(place), tmp_path)
    assert refused.returncode != 0
    assert "TRIMTAB_WHEEL: set" in refused.stderr
    assert not (tmp_path / "asked").exists()

    monkeypatch.setenv("TRIMTAB_WHEEL", "./trimtab.whl")
    assert shell(installing(place), tmp_path).returncode == 0
    assert (tmp_path / "asked").read_text().split()[-1] == "./trimtab.whl"


@pytest.mark.parametrize(("plan", "code", "told"), [(0, 0, "moves nothing"), (1, 0, "moves bundles"), (2, 2, "")])
def test_github_shows_the_plan_and_fails_on_mistakes_alone(plan: int, code: int, told: str, tmp_path: Path) -> None:
    done = shell(github_steps("plan")[-1], repository(tmp_path, FINE), plan)
    assert done.returncode == code, done.stderr
    assert told in done.stdout
    assert "main makes 4 moves" in (tmp_path / "summary").read_text()
    assert (tmp_path / "kubeconfig").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("plan", [0, 1, 2])
def test_gitlab_tells_moves_by_an_exit_code_that_may_fail(plan: int, tmp_path: Path) -> None:
    done = shell(gitlab("trimtab-plan"), repository(tmp_path, FINE), plan)
    assert done.returncode == plan, done.stderr
    assert (tmp_path / "plan.txt").read_text() == "main makes 4 moves\n"
    assert load("gitlab.yaml")["trimtab-plan"]["allow_failure"] == {"exit_codes": [1]}


def test_the_plan_that_the_jobs_ask_for_is_one_that_the_program_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--help"]) == 0
    shown = capsys.readouterr().out
    for script in (github_steps("plan")[-1], gitlab("trimtab-plan")):
        [line] = [part for part in script.replace("\\\n", "").splitlines() if "trimtab plan" in part and "-f" in part]
        flags = [word for word in line.split() if word.startswith("--")]
        assert flags
        assert all(flag in shown for flag in flags)
