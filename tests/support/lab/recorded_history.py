"""A history whose truth is known, for tests of backtests: written cycle by cycle from snapshots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import TRAFFIC
from trimtab_pipeline.history.dataset import BROKERS, DEMAND, FACTS, POLICIES, SKETCHES, TOPICS, HistoryDataset
from trimtab_pipeline.history.files import put, stamped
from trimtab_pipeline.history.recording import RunningAverages
from trimtab_pipeline.history.sketch import sketched
from trimtab_pipeline.history.snapshot_tables import Bounds, broker_table, rounded_traffic
from trimtab_pipeline.transform.relations import Cycle
from trimtab_strategies.model import ClusterLoad

POLICY = "messaging/main"


@dataclass
class RecordedHistory:
    """Writes below `root` what an operator would have written for policy `POLICY`."""

    root: Path
    _averages: RunningAverages = field(default_factory=RunningAverages)
    _names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._dataset = HistoryDataset(str(self.root)).of(POLICY)

    def policy(self, at: float, spec: Mapping[str, Any]) -> None:
        """The policy in force from `at` (epoch s) on."""
        rows = pa.Table.from_pylist([{"kind": "spec", "hash": "", "value": json.dumps(spec)}], POLICIES.columns)
        put(self._dataset.cycle_file(POLICIES, at), POLICIES, [stamped(rows, at, POLICIES.schema)])

    def know(self, at: float, facts: Mapping[tuple[str, str], Any]) -> None:
        """Facts by kind and name, from `at` (epoch s) on; None: it is gone."""
        rows = [
            {"kind": kind, "name": name, "value": None if value is None else json.dumps(value)}
            for (kind, name), value in facts.items()
        ]
        table = pa.Table.from_pylist(rows, FACTS.columns)
        put(self._dataset.cycle_file(FACTS, at), FACTS, [stamped(table, at, FACTS.schema)])

    def inside(self, at: float, topics: pa.Table, *, sketch: bool = False) -> None:
        """Topics of hot bundles (columns `INSIDE`) in the cycle at `at`; or their sketch alone."""
        table = SKETCHES if sketch else TOPICS
        put(
            self._dataset.cycle_file(table, at),
            table,
            [stamped(sketched(topics) if sketch else topics, at, table.schema)],
        )

    def averaged(self, load: ClusterLoad) -> ClusterLoad:
        """The snapshot with the averages that an operator would have by now, all cycles given to it before included."""
        rules = Cycle.of("", PrometheusSettings("", "", short_tau=120.0, long_tau=3600.0), load.now)
        if load.bundles.names != self._averages.names:
            self._names = load.bundles.names
        time = np.full(len(self._names), load.now)
        after = self._averages.add(self._names, np.asarray(load.bundles.newest), time, rules)
        return replace(load, bundles=replace(load.bundles, short=after.short, long=after.long))

    def cycle(self, load: ClusterLoad) -> None:
        """A cycle. A bundle without an owner, or without a newest sample, was not measured."""
        at, brokers = load.now, load.brokers
        rows = broker_table(brokers, brokers.names, load.quality.doubts, Bounds(60.0, 120.0, 3600.0))
        rows = rows.set_column(rows.column_names.index("traffic_time"), "traffic_time", pa.repeat(at, len(rows)))
        rows = rows.append_column("kind", pa.repeat("cycle", len(rows)))
        put(self._dataset.cycle_file(BROKERS, at), BROKERS, [stamped(rows, at, BROKERS.schema)])
        put(self._dataset.cycle_file(DEMAND, at), DEMAND, [stamped(_demand(load), at, DEMAND.schema)])


def _demand(load: ClusterLoad) -> pa.Table:
    bundles = load.bundles
    measured = np.flatnonzero((bundles.owner >= 0) & np.isfinite(bundles.newest).all(axis=1))
    columns: dict[str, Any] = {name: bundles.newest[measured, k] for k, name in enumerate(TRAFFIC)}
    columns["bundle"] = [bundles.names[row] for row in measured]
    columns["pod"] = [load.brokers.names[bundles.owner[row]] for row in measured]
    columns["topics"] = bundles.topics[measured].astype(np.int32)
    columns["sessions"] = bundles.sessions[measured].astype(np.int32)
    return rounded_traffic(pa.table(columns)).sort_by("bundle")
