"""Finds the jars of Pulsar's brokers, or downloads them with Maven.

The default version comes from Pulsar's full binary distribution, which has the brokers that users run. Maven Central
has no such distribution of newer versions. So for every other version, Maven collects the broker and all its
dependencies. ``python -m real_pulsar.distribution`` (`make pulsar`) does that and prints the folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from trimtab_testbed.programs import build
from trimtab_testbed.programs.build import MissingToolError
from trimtab_testbed.progress import ProgressLine

DEFAULT = "4.0.8"
"""The newest version whose full distribution Maven Central has."""

ENVIRONMENT = "PULSAR"
"""Environment variable with another version: `make e2e PULSAR=4.2.4`."""

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_ARTIFACT = f"org.apache.pulsar:pulsar-server-distribution:{DEFAULT}:tar.gz:bin"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>dev.trimtab</groupId>
  <artifactId>brokers</artifactId>
  <version>1</version>
  <dependencyManagement><!-- the versions that Pulsar's own build takes -->
    <dependencies>
      <dependency>
        <groupId>org.apache.pulsar</groupId>
        <artifactId>pulsar</artifactId>
        <version>{version}</version>
        <type>pom</type>
        <scope>import</scope>
      </dependency>
    </dependencies>
  </dependencyManagement>
  <dependencies>
    <dependency>
      <groupId>org.apache.pulsar</groupId>
      <artifactId>pulsar-broker</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""
_COMPLETE = ".complete"
_ROOM = 800 * 2**20  # bytes of disk: archive and content exist at the same time


def version() -> str:
    """The version of the brokers: the default, or that of the environment. Raises `MissingToolError`."""
    found = os.environ.get(ENVIRONMENT) or DEFAULT
    if not _VERSION.fullmatch(found):
        raise MissingToolError(f"{ENVIRONMENT}={found} is no version of Pulsar: write it as {ENVIRONMENT}={DEFAULT}")
    return found


def find() -> Path:
    """The folder with the brokers' jars (``lib``), without downloading them. Raises `MissingToolError`."""
    if not _complete(_folder()):
        raise MissingToolError(
            f"Pulsar {version()} not found in {_folder()}: run `make pulsar` (`make e2e` does) to fetch it"
        )
    return _folder()


def ensure() -> Path:
    """The folder with the brokers' jars, downloaded by Maven if missing (245 MB, a minute).

    Raises `MissingToolError`.
    """
    if not _complete(_folder()):
        with build.build_lock(_folder()):
            if not _complete(_folder()):  # another process may have downloaded it in the meantime
                _fetch(_folder())
    return find()


def _folder() -> Path:
    return build.cache_root() / f"pulsar-{version()}"


def _complete(folder: Path) -> bool:
    return (folder / _COMPLETE).is_file()


def _fetch(folder: Path) -> None:
    """Download the jars into ``lib`` of `folder`, and mark it as complete."""
    if (free := shutil.disk_usage(folder).free) < _ROOM:
        raise MissingToolError(
            f"{free // 2**20} MB free in {folder}, and Pulsar {version()} needs {_ROOM // 2**20} MB for a moment: "
            "make room, or point XDG_CACHE_HOME elsewhere"
        )
    with (
        tempfile.TemporaryDirectory(dir=folder) as scratch,
        ProgressLine(f"fetching Pulsar {version()} (245 MB)") as progress,
    ):
        if version() == DEFAULT:
            archive = _download(Path(scratch))
            progress.update("unpacking")
            _unpack(archive, Path(scratch))
        else:
            _collect(Path(scratch))
        shutil.rmtree(folder / "lib", ignore_errors=True)  # left by an interrupted download
        (Path(scratch) / "lib").replace(folder / "lib")
    (folder / _COMPLETE).touch()


def _maven(goal: str, what: str, scratch: Path, *words: str) -> None:
    """Run a goal of Maven's dependency plugin in `scratch`, with checksums verified (``-C``). what: for errors."""
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingToolError(
            f"mvn not found; it fetches Pulsar {version()} for the end-to-end tests: "
            "install Maven 3.6 or newer (Debian: maven)"
        )
    command = [maven, "-B", "-q", "-C", f"{_PLUGIN}:{goal}", *words]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = (done.stdout + done.stderr).strip()[-1500:]
        raise MissingToolError(
            f"Maven could not fetch {what}: is its repository, or a mirror in ~/.m2/settings.xml, within reach?\n{tail}"
        )


def _download(scratch: Path) -> Path:
    """Download the archive into `scratch`."""
    _maven("copy", _ARTIFACT, scratch, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={scratch}")
    archives = list(scratch.glob("*.tar.gz"))
    if len(archives) != 1:
        raise MissingToolError(f"Maven fetched {len(archives)} archives of {_ARTIFACT} instead of one: run it again")
    return archives[0]


def _collect(scratch: Path) -> None:
    """Download the broker and what it depends on into ``lib`` of `scratch`."""
    (scratch / "pom.xml").write_text(_POM.format(version=version()))
    broker = f"org.apache.pulsar:pulsar-broker:{version()}"
    _maven("copy-dependencies", broker, scratch, "-DincludeScope=runtime", f"-DoutputDirectory={scratch / 'lib'}")
    if not list((scratch / "lib").glob(f"pulsar-broker-{version()}.jar")):
        raise MissingToolError(f"Maven fetched no jar of {broker}: does Maven Central have this version?")


def _unpack(archive: Path, scratch: Path) -> None:
    """Unpack what a broker needs (``lib``) in `scratch`, without examples and Python functions."""
    done = subprocess.run(
        ["tar", "-xzf", archive, "--strip-components=1", f"apache-pulsar-{DEFAULT}/lib"],
        cwd=scratch,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise MissingToolError(
            f"{archive.name} from Maven can't be unpacked ({done.stderr.strip()[-500:]}): "
            "delete it from ~/.m2/repository and try again"
        )


def main() -> int:
    """Make the jars ready and print their folder.

    Exit code 0, or 1 with one line on stderr that names what is missing.
    """
    try:
        sys.stdout.write(f"{ensure()} (Pulsar {version()})\n")
    except MissingToolError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
