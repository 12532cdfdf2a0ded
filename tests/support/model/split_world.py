"""The model of a declarative split: two operators, three brokers, a person, one bundle that becomes two."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from brokers import BROKERS, Brokers
from explorer import Event, State
from kube_world import LEADS, NAMES, BrokerState, KubeEvents, Left, World, operators_of
from model_objects import NOW, SPACE, Clock, broker, bundle, cluster_of, policy, space
from objects import Objects, Raw, Request
from process import MemoryApi, Node, Processes
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.naming import bundle_name
from trimtab_operator.splits.controller import SplitController
from trimtab_operator.splits.declarative import DeclarativeSplitExecutor
from trimtab_operator.splits.steps import SplitExecutor, owner_of, owner_pending, parent_of, split_of
from trimtab_operator.state.cluster import ClusterState

EDGES = ("0x00000000", "0x80000000", "0xffffffff")
PARENT = bundle_name("t", "n", EDGES[0], EDGES[2])
LOW, HIGH = bundle_name("t", "n", *EDGES[:2]), bundle_name("t", "n", *EDGES[1:])
SLOTS = (("bundles", PARENT), ("bundles", LOW), ("bundles", HIGH), ("bundlesplits", "split"))
P, L, H, S = range(4)
MODELLED = frozenset({"bundles", "bundlesplits"})
LATE = 1000.0


class SplitWorld:
    """The model. left: how much may still go wrong. destinations: those of the children."""

    name = "declarative split"

    def __init__(self, left: Left, destinations: tuple[str, str] = ("", "y")) -> None:
        self._left, self._destinations = left, destinations
        self.objects = Objects()
        known = {("topicnamespaces", SPACE): space(bundles=1), ("balancingpolicies", "main"): policy()}
        self.processes = Processes(self.objects, {"split": self._round}, MODELLED, known)
        self._kube = KubeEvents(self.objects, self.processes, SLOTS)
        self._brokers = Brokers(self._kube, (P, L, H))

    # -- production code --

    async def _round(self, api: MemoryApi, what: tuple[tuple[int, ...], int, tuple[str, ...], bool]) -> None:
        views, epoch, ready, late = what
        raws = [self.objects[number] for number in views if number]
        clock = Clock(0.0)
        objects = {
            "topicnamespaces": [space(bundles=1)],
            "brokers": [broker(name, ready=name in ready) for name in BROKERS],
            "bundles": [raw for raw in raws if raw["kind"] == "Bundle"],
            "bundlesplits": [raw for raw in raws if raw["kind"] == "BundleSplit"],
        }
        cluster = cluster_of(api, clock, epoch, objects, policy())
        await split_round(cluster, DeclarativeSplitExecutor(api.real, "ns", cluster.now), clock, late=late)

    # -- the model --

    def initial(self) -> State:
        """A bundle on x, and a split that a person ordered and no operator has seen yet."""
        whole = self.objects.number(bundle(PARENT, EDGES[0], EDGES[2], "x"))
        spec: dict[str, Any] = {"bundle": PARENT, "boundaries": [EDGES[1]], "destinations": list(self._destinations)}
        meta = {"name": "split", "uid": "split.0", "generation": 1, "creationTimestamp": timestamp(NOW)}
        split = self.objects.number({"kind": "BundleSplit", "metadata": meta, "spec": spec})
        slots = (whole, 0, 0, split)
        operators = operators_of(self._left, slots)
        brokers = (BrokerState(up=True, serves=frozenset({P})), BrokerState(up=True), BrokerState(up=True))
        return World(slots, operators, brokers, None, self._left, (0,) * 4)

    def events(self, state: State) -> Iterator[Event]:
        """All events."""
        return map(self._kube.seen, self._events(World(*state)))  # type: ignore[arg-type]

    def _events(self, world: World) -> Iterator[Event]:
        yield from self._kube.of_operators(world, _rests, lambda *_: "")
        yield from self._starts(world)
        yield from self._brokers.events(world)
        if world.left.acts:
            yield from self._person(world)

    def _starts(self, world: World) -> Iterator[Event]:
        for place, operator in enumerate(world.operators):
            if operator.role != LEADS or operator.node:
                continue
            for late in (False, True)[: 1 + bool(world.left.timeouts)]:
                what = (operator.views, operator.epoch, self._brokers.ready(world), late)
                node = self.processes.start("split", what, frozenset(operator.views))
                if (after := self._kube.started(world, place, node)) is not None:
                    after = after._replace(left=world.left._replace(timeouts=world.left.timeouts - late))
                    why = ", for which the split takes too long" if late else ""
                    yield Event(f"{NAMES[place]} begins a round of splits{why}", after)

    def _person(self, world: World) -> Iterator[Event]:
        left = world.left._replace(acts=world.left.acts - 1)
        acts = [("moves it to z", Request("patch", "bundles", PARENT, json.dumps({"spec": {"owner": "z"}})))]
        acts.append(("pins it", Request("patch", "bundles", PARENT, json.dumps({"spec": {"pinned": True}}))))
        acts.append(
            ("moves the first half to z", Request("patch", "bundles", LOW, json.dumps({"spec": {"owner": "z"}})))
        )
        acts.append(("deletes the split", Request("delete", "bundlesplits", "split")))
        for text, request in acts:
            slots, answer = self._kube.serve(world, request)
            if answer.error is None and slots != world.slots:
                yield Event(f"a person {text}", world._replace(slots=slots, left=left), calm=False)

    def broken(self, state: State) -> str:
        """Check that an object covers every hash, and that at most one broker serves it."""
        world = World(*state)  # type: ignore[arg-type]
        covered = world.slots[P] or (world.slots[L] and world.slots[H])
        if not covered:
            return "a hash belongs to no bundle"
        for half in (L, H):
            served = [name for name, b in zip(BROKERS, world.brokers, strict=True) if b.serves & {P, half}]
            if len(served) > 1:
                return f"{' and '.join(served)} serve the same hashes"
        return ""

    def settled(self, state: State) -> bool:
        """Whether desired owners serve all bundles, and the split has ended without leftovers."""
        world = World(*state)  # type: ignore[arg-type]
        if any(o.node for o in world.operators) or world.late is not None:
            return False
        raws = {slot: self.objects[world.slots[slot]] for slot in (P, L, H) if world.slots[slot]}
        if any(split_of(raw) or parent_of(raw) or owner_pending(raw) for raw in raws.values()):
            return False
        whole, halves = P in raws, L in raws or H in raws
        return (
            whole != halves and all(self._served(world, slot, raw) for slot, raw in raws.items()) and self._over(world)
        )

    def _served(self, world: World, slot: int, raw: Raw) -> bool:
        owner = raw["spec"].get("owner")
        return owner_of(raw) == owner and slot in world.brokers[BROKERS.index(owner)].serves

    def _over(self, world: World) -> bool:
        number = world.slots[S]
        return not number or over(self.objects[number])


async def split_round(cluster: ClusterState, executor: SplitExecutor, clock: Clock, *, late: bool) -> None:
    """A round of splits that all began at 0 s. late: whether they have timed out."""
    controller = SplitController(cluster, executor)
    for record in cluster.stores.splits.items.values():
        controller._since[record.uid] = 0.0
    clock.seconds = LATE if late else 0.0
    await controller.round()


def over(split: Raw) -> bool:
    """Whether a BundleSplit has ended."""
    return (split.get("status") or {}).get("phase") in {"Completed", "Failed"}


def _rests(world: World, _place: int, _node: Node) -> World:
    return world
