"""Finds or builds the programs of Kubernetes (etcd, kube-apiserver, kubectl, controller-manager) and Prometheus.

Search order for Kubernetes: ``$KUBEBUILDER_ASSETS`` (the folder of setup-envtest), PATH, the cache folder, a Go build.
Search order for Prometheus, and for `promtool`, which checks rules: PATH, the cache folder, Debian's package unpacked
without root, a Go build.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trimtab_testbed.programs import build
from trimtab_testbed.programs.build import MissingToolError
from trimtab_testbed.progress import ProgressLine

SERVER, TOOL = "prometheus", "promtool"

_MODULE = "prometheus"
_PROMETHEUS_PACKAGES = "github.com/prometheus/prometheus/cmd"


def find_prometheus(name: str = SERVER) -> Path:
    """The program `name`, without fetching or building it. Raises `MissingToolError`."""
    found = _find(name)
    if found is None:
        raise MissingToolError(
            f"{name} not found on PATH or in {_prometheus_cache()}: "
            "run `python -m trimtab_testbed.programs.setup prometheus` (`make setup` does) to get it"
        )
    return found


def ensure_prometheus(name: str = SERVER) -> Path:
    """The program; downloaded from Debian (seconds) or built with Go (10 minutes on two cores) if it is missing."""
    if _find(name) is None:
        with build.build_lock(_prometheus_cache()):
            if _find(name) is None and not _unpack_from_debian(_prometheus_cache()):
                build.build(build.module_dir(_MODULE), f"{_PROMETHEUS_PACKAGES}/{name}", _prometheus_cache() / name)
    return find_prometheus(name)


def _find(name: str) -> Path | None:
    found = shutil.which(name) or shutil.which(name, path=_prometheus_cache())
    return Path(found) if found else None


def _prometheus_cache() -> Path:
    return build.cache_dir("prometheus", build.module_dir(_MODULE))


def _unpack_from_debian(target: Path) -> bool:
    """Download the package of Debian or Ubuntu and unpack its programs into `target`; returns whether that worked."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return False
    with tempfile.TemporaryDirectory() as scratch, ProgressLine("fetching Debian's package prometheus") as progress:
        folder = Path(scratch)
        if not _download_package(folder, progress):
            progress.gave_up("not available")
            return False
        (package,) = folder.glob("prometheus_*.deb")
        subprocess.run(["dpkg", "-x", package.name, "unpacked"], cwd=folder, check=True, capture_output=True)
        for name in (SERVER, TOOL):
            partial = target / f".{name}.partial"
            shutil.copy2(folder / "unpacked/usr/bin" / name, partial)
            partial.replace(target / name)  # replace the file, so that a running server keeps its own
    return True


def _download_package(folder: Path, progress: ProgressLine) -> bool:
    if _apt(["download", "prometheus"], folder):
        return True
    if os.geteuid() != 0:  # only root may download the package lists that a bare image lacks
        return False
    progress.update("updating package lists")
    return _apt(["update"], folder) and _apt(["download", "prometheus"], folder)


def _apt(arguments: list[str], folder: Path) -> bool:
    # As root, apt would warn that its sandbox user may not write here.
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


CORE = ("etcd", "kube-apiserver", "kubectl")
CONTROLLER_MANAGER = "kube-controller-manager"
ASSETS = "KUBEBUILDER_ASSETS"

_KUBE_PACKAGES = {"etcd": "go.etcd.io/etcd/server/v3"}  # etcd's main package is the root of that module
_SETUP_ENVTEST = "sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1"


@dataclass(frozen=True)
class KubeBinaries:
    """Paths of the programs, and where they were found. controller_manager: None unless requested."""

    etcd: Path
    apiserver: Path
    kubectl: Path
    controller_manager: Path | None
    origin: str


