"""Spark's settings: where it runs, and its options."""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.spark.java import OPTIONS
from trimtab_pipeline.spark.outcomes import without_token

_LOOPBACK = "127.0.0.1"
_LEAST_HEAP = 480  # mebibytes; Spark itself refuses less than 450
_CGROUPS, _MEMBERSHIPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_LOCAL = re.compile(r"local\[(\d+|\*)\]")
_CLUSTER = re.compile(r"spark://([^,/:]+):(\d+)(,[^,/:]+:\d+)*")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings of Spark.

    master: ``local[N]``, ``local[*]`` (all cores this process may use, see `usable_cores`), ``spark://host:port`` of a
    standalone cluster, whose driver is this process's JVM, or ``sc://host:port`` of a Connect server.
    memory: heap of this process's JVM, whose resident size is about 450 MB more.
    Raises `ValueError` for a master or a memory that Spark would refuse at its start.
    """

    master: str = "local[*]"
    memory: str = "700m"

    def __post_init__(self) -> None:
        size = re.fullmatch(r"(\d+)([mg])", self.memory)
        if size is None or int(size[1]) * (1024 if size[2] == "g" else 1) < _LEAST_HEAP:
            raise ValueError(f"Spark memory {self.memory!r} must be {_LEAST_HEAP}m or more, such as 700m or 1g")
        if not (self.connects or _LOCAL.fullmatch(self.master) or _CLUSTER.fullmatch(self.master)):
            raise ValueError(
                f"master {without_token(self.master)!r} must be local[N], local[*], spark://host:port or sc://host:port"
            )

    @property
    def connects(self) -> bool:
        """Whether a Connect server runs the driver. This process then needs no Java."""
        return self.master.startswith("sc://")

    @property
    def remote(self) -> bool:
        """Whether tasks run in processes that this one did not start, perhaps on other machines."""
        return not _LOCAL.fullmatch(self.master)

    @property
    def cores(self) -> int:
        """Number of parallel tasks of ``local[...]``; 0 for a remote master, which decides that itself."""
        local = _LOCAL.fullmatch(self.master)
        if not local:
            return 0
        return usable_cores(len(os.sched_getaffinity(0))) if local[1] == "*" else max(1, int(local[1]))

    def sql_options(self) -> dict[str, str]:
        """Options of every session."""
        return {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.adaptive.enabled": "false",  # plans are small and known; adaptation costs more than it gains
            "spark.sql.execution.arrow.maxRecordsPerBatch": "40000",
            "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",  # groups; the default is 128
            "spark.sql.execution.arrow.localRelationThreshold": "256k",  # larger tables are converted by tasks
            "spark.sql.ui.explainMode": "simple",  # each statement writes this text, for an unused UI
        }

    def driver_options(self, folder: Path, log_config: Path) -> dict[str, str]:
        """Options of a driver in this process's JVM; its temporary files go to `folder`.

        Raises `SourceUnavailableError` when the master of a cluster has no address, or there is no route to it.
        """
        return (
            self.sql_options()
            | {
                "spark.driver.memory": self.memory,
                "spark.driver.extraJavaOptions": f"{OPTIONS} -Dlog4j2.configurationFile={log_config.as_uri()} "
                f"-Dtrimtab.log={folder / 'spark.log'}",
                "spark.broadcast.UDFCompressionThreshold": "1g",  # a larger function would go to the disk
                "spark.cleaner.periodicGC.interval": "5min",  # full collections; the default is 30 minutes
                "spark.buffer.pageSize": "1m",  # each sort and hash table takes a page; the default is 16 MB
                "spark.local.dir": str(folder),
                "spark.python.task.killTimeout": "200ms",  # a cancelled query must not delay later cycles
                "spark.python.unix.domain.socket.enabled": "true",
                "spark.sql.catalogImplementation": "in-memory",
                "spark.sql.codegen.cache.maxEntries": "1000",  # the default, 100, is less than a cycle's plans need
                "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
                "spark.ui.enabled": "false",
                "spark.ui.retainedJobs": "10",  # for the pages of an unused UI; the default is 1000
                "spark.ui.retainedStages": "10",
                "spark.ui.retainedTasks": "100",
                "spark.sql.ui.retainedExecutions": "10",
                "spark.ui.showConsoleProgress": "false",
            }
            | (self._cluster_options() if self.remote else self._local_options(folder))
        )

    def _local_options(self, folder: Path) -> dict[str, str]:
        return {
            "spark.master": f"local[{self.cores}]",
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.default.parallelism": str(self.cores),
            "spark.sql.shuffle.partitions": str(self.cores),
            "spark.python.unix.domain.socket.dir": str(folder),
            "spark.python.daemon.module": "trimtab_pipeline.spark.worker_daemon",
        }

    def _cluster_options(self) -> dict[str, str]:
        """Executors call the driver back, so it listens at the address from which this machine reaches the master."""
        cluster = _CLUSTER.fullmatch(self.master)
        assert cluster, "the constructor has checked it"
        host = _own_address(cluster[1], int(cluster[2]))
        return {
            "spark.master": self.master,
            "spark.driver.host": host,
            "spark.driver.bindAddress": host,
            "spark.executor.extraJavaOptions": OPTIONS,
        }


def _own_address(host: str, port: int) -> str:
    """Address from which this machine reaches `host`. Nothing is sent: a datagram socket only looks up the route.

    Raises `SourceUnavailableError` when `host` has no address, or there is no route to it.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise SourceUnavailableError(f"there is no way to Spark's master {host}:{port}: {error}") from error


def usable_cores(allotted: int, root: Path = _CGROUPS, memberships: str = "") -> int:
    """The `allotted` cores, but at most the container's CPU limit (rounded up), and at least 1.

    root: mount point of cgroups. memberships: text of ``/proc/self/cgroup``; read if it is empty. The lowest quota of
    this process's groups counts. An unreadable quota is ignored.
    """
    if not memberships and _MEMBERSHIPS.is_file():
        memberships = _MEMBERSHIPS.read_text()
    quotas = (_quota(folder) for folder in _cpu_groups(root, memberships))
    return max(1, min([allotted, *(math.ceil(cores) for cores in quotas if cores < allotted)]))


def _cpu_groups(root: Path, memberships: str) -> Iterator[Path]:
    """The groups of this process that may limit its CPU, of cgroup version 2 and version 1."""
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            top = root / "cpu" if controllers else root
            parts = PurePosixPath(path).parts[1:]
            yield from (top.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))


def _quota(group: Path) -> float:
    """Cores that a group may use at most; infinite without a limit."""
    try:
        unified = group / "cpu.max"
        files = [unified] if unified.is_file() else [group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us"]
        quota, period = map(int, " ".join(file.read_text() for file in files).split())
    except (OSError, ValueError):  # no such group, "max", or not a number
        return math.inf
    return quota / period if quota > 0 and period > 0 else math.inf
