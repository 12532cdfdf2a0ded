"""Series as Prometheus stores them, and the answers to queries, for tests that change single samples.

It evaluates only what the broker queries need: raw samples of a range, the time of the newest sample of visible series,
limits, and the newest value of everything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pipeline_clusters import topology
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import BROKER_STATE
from trimtab_pipeline.prometheus.queries import TOLD_APART
from trimtab_pipeline.prometheus.read_request import ReadRequest, ShardRequest
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.prometheus.shard_reader import read_brokers
from trimtab_pipeline.sources.pipeline import doubted_loads
from trimtab_pipeline.transform.relations import BUNDLE_LOAD, Cycle
from trimtab_pipeline.transform.reports import ShardReports
from trimtab_pipeline.transform.snapshot import broker_state, snapshot, targets
from trimtab_pipeline.transform.trust import judged
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray

LOOKBACK = 300.0
"""Seconds for which a server shows the last sample of a series that was not marked as stale."""
_METRIC = re.compile(r"((?:container|kube|pulsar)_\w+)\{")
_RANGE = re.compile(r'^(\w*)\{(?:__name__=~"([^"]*)",)?[^{}]*\}\[(\d+)s\]$')
_COMBINED = re.compile(
    r'(?:^| or )label_replace\((max by .*?), "signal", "(\w+)", "", ""\)(?= or label_replace\(max|$)'
)


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
            metrics = (ranged[2] or ranged[1]).split("|")
            return _samples([line for metric in metrics for line in self._past(metric, at, float(ranged[3]))])
        found = [
            (pod, signal, value)
            for part, signal in _COMBINED.findall(promql)
            for pod, value in self._values(part, at).items()
        ]
        pods, signals = (pa.array([row[k] for row in found], pa.string()) for k in (0, 1))
        return Samples({"pod": pods, TOLD_APART: signals}, pa.array([value for *_, value in found], pa.float64()))

    def _values(self, promql: str, at: float) -> dict[str, float]:
        """The value of each pod; of several metrics between ``or``, the first that has series counts."""
        every, there = list(_METRIC.finditer(promql)), {line.metric for line in self.lines}
        assert every, promql
        found = next((one for one in every if one[1] in there), every[0])
        if "_cfs_" in promql:
            return {}
        shown = [line for line in self._past(found[1], at, LOOKBACK) if _resource(promql, line)]
        pods = {one.labels["pod"]: one for one in sorted(shown, key=lambda line: float(line.points[-1, 0]))}
        column = 0 if promql.startswith("max by (pod) (timestamp(") else 1
        return {pod: float(one.points[-1, column]) for pod, one in pods.items()}

    def _past(self, metric: str, at: float, seconds: float) -> list[Line]:
        """Series of `metric` with samples in the `seconds` before `at`, with only these samples."""
        cut = [
            replace(line, points=line.points[(line.points[:, 0] > at - seconds) & (line.points[:, 0] <= at)])
            for line in self.lines
            if line.metric == metric
        ]
        return [line for line in cut if len(line.points)]


def _resource(promql: str, line: Line) -> bool:
    return "resource" not in line.labels or f'resource="{line.labels["resource"]}"' in promql


def _samples(lines: Sequence[Line]) -> Samples:
    metrics = [{"__name__": line.metric, **line.labels} for line in lines]
    names = {"__name__", "pod", *(name for metric in metrics for name in metric)}
    labels = {name: pa.array([metric.get(name, "") for metric in metrics], pa.string()) for name in names}
    newest = pa.array([line.points[-1, 1] for line in lines], pa.float64())
    return Samples(labels, newest, points=tuple(line.points for line in lines))


def believed(
    kept: Kept, settings: PrometheusSettings, pods: Sequence[str], at: float, started: Sequence[float] = ()
) -> ClusterLoad:
    """The observation of the brokers `pods` from `kept`, as a cycle and a broker refresh compute it.

    started: when their containers started (epoch s), if that is known.
    """
    return looked(kept, settings, pods, at, started)[0]


def looked(
    kept: Kept,
    settings: PrometheusSettings,
    pods: Sequence[str],
    at: float,
    started: Sequence[float] = (),
    last: pa.Table | None = None,
) -> tuple[ClusterLoad, pa.Table]:
    """As `believed`, with the `BROKER_STATE` after this look. last: the one before it."""
    request = ReadRequest.of(settings, at, [ShardRequest.of(settings, pods)], now=at)
    *rows, report_row = read_brokers(request, 0, lambda promql, _: kept.answer(promql, at))
    world = replace(topology({pod: pod for pod in pods}, {}), started=tuple(started))
    asked = targets(world, [pods], BROKER_STATE.empty_table() if last is None else last, 0.0)
    report = json.loads(report_row["report"][0].as_py())
    told = {name: report[name] for name in ("apart", "unclear")}
    loads = judged(doubted_loads(pa.Table.from_batches(rows), asked, Cycle.of("", settings, at), **told))
    reports = ShardReports.of([pods], [report])
    return snapshot(loads, BUNDLE_LOAD.empty_table(), world, settings, at, reports=reports), broker_state(loads)
