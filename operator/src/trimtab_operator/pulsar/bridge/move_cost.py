"""Measures how long some of the moves interrupt clients, and stores the times in the TopicNamespaces.

A broker records when each producer and consumer connected. A few seconds after a bundle landed, the controller reads
some of its topics from the new owner. The gap of a topic is the time from the unload request until its last client
connected. The request is timed by the operator's clock and the connection by the broker's, so the gap is wrong by the
difference of the two clocks. When many bundles land together, most are not measured.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trimtab_operator.aio import ended
from trimtab_operator.kube.client import TOPIC_NAMESPACES, ApiError
from trimtab_operator.kube.move_costs import Interruption, MoveCosts
from trimtab_operator.kube.records import TopicNamespaceRecord
from trimtab_operator.pulsar.bridge.unload_request import Landing
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.state.cluster import ClusterState


@dataclass(frozen=True, slots=True)
class ReconnectTimes:
    """Seconds from the unload request until the last publisher, and the last client, reconnected.

    None if there was no publisher, or no client.
    """

    publishers: float | None
    clients: float | None


def reconnect_times(stats: Mapping[str, Any], asked: float) -> ReconnectTimes | None:
    """Read the reconnect times from a topic's `stats`. asked: epoch seconds of the unload request.

    None if a client connected before the request: the topic did not move, or the broker's clock is behind.
    """
    publishers = _since(stats.get("publishers") or ())
    consumers = _since(c for s in (stats.get("subscriptions") or {}).values() for c in s.get("consumers") or ())
    clients = [*publishers, *consumers]
    if any(since < asked for since in clients):
        return None
    return ReconnectTimes(*(max(times) - asked if times else None for times in (publishers, clients)))


def _since(clients: Iterable[Mapping[str, Any]]) -> list[float]:
    """Epoch seconds at which each client connected. Skips clients without a time."""
    found = []
    for client in clients:
        try:
            found.append(datetime.fromisoformat(str(client.get("connectedSince"))).timestamp())
        except ValueError:
            continue
    return found


log = logging.getLogger(__name__)


READ_AFTER = (3.0, 12.0)
"""Seconds after a landing at which topics are read; the second time only if no client has reconnected yet."""


AT_ONCE = 2
"""Number of moves that are measured at the same time. Up to `WAITING` moves wait. Further moves are skipped."""


WAITING = 2


TOPICS = 3
"""Maximum number of topics that are read for each bundle."""


_LONGEST = 60.0
"""Seconds after the unload request. A client that connects later may be a new client, so the move is not measured."""


class MoveCostController:
    """Measures completed moves. Each open Pulsar client has one."""

    def __init__(self, cluster: ClusterState, admin: Admin) -> None:
        self._cluster, self._admin = cluster, admin
        self._landings = asyncio.Queue[Landing](WAITING)
        self._known: dict[str, MoveCosts] = {}

    def landed(self, landing: Landing) -> None:
        """Measure this move, unless too many others wait."""
        if not self._landings.full():
            self._landings.put_nowait(landing)

    async def run(self) -> None:
        """Measure until cancelled."""
        workers = [asyncio.create_task(self._work(), name=f"move costs {k}") for k in range(AT_ONCE)]
        try:
            await asyncio.gather(*workers)
        finally:
            await ended(*workers)

    async def _work(self) -> None:
        while True:
            landing = await self._landings.get()
            try:
                cost = await self._measure(landing)
                if cost is not None:
                    await self._store(landing, cost)
            except (PulsarError, ApiError) as error:
                log.info("the move of %s can't be measured: %s", landing.bundle, error)

    async def _measure(self, landing: Landing) -> Interruption | None:
        """How long the move interrupted clients; None if unknown. Raises `PulsarError`."""
        for after in READ_AFTER:
            await asyncio.sleep(max(0.0, landing.owned + after - self._cluster.now()))
            found = await self._sample(landing)
            if any(topic.clients is not None for topic in found):
                return interruption(found)
        return None

    async def _sample(self, landing: Landing) -> list[ReconnectTimes]:
        topics = sample_topics(sorted(await self._admin.topic_positions(landing.full_name)))
        found = [reconnect_times(await self._admin.topic_stats(topic), landing.asked) for topic in topics]
        return [topic for topic in found if topic is not None]

    async def _store(self, landing: Landing, cost: Interruption) -> None:
        """Store the cost in the TopicNamespace's status. Raises `ApiError`."""
        cluster = self._cluster
        if cost.publish_gap is not None:
            cluster.metrics.move_interruption.observe(cost.publish_gap)
        record = cluster.stores.topic_namespaces.items.get(landing.namespace)
        if record is None:
            return
        costs = self._costs_of(record).after(cost)
        self._known[record.uid] = costs
        status = {"moveCost": costs.to_status(cluster.now())}
        await cluster.api.patch(
            TOPIC_NAMESPACES, cluster.namespace, record.name, {"status": status}, subresource="status"
        )
        log.info("bundle %s: its clients reconnected after %.3f s", landing.bundle, cost.reconnect)

    def _costs_of(self, record: TopicNamespaceRecord) -> MoveCosts:
        """Costs of a namespace. The store may not show the latest write yet, so this process remembers it."""
        return self._known.get(record.uid, record.move_costs)


def interruption(topics: Sequence[ReconnectTimes]) -> Interruption | None:
    """The interruption by a move, from sampled topics; None if no client reconnected, or one only after `_LONGEST`."""
    clients = [topic.clients for topic in topics if topic.clients is not None]
    publishers = [topic.publishers for topic in topics if topic.publishers is not None]
    if not clients or max(clients) > _LONGEST:
        return None
    return Interruption(max(publishers, default=None), max(clients))


def sample_topics(topics: Sequence[str]) -> list[str]:
    """A few topics, evenly spaced, without Pulsar's own (``__change_events``)."""
    ours = [topic for topic in topics if not topic.rpartition("/")[2].startswith("__")]
    return ours[:: max(1, len(ours) // TOPICS)][:TOPICS]
