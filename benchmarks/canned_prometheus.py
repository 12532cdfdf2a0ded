"""A fleet of brokers, and a server process that replays a Prometheus server's answers about it.

Replaying costs almost nothing, so a benchmark measures our own code. The same size always gives the same fleet.

    python benchmarks/canned_prometheus.py FOLDER      serve the bodies in FOLDER, after printing the port
"""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trimtab_pipeline.api import PrometheusSettings, Topology
from trimtab_pipeline.prometheus.broker_presets import Series
from trimtab_pipeline.prometheus.queries import TOLD_APART, topics_in
from trimtab_pipeline.prometheus.read_request import ShardRequest
from trimtab_pipeline.transform.topic_to_bundle import HashRanges

SHARDS = 2
START = 1_750_000_000.0
"""Evaluation time of the first cycle, epoch seconds."""
_EACH = 64  # bundles in each namespace
_VALUES = {"time": "1750000000", "limit": "4", "throttled": "0"}
_NOTHING = "nothing"  # stands for each query that has no body of its own
_WINDOW, _SAMPLES = 1e6, 20  # seconds, so long that no sample is too old; number of raw samples, over five windows


class Size(NamedTuple):
    """Size of a fleet. With topics, bundles have no metrics of their own."""

    brokers: int
    bundles: int
    topics: int = 0


SIZES = {"S": Size(10, 1_000), "L": Size(100, 60_000), "T": Size(100, 60_000, 1_000_000)}


@dataclass(frozen=True)
class Fleet:
    """Brokers (pods) and bundles with their owners and rates (msg/s)."""

    size: Size
    pods: tuple[str, ...]
    bundles: tuple[str, ...]
    owner: npt.NDArray[np.int64]
    rate: npt.NDArray[np.float64]

    @classmethod
    def of(cls, size: Size) -> Fleet:
        """The fleet of that size."""
        rng, step, (n, m, _) = np.random.default_rng(7), 2**32 // _EACH, size
        edge = [f"0x{k * step:08x}_0x{min((k + 1) * step, 2**32 - 1):08x}" for k in range(_EACH)]
        names = tuple(f"tenant-{i // _EACH % 40:02d}/namespace-{i // _EACH:04d}/{edge[i % _EACH]}" for i in range(m))
        pods = tuple(f"pulsar-broker-{i}" for i in range(n))
        return cls(size, pods, names, rng.integers(0, n, m), rng.lognormal(2, 2, m))

    @property
    def brokers_alone(self) -> Fleet:
        """This fleet without bundles."""
        return replace(self, bundles=(), owner=self.owner[:0], rate=self.rate[:0])

    def topology(self) -> Topology:
        """The topology, as Kubernetes objects would describe it."""
        n, m = len(self.pods), len(self.bundles)
        return Topology(
            brokers=self.pods,
            pods=self.pods,
            declared_limit=np.full((n, 5), np.nan),
            ready=np.ones(n, bool),
            schedulable=np.ones(n, bool),
            namespaces=("all",),
            bundles=self.bundles,
            namespace=np.zeros(m, np.int64),
            owner=self.owner,
            last_unload=np.full(m, np.nan),
            pinned=np.zeros(m, bool),
            in_flight=np.zeros(m, bool),
            moving_from=np.full(m, -1, np.int64),
            moving_share=np.zeros(m),
        )

    def settings(self, url: str = "http://unused") -> PrometheusSettings:
        """Settings that read topics if bundles have no metrics. With these settings no sample is too old."""
        return PrometheusSettings(
            url,
            "pulsar",
            window=_WINDOW,
            max_age=1e12,
            timeout=60,
            bundle_metrics="topic" if self.size.topics else "bundle",
        )

    def rows(self, pods: Sequence[str]) -> tuple[list[str], npt.NDArray[np.float64]]:
        """Labels (JSON) and rate of each series about the load of `pods`."""
        ours = np.isin(self.owner, [self.pods.index(pod) for pod in pods])
        if not self.size.topics:
            at = np.flatnonzero(ours)
            labels = [f'"bundle":"{self.bundles[i]}","pod":"{self.pods[self.owner[i]]}"' for i in at]
            return labels, self.rate[at]
        chance, whole = np.random.default_rng(1), self.size.bundles // _EACH
        spaces = [self.bundles[k * _EACH].rpartition("/")[0] for k in range(whole)]
        picks = chance.integers(0, whole, self.size.topics)
        names = [f"persistent://{spaces[k]}/orders-{i}-partition-{i % 8}" for i, k in enumerate(picks.tolist())]
        ranges = HashRanges.of(self.bundles)
        bundle = ranges.row[ranges.place(pa.array(names))[0]]
        at = np.flatnonzero(ours[bundle])
        labels = [f'"topic":"{names[i]}","pod":"{self.pods[self.owner[bundle[i]]]}"' for i in at]
        return labels, np.round(chance.lognormal(2, 2, len(at)), 3)

    def record(self, folder: Path) -> int:
        """Write every body that a cycle reads; returns their size in bytes.

        The checks of samples and limits get an empty answer.
        """
        return sum(self._record_shard(folder, sorted(self.pods)[k::SHARDS]) for k in range(SHARDS))

    def _record_shard(self, folder: Path, pods: Sequence[str]) -> int:
        asked = ShardRequest.of(self.settings(), pods)
        size = _write(folder, _NOTHING, iter(()))
        for raw in asked.raw:
            series = (_raw(pod, metric, one) for metric, (_, one) in raw.series.items() for pod in pods)
            size += _write(folder, raw.promql, series, "matrix")
        (values,) = asked.value_queries(together=True).values()
        size += _write(folder, values, (_value(pod, signal) for signal in asked.values for pod in pods))
        labels, rates = self.rows(pods)
        for scale, promql in enumerate((asked.bundles or asked.topics).values(), start=1):
            values = map(repr, (rates * scale).tolist())
            size += _write(
                folder,
                topics_in(promql),
                (f'{{{n}}},"value":[{START:.3f},"{v}"' for n, v in zip(labels, values, strict=True)),
            )
        return size


