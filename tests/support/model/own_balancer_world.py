"""The model of Pulsar's own balancer: one of two operators switches it off, and restores it if no policy moves bundles.

The Pulsar cluster is one object: its dynamic configuration. A person sets the policy to DryRun and back, and another
client switches the balancer on again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from explorer import Event, State
from kube_world import LEADS, NAMES, KubeEvents, Left, World, forgets, operators_of, put
from model_objects import Clock, cluster_of, policy
from objects import Objects, Raw, Request
from process import MemoryApi, Node, Processes
from pulsar_calls import CLUSTER, MemoryAdmin
from trimtab_operator.kube.errors import ApiError
from trimtab_operator.kube.naming import PULSAR_FOUND
from trimtab_operator.pulsar.client.dynamic_config import OFF, SHEDDING, SPLITTING, FoundSettings
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.pulsar.own_balancer.controller import OwnBalancerController

SLOTS = (("configmaps", PULSAR_FOUND), ("balancingpolicies", "main"), CLUSTER)
C, P, Q = range(3)
MODELLED = frozenset({"configmaps", "balancingpolicies"})
FILE = {SHEDDING: "true", SPLITTING: "true", "loadBalancerEnabled": "true"}
BEFORE = {SPLITTING: "true"}
"""The dynamic configuration at the start. It has one of the switches; the other is only in each broker's file."""
PULSAR = {"pulsar": {"adminUrl": "http://pulsar:8080", "ownBalancing": "SwitchOff"}}
IDS = ("x:8080",)


def called(cluster: Raw, call: str, arguments: list[Any]) -> tuple[Raw, Any]:
    """How a call changes the dynamic configuration."""
    overrides = dict(cluster["overrides"])
    match call:
        case "runtime":
            return cluster, {**FILE, **overrides}
        case "overrides":
            return cluster, overrides
        case "override":
            overrides[arguments[0]] = arguments[1]
        case "drop_override":
            overrides.pop(arguments[0], None)
    return {**cluster, "overrides": overrides}, None


class OwnBalancerWorld:
    """The model. left: how much may still go wrong. acts: what the person and the other client may still do."""

    name = "Pulsar's own balancer"

    def __init__(self, left: Left) -> None:
        self._left, self.objects = left, Objects(called)
        self.processes = Processes(self.objects, {"check": self._check}, MODELLED, {})
        self._kube = KubeEvents(self.objects, self.processes, SLOTS, watched=(P,), late_pulsar=False)

    async def _check(self, api: MemoryApi, what: tuple[int, int, tuple[str, bool | None]]) -> tuple[str, bool | None]:
        seen, epoch, (found, off) = what
        raw = self.objects[seen]
        cluster = cluster_of(api, Clock(1000.0), epoch, {}, raw)
        cluster.relink()
        cluster.link.found = FoundSettings.from_json(found) if found else None
        cluster.link.switched_off = off
        controller = OwnBalancerController(cluster, MemoryAdmin(api.wire, IDS).real)
        try:
            await controller.check()
        except (PulsarError, ApiError) as error:
            del error  # `run` logs it, and checks again
        kept = cluster.link.found
        return (kept.to_json() if kept is not None else "", cluster.link.switched_off)

    def initial(self) -> State:
        """The balancer is on, and a policy that moves bundles has just been applied."""
        pulsar = self.objects.number({"metadata": {"name": "cluster"}, "overrides": BEFORE})
        slots = (0, self.objects.number(policy(mode="Auto", **PULSAR)), pulsar)
        views = (0, slots[P], 0)
        nothing: tuple[str, bool | None] = ("", None)
        operators = operators_of(self._left, views)
        # extra: whether another client wrote a value, then the memory of each operator
        return World(slots, operators, (), None, self._left, (0, 0, 0), (False, *[nothing] * len(operators)))

    def events(self, state: State) -> Iterator[Event]:
        """All events."""
        return map(self._kube.seen, self._events(World(*state)))  # type: ignore[arg-type]

    def _events(self, world: World) -> Iterator[Event]:
        for event in self._kube.of_operators(world, self._rests, lambda *_: ""):
            yield forgets(event, ("", None), first=1)
        for place, operator in enumerate(world.operators):
            if operator.role == LEADS and not operator.node:
                what = (operator.views[P], operator.epoch, world.extra[1 + place])
                after = self._kube.started(world, place, self.processes.start("check", what, frozenset(operator.views)))
                if after is not None:
                    yield Event(f"{NAMES[place]} checks Pulsar's own balancer", after)
        if world.left.acts:
            yield from self._others(world)

    def _rests(self, world: World, place: int, node: Node) -> World:
        return world._replace(extra=put(world.extra, 1 + place, node.result))

    def _others(self, world: World) -> Iterator[Event]:
        left = world.left._replace(acts=world.left.acts - 1)
        for mode in ("Auto", "DryRun"):
            request = Request("patch", "balancingpolicies", "main", json.dumps({"spec": {"mode": mode}}))
            slots, _ = self._kube.serve(world, request)
            if slots != world.slots:
                yield Event(f"a person sets the mode {mode}", world._replace(slots=slots, left=left), calm=False)
        call = Request("override", *CLUSTER, json.dumps([SHEDDING, "true"]))
        slots, _ = self._kube.serve(world, call)
        if slots != world.slots:
            on = world._replace(slots=slots, left=left, extra=(True, *world.extra[1:]))
            yield Event("another client switches shedding on", on, calm=False)

    def broken(self, state: State) -> str:
        """Check that the former value of everything that is off is stored, so that it can be restored."""
        world = World(*state)  # type: ignore[arg-type]
        off = [name for name, value in self._overrides(world).items() if value == OFF]
        found = self._found(world)
        lost = [name for name in off if found is None or name not in found.overrides]
        return f"{' and '.join(lost)} is off, and nothing stores what it was" if lost else ""

    def settled(self, state: State) -> bool:
        """Whether the balancer is off if a policy moves bundles, and otherwise is as it was found."""
        world = World(*state)  # type: ignore[arg-type]
        if any(o.node for o in world.operators) or world.late is not None:
            return False
        overrides, raw = self._overrides(world), self.objects[world.slots[P]]
        if raw["spec"]["mode"] == "Auto":
            return overrides.get(SHEDDING) == overrides.get(SPLITTING) == OFF
        shedding = {None, "true"} if world.extra[0] else {None}
        return not world.slots[C] and overrides.get(SPLITTING) == "true" and overrides.get(SHEDDING) in shedding

    def _overrides(self, world: World) -> dict[str, str]:
        found: dict[str, str] = self.objects[world.slots[Q]]["overrides"]
        return found

    def _found(self, world: World) -> FoundSettings | None:
        number = world.slots[C]
        return FoundSettings.from_json(self.objects[number]["data"]["found.json"]) if number else None
