"""Finds Pulsar's full binary distribution, or downloads it with Maven: the brokers that users run."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from trimtab_testbed.programs import build
from trimtab_testbed.programs.build import MissingToolError
from trimtab_testbed.progress import ProgressLine

VERSION = "4.0.8"
"""The newest version whose full distribution Maven Central has."""

ARTIFACT = f"org.apache.pulsar:pulsar-server-distribution:{VERSION}:tar.gz:bin"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_COMPLETE = ".complete"
_ROOM = 800 * 2**20  # bytes of disk: archive and content exist at the same time


def find() -> Path:
    """The unpacked distribution (with ``lib``), without downloading it. Raises `MissingToolError`."""
    if not _complete(_folder()):
        raise MissingToolError(
            f"Pulsar {VERSION} not found in {_folder()}: "
            "run `python -m trimtab_testbed.programs.setup pulsar` (`make e2e` does) to fetch it"
        )
    return _folder()


def ensure() -> Path:
    """The unpacked distribution, downloaded by Maven if missing (245 MB, a minute). Raises `MissingToolError`."""
    if not _complete(_folder()):
        with build.build_lock(_folder()):
            if not _complete(_folder()):  # another process may have downloaded it in the meantime
                _fetch(_folder())
    return find()


def _folder() -> Path:
    return build.cache_root() / f"pulsar-{VERSION}"


def _complete(folder: Path) -> bool:
    return (folder / _COMPLETE).is_file()


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingToolError(
            f"mvn not found; it fetches Pulsar {VERSION} for the end-to-end tests: "
            "install Maven 3.6 or newer (Debian: maven)"
        )
    if (free := shutil.disk_usage(folder).free) < _ROOM:
        raise MissingToolError(
            f"{free // 2**20} MB free in {folder}, and Pulsar {VERSION} needs {_ROOM // 2**20} MB for a moment: "
            "make room, or point XDG_CACHE_HOME elsewhere"
        )
    with (
        tempfile.TemporaryDirectory(dir=folder) as scratch,
        ProgressLine(f"fetching Pulsar {VERSION} (245 MB)") as progress,
    ):
        archive = _download(maven, Path(scratch))
        progress.update("unpacking")
        _unpack(archive, Path(scratch), folder)
    (folder / _COMPLETE).touch()


def _download(maven: str, scratch: Path) -> Path:
    """Download the archive into `scratch` with Maven, which verifies its checksum (``-C``)."""
    command = [maven, "-B", "-q", "-C", _COPY, f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={scratch}"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    archives = list(scratch.glob("*.tar.gz"))
    if done.returncode or len(archives) != 1:
        tail = (done.stdout + done.stderr).strip()[-1500:]
        raise MissingToolError(
            f"Maven could not fetch {ARTIFACT}: is its repository, or a mirror in ~/.m2/settings.xml, within reach?\n"
            f"{tail}"
        )
    return archives[0]


def _unpack(archive: Path, scratch: Path, folder: Path) -> None:
    """Unpack what a broker needs (``lib``) into `folder`, without examples and Python functions."""
    done = subprocess.run(
        ["tar", "-xzf", archive, "--strip-components=1", f"apache-pulsar-{VERSION}/lib"],
        cwd=scratch,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise MissingToolError(
            f"{archive.name} as Maven has it can't be unpacked ({done.stderr.strip()[-500:]}): "
            "delete it from ~/.m2/repository and try again"
        )
    shutil.rmtree(folder / "lib", ignore_errors=True)  # left by an interrupted download
    (scratch / "lib").replace(folder / "lib")
