"""`ClusterSync`: keeps Broker, TopicNamespace and Bundle objects in step with a real Pulsar cluster, forever.

Three looks at different paces, so that none waits for a slower one:

| look | what is asked | how often |
|---|---|---|
| brokers | one list | every 2 s, ahead of the line: a lost broker must not be noticed late |
| owners | what each broker serves, one request a broker | every 8 s, at once when brokers come or go |
| namespaces | tenants, their namespaces, the policies of each | every 2 min, one at once when somebody suspects it |

Owners take half of the policy's requests a second, namespaces a quarter; the rest is for whoever looks into single
bundles. Where that stretches a look, it takes longer, and says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from trimtab_operator.kube.client import ApiError
from trimtab_operator.pulsar.bridge.sync.brokers import identify
from trimtab_operator.pulsar.bridge.sync.diff import systems_own
from trimtab_operator.pulsar.bridge.sync.namespaces import Namespaces, cluster_name
from trimtab_operator.pulsar.bridge.sync.owners import OwnerSweep
from trimtab_operator.pulsar.bridge.sync.writer import Writes
from trimtab_operator.pulsar.client.api import Admin
from trimtab_operator.pulsar.client.errors import PulsarError, UnknownError
from trimtab_operator.pulsar.client.transport import Budget
from trimtab_operator.state.cluster import ClusterState

log = logging.getLogger(__name__)

OWNERS_SHARE, NAMESPACES_SHARE = 0.5, 0.25
"""Of the requests a second that the policy allows."""

TICK = 0.25
"""Seconds between two looks at whether a namespace is to be looked at."""


NAMES_SHARE = 0.1
"""Ratio of the requests a second that seeing which namespaces there are may take."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Seconds from one look to the next. names: which namespaces there are; more where there are very many tenants.

    again: until a namespace that was not in step is looked at once more; one that can't be read after five times that,
    then ten, and so on, up to `namespaces`.

    stuck: seconds that a wish may be open before the truth is told over it.
    """

    brokers: float = 2.0
    owners: float = 8.0
    namespaces: float = 120.0
    names: float = 20.0
    again: float = 2.0
    stuck: float = 60.0


class ClusterSync:
    """See the module. One for each client that is opened."""

    def __init__(self, context: ClusterState, admin: Admin, rhythm: Rhythm | None = None) -> None:
        spec = context.link.spec
        rate = float(spec.requests_per_second if spec is not None else 20)
        self.rhythm = rhythm or Rhythm()
        self._context, self._admin, self._rate = context, admin, rate
        self._sweeper = OwnerSweep(context, admin, Budget(OWNERS_SHARE * rate), self.rhythm.stuck)
        self._namespaces = Namespaces(context, admin, Budget(NAMESPACES_SHARE * rate))
        self._hurry = asyncio.Event()
        self._swept = asyncio.Event()
        self._due: deque[str] = deque()
        self._again: dict[str, float] = {}
        self._pauses: dict[str, float] = {}
        self._rest_had_its_turn = True
        self._list_at = self._names_at = float("-inf")
        self._listed_at: float | None = None
        self._objects: dict[str, tuple[str, int]] = {}
        self._troubles: dict[str, str] = {}
        self._slow: set[str] = set()

    def wake(self, namespace: str) -> None:
        """Look at a namespace (``tenant/name``) next: it may not be as the objects say."""
        self._context.link.suspects.add(namespace)

    async def run(self) -> None:
        """Keep in step until cancelled, whatever fails."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_brokers())
            group.create_task(self._follow_owners())
            group.create_task(self._follow_namespaces())

    async def _survive(self, what: str, look: Callable[[], Awaitable[None]]) -> None:
        """Do it; what fails is told once, and once more when it is over."""
        try:
            await look()
        except (PulsarError, ApiError) as error:
            if self._troubles.get(what) != str(error):
                log.warning("%s: %s", what, error)
            self._troubles[what] = str(error)
        else:
            if self._troubles.pop(what, None) is not None:
                log.info("%s: all right again", what)

    # -- brokers --

    async def _follow_brokers(self) -> None:
        while True:
            await self._survive("looking at the brokers", self.look_at_brokers)
            await asyncio.sleep(self.rhythm.brokers)

    async def look_at_brokers(self) -> None:
        """See who is active. Raises `PulsarError` and `ApiError`."""
        stores, link = self._context.stores, self._context.link
        active = await self._admin.at_once().brokers()
        if not active:
            raise PulsarError("Pulsar lists no active broker, and yet one answered: that is not believed")
        found = identify(active, stores.brokers.items, stores.pods.items)
        if link.ids != found.ids:
            link.ids = found.ids
            self._hurry.set()
        await Writes(self._context).brokers(found.create)

    # -- owners --

    async def _follow_owners(self) -> None:
        while True:
            self._hurry.clear()
            if self._context.link.ids:
                await self._survive("looking at who serves what", self.sweep)
            try:
                async with asyncio.timeout(self.rhythm.owners):
                    await self._hurry.wait()
            except TimeoutError:
                continue

    async def sweep(self) -> None:
        """Ask all brokers what they serve, and say so. Raises `ApiError`."""
        ids, begun = dict(self._context.link.ids or {}), self._context.clock()
        found = await self._sweeper.sweep(ids)
        self._took("owners", self._context.clock() - begun)
        self._context.link.suspects |= found.unknown
        self._swept.set()
        await Writes(self._context).statuses(found.changes)

    def _took(self, part: str, seconds: float) -> None:
        """Show how long it took, and say so when the budget makes it much longer than it should be."""
        self._context.metrics.mirror_seconds.labels(part).set(seconds)
        due = self.rhythm.owners if part == "owners" else self.rhythm.namespaces
        if (slow := seconds > 2 * due) != (part in self._slow):
            self._slow ^= {part}
            told = "all %s are seen every %.0f s only, by %g requests/s: raise spec.pulsar.requestsPerSecond"
            log.warning(
                told if slow else "all %s are seen every %.0f s again, by %g requests/s", part, seconds, self._rate
            )

    # -- namespaces --

    async def _follow_namespaces(self) -> None:
        await self._swept.wait()  # so that bundles are made with their owners
        clock = self._context.clock
        while True:
            if clock() >= self._list_at and not self._due:
                self._list_at = clock() + 5 * self.rhythm.again  # if that fails
                await self._survive("listing the namespaces", self.list_namespaces)
            elif clock() >= self._names_at:
                self._names_at = clock() + self.rhythm.names
                await self._survive("seeing which namespaces come and go", self.see_names)
            namespace = self._next()
            if namespace:
                await self._survive(f"namespace {namespace}", partial(self.look_at, namespace))
            else:
                await asyncio.sleep(TICK)

    def _next(self) -> str:
        """The namespace to look at next, empty none: what is suspected or due again, and the rest, in turn.

        Suspects alone could hold up the rest for ever: some are refused however often they are asked for.
        """
        suspects, now = self._context.link.suspects, self._context.clock()
        suspects |= self._touched()
        suspects |= {name for name, at in self._again.items() if at <= now}
        if not self._due and self._listed_at is not None:
            self._took("namespaces", now - self._listed_at)
            self._listed_at = None
        if suspects and (self._rest_had_its_turn or not self._due):
            self._rest_had_its_turn = False
            namespace = suspects.pop()
            self._again.pop(namespace, None)
            return namespace
        self._rest_had_its_turn = True
        return self._due.popleft() if self._due else ""

    def _touched(self) -> set[str]:
        """Namespaces whose objects people have applied, changed or deleted since the last call."""
        records = self._context.stores.topic_namespaces.items.values()
        now = {r.uid: (r.full_name, 0 if r.discovered else r.generation) for r in records}
        before, self._objects = self._objects, now
        new = {name for uid, (name, generation) in now.items() if generation and before.get(uid) != now[uid]}
        return new | {name for uid, (name, _) in before.items() if uid not in now}

    async def list_namespaces(self) -> None:
        """See which namespaces there are; all of them are due. Raises `PulsarError`."""
        await self._survive("reading the isolation policies", self._read_isolation)
        self._due.extend(sorted(await self._names() | self._known()))
        self._listed_at = self._context.clock()
        self._list_at = self._listed_at + self.rhythm.namespaces

    async def see_names(self) -> None:
        """Suspect the namespaces that came or went since they were looked at. Raises `PulsarError`."""
        self._context.link.suspects |= await self._names() ^ self._known()

    async def _names(self) -> set[str]:
        """The namespaces that Pulsar has, without its own. Raises `PulsarError`."""
        found, tenants = set[str](), await self._admin.tenants()
        for tenant in tenants:
            try:
                found |= set(await self._admin.namespaces(tenant))
            except UnknownError:
                continue  # it went meanwhile
        pause = max(self.rhythm.names, (1 + len(tenants)) / (NAMES_SHARE * self._rate))
        self._names_at = self._context.clock() + pause
        modern = {name for name in found if name.count("/") == 1}  # Pulsar 1 had tenant/cluster/name
        return {name for name in modern if not systems_own(name)}

    def _known(self) -> set[str]:
        """The namespaces for which there are objects."""
        names = {record.full_name for record in self._context.stores.topic_namespaces.items.values()}
        return {name for name in names if not systems_own(name)}

    async def _read_isolation(self) -> None:
        """While it can't be read, nothing of it changes."""
        namespaces = self._namespaces
        namespaces.isolation = None
        if not namespaces.cluster:
            namespaces.cluster = await cluster_name(self._admin, list((self._context.link.ids or {}).values()))
        namespaces.isolation = await self._admin.isolation(namespaces.cluster)

    async def look_at(self, namespace: str) -> None:
        """Bring one namespace in step. Raises `PulsarError` and `ApiError`."""
        try:
            done = await self._namespaces.look(namespace, self._sweeper.owned)
        except (PulsarError, ApiError):
            pause = max(2 * self._pauses.get(namespace, 0.0), 5 * self.rhythm.again)
            self._pauses[namespace] = min(pause, self.rhythm.namespaces)
            self._again[namespace] = self._context.clock() + self._pauses[namespace]
            raise
        self._pauses.pop(namespace, None)
        if not done:
            self._again[namespace] = self._context.clock() + self.rhythm.again
