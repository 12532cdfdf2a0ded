"""Broker refresh: measures the brokers alone, between two cycles.

It keeps the load in the brokers' status fresh. It also finds what should not wait for the next cycle: a broker that
died, or that became overloaded. A broker that was overloaded before does not count, because the last decision has
already considered it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace

import numpy as np

from trimtab_operator.observe.limits import with_facts
from trimtab_operator.observe.topology import ClusterRecords, cluster_records, topology
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_strategies.model import RESOURCES, ClusterLoad, some
from trimtab_strategies.usage import percent, weighted_maximum

log = logging.getLogger(__name__)

REFRESH_WITHIN = 2.0
"""Seconds after which a refresh is given up. The reconcile waits for a refresh, and the next refresh comes soon."""

_SHOWN = 3


@dataclass(slots=True)
class BrokerRefresh:
    """Refreshes the brokers of one policy, and remembers which were alive and busy at the last refresh.

    due: when the next refresh is due, in seconds of the cluster's clock. alive: names of the brokers that were ready.
    busy: names of the brokers at or above the overload threshold.
    """

    cluster: ClusterState
    publisher: StatusPublisher
    due: float = 0.0
    alive: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()

    async def refresh(self, run: PolicyRun) -> str:
        """Measure the brokers and write their status. Returns why a cycle should run immediately; empty for none.

        Raises `ApiError`.
        """
        cluster, settings, begun = self.cluster, run.settings, time.monotonic()
        self.due = cluster.clock() + settings.broker_interval
        records = cluster_records(cluster, settings, of_bundles=False)
        why = self._dead(records)
        try:
            load = await measured_brokers(records, run, cluster.now())
        except SourceUnavailableError as error:
            log.debug("policy %s: a broker refresh failed, the next cycle will report it: %s", settings.name, error)
            await self.publisher.counts()
            return why
        cluster.link.cross_check.update(load, cluster.clock())
        await self.publisher.brokers(load, time.monotonic() - begun, paused=settings.paused)
        return why or self._crossed(load, settings)

    def after_cycle(self, load: ClusterLoad | None, settings: Settings) -> None:
        """Remember what a cycle measured (None: nothing). The next refresh is due after `brokerInterval`."""
        self._dead(cluster_records(self.cluster, settings, of_bundles=False))
        if load is not None:
            self._crossed(load, settings)
        self.due = self.cluster.clock() + settings.broker_interval

    def _dead(self, records: ClusterRecords) -> str:
        """Text that names the brokers that died since the last refresh; empty for none."""
        ready = {broker.name for broker in records.brokers if broker.ready}
        died, self.alive = self.alive - ready, frozenset(ready)
        return f"{some(sorted(died), _SHOWN)} died" if died else ""

    def _crossed(self, load: ClusterLoad, settings: Settings) -> str:
        """Text that names the brokers that became overloaded since the last refresh; empty for none."""
        busy = overloaded(load, settings)
        above, self.busy = busy - self.busy, busy
        return f"{some(sorted(above), _SHOWN)} reached {settings.overload_line:.0%} of usage" if above else ""


async def measured_brokers(records: ClusterRecords, run: PolicyRun, at: float) -> ClusterLoad:
    """Load of the brokers of `records` at `at` (epoch seconds), without bundles. Raises `SourceUnavailableError`."""
    only_brokers = replace(records, bundles=(), namespaces={}, pending_moves=())
    rows, _ = topology(only_brokers, window=run.settings.prometheus.window)
    try:
        async with asyncio.timeout(REFRESH_WITHIN):
            observation = await asyncio.wrap_future(run.source.observe_brokers(rows, at))
    except TimeoutError:
        raise SourceUnavailableError(f"the source did not measure the brokers within {REFRESH_WITHIN:g} s") from None
    return with_facts(observation.load, records.facts, {broker.name: broker for broker in records.brokers})


def overloaded(load: ClusterLoad, settings: Settings) -> frozenset[str]:
    """The trusted, ready brokers at or above the overload threshold, by the shedder's weights of the resources."""
    brokers = load.brokers
    usage = weighted_maximum(
        percent(brokers.usage, brokers.limit), settings.pair.weights, columns=range(len(RESOURCES))
    )
    rows = np.flatnonzero(brokers.trusted & brokers.ready & (usage >= settings.overload_line))
    return frozenset(brokers.names[row] for row in rows.tolist())
