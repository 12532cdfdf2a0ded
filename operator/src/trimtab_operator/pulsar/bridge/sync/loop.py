"""`ClusterSync`: synchronizes Broker, TopicNamespace and Bundle objects with a Pulsar cluster.

Three loops run at different intervals, so that none waits for a slower one:

| loop | reads | interval |
|---|---|---|
| brokers | one list | 2 s, outside the request budget, to notice a lost broker early |
| owners | the bundles of each broker, one request per broker | 8 s, and immediately when brokers come or go |
| namespaces | tenants, their namespaces, the policies of each | 2 min, and immediately if one may have changed |

Owners take half of `spec.pulsar.requestsPerSecond` and namespaces a quarter. The rest is for requests about single
bundles. If a loop takes much longer than its interval, the log says so, and whether the rate or Pulsar is the cause.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trimtab_operator.kube.broker_records import BrokerRecord, PodRecord, pod_at
from trimtab_operator.kube.client import ApiError
from trimtab_operator.kube.naming import broker_name_of_address
from trimtab_operator.pulsar.bridge.sync.namespaces import NamespaceSync, cluster_name, host_of
from trimtab_operator.pulsar.bridge.sync.owners import OwnerSync
from trimtab_operator.pulsar.bridge.sync.writer import ObjectWriter
from trimtab_operator.pulsar.client.api import is_system
from trimtab_operator.pulsar.client.errors import PulsarError, UnknownError
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.pulsar.client.transport import Budget
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.state.cluster import ClusterState

log = logging.getLogger(__name__)

OWNERS_SHARE, NAMESPACES_SHARE = 0.5, 0.25
"""Fractions of the requests per second that the policy allows."""

TICK = 0.25
"""Seconds between two checks of whether a namespace is due."""


NAMES_SHARE = 0.1
"""Fraction of the requests per second that listing the names of namespaces may take."""


@dataclass(frozen=True, slots=True)
class SyncIntervals:
    """Seconds between two runs. names: between two lists of the namespaces' names; longer with very many tenants.

    again: until an incomplete namespace is synchronized again. After an error this time is five times as long. It
    doubles with each further error, up to `namespaces`. stuck: until the observed owner is written to the status of a
    Bundle, although its desired owner is still pending.
    """

    brokers: float = 2.0
    owners: float = 8.0
    namespaces: float = 120.0
    names: float = 20.0
    again: float = 2.0
    stuck: float = 60.0


class ClusterSync:
    """Runs the three loops. Each open Pulsar client has one."""

    def __init__(self, cluster: ClusterState, admin: Admin, rhythm: SyncIntervals | None = None) -> None:
        spec = cluster.link.spec
        rate = float(spec.requests_per_second if spec is not None else 20)
        self.rhythm = rhythm or SyncIntervals()
        self._cluster, self._admin, self._rate = cluster, admin, rate
        self._budgets = {"owners": Budget(OWNERS_SHARE * rate), "namespaces": Budget(NAMESPACES_SHARE * rate)}
        self._booked = dict.fromkeys(self._budgets, 0)
        self._owners = OwnerSync(cluster, admin, self._budgets["owners"], self.rhythm.stuck)
        self._namespaces = NamespaceSync(cluster, admin, self._budgets["namespaces"])
        self._brokers_changed = asyncio.Event()
        self._owners_read = asyncio.Event()
        self._due: deque[str] = deque()
        self._again: dict[str, float] = {}
        self._pauses: dict[str, float] = {}
        self._regular_was_next = True
        self._list_at = self._names_at = float("-inf")
        self._listed_at: float | None = None
        self._objects: dict[str, tuple[str, int]] = {}
        self._errors: dict[str, str] = {}
        self._slow: dict[str, str] = {}

    async def run(self) -> None:
        """Synchronize until cancelled, whatever fails."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_brokers())
            group.create_task(self._follow_owners())
            group.create_task(self._follow_namespaces())

    async def _log_errors(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        """Run a step. Log an error that is new, and log when the step works again."""
        try:
            await step()
        except (PulsarError, ApiError) as error:
            if self._errors.get(what) != str(error):
                log.warning("%s: %s", what, error)
            self._errors[what] = str(error)
        else:
            if self._errors.pop(what, None) is not None:
                log.info("%s: works again", what)

    # -- brokers --

    async def _follow_brokers(self) -> None:
        while True:
            await self._log_errors("reading the brokers", self.sync_brokers)
            await asyncio.sleep(self.rhythm.brokers)

    async def sync_brokers(self) -> None:
        """Read the active brokers. Raises `PulsarError` and `ApiError`."""
        stores, link = self._cluster.stores, self._cluster.link
        active = await self._admin.without_budget().brokers()
        if not active:
            raise PulsarError("Pulsar lists no active broker, but one answered: the list is ignored")
        found = identify(active, stores.brokers.items, stores.pods.items)
        if link.ids != found.ids:
            link.ids = found.ids
            self._brokers_changed.set()
        await ObjectWriter(self._cluster).brokers(found.create)

    # -- owners --

    async def _follow_owners(self) -> None:
        while True:
            self._brokers_changed.clear()
            if self._cluster.link.ids:
                await self._log_errors("reading the owners of bundles", self.sync_owners)
            try:
                async with asyncio.timeout(self.rhythm.owners):
                    await self._brokers_changed.wait()
            except TimeoutError:
                continue

    async def sync_owners(self) -> None:
        """Read the owners of all bundles, and write changes to the Bundles. Raises `ApiError`."""
        ids, begun = dict(self._cluster.link.ids or {}), self._cluster.clock()
        found = await self._owners.read(ids)
        self._report_duration("owners", self._cluster.clock() - begun)
        self._cluster.link.suspects |= found.unknown
        self._owners_read.set()
        await ObjectWriter(self._cluster).statuses(found.changes)

    def _report_duration(self, part: str, seconds: float) -> None:
        """Export the duration. If it is much longer than the interval, warn of what takes the time."""
        self._cluster.metrics.mirror_seconds.labels(part).set(seconds)
        due = self.rhythm.owners if part == "owners" else self.rhythm.namespaces
        budget = self._budgets[part]
        by_rate = (budget.booked - self._booked[part]) / budget.rate
        self._booked[part] = budget.booked
        slow = "" if seconds <= 2 * due else "rate" if by_rate >= seconds / 2 else "Pulsar"
        if slow == self._slow.get(part, ""):
            return
        self._slow[part] = slow
        if slow == "rate":
            text = "reading all %s takes %.0f s at %g requests/s: raise spec.pulsar.requestsPerSecond"
            log.warning(text, part, seconds, self._rate)
        elif slow:
            text = (
                "reading all %s takes %.0f s: Pulsar answers slowly or not; see its metadata store (ZooKeeper), brokers"
            )
            log.warning(text, part, seconds)
        else:
            log.info("reading all %s takes %.0f s again", part, seconds)

    # -- namespaces --

    async def _follow_namespaces(self) -> None:
        await self._owners_read.wait()  # so that new Bundles have their owners
        clock = self._cluster.clock
        while True:
            if clock() >= self._list_at and not self._due:
                self._list_at = clock() + 5 * self.rhythm.again  # the next attempt if the list fails
                await self._log_errors("listing the namespaces", self.list_namespaces)
            elif clock() >= self._names_at:
                self._names_at = clock() + self.rhythm.names
                await self._log_errors("listing the names of namespaces", self.check_names)
            namespace = self._next()
            if namespace:
                await self._log_errors(f"namespace {namespace}", partial(self.sync_namespace, namespace))
            else:
                await asyncio.sleep(TICK)

    def _next(self) -> str:
        """The next namespace, empty for none: alternately a suspect, which may have changed, and a regular one.

        Suspects alone could block the others, because some may fail each time.
        """
        suspects, now = self._cluster.link.suspects, self._cluster.clock()
        suspects |= self._touched()
        suspects |= {name for name, at in self._again.items() if at <= now}
        if not self._due and self._listed_at is not None:
            self._report_duration("namespaces", now - self._listed_at)
            self._listed_at = None
        if suspects and (self._regular_was_next or not self._due):
            self._regular_was_next = False
            namespace = suspects.pop()
            self._again.pop(namespace, None)
            return namespace
        self._regular_was_next = True
        return self._due.popleft() if self._due else ""

    def _touched(self) -> set[str]:
        """Namespaces whose objects users have applied, changed or deleted since the last call."""
        records = self._cluster.stores.topic_namespaces.items.values()
        now = {r.uid: (r.full_name, 0 if r.discovered else r.generation) for r in records}
        before, self._objects = self._objects, now
        new = {name for uid, (name, generation) in now.items() if generation and before.get(uid) != now[uid]}
        return new | {name for uid, (name, _) in before.items() if uid not in now}

    async def list_namespaces(self) -> None:
        """List all namespaces and make them due. Raises `PulsarError`."""
        await self._log_errors("reading the isolation policies", self._read_isolation)
        self._due.extend(sorted(await self._names() | self._known()))
        self._listed_at = self._cluster.clock()
        self._list_at = self._listed_at + self.rhythm.namespaces

    async def check_names(self) -> None:
        """Add to the suspects all namespaces that exist only in Pulsar, or only as objects. Raises `PulsarError`."""
        self._cluster.link.suspects |= await self._names() ^ self._known()

    async def _names(self) -> set[str]:
        """Pulsar's namespaces, without the system's own. Raises `PulsarError`."""
        found, tenants = set[str](), await self._admin.tenants()
        for tenant in tenants:
            try:
                found |= set(await self._admin.namespaces(tenant))
            except UnknownError:
                continue  # the tenant was deleted meanwhile
        pause = max(self.rhythm.names, (1 + len(tenants)) / (NAMES_SHARE * self._rate))
        self._names_at = self._cluster.clock() + pause
        modern = {name for name in found if name.count("/") == 1}  # Pulsar 1 had tenant/cluster/name
        return {name for name in modern if not is_system(name)}

    def _known(self) -> set[str]:
        """The namespaces that have objects."""
        names = {record.full_name for record in self._cluster.stores.topic_namespaces.items.values()}
        return {name for name in names if not is_system(name)}

    async def _read_isolation(self) -> None:
        """Read the isolation policies. If that fails, isolation stays as it is."""
        namespaces = self._namespaces
        namespaces.isolation = None
        if not namespaces.pulsar_cluster:
            namespaces.pulsar_cluster = await cluster_name(self._admin, list((self._cluster.link.ids or {}).values()))
        namespaces.isolation = await self._admin.isolation(namespaces.pulsar_cluster)

    async def sync_namespace(self, namespace: str) -> None:
        """Synchronize one namespace. Raises `PulsarError` and `ApiError`."""
        try:
            done = await self._namespaces.sync(namespace, self._owners.owned)
        except (PulsarError, ApiError):
            pause = max(2 * self._pauses.get(namespace, 0.0), 5 * self.rhythm.again)
            self._pauses[namespace] = min(pause, self.rhythm.namespaces)
            self._again[namespace] = self._cluster.clock() + self._pauses[namespace]
            raise
        self._pauses.pop(namespace, None)
        if not done:
            self._again[namespace] = self._cluster.clock() + self.rhythm.again


@dataclass(slots=True)
class BrokerMapping:
    """The active brokers (name of the Broker object -> id), and the Broker objects to create."""

    ids: dict[str, str] = field(default_factory=dict)
    create: list[dict[str, Any]] = field(default_factory=list)


def identify(
    active: Iterable[str], brokers: Mapping[str, BrokerRecord], pods: Mapping[str, PodRecord]
) -> BrokerMapping:
    """Find or make the Broker object of each active broker (``host:webPort``).

    It is the first of these that exists:

    1. the object that a user declared for the address;
    2. the object without an address for the pod at this host (`pod_at`);
    3. the object that was created for the address before;
    4. a new object, for that pod if the pod exists, or else for the address.
    """
    found, ordered = BrokerMapping(), sorted(brokers.values(), key=lambda b: b.name, reverse=True)
    declared = {b.address: b.name for b in ordered if b.address and not b.discovered}
    by_pod = {b.pod: b.name for b in ordered if b.pod and not b.address}
    made = {b.address: b.name for b in ordered if b.address and b.discovered}
    for broker in sorted(active, key=lambda broker: (broker not in declared, broker)):
        pod = pod_at(broker, pods, by_pod) or host_of(broker).partition(".")[0]
        names = (declared.get(broker), by_pod.get(pod), made.get(broker))
        name = next((name for name in names if name and name not in found.ids), None)
        if name is not None:
            found.ids[name] = broker
        else:
            _make(found, broker, pod if pod in pods and pod not in by_pod else "", brokers)
    return found


def _make(found: BrokerMapping, broker: str, pod: str, brokers: Mapping[str, BrokerRecord]) -> None:
    """Make a new Broker object for `broker`, unless another object has the name."""
    name = pod if pod and pod not in brokers else broker_name_of_address(broker)
    if name in brokers or name in found.ids:
        return
    spec = {"pod": pod} if name == pod else {"address": broker}
    found.ids[name] = broker
    meta = {"name": name, "labels": {DISCOVERED: "true"}}
    found.create.append({"apiVersion": API_VERSION, "kind": "Broker", "metadata": meta, "spec": spec})
