"""Finds the programs of a Kubernetes control plane, or builds them: etcd, kube-apiserver, kubectl, controller-manager.

Looked for in ``$KUBEBUILDER_ASSETS`` (where setup-envtest puts them), on PATH, in the cache folder; built last.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from trimtab_testbed import go_build
from trimtab_testbed.go_build import MissingToolError
from trimtab_testbed.progress import Progress

CORE = ("etcd", "kube-apiserver", "kubectl")
CONTROLLER_MANAGER = "kube-controller-manager"
ASSETS = "KUBEBUILDER_ASSETS"

_PACKAGES = {"etcd": "go.etcd.io/etcd/server/v3"}  # the root of that module is etcd's main
_SETUP_ENVTEST = "sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1"


@dataclass(frozen=True)
class KubeBinaries:
    """Where the programs are, and how they were found. `controller_manager` is None unless it was asked for."""

    etcd: Path
    apiserver: Path
    kubectl: Path
    controller_manager: Path | None
    origin: str


def find(*, controllers: bool = False) -> KubeBinaries:
    """The programs, without building any.

    Raises `MissingToolError` when they are nowhere, or when ``$KUBEBUILDER_ASSETS`` is set and lacks one: who names a
    folder should not get others unnoticed.
    """
    core, origin = _find_core()
    if core is None:
        raise MissingToolError(_nowhere(CORE, "kube"))
    manager = _find_controller_manager(core) if controllers else None
    if controllers and manager is None:
        raise MissingToolError(_nowhere((CONTROLLER_MANAGER,), "controllers"))
    return KubeBinaries(core / "etcd", core / "kube-apiserver", core / "kubectl", manager, origin)


def ensure(*, controllers: bool = False, download: bool = False) -> KubeBinaries:
    """The programs, built (or with `download`, fetched by setup-envtest) into the cache folder when they are nowhere.

    Building takes about 9 minutes on two cores, once; the controller-manager 2 more. Raises `MissingToolError`.
    """
    core, _ = _find_core()
    if core is None:
        with go_build.build_lock(_cache()):
            _download() if download else _build(CORE)
        core = _cache()
    if controllers and _find_controller_manager(core) is None:
        with go_build.build_lock(_cache()):  # setup-envtest has none, so it is always built
            _build((CONTROLLER_MANAGER,))
    return find(controllers=controllers)


def version() -> str:
    """The Kubernetes version that go.mod pins, e.g. ``v1.37.1``."""
    return go_build.pinned_version(go_build.module_dir(), "k8s.io/kubernetes")


def _find_core() -> tuple[Path | None, str]:
    if assets := os.environ.get(ASSETS):
        lacking = [name for name in CORE if not _executable(Path(assets) / name)]
        if lacking:
            raise MissingToolError(
                f"{ASSETS}={assets} lacks {', '.join(lacking)}: complete that folder or unset {ASSETS}"
            )
        return Path(assets), f"${ASSETS}"
    # All from one folder: an old kubectl on PATH alone says nothing about a control plane.
    on_path = {Path(found).parent if (found := shutil.which(name)) else None for name in CORE}
    if len(on_path) == 1 and (folder := on_path.pop()) is not None:
        return folder, "PATH"
    if all(_executable(_cache() / name) for name in CORE):
        return _cache(), "cache"
    return None, "nowhere"


def _find_controller_manager(core: Path) -> Path | None:
    return next((d / CONTROLLER_MANAGER for d in (core, _cache()) if _executable(d / CONTROLLER_MANAGER)), None)


def _nowhere(names: tuple[str, ...], target: str) -> str:
    return (
        f"{', '.join(names)} not found in ${ASSETS}, on PATH or in {_cache()}: "
        f"run `python -m trimtab_testbed.setup {target}` (`make setup` does) to build what is missing"
    )


def _cache() -> Path:
    return go_build.cache_dir("kube", go_build.module_dir())


def _executable(path: Path) -> bool:
    return os.access(path, os.X_OK)


def _build(names: tuple[str, ...]) -> None:
    module = go_build.module_dir()
    for name in names:
        target = _cache() / name
        if not _executable(target):  # another process may have built it while we waited for the lock
            package = _PACKAGES.get(name, f"k8s.io/kubernetes/cmd/{name}")
            go_build.build(module, package, target, kubernetes=version())


def _download() -> None:
    go = go_build.require_go("run setup-envtest", go_build.module_dir())
    wanted = ".".join([*version().removeprefix("v").split(".")[:2], "x"])
    folder = go_build.cache_root() / "envtest"
    command = [go, "run", _SETUP_ENVTEST, "use", wanted, "--bin-dir", str(folder), "-p", "path"]
    with Progress(f"downloading Kubernetes {wanted} with setup-envtest"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingToolError(f"setup-envtest could not fetch Kubernetes {wanted}: {done.stderr.strip()[-500:]}")
    for name in CORE:
        link = _cache() / name
        link.unlink(missing_ok=True)
        link.symlink_to(Path(done.stdout.strip()) / name)
