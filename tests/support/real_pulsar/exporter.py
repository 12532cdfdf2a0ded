"""Exports the metrics of the kubelet (cAdvisor) and of kube-state-metrics for brokers that are plain processes.

CPU and memory come from the kernel (``/proc``). Bytes received and sent are the message bytes that each broker counts,
because all brokers share one network interface. As on a kubelet's page, there is a row for each pod and one for its
container, and counters fall only when a broker restarts.
"""

from __future__ import annotations

import os
import re
import threading
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from real_pulsar.cluster import PulsarCluster
from trimtab_testbed.servers.processes import HOST, Startable
from trimtab_testbed.servers.prometheus import Target
from trimtab_testbed.simulated.metrics_page import CONTENT_TYPE, Sample, render, state_rows, usage_rows

EVERY = 1.0
"""Seconds between two reads of a broker's own counters."""

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BYTES = re.compile(r"^pulsar_(in|out)_bytes_total(\{.*\}) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PodLimits:
    """The limits of each broker's pod: CPU cores, and bytes of memory.

    The default is one core. A few hundred msg/s use a tenth of it: a noticeable load that does not use up the machine.
    """

    cores: float = 1.0
    memory: int = 2**30


class Payload:
    """Bytes that a broker's process has received (``in``) and sent (``out``) since it started. `total` never falls.

    Pulsar's own total of a broker is the sum over the topics that the broker serves now. It falls when a topic leaves.
    This class adds up how much the counters of each topic and subscription grow from page to page. Traffic between the
    last page that shows a topic and the topic's unload is not included.
    """

    def __init__(self) -> None:
        self.total: Mapping[str, float] = {"in": 0.0, "out": 0.0}
        self._seen: Mapping[tuple[str, str], float] = {}

    def add(self, page: str) -> None:
        """Add the growth that the next page of metrics shows."""
        now = {(direction, labels): float(value) for direction, labels, value in _BYTES.findall(page)}
        total = dict(self.total)
        for series, value in now.items():
            before = self._seen.get(series, 0.0)
            total[series[0]] += value - before if value >= before else value  # lower: its topic was loaded again
        self.total, self._seen = total, now


class Kubelet(Startable):
    """The page of metrics of `cluster`, whose brokers are the pods `pods` of the Kubernetes namespace `namespace`."""

    def __init__(
        self, cluster: PulsarCluster, pods: Iterable[str], namespace: str, limits: PodLimits | None = None
    ) -> None:
        self._cluster, self._pods, self._namespace = cluster, tuple(pods), namespace
        self._limits = limits or PodLimits()
        self._payload: dict[int, tuple[int, Payload]] = {}  # by broker, with the process id
        self._done = threading.Event()
        self._threads: list[threading.Thread] = []
        self._server: ThreadingHTTPServer | None = None

    @property
    def target(self) -> Target:
        """The target for Prometheus."""
        assert self._server is not None, "start it first"
        return Target(f"{HOST}:{self._server.server_port}", path="/metrics")

    def start(self) -> Self:
        """Serve the page on a free port."""
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self))
        self._server.daemon_threads = True
        jobs = [threading.Thread(target=self._server.serve_forever, args=(0.05,), name="kubelet", daemon=True)]
        jobs += [threading.Thread(target=self._follow, args=(n,), daemon=True) for n in range(len(self._pods))]
        self._threads = jobs
        for job in jobs:
            job.start()
        return self

    def stop(self) -> None:
        """Stop; idempotent."""
        self._done.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        for thread in self._threads:
            thread.join()
        self._threads = []

    def page(self) -> str:
        """The page now, with rows of the running brokers."""
        rows = [self._rows(n, pod) for n, pod in enumerate(self._pods)]
        return render(sample for samples in rows for sample in samples)

    def _rows(self, broker: int, pod: str) -> list[Sample]:
        labels = {"namespace": self._namespace, "pod": pod}
        usage = self._usage(broker)
        if usage is None:
            return []
        return [
            *usage_rows(labels, *usage),
            *_network_rows(labels, self._bytes(broker)),
            *state_rows(labels, self._limits.cores, float(self._limits.memory)),
        ]

    def _usage(self, broker: int) -> tuple[float, float] | None:
        """CPU seconds and bytes of memory; None if the process has exited."""
        try:
            process = Path(f"/proc/{self._cluster.pid(broker)}")
            stat = (process / "stat").read_text().rpartition(")")[2].split()
            resident, shared = map(int, (process / "statm").read_text().split()[1:3])
        except (OSError, IndexError):  # restarting, or not started
            return None
        if stat[0] in "ZX":
            return None
        return (int(stat[11]) + int(stat[12])) / _TICKS, float((resident - shared) * _PAGE)

    def _bytes(self, broker: int) -> Mapping[str, float]:
        """Payload of the current process; empty before its first page."""
        process, payload = self._payload.get(broker, (None, None))
        return payload.total if payload and process == self._cluster.pid(broker) else {}

    def _follow(self, broker: int) -> None:
        """Count the broker's payload, in a thread of its own: a hanging broker must not delay the others' figures."""
        while not self._done.wait(EVERY):
            with suppress(OSError, HTTPException):  # it hangs or restarts: its counters do not change
                self._count(broker)

    def _count(self, broker: int) -> None:
        pid = self._cluster.pid(broker)
        with urllib.request.urlopen(f"{self._cluster.urls[broker]}/metrics/", timeout=5) as answer:
            page = answer.read().decode()
        process, payload = self._payload.get(broker, (None, Payload()))
        if process != pid:
            payload = Payload()
        payload.add(page)
        self._payload[broker] = pid, payload


def broker_targets(
    cluster: PulsarCluster, pods: Iterable[str], namespace: str, *, honor_labels: bool = False
) -> tuple[Target, ...]:
    """The brokers' own pages, with the labels that a scrape of pods adds.

    Without `honor_labels` (the default in production too) Pulsar's ``namespace`` becomes ``exported_namespace``.
    """
    return tuple(
        Target(broker, {"namespace": namespace, "pod": pod}, "/metrics/", honor_labels)  # /metrics only redirects there
        for broker, pod in zip(cluster.ids, pods, strict=True)
    )


def _network_rows(pod: Mapping[str, str], payload: Mapping[str, float]) -> Iterator[Sample]:
    card = {**pod, "interface": "eth0"}
    for direction, name in (("in", "receive"), ("out", "transmit")):
        if direction in payload:
            yield Sample(f"container_network_{name}_bytes_total", card, payload[direction])


def _handler(kubelet: Kubelet) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server looks for
            body = kubelet.page().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            with suppress(ConnectionError):  # Prometheus waits no longer than its interval
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler
