"""A real Spark Connect server in its own process, on a free port of 127.0.0.1, which can be killed and started
again.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pyspark

from trimtab_testbed.servers import parent_watch

MAIN_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """Context manager; `folder` holds its log. `url` stays the same over restarts.

    lasting: optimise for speed instead of a quick start.
    """

    def __init__(self, folder: Path, memory: str = "600m", *, lasting: bool = False) -> None:
        self._folder, self._memory = folder, memory
        self._java = "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError" + ("" if lasting else " -XX:TieredStopAtLevel=1")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the server and wait until it listens."""
        options = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": self._port,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": self._memory,
            "spark.driver.extraJavaOptions": self._java,
            "spark.local.dir": self._folder,
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": self._folder,
            "spark.sql.artifact.isolation.enabled": "true",
            "spark.ui.enabled": "false",
        }
        submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
        settings = [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
        wrapper = [sys.executable, "-I", "-S", parent_watch.__file__, str(os.getpid())]  # ends with the tests
        command = [*wrapper, submit, "--master", "local[2]", "--class", MAIN_CLASS, *settings, "spark-internal"]
        environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, env=environment, start_new_session=True
            )
        self._await()

    def kill(self) -> None:
        """``kill -9`` of the server and its Python workers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _await(self) -> None:
        end = time.monotonic() + 90
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=1):
                    return
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"the Connect server did not start: {(self._folder / 'server.log').read_text()[-3000:]}")
