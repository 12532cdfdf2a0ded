"""Which Helm program is used, and the error when none is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab_testbed.programs import helm
from trimtab_testbed.programs.build import MissingToolError


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Helm anywhere, and no Go."""
    monkeypatch.delenv("HELM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def program(path: Path, version: str) -> Path:
    """Something that says it is this version of Helm."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


def test_the_one_that_was_named_is_taken_whatever_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named = program(tmp_path / "mine" / "helm", "v3.18.2+g04cad46")
    program(tmp_path / "bin" / "helm", "v4.0.0")
    monkeypatch.setenv("HELM", str(named))
    assert helm.find_helm() == helm.Helm(named, 3)


def test_one_that_was_named_and_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "helm", "v4.0.0")
    monkeypatch.setenv("HELM", str(program(tmp_path / "other", "hello")))
    with pytest.raises(MissingToolError, match="is no Helm that runs: set it to one or unset it"):
        helm.find_helm()


def test_on_the_search_path_the_major_version_counts(tmp_path: Path) -> None:
    on_path = program(tmp_path / "bin" / "helm", "v3.18.2")
    assert helm.find_helm(3) == helm.Helm(on_path, 3)
    with pytest.raises(MissingToolError, match=r"run `python -m trimtab_testbed\.programs\.helm 4` to build it"):
        helm.find_helm(4)


def test_without_go_none_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    assert helm.main(["4"]) == 1
    assert "Go is missing; it is needed to build helm" in capsys.readouterr().err
