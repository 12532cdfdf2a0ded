"""The model of a split by Pulsar: two operators split one bundle, and keep its objects in step with the cluster.

Each operator runs rounds of `SplitController` with `PulsarSplitExecutor`, and rounds of the sync: `OwnerSync` and
`NamespaceSync`. The Pulsar cluster is one object. It has boundaries, owners, the boundaries that its brokers answer
with, and the owners in the load reports of modular brokers. The last two may be out of date. Another client may split
the bundle at other positions, Pulsar may move a half, and a person acts, too.

In this model a single event carries out a desired owner. `unload_world` explores the steps of such an event.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from explorer import Event, State
from kube_world import LEADS, NAMES, KubeEvents, Left, World, forgets, operators_of, put
from model_objects import NOW, SPACE, Clock, broker, bundle, cluster_of, policy, space
from objects import Objects, Raw, Request
from process import MemoryApi, Node, Processes
from pulsar_calls import CLUSTER, IDS, LINKED, MemoryAdmin, link
from split_world import over, split_round
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.errors import ApiError
from trimtab_operator.kube.naming import bundle_name, owned_by, pulsar_bundle
from trimtab_operator.pulsar.bridge.sync.namespaces import NamespaceSync
from trimtab_operator.pulsar.bridge.sync.owners import OwnerSync
from trimtab_operator.pulsar.bridge.sync.writer import ObjectWriter
from trimtab_operator.pulsar.client.api import LoadManager
from trimtab_operator.pulsar.client.errors import PulsarError, SplitRefusedError, StaleBundleError
from trimtab_operator.pulsar.client.transport import Budget
from trimtab_operator.splits.pulsar import PulsarSplitExecutor
from trimtab_operator.splits.steps import owner_of, owner_pending, parent_of, split_of
from trimtab_operator.state.cluster import ClusterState

FIRST, QUARTER, HALF, LAST = 0, 0x40000000, 0x80000000, 0xFFFFFFFF
RANGES = ((FIRST, LAST), (FIRST, HALF), (HALF, LAST), (FIRST, QUARTER), (QUARTER, LAST))
"""Ranges of the objects: the whole bundle, the halves that were ordered, the parts of another client's split."""

TOPICS = {f"persistent://t/n/{name}": 0x10000000 + 0x20000000 * place for place, name in enumerate("abcdefg")}
BUNDLES = tuple(bundle_name("t", "n", f"0x{low:08x}", f"0x{high:08x}") for low, high in RANGES)
FULL = tuple(pulsar_bundle("t", "n", f"0x{low:08x}", f"0x{high:08x}") for low, high in RANGES)
SLOTS = (*(("bundles", name) for name in BUNDLES), ("bundlesplits", "split"), CLUSTER)
P, S, Q = 0, 5, 6
UPPER_HALF = BUNDLES[2]
MODELLED = frozenset({"bundles", "bundlesplits"})


def called(cluster: Raw, call: str, arguments: list[Any]) -> tuple[Raw, Any]:
    """How a call changes the cluster. `known`: boundaries that brokers answer with; `told`: owners in load reports."""
    owners: dict[str, str] = cluster["owners"]
    match call:
        case "boundaries":
            return cluster, cluster["known"]
        case "policies":
            return cluster, {"bundles": {"boundaries": [f"0x{edge:08x}" for edge in cluster["known"]]}}
        case "owned" | "reported":
            listed = owners if call == "owned" else cluster["told"]
            return cluster, sorted(bundle for bundle, owner in listed.items() if owner == arguments[0])
        case "owner":
            if arguments[0] not in owners:
                raise StaleBundleError(f"{arguments[0]} does not exist")
            return cluster, owners[arguments[0]]
        case "topic_positions":
            low, high = RANGES[FULL.index(arguments[0])]
            return cluster, {topic: at for topic, at in TOPICS.items() if low <= at < high}
        case "split":
            return cut(cluster, *arguments), None
    raise AssertionError(call)


def cut(cluster: Raw, found: str, positions: list[int]) -> Raw:
    """The cluster after a split: its owner keeps the parts. Raises `PulsarError`."""
    if found not in cluster["owners"]:
        raise StaleBundleError(f"{found} does not exist")
    if len(positions) > 1:
        raise SplitRefusedError("the extensible manager splits at one position")
    edges = sorted({*cluster["edges"], *positions})
    parts = [FULL[RANGES.index(part)] for part in pairwise(edges)]
    owner = cluster["owners"][found]
    return {**cluster, "edges": edges, "owners": dict.fromkeys(parts, owner)}


class SyncMemory(NamedTuple):
    """What an operator remembers between rounds of the sync."""

    lacking: tuple[int, ...] = ()
    found: tuple[tuple[str, str], ...] = ()


