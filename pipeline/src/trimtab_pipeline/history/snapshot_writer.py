"""Writes snapshots of a cluster as a history, as an operator would have recorded them. It needs no Prometheus."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab_pipeline.columns import TRAFFIC
from trimtab_pipeline.history.dataset import BROKERS, DEMAND, FACTS, POLICIES, TOPICS, HistoryDataset
from trimtab_pipeline.history.files import put, stamped
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.history.snapshot_tables import Bounds, broker_table, rounded_traffic
from trimtab_strategies.model import ClusterLoad

_USUAL = Bounds(60.0)
PULSARS_AVERAGES = Bounds(60.0, math.nan, math.nan)
"""Bounds of snapshots whose averages count samples, as Pulsar's do."""


class SnapshotWriter:
    """Writes the history of `policy` (``namespace/name``) below `root`. bounds: those that the snapshots have.

    Raises `ValueError` for a root or a name that can't be used. All methods raise `OSError`.
    """

    def __init__(self, root: Place, policy: str, bounds: Bounds = _USUAL) -> None:
        self._dataset, self._bounds = HistoryDataset(root).of(policy), bounds

    @property
    def exists(self) -> bool:
        """Whether the policy has a history already."""
        return self._dataset.exists

    def policy(self, at: float, spec: Mapping[str, Any]) -> None:
        """Write the policy in force from `at` (epoch s) on, as JSON values."""
        rows = pa.Table.from_pylist([{"kind": "spec", "hash": "", "value": json.dumps(spec)}], POLICIES.columns)
        put(self._dataset.cycle_file(POLICIES, at), POLICIES, [stamped(rows, at, POLICIES.schema)])

    def know(self, at: float, facts: Mapping[tuple[str, str], Any]) -> None:
        """Write facts as of `at` (epoch s), by kind and name. None: what the fact is about is gone."""
        rows = [
            {"kind": kind, "name": name, "value": None if value is None else json.dumps(value)}
            for (kind, name), value in facts.items()
        ]
        table = pa.Table.from_pylist(rows, FACTS.columns)
        put(self._dataset.cycle_file(FACTS, at), FACTS, [stamped(table, at, FACTS.schema)])

    def cycle(self, load: ClusterLoad) -> None:
        """Write a cycle. A bundle without an owner, or without a newest sample, counts as not measured."""
        at, brokers = load.now, load.brokers
        rows = broker_table(brokers, brokers.names, load.quality.doubts, self._bounds)
        rows = rows.set_column(rows.column_names.index("traffic_time"), "traffic_time", pa.repeat(at, len(rows)))
        rows = rows.append_column("kind", pa.repeat("cycle", len(rows)))
        put(self._dataset.cycle_file(BROKERS, at), BROKERS, [stamped(rows, at, BROKERS.schema)])
        if len(load.topics):
            put(self._dataset.cycle_file(TOPICS, at), TOPICS, [stamped(_topics(load), at, TOPICS.schema)])
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


def _topics(load: ClusterLoad) -> pa.Table:
    topics, owner = load.topics, load.bundles.owner
    columns: dict[str, Any] = {name: topics.traffic[:, k] for k, name in enumerate(TRAFFIC)}
    columns["topic"] = list(topics.names)
    columns["bundle"] = [load.bundles.names[row] for row in topics.bundle]
    columns["pod"] = [load.brokers.names[owner[row]] for row in topics.bundle]
    columns["place"] = topics.place
    return rounded_traffic(pa.table(columns)).sort_by([("bundle", "ascending"), ("place", "ascending")])
