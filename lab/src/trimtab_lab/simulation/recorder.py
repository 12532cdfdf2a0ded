"""Records a simulated run as a history, as if an operator had watched it: for `trimtab backtest`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from trimtab_lab.simulation.deciders import Orders
from trimtab_pipeline.history.snapshot_writer import SnapshotWriter
from trimtab_strategies.model import ClusterLoad

BEGIN = 1_767_225_600.0
"""Epoch seconds at which each recording begins: 2026-01-01, so that the same run gives the same history."""

_HOUR = 3600.0


@dataclass
class RunRecorder:
    """Writes each round that it sees; see `Watcher`. spec: the spec of the policy that plays (JSON values), or None.

    Raises `OSError`.
    """

    writer: SnapshotWriter
    spec: Mapping[str, Any] | None = None
    _first: float | None = None
    _names: tuple[str, ...] = ()
    _hour: float = -1.0

    def see(self, cluster: ClusterLoad, orders: Orders) -> None:  # noqa: ARG002 - later rounds show what was ordered
        """Write a round."""
        if self._first is None:
            self._first = cluster.now
        at = BEGIN + cluster.now - self._first
        bundles = cluster.bundles
        serving = np.where(bundles.in_flight, bundles.moving_from, bundles.owner)
        load = replace(cluster, now=at, bundles=replace(bundles, owner=serving))
        self._know(load)
        self.writer.cycle(load)

    def _know(self, load: ClusterLoad) -> None:
        """Write all facts once an hour, and whenever bundles came or went."""
        names, hour = load.bundles.names, load.now // _HOUR
        if names is self._names and hour == self._hour:
            return
        if hour != self._hour and self.spec is not None:
            self.writer.policy(load.now, {**self.spec, "mode": "Auto"})
        owners = (*load.brokers.names, None)
        facts: dict[tuple[str, str], Any] = {("bundle", name): None for name in {*self._names} - {*names}}
        rows = zip(names, load.bundles.owner.tolist(), strict=True)
        facts |= {("bundle", name): {"owner": owners[row]} for name, row in rows}
        facts |= {("publishGap", space): {"seconds": gap} for space, gap in load.publish_gaps.items()}
        facts |= {("traits", name): _plain(traits) for name, traits in load.traits.items()}
        facts |= {("namespace", space): _plain(policy) for space, policy in load.policies.items()}
        self.writer.know(load.now, facts)
        self._names, self._hour = names, hour


def _plain(value: Any) -> dict[str, Any]:
    """The fields as JSON values. NaN, which JSON lacks, becomes null."""
    return {key: None if item != item else item for key, item in asdict(value).items()}  # noqa: PLR0124
