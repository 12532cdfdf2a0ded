"""A fake Prometheus that answers our queries from a table, and injects faults."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from local_server import LocalServer

_METRIC = re.compile(r"((?:container|kube|pulsar)_[A-Za-z_]+)\{(.*?)\}")
_RANGE = re.compile(r'^(\w*)\{(?:__name__=~"([^"]*)",)?([^{}]*)\}\[\w+\]$')
_COMBINED = re.compile(
    r'(?:^| or )label_replace\((max by .*?), "signal", "(\w+)", "", ""\)(?= or label_replace\(max|$)'
)
_COUNTED = 1e5  # seconds since the counters started
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"(.*?)"')


@dataclass
class Faults:
    """A fault in the answers to the queries that `where` selects.

    status: answer with this status and a plain text. delay: seconds before the answer. text: send this body instead.
    warnings: those of a partial answer.
    """

    where: Callable[[str], bool] = lambda _: True
    status: int = 200
    delay: float = 0.0
    text: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass
class Series:
    """One series: labels, value in Prometheus' notation, and the time of its sample (None: now).

    samples, resets: numbers of samples and resets in any window. ahead: samples in the future. For a counter, `value`
    is its rate (1/s).
    """

    labels: Mapping[str, str]
    value: str
    time: float | None = None
    samples: int = 4
    resets: int = 0
    ahead: int = 0

    def points(self, metric: str, at: float) -> list[list[float | str]]:
        """Its raw samples, 15 seconds apart, oldest first: `samples` of them and the one before."""
        newest = self.time or at
        times = [newest - 15 * k for k in reversed(range(self.samples + (self.samples > 1)))]
        try:
            rate = float(self.value)
        except ValueError:
            rate = math.nan
        if not metric.endswith("_total") or not math.isfinite(rate):
            return [[t, self.value] for t in times]
        to_come = reversed([min(k, self.resets) for k in range(len(times))])  # one reset in each of the last pairs
        return [[t, str(rate * (t - newest + _COUNTED * (1 + n)))] for t, n in zip(times, to_come, strict=True)]

    def answer(self, promql: str, at: float) -> str | None:
        """What this series contributes to the answer to `promql`; None for nothing."""
        if promql.startswith("max by (pod) (timestamp("):
            return str(self.time or at)
        if "] offset -" in promql:
            return str(self.ahead) if self.ahead else None
        return self.value


@dataclass
class FakePrometheus(LocalServer):
    """Serves `series` (by metric name) on a free port of 127.0.0.1 while entered. queries: those it received.

    clock: time of the server's clock (epoch seconds), None for no Date header.
    """

    series: dict[str, list[Series]] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    clock: float | None = None
    queries: list[dict[str, str]] = field(default_factory=list)

    def make(self) -> ThreadingHTTPServer:
        """A server that does not wait for answers that a fault keeps open."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.daemon_threads = True
        return server

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def put(self, metric: str, value: float | str, time: float | None = None, **labels: str) -> None:
        """Set one series, replacing the one with the same labels."""
        rows = self.series.setdefault(metric, [])
        rows[:] = [row for row in rows if row.labels != labels]
        rows.append(Series(labels, str(value), time))

    def drop(self, **labels: str) -> None:
        """Remove every series with these labels."""
        for rows in self.series.values():
            rows[:] = [row for row in rows if not labels.items() <= row.labels.items()]

    def answer(self, promql: str, at: float) -> str:
        """The body of an instant query."""
        if ranged := _RANGE.match(promql):
            return self._matrix(ranged[2] or ranged[1], ranged[3], at)
        if several := _COMBINED.findall(promql):
            result = [
                {"metric": {**one["metric"], "signal": signal}, "value": one["value"]}
                for part, signal in several
                for one in self._vector(part, at)
            ]
            return self._body(promql, "vector", result)
        return self._body(promql, "vector", self._vector(promql, at))

    def _vector(self, promql: str, at: float) -> list[dict[str, Any]]:
        """The series of an instant query; of several metrics between ``or``, the first that has series counts."""
        if promql.startswith("topk("):  # asks for series that lack a label, and every series here has its labels
            return []
        every = list(_METRIC.finditer(promql))
        found = next((one for one in every if self.series.get(one[1])), every[0] if every else None)
        by = re.search(r"max by \(([^)]*)\)", promql)
        assert by, promql
        assert found, promql
        groups: dict[tuple[tuple[str, str], ...], str] = {}
        for row in self.series.get(found[1], []):
            if _matches(row.labels, found[2]) and (value := row.answer(promql, at)) is not None:
                labels = {name: row.labels[name] for name in sorted(by[1].split(", ")) if name in row.labels}
                groups[tuple(labels.items())] = value
        return [{"metric": dict(labels), "value": [at, value]} for labels, value in groups.items()]

    def _matrix(self, metrics: str, selector: str, at: float) -> str:
        """The body of an instant query for raw samples; `metrics` as a regular expression."""
        chosen = [
            (metric, row)
            for metric in metrics.split("|")
            for row in self.series.get(metric, [])
            if _matches(row.labels, selector)
        ]
        result = [
            {"metric": {"__name__": metric, **row.labels}, "values": row.points(metric, at)} for metric, row in chosen
        ]
        return self._body(metrics, "matrix", result)

    def _body(self, promql: str, kind: str, result: list[Any]) -> str:
        body: dict[str, Any] = {"status": "success", "data": {"resultType": kind, "result": result}}
        if self.faults.warnings and self.faults.where(promql):
            body["warnings"] = list(self.faults.warnings)
        return json.dumps(body, separators=(",", ":"))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                query = {name: values[0] for name, values in form.items()}
                fake.queries.append(query)
                struck = fake.faults.where(query["query"])
                if struck and fake.faults.delay:
                    time.sleep(fake.faults.delay)
                if struck and fake.faults.status != 200:
                    self._send(fake.faults.status, fake.faults.text or "out of order")
                elif struck and fake.faults.text is not None:
                    self._send(200, fake.faults.text)
                else:
                    self._send(200, fake.answer(query["query"], float(query["time"])))

            def _send(self, status: int, text: str) -> None:
                body = text.encode()
                date = "" if fake.clock is None else f"Date: {formatdate(fake.clock, usegmt=True)}\r\n"
                kind = f"Content-Type: application/json\r\n{date}"
                head = f"HTTP/1.1 {status} x\r\n{kind}Content-Length: {len(body)}\r\n\r\n"
                try:
                    self.wfile.write(head.encode() + body)
                except ConnectionError:  # the client gave up waiting, which is the purpose of a slow server
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _matches(labels: Mapping[str, str], selector: str) -> bool:
    for name, operator, pattern in _MATCHER.findall(selector):
        value, text = labels.get(name, ""), pattern.replace("\\\\", "\\")
        equal = re.fullmatch(text, value) is not None if operator in {"=~", "!~"} else value == text
        if equal is operator.startswith("!"):
            return False
    return True


