"""The chart as a release has it: it names the image that was pushed, and Artifact Hub's metadata."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from chart import NAMESPACE, Runner, documents, operator_container
from helm_tools import find_helm

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "docs" / "tools"
DIGEST = f"sha256:{'a' * 64}"
HOME = "https://git.example.com/messaging/trimtab"


def tool(name: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOLS / name), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the tools read of this repository."""
    shutil.copytree(ROOT / "charts", tmp_path / "charts")
    for file in ("pyproject.toml", "Dockerfile", "CHANGELOG.md"):
        shutil.copy(ROOT / file, tmp_path)
    return tmp_path


def dated(checkout: Path) -> None:
    changes = checkout / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace("not yet released", "2026-12-01"))


def test_a_tag_must_be_the_version_of_everything_and_the_changes_must_be_closed(checkout: Path) -> None:
    early = tool("release_chart.py", "--root", checkout, "--tag", "v0.1.0", "--check")
    assert early.returncode == 1
    assert "CHANGELOG.md still says" in early.stderr

    dated(checkout)
    fine = tool("release_chart.py", "--root", checkout, "--tag", "v0.1.0", "--check")
    assert (fine.returncode, fine.stderr) == (0, "")

    other = tool("release_chart.py", "--root", checkout, "--tag", "v0.2.0", "--check").stderr
    for where in ("Chart.yaml version", "Chart.yaml appVersion", "pyproject.toml", "Dockerfile", "CHANGELOG.md"):
        assert f"{where} has version 0.1.0, the tag 0.2.0" in other
    assert "not of the form" in tool("release_chart.py", "--root", checkout, "--tag", "latest", "--check").stderr


@pytest.mark.slow  # it runs Helm
def test_the_released_chart_installs_the_pushed_image_without_a_value(checkout: Path, tmp_path: Path) -> None:
    dated(checkout)
    image = "registry.example.com/messaging/trimtab"
    words = ("--tag", "v0.1.0", "--image", image, "--digest", DIGEST, "--home", HOME, "--icon", f"{HOME}/icon.svg")
    done = tool("release_chart.py", "--root", checkout, *words, "--into", tmp_path / "released")
    assert done.returncode == 0, done.stderr
    chart = tmp_path / "released" / "trimtab"

    helm = Runner(find_helm(), tmp_path / "helm")
    assert "0 chart(s) failed" in helm.run("lint", "--strict", chart)
    manifests = documents(helm.run("template", "trimtab", chart, "--namespace", NAMESPACE))
    assert operator_container(manifests)["image"] == f"{image}@{DIGEST}"

    meta = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert (meta["home"], meta["sources"], meta["icon"]) == (HOME, [HOME], f"{HOME}/icon.svg")
    assert meta["kubeVersion"] == ">=1.31.0-0"
    notes = meta["annotations"]
    assert yaml.safe_load(notes["artifacthub.io/images"]) == [{"name": "trimtab", "image": f"{image}@{DIGEST}"}]
    changes = yaml.safe_load(notes["artifacthub.io/changes"])
    assert {change["kind"] for change in changes} <= {"added", "changed", "fixed", "removed"}
    assert all(change["description"] and "](" not in change["description"] for change in changes)
    assert yaml.safe_load(notes["artifacthub.io/crds"])


def test_a_chart_without_what_was_pushed_is_not_written(checkout: Path, tmp_path: Path) -> None:
    dated(checkout)
    done = tool("release_chart.py", "--root", checkout, "--tag", "v0.1.0", "--into", tmp_path / "released")
    assert done.returncode == 2
    assert "--digest" in done.stderr
    assert not (tmp_path / "released").exists()
