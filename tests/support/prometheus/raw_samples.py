"""Series as Prometheus stores them, and the answers to queries, for tests that change single samples.

It evaluates only what the broker queries need: raw samples of a range, the time of the newest sample of visible series,
limits, and the newest value of everything else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pipeline_clusters import topology
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import BUNDLE_STATE
from trimtab_pipeline.prometheus.read_request import ReadRequest, ShardRequest
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.prometheus.shard_reader import read_shard
from trimtab_pipeline.transform.snapshot import Measurement, align
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray

LOOKBACK = 300.0
"""Seconds for which a server shows the last sample of a series that was not marked as ended."""
_METRIC = re.compile(r"((?:container|kube|pulsar)_\w+)\{")
_RANGE = re.compile(r"^(\w+)\{[^{}]*\}\[(\d+)s\]$")


@dataclass
class Line:
    """One series with its samples (k, 2; times and values)."""

    metric: str
    labels: Mapping[str, str]
    points: FloatArray


@dataclass
class Kept:
    """All series of a server."""

    lines: list[Line] = field(default_factory=list)

    def add(self, metric: str, points: Sequence[tuple[float, float]], **labels: str) -> None:
        """Store a series with these samples."""
        self.lines.append(Line(metric, labels, np.array(points, float).reshape(-1, 2)))

    def answer(self, promql: str, at: float) -> Samples:
        """The answer to `promql` at `at` (epoch seconds)."""
        if ranged := _RANGE.match(promql):
            return _samples(self._past(ranged[1], at, float(ranged[2])))
        found = _METRIC.search(promql)
        assert found, promql
        if "] offset -" in promql or "count by (" in promql or "_cfs_" in promql:
            return _samples([])
        shown = [line for line in self._past(found[1], at, LOOKBACK) if _resource(promql, line)]
        pods = {one.labels["pod"]: one for one in sorted(shown, key=lambda line: float(line.points[-1, 0]))}
        column = 0 if promql.startswith("max by (pod) (timestamp(") else 1
        values = [one.points[-1, column] for one in pods.values()]
        return Samples({"pod": pa.array(pods, pa.string())}, pa.array(values, pa.float64()))

    def _past(self, metric: str, at: float, seconds: float) -> list[Line]:
        """Series of `metric` with samples in the `seconds` before `at`, cut to those."""
        cut = [
            replace(line, points=line.points[(line.points[:, 0] > at - seconds) & (line.points[:, 0] <= at)])
            for line in self.lines
            if line.metric == metric
        ]
        return [line for line in cut if len(line.points)]


def _resource(promql: str, line: Line) -> bool:
    return "resource" not in line.labels or f'resource="{line.labels["resource"]}"' in promql


def _samples(lines: Sequence[Line]) -> Samples:
    pods = pa.array([line.labels["pod"] for line in lines], pa.string())
    newest = pa.array([line.points[-1, 1] for line in lines], pa.float64())
    return Samples({"pod": pods}, newest, points=tuple(line.points for line in lines))


def believed(kept: Kept, settings: PrometheusSettings, pods: Sequence[str], at: float) -> ClusterLoad:
    """The observation of the brokers `pods` from `kept`, in a cycle and in a broker refresh."""
    request = ReadRequest.of(settings, at, [ShardRequest.of(settings, pods).brokers_alone])
    rows, *_ = read_shard(request, 0, lambda promql: kept.answer(promql, at))
    table = pa.Table.from_struct_array(rows["broker"])
    world = topology({pod: pod for pod in pods}, {})
    return align(Measurement(table, BUNDLE_STATE.empty_table()), world, settings, at)
