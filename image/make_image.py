"""`make image`: carries out the Dockerfile without Docker, and writes what it makes as an image archive.

The base is made by mmdebstrap from Debian's packages, each stage is a folder, and each RUN happens in a chroot.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import archive
import dockerfile
import prove
import rooms

ROOT = Path(__file__).parents[1]
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SUITE = "bookworm"
_EPOCH = "SOURCE_DATE_EPOCH"


class Builder:
    """Makes the stages of our Dockerfile in folders of `work`.

    caches:  by target, folders of this machine that outlive a build.
    secrets: by id, files of this machine that a step may see and the image does not keep.
    keep:    stages that are taken as the last build left them.
    """

    def __init__(self, work: Path, caches: dict[str, Path], secrets: dict[str, Path], keep: Sequence[str] = ()) -> None:
        self.work, self._caches, self._secrets, self._keep = work, caches, secrets, keep
        self.stages = dockerfile.stages(ROOT / "Dockerfile")
        self._context = work / "context"

    def build(self) -> Path:
        """The root file system of the last stage."""
        shutil.rmtree(self._context, ignore_errors=True)
        copy_context(self._context)
        for stage in self.stages:
            if stage.name not in self._keep:
                self._make(stage)
        return self.root(self.stages[-1])

    @property
    def epoch(self) -> str:
        """SOURCE_DATE_EPOCH, of the stage that says it."""
        return next(stage.arguments[_EPOCH] for stage in self.stages if _EPOCH in stage.arguments)

    def root(self, stage: dockerfile.Stage) -> Path:
        """The folder of a stage."""
        return self.work / stage.name

    def _make(self, stage: dockerfile.Stage) -> None:
        began, root = time.monotonic(), self.root(stage)
        shutil.rmtree(root, ignore_errors=True)
        if any(stage.base == other.name for other in self.stages):
            _run("cp", "-a", "--reflink=auto", self.work / stage.base, root)
        else:
            root.mkdir(parents=True)
            _run("tar", "-xpf", self._base(), "-C", root, "--exclude=./dev/*")
        for step in stage.steps:
            self._copy(step, root) if step.name == "COPY" else self._do(step, root)
        say(f"stage {stage.name}: {time.monotonic() - began:.0f} s")

    def _base(self) -> Path:
        """Debian as the image `debian:bookworm-slim` has it, near enough; kept from one build to the next."""
        file = self.work / "base.tar"
        if not file.exists():
            say("making the base of Debian's packages")
            quick = ("--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/man/*")
            made = file.with_suffix(".part")
            _run("mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", *quick, _SUITE, made)
            made.rename(file)
        return file

    def _copy(self, step: dockerfile.Step, root: Path) -> None:
        source, target = step.words.split()
        place = root / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        _run("cp", "-a", "--reflink=auto", self.work / dict(step.flags)["from"] / source.lstrip("/"), place)

    def _do(self, step: dockerfile.Step, root: Path) -> None:
        binds = [bind for mount in dockerfile.mounts(step) if (bind := self._bind(mount))]
        env = {"PATH": _PATH, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", **step.environment}
        with rooms.stubs(root, binds):
            _run(*rooms.building(root, step.words, env=env, binds=binds))

    def _bind(self, mount: dict[str, str]) -> rooms.Bind | None:
        target = mount["target"]
        if mount["type"] == "cache":
            folder = self._caches.get(target, self.work / "cache")
            folder.mkdir(parents=True, exist_ok=True)
            return rooms.Bind(folder, target, writable=True)
        if mount["type"] == "secret":
            secret = self._secrets.get(mount["id"])
            return rooms.Bind(secret, target) if secret else None
        return rooms.Bind(self._context / mount.get("source", ""), target)


def copy_context(target: Path) -> None:
    """What .dockerignore lets through: it refuses everything but the paths that begin with ``!``."""
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            source, place = ROOT / line[1:], target / line[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, place, ignore=ignored) if source.is_dir() else shutil.copy2(source, place)


def say(text: str) -> None:
    print(f"image: {text}", flush=True)


def _run(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True, stdin=subprocess.DEVNULL)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make image", description=__doc__)
    parser.add_argument("--work", type=Path, default=ROOT / ".trimtab" / "image", help="folder to build in")
    parser.add_argument("--secret", action="append", default=[], metavar="ID=FILE", help="as `docker build --secret`")
    parser.add_argument("--keep", action="append", default=[], metavar="STAGE", help="take it as it was made last time")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, also where it can't be done; 1 when a step failed."""
    options = _parser().parse_args(arguments)
    try:
        rooms.check("mmdebstrap", "setpriv")
    except rooms.ImpossibleError as error:
        say(f"SKIPPED, nothing was built: {error}")
        return int("CI" in os.environ)  # there, what is missing is an error
    secrets = {name: Path(file) for name, _, file in (word.partition("=") for word in options.secret)}
    builder = Builder(options.work, {"/var/cache/pip": Path.home() / ".cache" / "pip"}, secrets, options.keep)
    try:
        root = builder.build()
        epoch = int(builder.epoch)
        file = archive.write(root, builder.stages[-1], options.work / "trimtab.tar", epoch=epoch)
    except subprocess.CalledProcessError as error:
        say(f"exit code {error.returncode}: {' '.join(error.cmd)[-400:]}")
        return 1
    say(f"root file system {archive.size(root) / 1e6:.0f} MB in {root}; {file.stat().st_size / 1e6:.0f} MB in {file}")
    for name, value in prove.prove(root, ROOT / "Dockerfile").items():
        say(f"{name}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
