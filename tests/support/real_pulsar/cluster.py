"""A cluster of real brokers on 127.0.0.1: ZooKeeper, one bookie and n brokers, each a JVM of its own.

Each JVM is started directly from the distribution's jars, because Pulsar's own script gives each JVM 2 GB. The cluster
is ready in about 20 seconds on two cores. It is stopped by SIGKILL, as an orderly stop takes a broker 15 seconds.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from real_pulsar import settings as conf
from real_pulsar.cgroups import Box
from real_pulsar.rest import PulsarRest, PulsarRestError
from real_pulsar.security import SUPERUSER, OpenSecurity
from real_pulsar.settings import CLUSTER, LoadManagerKind, Settings
from trimtab_testbed.servers.processes import HOST, Server, ServerFailedError, Startable, free_ports, listens

READY_WITHIN = 300.0
"""Seconds within which brokers must start, on a machine that is shared with other work."""

_JVM = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    *("-Djava.net.preferIPv4Stack=true", "-Dlog4j2.is.webapp=false", "-Dzookeeper.clientTcpKeepAlive=true"),
    *("-Dio.netty.tryReflectionSetAccessible=true", "-Dzookeeper.admin.enableServer=false"),
    "-Dbookkeeper.metadata.bookie.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers=org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
)
_OPENED = (
    *("java.base/java.io", "java.base/java.util.zip", "java.base/java.nio", "java.base/jdk.internal.misc"),
    *("java.base/jdk.internal.platform", "java.management/sun.management"),
    "jdk.management/com.sun.management.internal",
)


class PulsarCluster(Startable):
    """`brokers` real brokers; a context manager. Everything listens on 127.0.0.1 only.

    distribution: see `distribution.ensure`. work_dir: folder of configuration, data and logs (``broker-0.log``).
    settings:     settings of the brokers. They override those of `settings.broker`.
    persistent:   with a bookie. Without it only ``non-persistent://`` topics work, and only with the modular manager.
    guard:        the authentication that brokers require; none by default.
    boxed:        give each broker a control group (`Box`) if this machine allows it; False after `start` if not.
    cores:        CPU limit of each control group, set when all brokers are ready.
    """

    def __init__(
        self,
        distribution: Path,
        work_dir: Path,
        load_manager: LoadManagerKind,
        *,
        brokers: int = 3,
        settings: Settings | None = None,
        persistent: bool = True,
        guard: OpenSecurity | None = None,
        boxed: bool = True,
        cores: float | None = None,
    ) -> None:
        self._lib, self._dir, self.load_manager = distribution / "lib", work_dir.resolve(), load_manager
        self._settings = {} if settings is None else dict(settings)
        self._persistent, self._cores = persistent, cores
        self.guard = guard or OpenSecurity()
        self._zookeeper_port, self._bookie_port, *ports = free_ports(2 + 2 * brokers)
        self._web, self._binary = ports[:brokers], ports[brokers:]
        self.ids = tuple(f"{HOST}:{port}" for port in self._web)
        self.boxed = boxed
        self._boxes = [Box(f"trimtab-{os.getpid()}-{port}") for port in self._web]
        self._unpacked = self._dir / "unpacked"
        self._others: list[Server] = []
        self._brokers: list[Server] = []

    # -- addresses and processes --

    @property
    def urls(self) -> tuple[str, ...]:
        """Base URL of each broker's admin REST and of its ``/metrics/``."""
        return tuple(f"{self.guard.http}://{broker}" for broker in self.ids)

    @property
    def service_url(self) -> str:
        """Service URL for clients, with all brokers."""
        return f"{self.guard.binary}://" + ",".join(f"{HOST}:{port}" for port in self._binary)

    def token(self, role: str = SUPERUSER) -> str:
        """A token for `role`; empty for a cluster without authentication."""
        return self.guard.token(role)

    def rest(self, broker: int = 0) -> PulsarRest:
        """The admin REST of a broker, as superuser."""
        return PulsarRest(self.urls[broker], self.token(), self.guard.context)

    def pid(self, broker: int) -> int:
        """Process id of a broker."""
        return self._brokers[broker].pid

    def running(self, broker: int) -> bool:
        """Whether the process of a broker exists, even if it is paused."""
        return self._brokers[broker].running

    def log(self, broker: int) -> Path:
        """Log file of a broker."""
        return self._brokers[broker].log

    # -- start and stop --

    def start(self) -> Self:
        """Start everything and wait until all brokers are ready. Raises `ServerFailedError` with the end of a log."""
        if not self._lib.is_dir():
            raise ServerFailedError(
                f"{self._lib} is not a folder of Pulsar's jars: use the folder that distribution.ensure() returns"
            )
        self._unpacked.mkdir(parents=True, exist_ok=True)
        (self._dir / "log4j2.properties").write_text(conf.LOG4J)
        self._start_storage()
        self.boxed = self.boxed and all(box.make() for box in self._boxes)
        self._brokers = [self._broker(n) for n in range(len(self.ids))]
        for broker in self._brokers:
            broker.start()
        for n in range(len(self.ids)):
            self.wait_ready(n)
        self._until("all brokers are registered", lambda: self.rest().brokers() == set(self.ids))
        if self._cores is not None and self.boxed:
            for box in self._boxes:
                box.limit(self._cores)
        return self

    def stop(self) -> None:
        """Kill all processes at the same time with SIGKILL; idempotent."""
        running = [server for server in (*self._brokers, *self._others) if server.running]
        for server in running:
            server.send(signal.SIGKILL)
        for server in running:
            server.kill()
        for box in self._boxes:
            box.remove()
        shutil.rmtree(self._unpacked, ignore_errors=True)  # killed JVMs leave their native libraries behind

    # -- faults --

    def kill(self, broker: int) -> None:
        """Kill a broker with SIGKILL. The others notice when its session ends, after 6 seconds."""
        self._brokers[broker].kill()

    def start_broker(self, broker: int, *, wait: bool = True) -> None:
        """Start a broker again after `kill`, under its old id. wait: until it is ready."""
        self._brokers[broker].start()
        if wait:
            self.wait_ready(broker)
            self._until(f"broker {broker} is registered", lambda: self.ids[broker] in self.rest(broker).brokers())

    def pause(self, broker: int) -> None:
        """Let a broker hang (SIGSTOP): it accepts connections and answers nothing."""
        self._brokers[broker].send(signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        """Let a broker continue after `pause`. If its session has ended in the meantime, it stops itself."""
        self._brokers[broker].send(signal.SIGCONT)

    def wait_ready(self, broker: int) -> None:
        """Wait until a broker reports that it is ready."""
        self._until(f"broker {broker} is ready", lambda: self.rest(broker).get("/admin/v2/brokers/ready") == "ok")

    # -- inside --

    def _start_storage(self) -> None:
        """Start ZooKeeper with the cluster's metadata, and the bookie.

        With the modular load manager the bookie becomes ready while the brokers start. With the extensible one, brokers
        need the bookie immediately: they keep owners in a topic, and exit if it can't be stored.
        """
        port = self._zookeeper_port
        written = self._write("zookeeper", conf.zookeeper(port, self._dir / "zookeeper"))
        zookeeper = self._java("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", written)
        zookeeper.start()
        self._others.append(zookeeper)
        self._until("ZooKeeper answers", lambda: _four_letters(port))
        self._describe()
        if self._persistent:
            written = self._write("bookie", conf.bookie(self._bookie_port, port, self._dir / "bookie"))
            bookie = self._java("bookie", "org.apache.bookkeeper.server.Main", "--conf", written)
            bookie.start()
            self._others.append(bookie)
            if self.load_manager is LoadManagerKind.EXTENSIBLE:
                self._until("the bookie listens", lambda: listens(self._bookie_port))

    def _describe(self) -> None:
        store = f"zk:{HOST}:{self._zookeeper_port}"
        words = {
            "--cluster": CLUSTER,
            "--metadata-store": store,
            "--configuration-metadata-store": store,
            "--web-service-url": f"{self.guard.http}://{','.join(self.ids)}",
            "--broker-service-url": self.service_url,
        }
        flags = [part for item in words.items() for part in item]
        describing = self._java("metadata", "org.apache.pulsar.PulsarClusterMetadataSetup", *flags)
        describing.start()
        self._others.append(describing)
        self._until("the cluster is described", lambda: not describing.running)
        if describing.returncode:
            describing.check()

    def _broker(self, n: int) -> Server:
        guarded = self.guard.settings(self._web[n], self._binary[n])
        settings = {**conf.broker(self.load_manager, self._zookeeper_port), **guarded, **self._settings}
        file = self._write(f"broker-{n}", settings)
        starter = "org.apache.pulsar.PulsarBrokerStarter"
        return self._java(f"broker-{n}", starter, "--broker-conf", file, heap=512, direct=256, box=self._boxes[n])

    def _write(self, name: str, settings: Settings) -> Path:
        file = self._dir / f"{name}.conf"
        file.write_text(conf.written(settings))
        return file

    def _java(
        self, name: str, main: str, *arguments: str | Path, heap: int = 256, direct: int = 128, box: Box | None = None
    ) -> Server:
        """A JVM with at most `heap` and `direct` MB of memory."""
        home = os.environ.get("JAVA_HOME")
        java = shutil.which(f"{home}/bin/java" if home else "java")
        if java is None:
            raise ServerFailedError(
                "java not found: install Java 17 (Debian: openjdk-17-jre-headless) or set JAVA_HOME"
            )
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
        memory = ["-Xms64m", f"-Xmx{heap}m", f"-XX:MaxDirectMemorySize={direct}m"]
        places = (f"-Dlog4j.configurationFile={self._dir / 'log4j2.properties'}", f"-Djava.io.tmpdir={self._unpacked}")
        command = [java, *_JVM, *opened, *memory, *places, "-cp", f"{self._lib}/*", main, *arguments]
        boxed = box.around(command) if box is not None and self.boxed else command
        return Server(boxed, log=self._dir / f"{name}.log", name=name)

    def _until(self, what: str, probe: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while not _holds(probe):
            for server in (*self._others, *self._brokers):
                if server.returncode:  # not 0: it failed. The program that writes the metadata ends with 0
                    server.check()
            if time.monotonic() > deadline:
                raise ServerFailedError(f"not within {READY_WITHIN:g} s: {what}; see the logs in {self._dir}")
            time.sleep(0.1)


def _holds(probe: Callable[[], bool]) -> bool:
    try:
        return probe()
    except (OSError, PulsarRestError):  # it does not listen yet, or is not ready to answer
        return False


def _four_letters(port: int) -> bool:
    with socket.create_connection((HOST, port), timeout=1) as connection:
        connection.sendall(b"ruok")
        return connection.recv(4) == b"imok"
