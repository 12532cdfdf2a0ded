"""The model of unloads: one bundle of a Pulsar cluster is moved to its desired owner by one of two operators.

Each operator runs whole attempts of `BundleUnload`, and rounds of `BundleReconciler`. The Pulsar cluster is one object:
the owner of the bundle, and its next owner. After an unload no broker owns the bundle until a client, or a lookup, asks
for it. Pulsar may give it to another broker than the named one. A person moves it, too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from explorer import Event, State
from kube_world import LEADS, NAMES, KubeEvents, Left, World, forgets, operators_of, put
from model_objects import SPACE, Clock, NoSource, broker, bundle, cluster_of, policy, space
from objects import Objects, Raw, Request
from process import MemoryApi, Node, Processes
from pulsar_calls import CLUSTER, IDS, LINKED, MemoryAdmin, link
from trimtab_operator.actuators import DeclarativeActuator
from trimtab_operator.kube.errors import ApiError
from trimtab_operator.kube.naming import bundle_name
from trimtab_operator.pulsar.bridge.ownership import OwnershipSource
from trimtab_operator.pulsar.bridge.unload_attempt import BundleUnload
from trimtab_operator.pulsar.bridge.unload_request import UnloadRequest
from trimtab_operator.pulsar.client.api import LoadManager
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.reconcile.bundles import BundleReconciler
from trimtab_operator.splits.steps import owner_of, owner_pending
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import PolicyRun
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.status.publisher import StatusPublisher

EDGES = ("0x00000000", "0xffffffff")
NAME = bundle_name("t", "n", *EDGES)
FULL = f"t/n/{EDGES[0]}_{EDGES[1]}"
SLOTS = (("bundles", NAME), CLUSTER)
B, Q = range(2)


def called(cluster: Raw, call: str, arguments: list[Any]) -> tuple[Raw, Any]:
    """How a call changes the owner. `goes` is the broker that Pulsar remembers for an unowned bundle."""
    match call:
        case "owner":
            return cluster, cluster["owner"]
        case "owned":
            return cluster, [FULL] if cluster["owner"] == arguments[0] else []
        case "unload":
            return {**cluster, "owner": "", "goes": arguments[1]}, None
        case "lookup":
            owner = cluster["owner"] or cluster["goes"] or IDS["z"]
            return {**cluster, "owner": owner, "goes": ""}, owner
    raise AssertionError(call)


class Kept(NamedTuple):
    """What an operator remembers of its attempts: unloads for a generation, and the owner that did not answer."""

    generation: int = 0
    unloads: int = 0
    unanswered: str = ""


class UnloadWorld:
    """The model. left: how much may still go wrong. acts: what may still be done by the person and by Pulsar.

    manager: the load manager. An extensible broker lists its bundles; a modular one is asked for one bundle.
    person: whether the person acts, too.
    """

    name = "unloads"

    def __init__(self, left: Left, manager: LoadManager = LoadManager.MODULAR, *, person: bool = True) -> None:
        self._left, self._manager, self._acts, self.objects = left, manager, person, Objects(called)
        self._known = {("topicnamespaces", SPACE): space(bundles=1), ("balancingpolicies", "main"): policy(**LINKED)}
        programs = {"unload": self._unload, "repair": self._repair}
        self.processes = Processes(self.objects, programs, frozenset({"bundles"}), self._known)
        self._kube = KubeEvents(self.objects, self.processes, SLOTS, watched=(B,), late_pulsar=False)

    # -- production code --

    def _cluster(self, api: MemoryApi, seen: int, epoch: int, clock: Any) -> ClusterState:
        objects = {
            "topicnamespaces": [space(bundles=1)],
            "brokers": [broker(name) for name in IDS],
            "bundles": [self.objects[seen]],
        }
        cluster = cluster_of(api, clock, epoch, objects, policy(**LINKED))
        link(cluster)
        return cluster

    async def _unload(self, api: MemoryApi, what: tuple[int, int, Kept]) -> Kept:
        seen, epoch, kept = what
        cluster = self._cluster(api, seen, epoch, asyncio.get_running_loop().time)
        admin = MemoryAdmin(api.wire, tuple(IDS.values()), self._manager).real
        ownership = OwnershipSource(admin, IDS.values, cluster.clock)
        unload = BundleUnload(cluster, admin, ownership, landed=lambda _: None)
        record = cluster.stores.bundles.items[NAME]
        if kept.unloads:
            unload._unloads[NAME] = (kept.generation, kept.unloads)
        if kept.unanswered:
            unload._unanswered[NAME] = kept.unanswered
        request = UnloadRequest(record, FULL, IDS.get(record.status_owner, ""), IDS[record.owner])
        try:
            await unload.run(request)
        except (PulsarError, ApiError) as error:
            del error  # the controller logs it, and tries again
        return Kept(*unload._unloads.get(NAME, (0, 0)), unload._unanswered.get(NAME, ""))

    async def _repair(self, api: MemoryApi, what: tuple[int, int, bool]) -> None:
        seen, epoch, overdue = what
        clock = Clock(0.0 if overdue else 1000.0)
        cluster = self._cluster(api, seen, epoch, clock)
        if overdue:
            cluster.pending_moves.take_turns()
            cluster.pending_moves.begin(NAME, clock())
        clock.seconds = 1000.0
        actuator = DeclarativeActuator(api.real, "ns", "main", epoch, cluster.now)
        run = PolicyRun(cluster.policies.settings["main"], actuator, NoSource(), PolicyState())
        quiet = MemoryApi(api.wire, frozenset(), self._known)
        publisher = StatusPublisher(replace(cluster, api=quiet.real), "main", "policy")
        await BundleReconciler(cluster).reconcile(run, publisher)

    # -- the model --

    def initial(self) -> State:
        """The bundle is on x, and a plan has just moved it to y."""
        raw = bundle(NAME, *EDGES, "x")
        raw["metadata"]["generation"] = 2
        raw["spec"] |= {
            "owner": "y",
            "assignment": {"owner": "y", "reason": "Overloaded", "policy": "main", "epoch": 1},
        }
        pulsar = self.objects.number({"metadata": {"name": "cluster"}, "owner": IDS["x"], "goes": ""})
        slots = (self.objects.number(raw), pulsar)
        operators = operators_of(self._left, (slots[B], 0))
        return World(slots, operators, (), None, self._left, (0, 0), (Kept(),) * len(operators))

    def events(self, state: State) -> Iterator[Event]:
        """All events."""
        return map(self._kube.seen, self._events(World(*state)))  # type: ignore[arg-type]

    def _events(self, world: World) -> Iterator[Event]:
        for event in self._kube.of_operators(world, self._rests, self._check):
            yield forgets(event, Kept())
        for place, operator in enumerate(world.operators):
            if operator.role == LEADS and not operator.node:
                yield from self._starts(world, place)
        yield from self._pulsar(world)
        if world.left.acts and self._acts:
            yield from self._person(world)

    def _starts(self, world: World, place: int) -> Iterator[Event]:
        operator = world.operators[place]
        seen, held = operator.views[B], frozenset(operator.views)
        pending = owner_pending(self.objects[seen])
        if pending and self.objects[seen]["spec"]["owner"] in IDS:
            node = self.processes.start("unload", (seen, operator.epoch, world.extra[place]), held)
            if (after := self._kube.started(world, place, node)) is not None:
                yield Event(f"{NAMES[place]} begins to move the bundle", after)
        for overdue in (False, True)[: 1 + (pending and bool(world.left.timeouts))]:
            node = self.processes.start("repair", (seen, operator.epoch, overdue), held)
            if (after := self._kube.started(world, place, node)) is not None:
                left = world.left._replace(timeouts=world.left.timeouts - overdue)
                why = " with an overdue move" * overdue
                yield Event(f"{NAMES[place]} begins a round of repairs{why}", after._replace(left=left))

    def _rests(self, world: World, place: int, node: Node) -> World:
        return world if node.program == "repair" else world._replace(extra=put(world.extra, place, node.result))

    def _pulsar(self, world: World) -> Iterator[Event]:
        """A client asks for the bundle. The broker that Pulsar remembers takes it, or Pulsar chooses another one."""
        cluster = self.objects[world.slots[Q]]
        if cluster["owner"]:
            return
        for number in range(len(IDS) if world.left.acts else 1):
            owner = (cluster["goes"] or IDS["z"]) if not number else sorted(IDS.values())[number]
            taken = self.objects.number({**cluster, "owner": owner, "goes": ""})
            after = world._replace(slots=put(world.slots, Q, taken))
            if number:
                after = after._replace(left=world.left._replace(acts=world.left.acts - 1))
            yield Event(f"a client asks for the bundle, and {owner} takes it", after, calm=not number)

    def _person(self, world: World) -> Iterator[Event]:
        left = world.left._replace(acts=world.left.acts - 1)
        for owner in ("x", "z"):
            request = Request("patch", "bundles", NAME, json.dumps({"spec": {"owner": owner}}))
            slots, _ = self._kube.serve(world, request)
            if slots != world.slots:
                yield Event(f"a person moves the bundle to {owner}", world._replace(slots=slots, left=left), calm=False)

    # -- what must hold --

    def _check(self, world: World, slots: tuple[int, ...], request: Request, _epoch: int) -> str:
        if request.kind != "bundles" or request.sub:
            return ""
        old, new = self.objects[world.slots[B]], self.objects[slots[B]]
        wanted, given = old["spec"].get("owner", ""), new["spec"].get("owner", "")
        by_person = (old["spec"].get("assignment") or {}).get("owner", "") != wanted
        reason = (new["spec"].get("assignment") or {}).get("reason", "")
        if wanted != given and by_person and owner_pending(old) and reason != "TimedOut":
            return f"the desired owner of a person was lost: {wanted} became {given} ({reason})"
        return ""

    def broken(self, state: State) -> str:
        """Nothing: `_check` checks each write, and a Pulsar cluster never has two owners of a bundle."""
        del state
        return ""

    def settled(self, state: State) -> bool:
        """Whether the bundle is where it should be, and its object says so."""
        world = World(*state)  # type: ignore[arg-type]
        raw, cluster = self.objects[world.slots[B]], self.objects[world.slots[Q]]
        owner = raw["spec"].get("owner", "")
        idle = not any(o.node for o in world.operators) and world.late is None
        return idle and not owner_pending(raw) and owner_of(raw) == owner and IDS.get(owner) == cluster["owner"]