def _value(pod: str, signal: str) -> str:
    """A series with the single value of a signal."""
    value = _VALUES.get(signal.rpartition("_")[2], "1.5")
    return f'{{"pod":"{pod}","{TOLD_APART}":"{signal}"}},"value":[{START:.3f},"{value}"'


def _raw(pod: str, metric: str, series: Series) -> str:
    """Raw samples of a counter, or of a gauge."""
    times = [START - _WINDOW / 4 * k for k in reversed(range(_SAMPLES))]
    counts = series.kind == "counter"
    points = ",".join(f'[{at:.3f},"{1.5 * (at - START + 1e8) if counts else 1.5}"]' for at in times)
    labels = {"__name__": metric, "container": "broker", "id": f"/kubepods/{pod}", "pod": pod}
    labels |= {series.part: {"cpu": "total"}.get(series.part, "eth0")} if series.part else {}
    return f'{json.dumps(labels, separators=(",", ":"))},"values":[{points}'


def _write(folder: Path, promql: str, series: Iterator[str], kind: str = "vector") -> int:
    text = ",".join(f'{{"metric":{one}]}}' for one in series)
    body = f'{{"status":"success","data":{{"resultType":"{kind}","result":[{text}]}}}}'
    return (folder / _key(promql)).write_bytes(body.encode())


def _key(promql: str) -> str:
    """File name of a query's body."""
    return hashlib.sha256(promql.encode()).hexdigest()


@contextmanager
def replaying(folder: Path) -> Iterator[str]:
    """URL of a server process that replays `folder`."""
    with subprocess.Popen([sys.executable, __file__, str(folder)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def _serve(folder: Path, listener: socket.socket) -> None:
    """Replay the bodies in `folder` until killed."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_replay, args=(folder, connection), daemon=True).start()


def _replay(folder: Path, connection: socket.socket) -> None:
    """Answer every query of one connection. ``GET /NAME`` gets the body of that name."""
    with connection, connection.makefile("rb") as stream:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while first := stream.readline():
            length = 0
            while (line := stream.readline().lower()) not in {b"\r\n", b""}:
                if line.startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            query = parse_qs(stream.read(length).decode()).get("query")
            path = folder / (_key(query[0]) if query else first.split()[1].decode().removeprefix("/"))
            path = path if path.exists() else folder / _key(_NOTHING)
            with path.open("rb") as body:
                kind = f"Content-Type: application/json\r\nContent-Length: {path.stat().st_size}"
                connection.sendall(f"HTTP/1.1 200 OK\r\n{kind}\r\n\r\n".encode())
                connection.sendfile(body)


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as opened:
        print(opened.getsockname()[1], flush=True)
        _serve(Path(sys.argv[1]), opened)
