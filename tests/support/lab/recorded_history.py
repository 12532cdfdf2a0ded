"""A history with known content, for tests of backtests, written cycle by cycle from snapshots."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.history.dataset import SKETCHES, TOPICS, HistoryDataset
from trimtab_pipeline.history.files import put, stamped
from trimtab_pipeline.history.sketch import sketched
from trimtab_pipeline.history.snapshot_writer import SnapshotWriter
from trimtab_pipeline.transform.relations import Cycle
from trimtab_pipeline.transform.running_averages import RunningAverages
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
        writer = SnapshotWriter(str(self.root), POLICY)
        self.policy, self.know, self.cycle = writer.policy, writer.know, writer.cycle

    def inside(self, at: float, topics: pa.Table, *, sketch: bool = False) -> None:
        """Write the topics of hot bundles (columns `INSIDE`) in the cycle at `at`, or only their sketch."""
        table = SKETCHES if sketch else TOPICS
        put(
            self._dataset.cycle_file(table, at),
            table,
            [stamped(sketched(topics) if sketch else topics, at, table.schema)],
        )

    def averaged(self, load: ClusterLoad) -> ClusterLoad:
        """The snapshot with the averages that an operator would have after all cycles so far."""
        rules = Cycle.of("", PrometheusSettings("", "", short_tau=120.0, long_tau=3600.0), load.now)
        if load.bundles.names != self._averages.names:
            self._names = load.bundles.names
        time = np.full(len(self._names), load.now)
        after = self._averages.add(self._names, np.asarray(load.bundles.newest), time, rules)
        return replace(load, bundles=replace(load.bundles, short=after.short, long=after.long))
