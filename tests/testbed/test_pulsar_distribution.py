"""Maven downloads Pulsar's distribution once, and errors say what prevents it."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from real_pulsar import distribution
from trimtab_testbed.programs.build import MissingToolError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache and only `tar` on PATH; returns the folder of its programs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("tar", "gzip", "cp", "mkdir", "sh"):
        (programs / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(distribution.ENVIRONMENT, raising=False)
    return programs


def _maven(programs: Path, archive: Path, *, code: int = 0) -> Path:
    """A Maven that copies `archive` to its target, and records each call."""
    calls = programs / "calls"
    script = f"""#!/bin/sh
echo "$@" >>{calls}
for word; do case $word in -DoutputDirectory=*) mkdir -p "${{word#*=}}"; cp {archive} "${{word#*=}}";; esac; done
echo 'no such artifact' >&2
exit {code}
"""
    (programs / "mvn").write_text(script)
    (programs / "mvn").chmod(0o755)
    return calls


def _archive(folder: Path, root: str = f"apache-pulsar-{distribution.DEFAULT}") -> Path:
    for file in ("lib/broker.jar", "conf/broker.conf", "examples/big.nar"):
        (folder / root / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / root / file).write_text(file)
    with tarfile.open(folder / "made.tar.gz", "w:gz") as packed:
        packed.add(folder / root, arcname=root)
    return folder / "made.tar.gz"


@pytest.mark.usefixtures("machine")
def test_what_was_not_fetched_is_an_error_that_says_how_to_get_it() -> None:
    with pytest.raises(MissingToolError, match="run `make pulsar`"):
        distribution.find()


def test_it_is_fetched_once_and_only_its_jars_are_kept(machine: Path, tmp_path: Path) -> None:
    calls = _maven(machine, _archive(tmp_path))

    folder = distribution.ensure()

    assert distribution.ensure() == distribution.find() == folder
    assert len(calls.read_text().splitlines()) == 1
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == ["lib"]
    assert (folder / "lib" / "broker.jar").is_file()


def test_a_fetch_that_fails_says_what_maven_said_and_leaves_nothing_that_looks_complete(
    machine: Path, tmp_path: Path
) -> None:
    _maven(machine, tmp_path / "nowhere.tar.gz", code=1)

    with pytest.raises(MissingToolError, match=r"(?s)pulsar-server-distribution.*no such artifact"):
        distribution.ensure()
    with pytest.raises(MissingToolError):
        distribution.find()


def test_the_jars_of_another_version_are_collected_beside_the_default(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(distribution.ENVIRONMENT, "4.2.4")
    (jar := tmp_path / "pulsar-broker-4.2.4.jar").write_text("broker")
    calls = _maven(machine, jar)

    folder = distribution.ensure()

    assert (folder.name, [path.name for path in (folder / "lib").iterdir()]) == ("pulsar-4.2.4", [jar.name])
    assert "copy-dependencies" in calls.read_text()
    monkeypatch.delenv(distribution.ENVIRONMENT)
    with pytest.raises(MissingToolError, match=r"Pulsar 4\.0\.8 not found"):
        distribution.find()


def test_a_version_without_a_broker_is_an_error_that_names_it(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(distribution.ENVIRONMENT, "9.9.9")
    (jar := tmp_path / "other.jar").write_text("other")
    _maven(machine, jar)

    with pytest.raises(MissingToolError, match=r"no jar of org\.apache\.pulsar:pulsar-broker:9\.9\.9"):
        distribution.ensure()


@pytest.mark.parametrize("text", ["4.2", "latest", "../4.0.8", "4.0.8 "])
def test_a_version_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(distribution.ENVIRONMENT, text)

    with pytest.raises(MissingToolError, match=r"is no version of Pulsar: write it as PULSAR=4\.0\.8"):
        distribution.find()
