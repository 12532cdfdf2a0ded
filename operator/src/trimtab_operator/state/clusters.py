"""`Clusters`: the messaging clusters that one process manages, one for each Kubernetes namespace that it watches.

A `Clusters` is Kopf's memo, of which Kopf makes copies. As with `ClusterState`, all copies share the objects that it
holds, and only those change.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.kube.events import EventPoster
from trimtab_operator.state.cluster import ClusterState, ProcessState
from trimtab_operator.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters, and what they share: role and epoch of the process, its metrics, and whether the engine is warm.

    engine: as in `ClusterState`.
    everywhere: whether all namespaces are watched; else only those in `by_namespace`.
    listed: set once `by_namespace` is complete for the first time.
    policies: namespace -> uid -> policy (JSON) as Kopf's watch shows it, also where this process does not run it.
    """

    process: ProcessState
    metrics: Metrics
    events: EventPoster
    engine: asyncio.Event
    everywhere: bool = False
    by_namespace: dict[str, ClusterState] = field(default_factory=dict)
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    policies: defaultdict[str, dict[str, Mapping[str, Any]]] = field(default_factory=lambda: defaultdict(dict))

    def all(self) -> list[ClusterState]:
        """The current clusters."""
        return list(self.by_namespace.values())

    async def synced(self) -> None:
        """Wait until all clusters are known and their stores are complete."""
        await self.listed.wait()
        for cluster in self.all():
            for store in cluster.stores.all():
                await store.synced.wait()

    def stale(self) -> str:
        """A text that says which store is incomplete or out of date; empty if none is."""
        if not self.listed.is_set():
            return "the namespaces with policies are not listed yet"
        said = {cluster.namespace: cluster.stores.stale() for cluster in self.all()}
        several = self.everywhere or len(said) > 1
        return next((f"{space}: {text}" if several else text for space, text in said.items() if text), "")

    def wake(self) -> None:
        """Start the next reconcile of all policies immediately."""
        for cluster in self.all():
            cluster.wake()