class PulsarSplitWorld:
    """The model. left: how much may still go wrong. acts: what the person, another client and Pulsar may still do.

    An operator remembers between rounds of the sync the boundaries that lacked an edge, and the owners that modular
    brokers answered with.
    """

    name = "split by Pulsar"

    def __init__(self, left: Left, manager: LoadManager = LoadManager.EXTENSIBLE) -> None:
        self._left, self._manager, self.objects = left, manager, Objects(called)
        known = {("topicnamespaces", SPACE): space(bundles=1), ("balancingpolicies", "main"): policy(**LINKED)}
        self.processes = Processes(self.objects, {"split": self._round, "sync": self._sync}, MODELLED, known)
        self._kube = KubeEvents(self.objects, self.processes, SLOTS, watched=tuple(range(Q)), late_pulsar=False)

    # -- production code --

    def _cluster(self, api: MemoryApi, views: tuple[int, ...], epoch: int, clock: Any) -> ClusterState:
        raws = [self.objects[number] for number in views[:Q] if number]
        objects = {
            "topicnamespaces": [space(bundles=1)],
            "brokers": [broker(name) for name in IDS],
            "bundles": [raw for raw in raws if raw["kind"] == "Bundle"],
            "bundlesplits": [raw for raw in raws if raw["kind"] == "BundleSplit"],
        }
        cluster = cluster_of(api, clock, epoch, objects, policy(**LINKED))
        link(cluster)
        return cluster

    def _admin(self, api: MemoryApi) -> MemoryAdmin:
        return MemoryAdmin(api.wire, tuple(IDS.values()), self._manager)

    async def _round(self, api: MemoryApi, what: tuple[tuple[int, ...], int, bool]) -> None:
        views, epoch, late = what
        clock = Clock(0.0)
        cluster = self._cluster(api, views, epoch, clock)
        await split_round(cluster, PulsarSplitExecutor(cluster, self._admin(api).real), clock, late=late)

    async def _sync(self, api: MemoryApi, what: tuple[tuple[int, ...], int, SyncMemory]) -> SyncMemory:
        views, epoch, before = what
        cluster = self._cluster(api, views, epoch, asyncio.get_running_loop().time)
        admin = self._admin(api).real
        owners = OwnerSync(cluster, admin, Budget(1e9))
        namespaces = NamespaceSync(cluster, admin, Budget(1e9), isolation={})
        owners._verifier.found = dict(before.found)
        if before.lacking:
            namespaces._lacking["t/n"] = before.lacking
        try:
            found = await owners.read(IDS)
            await ObjectWriter(cluster).statuses(found.changes)
            await namespaces.sync("t/n", owners.owned)
        except (PulsarError, ApiError) as error:
            del error  # the sync logs it, and tries again
        return SyncMemory(namespaces._lacking.get("t/n", ()), tuple(sorted(owners._verifier.found.items())))

    # -- the model --

    def initial(self) -> State:
        """A bundle on x, and a split that a person ordered and no operator has seen; the second half should go to y."""
        whole = bundle(BUNDLES[P], f"0x{FIRST:08x}", f"0x{LAST:08x}", "x")
        whole["metadata"]["ownerReferences"] = [{**owned_by(SPACE, "space"), "controller": True}]
        spec: dict[str, Any] = {"bundle": BUNDLES[P], "boundaries": [f"0x{HALF:08x}"], "destinations": ["", "y"]}
        meta = {"name": "split", "uid": "split.0", "generation": 1, "creationTimestamp": timestamp(NOW)}
        split = self.objects.number({"kind": "BundleSplit", "metadata": meta, "spec": spec})
        edges = [FIRST, LAST]
        owners = {FULL[P]: IDS["x"]}
        pulsar = {"metadata": {"name": "cluster"}, "edges": edges, "known": edges, "owners": owners, "told": owners}
        slots = (self.objects.number(whole), 0, 0, 0, 0, split, self.objects.number(pulsar))
        operators = operators_of(self._left, (*slots[:Q], 0))
        return World(slots, operators, (), None, self._left, (0,) * len(slots), (SyncMemory(),) * len(operators))

    def events(self, state: State) -> Iterator[Event]:
        """All events."""
        return map(self._kube.seen, self._events(World(*state)))  # type: ignore[arg-type]

    def _events(self, world: World) -> Iterator[Event]:
        for event in self._kube.of_operators(world, self._rests, self._check):
            yield forgets(event, SyncMemory())
        for place, operator in enumerate(world.operators):
            if operator.role == LEADS and not operator.node:
                yield from self._starts(world, place)
        yield from self._pulsar(world)
        if world.left.acts:
            yield from self._acts(world)

    def _starts(self, world: World, place: int) -> Iterator[Event]:
        operator = world.operators[place]
        held = frozenset(operator.views)
        for late in (False, True)[: 1 + bool(world.left.timeouts)]:
            node = self.processes.start("split", (operator.views, operator.epoch, late), held)
            if (after := self._kube.started(world, place, node)) is not None:
                after = after._replace(left=world.left._replace(timeouts=world.left.timeouts - late))
                why = ", for which the split takes too long" * late
                yield Event(f"{NAMES[place]} begins a round of splits{why}", after, calm=not late)
        node = self.processes.start("sync", (operator.views, operator.epoch, world.extra[place]), held)
        if (after := self._kube.started(world, place, node)) is not None:
            yield Event(f"{NAMES[place]} begins a round of the sync", after)

    def _rests(self, world: World, place: int, node: Node) -> World:
        return world if node.program == "split" else world._replace(extra=put(world.extra, place, node.result))

    def _pulsar(self, world: World) -> Iterator[Event]:
        cluster = self.objects[world.slots[Q]]
        if cluster["known"] != cluster["edges"]:
            after = self._with(world, {**cluster, "known": cluster["edges"]})
            yield Event("all brokers know the boundaries", after)
        if self._manager is LoadManager.MODULAR and cluster["told"] != cluster["owners"]:
            yield Event("the brokers report their load", self._with(world, {**cluster, "told": cluster["owners"]}))
        for slot, full in enumerate(FULL):
            raw = self.objects[world.slots[slot]] if world.slots[slot] else None
            if raw is None or not owner_pending(raw) or split_of(raw) or parent_of(raw):
                continue
            owner = raw["spec"]["owner"]
            if full in cluster["owners"] and owner in IDS:
                moved = self._with(world, {**cluster, "owners": {**cluster["owners"], full: IDS[owner]}})
                status = {"owner": owner, "state": "Owned", "observedGeneration": raw["metadata"]["generation"]}
                slots, _ = self._kube.serve(
                    moved, Request("patch", "bundles", BUNDLES[slot], _status(status), "status")
                )
                yield Event(f"{BUNDLES[slot]} is unloaded to {owner}", moved._replace(slots=slots))

    def _acts(self, world: World) -> Iterator[Event]:
        left = world.left._replace(acts=world.left.acts - 1)
        cluster = self.objects[world.slots[Q]]
        if FULL[P] in cluster["owners"]:
            after = self._with(world, cut(cluster, FULL[P], [QUARTER]))
            yield Event("another client splits the bundle elsewhere", after._replace(left=left), calm=False)
        if FULL[2] in cluster["owners"]:
            after = self._with(world, {**cluster, "owners": {**cluster["owners"], FULL[2]: IDS["z"]}})
            yield Event("Pulsar moves the second half to z", after._replace(left=left), calm=False)
        to_z = json.dumps({"spec": {"owner": "z"}})
        acts = (
            ("moves the bundle to z", Request("patch", "bundles", BUNDLES[P], to_z)),
            ("moves the second half to z", Request("patch", "bundles", UPPER_HALF, to_z)),
            ("deletes the split", Request("delete", "bundlesplits", "split")),
        )
        for text, request in acts:
            slots, answer = self._kube.serve(world, request)
            if answer.error is None and slots != world.slots:
                yield Event(f"a person {text}", world._replace(slots=slots, left=left), calm=False)

    def _with(self, world: World, cluster: Raw) -> World:
        return world._replace(slots=put(world.slots, Q, self.objects.number(cluster)))

    # -- what must hold --

    def _check(self, world: World, slots: tuple[int, ...], request: Request, _epoch: int) -> str:
        if request.kind != "bundles" or request.sub or request.verb != "patch":
            return ""
        slot = BUNDLES.index(request.name)
        old, new = self.objects[world.slots[slot]], self.objects[slots[slot]]
        wanted, given = old["spec"].get("owner", ""), new["spec"].get("owner", "")
        by_person = (old["spec"].get("assignment") or {}).get("owner", "") != wanted
        if wanted != given and by_person and owner_pending(old):
            return f"the desired owner of a person was lost: {wanted} became {given}"
        return ""

    def broken(self, state: State) -> str:
        """Check that an object covers every hash."""
        world, at = World(*state), FIRST  # type: ignore[arg-type]
        for low, high in sorted(part for slot, part in enumerate(RANGES) if world.slots[slot]):
            if low <= at:
                at = max(at, high)
        return "" if at == LAST else "a hash belongs to no bundle"

    def settled(self, state: State) -> bool:
        """Whether the split has ended, and each bundle of Pulsar has one object with its owner."""
        world = World(*state)  # type: ignore[arg-type]
        if any(o.node for o in world.operators) or world.late is not None:
            return False
        cluster, raws = self.objects[world.slots[Q]], [self.objects[number] for number in world.slots[:S]]
        owners = {
            full: IDS[owner_of(raw)] for full, raw in zip(FULL, raws, strict=True) if raw and owner_of(raw) in IDS
        }
        busy = any(raw and (split_of(raw) or parent_of(raw) or owner_pending(raw)) for raw in raws)
        exist = sum(bool(raw) for raw in raws)
        return owners == cluster["owners"] and exist == len(owners) and not busy and self._over(world)

    def _over(self, world: World) -> bool:
        number = world.slots[S]
        return not number or over(self.objects[number])


def _status(status: Raw) -> str:
    return json.dumps({"status": status})
