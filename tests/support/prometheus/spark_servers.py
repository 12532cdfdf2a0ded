"""Spark on 127.0.0.1, from the installed PySpark: a standalone cluster and a Connect server.

Master, workers and server are separate processes, each with its own folder. The nodes of a real cluster share no files,
but processes on one machine share all. So folders can be hidden from a worker: it then runs in a mount namespace, where
an empty file system covers them. That needs root, or a kernel that lets users create namespaces.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from trimtab_testbed.servers.processes import HOST, Server, ServerFailedError, Startable, children, free_ports, listens

MAIN_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_EXECUTOR_HEAP = "1g"  # what an executor requests by default
_READY_WITHIN = 180.0  # seconds; a busy machine takes a minute for a JVM
_SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class SparkCluster(Startable):
    """A standalone cluster: a master, and `workers` workers with one core, which start an executor per application.

    hidden: folders that look empty to workers and their executors, if this machine `can_hide` any. `folder` must not be
            in one of them.
    Raises `ServerFailedError` when a process does not become ready.
    """

    def __init__(self, folder: Path, *, workers: int = 2, hidden: Sequence[Path] = ()) -> None:
        self.root = folder.resolve()
        self._hidden = tuple(hidden) if can_hide() else ()
        self._port, self._page, *pages = free_ports(2 + workers)
        self._master = self._server(
            "master", [_MASTER, "--host", HOST, "--port", self._port, "--webui-port", self._page]
        )
        self.workers = [self._worker(number, page) for number, page in enumerate(pages)]

    @property
    def url(self) -> str:
        """Address for drivers: ``spark://host:port``."""
        return f"spark://{HOST}:{self._port}"

    @property
    def hides(self) -> bool:
        """Whether folders are really hidden from the workers."""
        return bool(self._hidden)

    def start(self) -> Self:
        """Start all processes, and wait until the master knows every worker."""
        self._master.start()
        self._master.wait_ready(f"http://{HOST}:{self._page}/json/", timeout=_READY_WITHIN)
        for worker in self.workers:
            worker.start()
        end = time.monotonic() + _READY_WITHIN
        while self._alive() < len(self.workers):
            for worker in self.workers:
                worker.check()
            if time.monotonic() > end:
                raise ServerFailedError(f"the master has only {self._alive()} workers\n{self.workers[-1].log_tail()}")
            time.sleep(0.2)
        return self

    def stop(self) -> None:
        """Stop workers, with their executors, and the master. Idempotent."""
        for server in (*self.workers, self._master):
            server.stop()

    def executors(self, worker: int) -> list[int]:
        """Process ids of a worker's executors. Their folders are ``work/APPLICATION/NUMBER`` in the worker's folder."""
        return [pid for pid in children().get(self.workers[worker].pid, []) if _EXECUTOR in _command(pid)]

    def folder(self, worker: int) -> Path:
        """The folder in which a worker and its executors keep their files."""
        return self.root / f"worker-{worker}"

    def _worker(self, number: int, page: int) -> Server:
        folder = self.folder(number)
        options = ["--host", HOST, "--webui-port", page, "--cores", 1, "--memory", _EXECUTOR_HEAP]
        command = [_WORKER, *options, "--work-dir", folder / "work", self.url]
        return self._server(folder.name, command, {"SPARK_LOCAL_DIRS": str(folder / "local")}, self._hidden)

    def _server(
        self, name: str, command: Sequence[object], env: Mapping[str, str] | None = None, hidden: Sequence[Path] = ()
    ) -> Server:
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        own = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _SMALL, "SPARK_NO_DAEMONIZE": "1"}
        return Server(
            [*_hiding(hidden), _program("spark-class"), *map(str, command)],
            log=folder / f"{name}.log",
            name=f"Spark's {name}",
            env=_environment() | own | dict(env or {}),
        )

    def _alive(self) -> int:
        """Number of workers that the master has."""
        with urllib.request.urlopen(f"http://{HOST}:{self._page}/json/", timeout=10) as answer:
            return int(json.load(answer)["aliveworkers"])


class ConnectServer(Startable):
    """A Connect server; `folder` has its log and its files. It can be killed and started again under the same `url`.

    lasting: optimise for speed instead of a quick start. cores: number of tasks that run at the same time.
    """

    def __init__(self, folder: Path, memory: str = "600m", *, lasting: bool = False, cores: int = 2) -> None:
        self._folder, self._cores, self._memory = folder.resolve(), cores, memory
        (self._port,) = free_ports(1)
        self._java = "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError" + ("" if lasting else " -XX:TieredStopAtLevel=1")
        self._server = Server(
            self._command(), log=self._folder / "server.log", name="Spark's Connect server", env=_environment()
        )

    @property
    def url(self) -> str:
        """Address for clients: ``sc://host:port``."""
        return f"sc://{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        return self._server.pid

    def start(self) -> Self:
        """Start it, and wait until it listens."""
        self._server.start()
        end = time.monotonic() + _READY_WITHIN
        while not listens(self._port):
            self._server.check()
            if time.monotonic() > end:
                raise ServerFailedError(f"Spark's Connect server does not listen\n{self._server.log_tail()}")
            time.sleep(0.1)
        return self

    def stop(self) -> None:
        """Stop it; idempotent."""
        if self._server.running:
            self.kill()

    def kill(self) -> None:
        """Kill it with SIGKILL. Its Python workers exit when their standard input is closed."""
        self._server.kill()

    def _command(self) -> list[str | Path]:
        options = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": self._port,
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.driver.memory": self._memory,
            "spark.driver.extraJavaOptions": self._java,
            "spark.local.dir": self._folder,
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": self._folder,
            "spark.sql.artifact.isolation.enabled": "true",
            "spark.ui.enabled": "false",
        }
        settings = [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
        master = ["--master", f"local[{self._cores}]", "--class", MAIN_CLASS]
        return [_program("spark-submit"), *master, *settings, "spark-internal"]


def can_hide() -> bool:
    """Whether this machine lets us start a process to which some folders look empty."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return False
    command = _hiding([Path("/mnt")])
    return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


def _hiding(folders: Sequence[Path]) -> list[str]:
    """Words to put before a command so that `folders` look empty to it."""
    if not folders:
        return []
    namespace = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    mounts = "".join(f"mount -t tmpfs tmpfs {shlex.quote(str(folder))} && " for folder in folders)
    return [str(shutil.which("unshare")), *namespace, "sh", "-c", f'{mounts}exec "$@"', "sh"]


def _program(name: str) -> Path:
    """A script of the installed PySpark, found without loading it."""
    spec = find_spec("pyspark")
    assert spec is not None, "PySpark is missing: install Trimtab's extra `spark`"
    assert spec.origin is not None, "PySpark has no __init__.py: reinstall PySpark"
    return Path(spec.origin).parent / "bin" / name


def _environment() -> dict[str, str]:
    return os.environ | {"SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
