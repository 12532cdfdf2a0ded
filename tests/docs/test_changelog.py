"""CHANGELOG.md is joined from one file a change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "tools" / "changelog.py"
HEAD = "# Changelog\n\nWhat users see.\n"


def run(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(SCRIPT), "--root", str(root), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with two changes and a changelog that has seen a release."""
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("One file a change.\n")
    (tmp_path / "changelog.d" / "wheel.fixed.md").write_text("The wheel\nturns again.\n")
    (tmp_path / "changelog.d" / "sail.added.md").write_text("A sail.\n")
    (tmp_path / "CHANGELOG.md").write_text(f"{HEAD}\n## 0.0.9, 2026-01-31\n\n### Added\n\n- A mast.\n")
    return tmp_path


def test_changes_stand_by_kind_before_the_versions_and_only_once(project: Path) -> None:
    for _ in range(2):
        assert run(project).returncode == 0

    assert (project / "CHANGELOG.md").read_text() == (
        f"{HEAD}\n## 0.1.0, not yet released\n\n### Added\n\n- A sail.\n\n### Fixed\n\n- The wheel turns again.\n"
        "\n## 0.0.9, 2026-01-31\n\n### Added\n\n- A mast.\n"
    )


def test_every_change_of_ours_can_be_joined_and_ends_like_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text(HEAD)
    (tmp_path / "changelog.d").symlink_to(ROOT / "changelog.d")

    assert run(tmp_path).returncode == 0

    lines = [line for line in (tmp_path / "CHANGELOG.md").read_text().splitlines() if line.startswith("- ")]
    assert len(lines) == len(list((ROOT / "changelog.d").glob("*.*.md")))
    assert [line for line in lines if not line.endswith((".", ").", "`."))] == []
