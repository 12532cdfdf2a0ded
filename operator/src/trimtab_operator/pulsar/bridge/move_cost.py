"""Measures what moves cost the clients, on a sample, and stores it in each TopicNamespace.

A broker notes when a producer or consumer connected to it. Some seconds after a bundle landed, its new owner is asked
for some of the bundle's topics. The time from the unload request until the last client connected is the gap of that
topic. When many bundles land at once, most are not measured. The operator's clock is compared with the brokers', so
they must agree to within the precision wanted.
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
from trimtab_operator.pulsar.client.api import Admin
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.state.cluster import ClusterState


@dataclass(frozen=True, slots=True)
class Returned:
    """Seconds after the owner was asked to let go. publishers, clients: until the last of them was back; None: there
    are none."""

    publishers: float | None
    clients: float | None


def returned(stats: Mapping[str, Any], asked: float) -> Returned | None:
    """Who came back when, by a topic's `stats` as Pulsar has them.

    asked: epoch seconds at which the old owner was asked to let go. None where that can't be said: some client is
    connected since earlier than that, so the topic did not move, or the broker's clock is behind.
    """
    publishers = _since(stats.get("publishers") or ())
    consumers = _since(c for s in (stats.get("subscriptions") or {}).values() for c in s.get("consumers") or ())
    everybody = [*publishers, *consumers]
    if any(since < asked for since in everybody):
        return None
    return Returned(*(max(times) - asked if times else None for times in (publishers, everybody)))


def _since(clients: Iterable[Mapping[str, Any]]) -> list[float]:
    """Epoch seconds at which each connected; who does not say is passed over."""
    found = []
    for client in clients:
        try:
            found.append(datetime.fromisoformat(str(client.get("connectedSince"))).timestamp())
        except ValueError:
            continue
    return found


log = logging.getLogger(__name__)


BACK_AFTER = (3.0, 12.0)
"""Seconds after a landing at which the clients are looked for: a second time if there are none yet."""


AT_ONCE = 2
"""Moves that are measured at a time; others that land meanwhile wait, `WAITING` at most, or are passed over."""


WAITING = 2


TOPICS = 3
"""Topics of a bundle that are looked at."""


_LONGEST = 60.0
"""Seconds from which on clients that connected did not come back from a move: they began then."""


class Costs:
    """See the module. One for each client that is opened."""

    def __init__(self, context: ClusterState, admin: Admin) -> None:
        self._context, self._admin = context, admin
        self._landings = asyncio.Queue[Landing](WAITING)
        self._known: dict[str, MoveCosts] = {}

    def landed(self, landing: Landing) -> None:
        """Measure what this move cost, unless others keep us busy."""
        if not self._landings.full():
            self._landings.put_nowait(landing)

    async def run(self) -> None:
        """Forever."""
        workers = [asyncio.create_task(self._work(), name=f"move costs {k}") for k in range(AT_ONCE)]
        try:
            await asyncio.gather(*workers)
        finally:
            await ended(*workers)

    async def _work(self) -> None:
        while True:
            landing = await self._landings.get()
            try:
                cost = await self._measured(landing)
                if cost is not None:
                    await self._keep(landing, cost)
            except (PulsarError, ApiError) as error:
                log.info("what the move of %s cost is not known: %s", landing.bundle, error)

    async def _measured(self, landing: Landing) -> Interruption | None:
        """What a move cost; None where nobody can tell. Raises `PulsarError`."""
        for after in BACK_AFTER:
            await asyncio.sleep(max(0.0, landing.owned + after - self._context.now()))
            found = await self._looked(landing)
            if any(topic.clients is not None for topic in found):
                return interruption(found)
        return None

    async def _looked(self, landing: Landing) -> list[Returned]:
        topics = some_of(sorted(await self._admin.topic_positions(landing.full_name)))
        found = [returned(await self._admin.topic_stats(topic), landing.asked) for topic in topics]
        return [topic for topic in found if topic is not None]

    async def _keep(self, landing: Landing, cost: Interruption) -> None:
        """Raises `ApiError`."""
        context = self._context
        if cost.publish_gap is not None:
            context.metrics.move_interruption.observe(cost.publish_gap)
        record = context.stores.topic_namespaces.items.get(landing.namespace)
        if record is None:
            return
        costs = self._costs_of(record).after(cost)
        self._known[record.uid] = costs
        status = {"moveCost": costs.to_status(context.now())}
        await context.api.patch(
            TOPIC_NAMESPACES, context.namespace, record.name, {"status": status}, subresource="status"
        )
        log.info("bundle %s: its clients were back after %.3f s", landing.bundle, cost.reconnect)

    def _costs_of(self, record: TopicNamespaceRecord) -> MoveCosts:
        """What is remembered of a namespace; what was just written need not have come back yet."""
        return self._known.get(record.uid, record.move_costs)


def interruption(topics: Sequence[Returned]) -> Interruption | None:
    """What a move cost whose bundle's topics, some of them, had their clients back like this; None for nobody."""
    clients = [topic.clients for topic in topics if topic.clients is not None]
    publishers = [topic.publishers for topic in topics if topic.publishers is not None]
    if not clients or max(clients) > _LONGEST:
        return None
    return Interruption(max(publishers, default=None), max(clients))


def some_of(topics: Sequence[str]) -> list[str]:
    """A few of a bundle's topics, from all over; not those that Pulsar itself keeps (``__change_events``)."""
    ours = [topic for topic in topics if not topic.rpartition("/")[2].startswith("__")]
    return ours[:: max(1, len(ours) // TOPICS)][:TOPICS]