def add_broker(fake: FakePrometheus, pod: str, *, cpu: float = 1.0, time: float | None = None) -> None:
    """The series of a healthy broker with 4 cores, 8 GiB and `cpu` cores in use.

    They include a kubelet's duplicate rows.
    """
    where = {"namespace": "pulsar", "pod": pod}
    fake.put("container_cpu_usage_seconds_total", cpu, time, **where, container="broker")
    fake.put("container_cpu_usage_seconds_total", 2 * cpu, time, **where, container="")
    fake.put("container_memory_working_set_bytes", 2 * 2**30, time, **where, container="broker")
    fake.put("kube_pod_container_resource_limits", 4, **where, container="broker", resource="cpu")
    fake.put("kube_pod_container_resource_limits", 8 * 2**30, **where, container="broker", resource="memory")
    fake.put("container_network_receive_bytes_total", 1e6, time, **where, interface="eth0")
    fake.put("container_network_receive_bytes_total", 9e6, time, **where, interface="lo")
    fake.put("container_network_transmit_bytes_total", 2e6, time, **where, interface="eth0")
    for name, value in {"rate_in": 100, "rate_out": 200, "throughput_in": 1e5, "throughput_out": 2e5}.items():
        fake.put(f"pulsar_broker_{name}", value, time, **where)


def add_bundle(fake: FakePrometheus, bundle: str, pod: str, rate: float | str = 10.0) -> None:
    """The series of a bundle of `pod`: `rate` msg/s in, twice that out, 3 topics, 4 producers, 5 consumers."""
    where = {"namespace": "pulsar", "pod": pod, "bundle": bundle}
    out = float(rate) * 2
    traffic = {"rate_in": rate, "rate_out": out, "throughput_in": out * 500, "throughput_out": out * 1000}
    for name, value in traffic.items():
        fake.put(f"pulsar_bundle_msg_{name}", value, **where)
    for name, value in {"topics": 3, "producer": 4, "consumer": 5}.items():
        fake.put(f"pulsar_bundle_{name}_count", value, **where)
