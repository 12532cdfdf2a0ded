"""Finds a Prometheus server, or gets one: PATH, cache folder, Debian's package unpacked without root, Go build."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from trimtab_testbed import go_build
from trimtab_testbed.go_build import MissingToolError
from trimtab_testbed.progress import Progress

_MODULE = "prometheus"
_PACKAGE = "github.com/prometheus/prometheus/cmd/prometheus"


def find() -> Path:
    """The program, without fetching or building it. Raises `MissingToolError`."""
    found = _find()
    if found is None:
        raise MissingToolError(
            f"prometheus not found on PATH or in {_cache()}: "
            "run `python -m trimtab_testbed.setup prometheus` (`make setup` does) to get it"
        )
    return found


def ensure() -> Path:
    """The program; fetched from Debian (a second) or built with Go (10 minutes on two cores) when it is nowhere."""
    if _find() is None:
        with go_build.build_lock(_cache()):
            if _find() is None and not _unpack_from_debian(_cache() / "prometheus"):
                go_build.build(go_build.module_dir(_MODULE), _PACKAGE, _cache() / "prometheus")
    return find()


def _find() -> Path | None:
    on_path = shutil.which("prometheus")
    if on_path:
        return Path(on_path)
    cached = _cache() / "prometheus"
    return cached if os.access(cached, os.X_OK) else None


def _cache() -> Path:
    return go_build.cache_dir("prometheus", go_build.module_dir(_MODULE))


def _unpack_from_debian(target: Path) -> bool:
    """Whether Debian's (or Ubuntu's) package could be fetched and its server put at `target`."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return False
    with tempfile.TemporaryDirectory() as scratch, Progress("fetching Debian's package prometheus") as progress:
        folder = Path(scratch)
        if not _download_package(folder, progress):
            progress.gave_up("not to be had")
            return False
        (package,) = folder.glob("prometheus_*.deb")
        subprocess.run(["dpkg", "-x", package.name, "unpacked"], cwd=folder, check=True, capture_output=True)
        shutil.copy2(folder / "unpacked/usr/bin/prometheus", target)
    return True


def _download_package(folder: Path, progress: Progress) -> bool:
    if _apt(["download", "prometheus"], folder):
        return True
    if os.geteuid() != 0:  # only root may fetch the package lists that a bare image lacks
        return False
    progress.update("updating package lists")
    return _apt(["update"], folder) and _apt(["download", "prometheus"], folder)


def _apt(arguments: list[str], folder: Path) -> bool:
    # As root, apt would warn that its sandbox user may not write here.
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0
