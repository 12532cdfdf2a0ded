"""Runs a command inside a root file system, with mounts that end with it: what a container engine does, in small."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

USER = 10001
_TOOLS = ("unshare", "chroot", "mount", "tar")


class ImpossibleError(RuntimeError):
    """This machine can't do it; says what is missing."""


@dataclass(frozen=True)
class Bind:
    """A file or folder of this machine, to be seen at `target`."""

    source: Path
    target: str
    writable: bool = False


NETWORK = (Bind(Path("/etc/resolv.conf"), "/etc/resolv.conf"), Bind(Path("/etc/hosts"), "/etc/hosts"))
"""Names are resolved as on this machine."""


def check(*more: str) -> None:
    """Raises `ImpossibleError` unless we are root, have the tools (and `more`), and may make mount namespaces."""
    if os.geteuid():
        raise ImpossibleError("needs root: it mounts, and changes the root directory")
    for tool in (*_TOOLS, *more):
        if shutil.which(tool) is None:
            raise ImpossibleError(f"{tool} is missing (Debian: apt-get install {tool})")
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False).returncode:
        raise ImpossibleError("this kernel or container allows no mount namespaces")


def building(root: Path, command: str, *, env: Mapping[str, str], binds: Sequence[Bind] = ()) -> list[str]:
    """The command line that runs a shell command as root in `root`, which it may change."""
    steps = [*_system(root), *_bound(root, binds)]
    return _entered(root, steps, env, ["/bin/sh", "-c", command])


def contained(root: Path, command: Sequence[str], *, env: Mapping[str, str], binds: Sequence[Bind] = ()) -> list[str]:
    """The command line that runs `command` as a container of the chart does.

    As user 10001 without capabilities, with a root that is read-only, and a `/tmp` of its own.
    """
    place = shlex.quote(str(root))
    steps = [
        f"mount --bind {place} {place}",
        *_system(root),
        *_bound(root, binds),
        f"mount -t tmpfs -o mode=1777 tmpfs {place}/tmp",
        f"mount -o remount,bind,ro {place}",
    ]
    rights = ("--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all")
    return _entered(root, steps, env, ["setpriv", f"--reuid={USER}", f"--regid={USER}", *rights, *command])


@contextlib.contextmanager
def stubs(root: Path, binds: Sequence[Bind]) -> Iterator[None]:
    """What `binds` are mounted on exists within; what was not there before is gone afterwards."""
    made: list[Path] = []
    for bind in (*binds, *NETWORK):
        _make(_place(root, bind), made, folder=bind.source.is_dir())
    try:
        yield
    finally:
        for path in reversed(made):
            path.rmdir() if path.is_dir() else path.unlink()


def _make(place: Path, made: list[Path], *, folder: bool) -> None:
    if place.exists() or place.is_symlink():
        return
    _make(place.parent, made, folder=True)
    place.mkdir() if folder else place.touch()
    made.append(place)


def _place(root: Path, bind: Bind) -> Path:
    return root / bind.target.lstrip("/")


def _system(root: Path) -> list[str]:
    place = shlex.quote(str(root))
    return [f"mount -t proc proc {place}/proc", f"mount --rbind /dev {place}/dev"]


def _bound(root: Path, binds: Sequence[Bind]) -> Iterator[str]:
    for bind in (*binds, *NETWORK):
        place = str(_place(root, bind))
        yield shlex.join(["mount", "--bind", str(bind.source), place])
        if not bind.writable:
            yield shlex.join(["mount", "-o", "remount,bind,ro", place])


def _entered(root: Path, steps: Sequence[str], env: Mapping[str, str], inside: Sequence[str]) -> list[str]:
    given = [f"{name}={value}" for name, value in env.items()]
    script = ["set -e", *steps, shlex.join(["exec", "chroot", str(root), "/usr/bin/env", "-i", *given, *inside])]
    namespaces = ("--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
    return [shutil.which("unshare") or "unshare", *namespaces, "sh", "-c", "\n".join(script)]