def find_kube(*, controllers: bool = False) -> KubeBinaries:
    """The programs, without building any.

    Raises `MissingToolError` if they are missing, or if ``$KUBEBUILDER_ASSETS`` is set and lacks one. A user
    who names a folder must not silently get programs from another one.
    """
    core, origin = _find_core()
    if core is None:
        raise MissingToolError(_nowhere(CORE, "kube"))
    manager = _find_controller_manager(core) if controllers else None
    if controllers and manager is None:
        raise MissingToolError(_nowhere((CONTROLLER_MANAGER,), "controllers"))
    return KubeBinaries(core / "etcd", core / "kube-apiserver", core / "kubectl", manager, origin)


def ensure_kube(*, controllers: bool = False, download: bool = False) -> KubeBinaries:
    """The programs. Missing ones are built into the cache folder, or with `download` fetched by setup-envtest.

    Building takes about 9 minutes on two cores, once. The controller-manager takes 2 more. Raises `MissingToolError`.
    """
    core, _ = _find_core()
    if core is None:
        with build.build_lock(_kube_cache()):
            _download() if download else _build(CORE)
        core = _kube_cache()
    if controllers and _find_controller_manager(core) is None:
        with build.build_lock(_kube_cache()):  # setup-envtest does not have it, so it is always built
            _build((CONTROLLER_MANAGER,))
    return find_kube(controllers=controllers)


def version() -> str:
    """The Kubernetes version that go.mod pins, e.g. ``v1.37.1``."""
    return build.pinned_version(build.module_dir(), "k8s.io/kubernetes")


def _find_core() -> tuple[Path | None, str]:
    if assets := os.environ.get(ASSETS):
        lacking = [name for name in CORE if not _executable(Path(assets) / name)]
        if lacking:
            raise MissingToolError(
                f"{ASSETS}={assets} lacks {', '.join(lacking)}: complete that folder or unset {ASSETS}"
            )
        return Path(assets), f"${ASSETS}"
    # All from one folder: PATH may hold an old kubectl and nothing else.
    on_path = {Path(found).parent if (found := shutil.which(name)) else None for name in CORE}
    if len(on_path) == 1 and (folder := on_path.pop()) is not None:
        return folder, "PATH"
    if all(_executable(_kube_cache() / name) for name in CORE):
        return _kube_cache(), "cache"
    return None, "nowhere"


def _find_controller_manager(core: Path) -> Path | None:
    return next((d / CONTROLLER_MANAGER for d in (core, _kube_cache()) if _executable(d / CONTROLLER_MANAGER)), None)


def _nowhere(names: tuple[str, ...], target: str) -> str:
    return (
        f"{', '.join(names)} not found in ${ASSETS}, on PATH or in {_kube_cache()}: "
        f"run `python -m trimtab_testbed.programs.setup {target}` (`make setup` does) to build what is missing"
    )


def _kube_cache() -> Path:
    return build.cache_dir("kube", build.module_dir())


def _executable(path: Path) -> bool:
    return os.access(path, os.X_OK)


def _build(names: tuple[str, ...]) -> None:
    module = build.module_dir()
    for name in names:
        target = _kube_cache() / name
        if not _executable(target):  # another process may have built it in the meantime
            package = _KUBE_PACKAGES.get(name, f"k8s.io/kubernetes/cmd/{name}")
            build.build(module, package, target, kubernetes=version())


def _download() -> None:
    go = build.require_go("run setup-envtest", build.module_dir())
    wanted = ".".join([*version().removeprefix("v").split(".")[:2], "x"])
    folder = build.cache_root() / "envtest"
    command = [go, "run", _SETUP_ENVTEST, "use", wanted, "--bin-dir", str(folder), "-p", "path"]
    with ProgressLine(f"downloading Kubernetes {wanted} with setup-envtest"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingToolError(f"setup-envtest could not fetch Kubernetes {wanted}: {done.stderr.strip()[-500:]}")
    for name in CORE:
        link = _kube_cache() / name
        link.unlink(missing_ok=True)
        link.symlink_to(Path(done.stdout.strip()) / name)
