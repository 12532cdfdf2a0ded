"""Pods that end and start again on the API server, and the load that follows the owners of bundles."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from faulty_api import until
from policy_environment import PolicyEnvironment
from static_sources import StaticSource
from trimtab_operator.app import discover_once
from trimtab_operator.observe.departures import POD_NAME, REVISION
from trimtab_strategies.model import CPU, THROUGHPUT_IN


@dataclass
class RestartingPods:
    """What the StatefulSet controller and the kubelet do with the pods of an environment, step by step.

    peak: the highest CPU usage (ratio) of any broker so far.
    """

    env: PolicyEnvironment
    moved: Counter[str] = field(default_factory=Counter)
    peak: float = 0.0

    def path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.env.namespace}/pods/{name}".rstrip("/")

    async def start(self, name: str, revision: str = "") -> None:
        """A pod, not ready yet. revision: that of its StatefulSet; empty for a pod without a controller."""
        labels = {POD_NAME: name, REVISION: revision} if revision else {"app": "pulsar"}
        spec = {"nodeName": "somewhere", "containers": [{"name": "broker", "image": "none"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
        made = self.env.rest.create(self.path(), body)
        pods = self.env.cluster.stores.pods.items
        await until("the pod is seen", lambda: name in pods and pods[name].uid == made["metadata"]["uid"])

    async def all_serve(self) -> None:
        """A ready pod for each broker of the environment. Without it a broker counts as away."""
        for name in self.env.load.brokers.names:
            await self.start(name)
            await self.becomes_ready(name)

    async def becomes_ready(self, name: str) -> None:
        ready = {"type": "Ready", "status": "True"}
        self.env.rest.patch(self.path(f"{name}/status"), {"status": {"conditions": [ready]}})
        await until("the pod is ready", lambda: self.env.cluster.stores.pods.items[name].ready)

    async def ready(self, name: str) -> None:
        """So, and the operator sees it."""
        await self.becomes_ready(name)
        await self.act()

    async def end(self, name: str) -> None:
        """It is told to end, and has its grace period."""
        self.env.rest.delete(self.path(name))
        await until("the pod ends", lambda: self.env.cluster.stores.pods.items[name].deleted)
        await self.act()

    async def gone(self, name: str) -> None:
        self.env.rest.delete(f"{self.path(name)}?gracePeriodSeconds=0")
        await until("the pod is gone", lambda: name not in self.env.cluster.stores.pods.items)

    async def act(self, *, after: float = 5.0) -> None:
        """A reconcile `after` seconds later, in which the brokers confirm desired owners, and their load follows."""
        env, before = self.env, self.env.owners()
        await discover_once(env.cluster)
        await env.reconcile(after=after)
        await env.land()
        after = env.owners()
        self.moved.update(name for name, owner in after.items() if owner != before[name])
        brokers = replace(env.load.brokers, usage=self.usage(after))
        env.source = StaticSource(replace(env.load, brokers=brokers))

    def usage(self, owners: dict[str, str]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """What the brokers use, of what their bundles carry."""
        load = self.env.load
        carried = load.bundles.short[:, THROUGHPUT_IN] / load.bundles.short[:, THROUGHPUT_IN].sum()
        total, used = load.brokers.usage.sum(axis=0), np.zeros_like(load.brokers.usage)
        for row, name in enumerate(load.bundles.names):
            used[load.brokers.index[owners[self.env.names[name]]]] += carried[row] * total
        self.peak = max(self.peak, float((used / load.brokers.limit)[:, CPU].max()))
        return used
