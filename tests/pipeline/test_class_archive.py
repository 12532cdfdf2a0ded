"""The archive of Spark's classes: when it is used, when it is not, and a real JVM that writes and uses one."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab_pipeline.spark import class_archive
from trimtab_pipeline.spark.class_archive import archive_for, forget_older, trusted, using
from trimtab_pipeline.spark.settings import SparkSettings, java_version, require_java

JAVA = """\
openjdk version "17.0.15" 2025-04-15
OpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)
OpenJDK 64-Bit Server VM (build 17.0.15+6-Debian-1deb12u1, mixed mode, sharing)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, with a blank in its name."""
    folder = tmp_path / "my cache"
    monkeypatch.setenv("TRIMTAB_CACHE", str(folder))
    return folder


def archive(path: Path, mode: int = 0o644) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"classes")
    path.chmod(mode)
    return path


def jvm_options() -> str:
    return SparkSettings().jvm_options(Path("/s"), Path("/s/log4j2.properties"))["spark.driver.extraJavaOptions"]


@pytest.mark.java
def test_without_an_archive_the_jvm_gets_no_option_for_one(cache: Path) -> None:
    assert using(cache / "none.jsa") == ""
    assert "Archive" not in jvm_options()
    assert not cache.exists()


@pytest.mark.java
def test_an_archive_that_fits_is_used() -> None:
    made = archive(archive_for(java_version(require_java())))
    assert f'"-XX:SharedArchiveFile={made}" -Xshare:auto' in jvm_options()


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_an_archive_that_others_could_have_written_is_not_used(cache: Path, mode: int) -> None:
    made = archive(cache / "open.jsa", mode)
    assert not trusted(made)
    assert using(made) == ""


def test_a_folder_is_no_archive(tmp_path: Path) -> None:
    assert not trusted(tmp_path)


def test_another_java_needs_another_archive() -> None:
    assert archive_for(JAVA) == archive_for(JAVA)
    assert archive_for(JAVA) != archive_for(JAVA.replace("+6", "+7"))


def test_an_archive_fits_whatever_else_this_java_is_given() -> None:
    told = JAVA.replace("mixed mode, sharing", "mixed mode, emulated-client, sharing")
    assert archive_for(f"Picked up JAVA_TOOL_OPTIONS: -XX:TieredStopAtLevel=1\n{told}") == archive_for(JAVA)


def test_other_files_of_spark_need_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "spark-core.jar"
    jar.write_bytes(b"one")
    monkeypatch.setattr(class_archive, "_jars", lambda: [jar])
    before = archive_for(JAVA)
    jar.write_bytes(b"other")
    assert archive_for(JAVA) != before


def test_the_cache_lies_where_other_programs_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIMTAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert archive_for(JAVA).parent == Path("/caches/trimtab")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert archive_for(JAVA).parent == Path.home() / ".cache/trimtab"


_WRITE_AND_USE = """
from pathlib import Path
from pyspark import SparkContext
from trimtab_pipeline.spark.class_archive import cache_folder
from trimtab_pipeline.factory import archive_classes
from trimtab_pipeline.spark.session import Engine
from trimtab_pipeline.spark.settings import SparkSettings

made, new = archive_classes()
assert new
assert list(cache_folder().iterdir()) == [made]
assert archive_classes() == (made, False)
engine = Engine(SparkSettings("local[1]"))
try:
    jvm = engine.run(lambda _: SparkContext._gateway.proc.pid, deadline=120).result()
    assert str(made) in Path(f"/proc/{jvm}/maps").read_text()
finally:
    engine.close()
"""


@pytest.mark.spark
def test_a_jvm_writes_the_archive_that_the_next_one_maps() -> None:
    """A process has one Spark context, so this test starts its sessions in a process of its own."""
    command = [sys.executable, "-c", _WRITE_AND_USE]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.java
def test_a_jvm_goes_on_without_an_archive_that_is_damaged_and_says_nothing(cache: Path) -> None:
    java = require_java()
    options = shlex.split(using(archive(cache / "damaged.jsa")))
    told = subprocess.run([java, *options, "-version"], capture_output=True, text=True, check=True)
    assert told.stdout == ""
    assert told.stderr == java_version(java).replace(", sharing", "")


def test_archives_of_installations_that_are_gone_are_removed(tmp_path: Path) -> None:
    for age, name in enumerate(["spark-e", "spark-d", "spark-c", "spark-b", "spark-a"]):
        (tmp_path / f"{name}.jsa").touch()
        os.utime(tmp_path / f"{name}.jsa", (1000 - age, 1000 - age))
    (tmp_path / "other.jsa").touch()

    forget_older(tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {"spark-e.jsa", "spark-d.jsa", "spark-c.jsa", "other.jsa"}
