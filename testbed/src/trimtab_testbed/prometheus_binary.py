"""Finds the programs of Prometheus, or gets them: PATH, cache folder, Debian's package unpacked without root, Go build.

`prometheus` is the server; `promtool` checks rules, and plays them against made-up series.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from trimtab_testbed import go_build
from trimtab_testbed.go_build import MissingToolError
from trimtab_testbed.progress import Progress

SERVER, TOOL = "prometheus", "promtool"

_MODULE = "prometheus"
_PACKAGES = "github.com/prometheus/prometheus/cmd"


def find(name: str = SERVER) -> Path:
    """The program `name`, without fetching or building it. Raises `MissingToolError`."""
    found = _find(name)
    if found is None:
        raise MissingToolError(
            f"{name} not found on PATH or in {_cache()}: "
            "run `python -m trimtab_testbed.setup prometheus` (`make setup` does) to get it"
        )
    return found


def ensure(name: str = SERVER) -> Path:
    """The program; fetched from Debian (seconds) or built with Go (10 minutes on two cores) when it is nowhere."""
    if _find(name) is None:
        with go_build.build_lock(_cache()):
            if _find(name) is None and not _unpack_from_debian(_cache()):
                go_build.build(go_build.module_dir(_MODULE), f"{_PACKAGES}/{name}", _cache() / name)
    return find(name)


def _find(name: str) -> Path | None:
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    cached = _cache() / name
    return cached if os.access(cached, os.X_OK) else None


def _cache() -> Path:
    return go_build.cache_dir("prometheus", go_build.module_dir(_MODULE))


def _unpack_from_debian(target: Path) -> bool:
    """Whether Debian's (or Ubuntu's) package could be fetched and its programs put into the folder `target`."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return False
    with tempfile.TemporaryDirectory() as scratch, Progress("fetching Debian's package prometheus") as progress:
        folder = Path(scratch)
        if not _download_package(folder, progress):
            progress.gave_up("not to be had")
            return False
        (package,) = folder.glob("prometheus_*.deb")
        subprocess.run(["dpkg", "-x", package.name, "unpacked"], cwd=folder, check=True, capture_output=True)
        for name in (SERVER, TOOL):
            partial = target / f".{name}.partial"
            shutil.copy2(folder / "unpacked/usr/bin" / name, partial)
            partial.replace(target / name)  # a server that runs from there keeps its own file
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
