"""The workflow of a release, which no one has run: its shape, and that all it names is there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / ".github" / "workflows" / "release.yaml"
TEXT = FILE.read_text()
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
STEPS = [(name, step) for name, job in JOBS.items() for step in job["steps"]]
RUNS = [(name, step["run"]) for name, step in STEPS if "run" in step]
PAGE = (ROOT / "docs" / "release.md").read_text()


def needs(job: str) -> set[str]:
    """The jobs whose outputs `job` may read."""
    found = JOBS[job].get("needs", [])
    return {found} if isinstance(found, str) else set(found)


def using(action: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, step.get("with", {})) for name, step in STEPS if step.get("uses", "").startswith(f"{action}@"))


def test_it_runs_for_a_tag_alone_and_may_only_read_unless_a_job_says_more() -> None:
    assert WORKFLOW[True] == {"push": {"tags": ["v[0-9]*"]}}  # YAML 1.1 reads `on` as true
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert {name for name, job in JOBS.items() if job.get("permissions", {}).get("contents") == "write"} == {"release"}


def test_jobs_and_outputs_that_are_named_exist() -> None:
    for name, job in JOBS.items():
        assert needs(name) <= JOBS.keys(), name
        for other, output in re.findall(r"needs\.([\w-]+)\.outputs\.(\w+)", str(job)):
            assert other in needs(name), f"{name} does not need {other}"
            assert output in JOBS[other]["outputs"], f"{other} has no output {output}"
        ids = {step["id"] for step in job["steps"] if "id" in step}
        assert set(re.findall(r"steps\.(\w+)\.outputs", str(job))) <= ids, name


def test_outputs_of_scripts_are_written_by_them() -> None:
    for name, job in JOBS.items():
        scripts = {step["id"]: step["run"] for step in job["steps"] if "id" in step and "run" in step}
        for step, output in re.findall(r"steps\.(\w+)\.outputs\.(\w+)", str(job)):
            assert step not in scripts or f'echo "{output}=' in scripts[step], f"{name}: {step} writes no {output}"


def test_make_targets_and_files_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for _, run in RUNS for target in re.findall(r"\bmake ([a-z0-9-]+)", run)}
    assert named
    assert named <= targets
    files = {path for _, run in RUNS for path in re.findall(r"\b(?:docs|requirements|charts)/[\w./-]+\w", run)}
    assert files >= {"docs/tools/release_chart.py", "requirements/build.txt"}
    assert [path for path in sorted(files) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("job", "script"), RUNS)
def test_scripts_are_valid_and_name_variables_by_their_environment(job: str, script: str) -> None:
    """A name of a branch in `${{ }}` would be run as a command, so expressions stand in `env` alone."""
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "${{" not in script, job


def test_what_one_job_uploads_another_finds() -> None:
    given = [step["name"] for _, step in using("actions/upload-artifact")]
    for job, step in using("actions/download-artifact"):
        wanted = step.get("name") or step["pattern"].rstrip("*")
        assert any(name.startswith(wanted) for name in given), f"{job}: no one uploads {wanted}"


def test_every_part_of_a_release_is_made() -> None:
    platforms = {row["platform"] for row in JOBS["image-of"]["strategy"]["matrix"]["include"]}
    assert platforms == {"linux/amd64", "linux/arm64"}
    (build,) = (step for _, step in using("docker/build-push-action"))
    assert (build["provenance"], build["sbom"]) == ("mode=max", True)
    assert {job for job, _ in using("actions/attest-build-provenance")} == {"wheel", "image", "chart"}
    assert {job for job, run in RUNS if "cosign sign --yes" in run} == {"image", "chart"}
    assert {job for job, _ in using("anchore/sbom-action")} == {"wheel"}
    for job in ("wheel", "image", "chart"):
        assert JOBS[job]["permissions"].items() >= {"id-token": "write", "attestations": "write"}.items()


@pytest.mark.parametrize(("user", "password", "code"), [("", "false", 0), ("robot", "true", 0), ("robot", "false", 1)])
def test_the_token_of_the_workflow_is_not_sent_as_the_password_of_a_registry_user(
    tmp_path: Path, user: str, password: str, code: int
) -> None:
    (script,) = (run for _, run in RUNS if "HAS_PASSWORD" in run)
    env = {"REGISTRY": "registry.example.com", "REPOSITORY": "Team/Trimtab", "GITHUB_OUTPUT": str(tmp_path / "output")}
    env |= {"REGISTRY_USER": user, "HAS_PASSWORD": password}
    done = subprocess.run(["bash", "-e", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("set the secret REGISTRY_PASSWORD" in done.stderr) == bool(code)


def test_no_owner_and_no_registry_is_named() -> None:
    assert not re.search(r"\b(docker|quay|ghcr|gcr|public\.ecr)\.(io|aws)\b|\b[\w-]+\.pkg\.dev\b|pypi\.org", TEXT)
    assert "https://" not in TEXT
    assert all(re.search(r"@(v\d|release/v\d)", step["uses"]) for _, step in STEPS if "uses" in step)


def test_each_variable_and_secret_is_explained_on_the_page() -> None:
    names = set(re.findall(r"(?:vars|secrets)\.(\w+)", TEXT))
    assert names == {"REGISTRY", "REGISTRY_USER", "REGISTRY_PASSWORD", "PYTHON_INDEX"}
    assert {name for name in names if f"| `{name}` |" not in PAGE} == set()
    assert "has not been run" in PAGE
