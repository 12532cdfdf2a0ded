"""Where programs are searched, and the errors when they are missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trimtab_testbed.programs import build, find
from trimtab_testbed.programs.build import MissingToolError


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache, an empty PATH and no assets; returns a folder to fill."""
    monkeypatch.delenv(find.ASSETS, raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def _programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.usefixtures("bare")
def test_what_is_nowhere_is_an_error_that_says_how_to_get_it() -> None:
    with pytest.raises(MissingToolError, match=r"kube-apiserver.*trimtab_testbed\.programs\.setup kube"):
        find.find_kube()
    with pytest.raises(MissingToolError, match=r"trimtab_testbed\.programs\.setup prometheus"):
        find.find_prometheus()


def test_incomplete_assets_are_an_error_even_if_path_has_all(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(_programs(bare / "bin", *find.CORE)))
    monkeypatch.setenv(find.ASSETS, str(_programs(bare / "assets", "etcd", "kubectl")))
    with pytest.raises(MissingToolError, match="lacks kube-apiserver: complete that folder or unset"):
        find.find_kube()


def test_complete_assets_come_before_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(_programs(bare / "bin", *find.CORE)))
    monkeypatch.setenv(find.ASSETS, str(_programs(bare / "assets", *find.CORE)))
    assert find.find_kube().apiserver == bare / "assets" / "kube-apiserver"


def test_a_lone_kubectl_on_path_does_not_win_over_the_cache(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(_programs(bare / "bin", "kubectl")))
    cache = _programs(build.cache_dir("kube", build.module_dir()), *find.CORE)
    found = find.find_kube()
    assert (found.kubectl, found.origin) == (cache / "kubectl", "cache")


def test_the_controller_manager_may_come_from_the_cache_beside_assets(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(find.ASSETS, str(_programs(bare / "assets", *find.CORE)))
    cache = _programs(build.cache_dir("kube", build.module_dir()), find.CONTROLLER_MANAGER)
    assert find.find_kube(controllers=True).controller_manager == cache / find.CONTROLLER_MANAGER


def test_the_cache_folder_depends_on_what_is_pinned(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("require k8s.io/kubernetes v1.36.3\n")
    (tmp_path / "go.sum").write_text("")
    before = build.cache_dir("kube", tmp_path)
    (tmp_path / "go.mod").write_text("require k8s.io/kubernetes v1.37.1\n")
    assert build.cache_dir("kube", tmp_path) != before
    assert build.pinned_version(tmp_path, "k8s.io/kubernetes") == "v1.37.1"


@pytest.mark.usefixtures("bare")
def test_building_without_go_says_which_go_the_module_wants() -> None:
    major, minor = build.wanted_go(build.module_dir())
    with pytest.raises(
        MissingToolError, match=rf"Go is missing; it is needed to build etcd\. Install Go {major}\.{minor} or newer"
    ):
        find.ensure_kube()


def test_a_go_older_than_the_module_wants_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "go.mod").write_text("module x\n\ngo 1.26.0\n")
    go = _programs(bare / "bin", "go") / "go"
    monkeypatch.setenv("PATH", str(go.parent))
    go.write_text("#!/bin/sh\necho go version go1.25.9 linux/amd64\n")
    with pytest.raises(MissingToolError, match=r"too old to test \(it says: go version go1\.25\.9.*Install Go 1\.26"):
        build.require_go("test", bare)
    go.write_text("#!/bin/sh\necho go version go1.26.8 linux/amd64\n")
    assert build.require_go("test", bare) == str(go)


def test_the_package_go_serves_where_the_search_path_has_none(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "go.mod").write_text("module x\n\ngo 1.26.0\n")
    go = _programs(bare / "environment", "go") / "go"
    go.write_text("#!/bin/sh\necho go version go1.27.3 linux/amd64\n")
    monkeypatch.setattr(sys, "executable", str(go.with_name("python")))
    assert build.require_go("test", bare) == str(go)
