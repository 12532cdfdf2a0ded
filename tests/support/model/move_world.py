"""The model of moves: an approved proposal, reconciliation, two operators, three brokers, two bundles, a person.

Each operator runs whole rounds of the product: `BundleReconciler.reconcile`, and `Approver.attend`, whose state is in a
ConfigMap. The policy's rules allow one pending move at a time, or (`HOURLY`) only one move at all. The spent budget is
in another ConfigMap, which each round reads again. A broker that crashes stays down and serves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from brokers import BROKERS, Brokers
from explorer import Event, State
from kube_world import LEADS, NAMES, BrokerState, KubeEvents, Left, World, forgets, operators_of, put
from model_objects import SPACE, Clock, NoSource, broker, bundle, cluster_of, policy, space
from move_memory import Kept, approver_with, kept_of, proposal, stored
from objects import Objects, Raw, Request
from process import MemoryApi, Node, Processes
from trimtab_operator.actuators import DeclarativeActuator
from trimtab_operator.budget.prices import Prices
from trimtab_operator.kube.errors import ApiError
from trimtab_operator.kube.naming import BUDGET, bundle_name
from trimtab_operator.kube.records import WITHDRAWN
from trimtab_operator.proposals.saved_plan import MovePlan, SavedMove
from trimtab_operator.reconcile.bundles import BundleReconciler
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.policy_status import PLAN_ANNOTATION, REBALANCE_ANNOTATION
from trimtab_operator.splits.steps import owner_of, owner_pending
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.status.publisher import StatusPublisher

EDGES = ("0x00000000", "0x80000000", "0xffffffff")
LOW, HIGH = bundle_name("t", "n", *EDGES[:2]), bundle_name("t", "n", *EDGES[1:])
CONFIG_MAP = "trimtab-proposal-main"
SLOTS = (
    ("bundles", LOW),
    ("bundles", HIGH),
    ("balancingpolicies", "main"),
    ("configmaps", CONFIG_MAP),
    ("configmaps", BUDGET),
)
L, H, P, C, A = range(5)
MODELLED = frozenset({"bundles", "balancingpolicies", "configmaps"})
RULES = {
    "mode": Mode.APPROVE,
    "limits": {"maxMovesInFlight": 1, "maxLostBrokersPercent": 50, "moveTimeout": "60s", "lostAfter": "30s"},
}
BUDGETED = {**RULES, "limits": {**RULES["limits"], "maxMovesInFlight": 2}, "budget": {"movesInFlight": 1}}  # type: ignore[dict-item]
"""One pending move at a time by a disruption budget: both bundles are in one namespace."""
HOURLY = {**RULES, "limits": {**RULES["limits"], "maxMovesInFlight": 2}, "budget": {"connectionsPercentPerHour": 60}}  # type: ignore[dict-item]
"""Each move disconnects half of the clients, so one move an hour is allowed. In the model the hour never ends."""
PLANNED = {**RULES, "mode": Mode.AUTO}
"""The person has approved a saved plan of the two moves, in mode Auto. A proposal is left from mode Approve."""
OVER = frozenset({"Ready", "NotReady", "Stopped", "PendingProposal"})
MOVES = ((LOW, f"t/n/{EDGES[0]}_{EDGES[1]}", "x", "y"), (HIGH, f"t/n/{EDGES[1]}_{EDGES[2]}", "x", "z"))
"""The proposal: bundle object, bundle, source, destination."""
HALF = np.array([50.0, 50.0])
PRICES = Prices(
    rows={full: row for row, (_, full, *_) in enumerate(MOVES)},
    namespaces=("t/n",),
    namespace=np.zeros(2, dtype=np.int64),
    of_policy=HALF,
    of_namespace=HALF,
)


class MoveWorld:
    """The model. left: how much may still go wrong. rules: the policy's spec."""

    name = "moves"

    def __init__(self, left: Left, rules: Mapping[str, Any] = RULES) -> None:
        self._left, self._rules = left, rules
        self.objects = Objects()
        known = {("topicnamespaces", SPACE): space(), ("balancingpolicies", "main"): policy(**rules)}
        programs = {"repair": self._repair, "attend": self._attend}
        self.processes = Processes(self.objects, programs, MODELLED, known)
        self._kube = KubeEvents(self.objects, self.processes, SLOTS, watched=(L, H, P))
        self._brokers = Brokers(self._kube, (L, H))
        self._known = known

    # -- production code --

    def _run(
        self, api: MemoryApi, epoch: int, views: tuple[int, ...], what: tuple[tuple[str, ...], bool, bool]
    ) -> tuple[Any, PolicyRun, StatusPublisher]:
        """Prepare a round: the operator's real state, its `PolicyRun`, and a publisher whose requests are not events.

        what: names of the ready brokers; whether the others count as lost; whether pending moves count as overdue.
        """
        ready, lost, overdue = what
        raws = [self.objects[number] for number in (views[L], views[H]) if number]
        clock = Clock(0.0 if overdue else 1000.0)
        objects = {
            "topicnamespaces": [space()],
            "brokers": [broker(name, ready=name in ready) for name in BROKERS],
            "bundles": raws,
        }
        cluster = cluster_of(api, clock, epoch, objects, policy(**self._rules))
        if lost:
            cluster.lost_brokers.update(ready, BROKERS, 0.0)
        cluster.budget.prices["main"] = PRICES
        clock.seconds = 1000.0
        settings = replace(cluster.policies.settings["main"])
        actuator = DeclarativeActuator(api.real, "ns", "main", epoch, cluster.now)
        run = PolicyRun(settings, actuator, NoSource(), PolicyState())
        quiet = MemoryApi(api.wire, frozenset(), self._known)
        return cluster, run, StatusPublisher(replace(cluster, api=quiet.real), "main", "policy")

    async def _repair(self, api: MemoryApi, what: Any) -> None:
        views, epoch, *how = what
        cluster, run, publisher = self._run(api, epoch, views, how)
        await BundleReconciler(cluster).reconcile(run, publisher)

    async def _attend(self, api: MemoryApi, what: Any) -> Kept:
        views, epoch, ready, kept = what
        cluster, run, publisher = self._run(api, epoch, views, (ready, False, False))
        raw = self.objects[views[P]]
        run = replace(run, settings=Settings.of(raw))
        approver = approver_with(cluster, publisher, kept, run.settings.mode)
        try:
            await approver.attend(run, raw)
        except ApiError:  # the loop logs it, and the next round starts again
            return kept_of(approver)
        return kept_of(approver)

    # -- the model --

    def initial(self) -> State:
        """Two bundles on x, and a person who has just approved a proposal or a plan that moves both."""
        low, high = (
            self.objects.number(bundle(name, *edges, "x")) for name, edges in ((LOW, EDGES[:2]), (HIGH, EDGES[1:]))
        )
        rules = policy(**self._rules)
        rules["metadata"]["annotations"] = {REBALANCE_ANNOTATION: "approve"}
        if self._rules is PLANNED:
            saved = tuple(SavedMove(bundle=name, source=source, destination=to) for name, _, source, to in MOVES)
            plan = MovePlan(kind="MovePlan", namespace="ns", policy="main", moves=saved)
            rules["metadata"]["annotations"][PLAN_ANNOTATION] = plan.sent
        slots = (low, high, self.objects.number(rules), self.objects.number(stored(proposal(MOVES))), 0)
        brokers = (BrokerState(up=True, serves=frozenset({L, H})), BrokerState(up=True), BrokerState(up=True))
        views = (*slots[:C], 0, 0)
        operators = operators_of(self._left, views)
        return World(slots, operators, brokers, None, self._left, (0,) * len(slots), (None,) * len(operators))

    def events(self, state: State) -> Iterator[Event]:
        """All events."""
        return map(self._kube.seen, self._events(World(*state)))  # type: ignore[arg-type]

    def _events(self, world: World) -> Iterator[Event]:
        for event in self._kube.of_operators(world, self._rests, self._check):
            yield forgets(event, None)
        yield from self._starts(world)
        yield from self._brokers.events(world)
        if world.left.crashes:
            yield from self._brokers.crashes(world)
        if world.left.acts:
            yield from self._person(world)

    def _rests(self, world: World, place: int, node: Node) -> World:
        return world if node.program == "repair" else world._replace(extra=put(world.extra, place, node.result))

    def _starts(self, world: World) -> Iterator[Event]:
        ready = self._brokers.ready(world)
        for place, operator in enumerate(world.operators):
            if operator.role != LEADS or operator.node:
                continue
            pending = any(n and owner_pending(self.objects[n]) for n in operator.views[:2])
            held = frozenset(operator.views)
            for lost, overdue in product((False, True), repeat=2):
                if (lost and len(ready) == len(BROKERS)) or (overdue and not (pending and world.left.timeouts)):
                    continue
                what = (operator.views, operator.epoch, ready, lost, overdue)
                after = self._kube.started(world, place, self.processes.start("repair", what, held))
                if after is not None:
                    left = world.left._replace(timeouts=world.left.timeouts - overdue)
                    after = after._replace(left=left)
                    why = f"{' with lost brokers' * lost}{' with overdue moves' * overdue}"
                    yield Event(f"{NAMES[place]} begins a round of repairs{why}", after)
            kept = world.extra[place]
            node = self.processes.start("attend", (operator.views, operator.epoch, ready, kept), held)
            if (after := self._kube.started(world, place, node)) is not None:
                yield Event(f"{NAMES[place]} attends to the proposal", after)
            elif (result := self.processes[node].result) != kept:
                yield Event(
                    f"{NAMES[place]} notes moves that ended", world._replace(extra=put(world.extra, place, result))
                )

    def _person(self, world: World) -> Iterator[Event]:
        left = world.left._replace(acts=world.left.acts - 1)
        stop = json.dumps({"metadata": {"annotations": {REBALANCE_ANNOTATION: "stop"}}})
        acts = (
            ("moves the first bundle to z", Request("patch", "bundles", LOW, json.dumps({"spec": {"owner": "z"}}))),
            ("pins the second bundle", Request("patch", "bundles", HIGH, json.dumps({"spec": {"pinned": True}}))),
            ("stops the proposal", Request("patch", "balancingpolicies", "main", stop)),
        )
        for text, request in acts:
            slots, answer = self._kube.serve(world, request)
            if answer.error is None and slots != world.slots:
                yield Event(f"a person {text}", world._replace(slots=slots, left=left), calm=False)

    # -- what must hold --

    def _check(self, world: World, slots: tuple[int, ...], request: Request, _epoch: int) -> str:
        slot = next(s for s, name in enumerate(SLOTS) if name == (request.kind, request.name))
        if slot not in {L, H} or request.sub:
            return ""
        old, new = self.objects[world.slots[slot]], self.objects[slots[slot]]
        wanted, given = old["spec"].get("owner", ""), new["spec"].get("owner", "")
        reason = (new["spec"].get("assignment") or {}).get("reason", "")
        ready = self._brokers.ready(world)
        if wanted == given:
            return ""
        other = self.objects[world.slots[L + H - slot]]
        return self._over_budget(other, reason) or _lost(old, given, reason, ready)

    def _over_budget(self, other: Raw, reason: str) -> str:
        """What a move violates if the policy has also moved the `other` bundle, even if that move was withdrawn.

        Without a person, each assignment began with a move of the policy.
        """
        second = self._rules is HOURLY and reason == "Overloaded" and other["spec"].get("assignment")
        return "a second move was written, and the budget allows one" if second else ""

    def broken(self, state: State) -> str:
        """No bundle is served twice, and no more moves are pending than allowed."""
        world = World(*state)  # type: ignore[arg-type]
        for slot in (L, H):
            served = [name for name, b in zip(BROKERS, world.brokers, strict=True) if slot in b.serves]
            if len(served) > 1:
                return f"{' and '.join(served)} serve the same bundle"
        moving = [SLOTS[slot][1] for slot in (L, H) if _balancing(self.objects[world.slots[slot]])]
        if len(moving) > 1 + world.left.slips:
            return "two moves of the proposal are pending, and one may be"
        return ""

    def settled(self, state: State) -> bool:
        """Whether desired owners serve all bundles, and the proposal has ended or waits for the end of the hour."""
        world = World(*state)  # type: ignore[arg-type]
        if any(o.node for o in world.operators) or world.late is not None:
            return False
        served = all(self._served(world, slot) for slot in (L, H))
        asked = (self.objects[world.slots[P]]["metadata"].get("annotations") or {}).get(REBALANCE_ANNOTATION)
        return served and not asked and (self._state(world) in OVER or self._spent(world))

    def _spent(self, world: World) -> bool:
        """Whether the hourly budget is spent: a move was made, even if it was withdrawn."""
        moved = any(self.objects[world.slots[slot]]["spec"].get("assignment") for slot in (L, H))
        return self._rules is HOURLY and moved

    def _state(self, world: World) -> str:
        return str(json.loads(self.objects[world.slots[C]]["data"]["state.json"])["state"])

    def _served(self, world: World, slot: int) -> bool:
        raw = self.objects[world.slots[slot]]
        owner = raw["spec"].get("owner")
        if owner not in BROKERS or owner_pending(raw) or owner_of(raw) != owner:
            return False
        return slot in world.brokers[BROKERS.index(owner)].serves


def _lost(old: Raw, given: str, reason: str, ready: Sequence[str]) -> str:
    """What a new desired owner violates. ready: names of the running brokers."""
    wanted = old["spec"].get("owner", "")
    up = wanted in ready
    if old["spec"].get("pinned") and up and owner_of(old) == wanted:
        return f"a pinned bundle leaves {wanted} ({reason})"
    if _by_person(old) and owner_pending(old) and reason not in WITHDRAWN:
        return f"the desired owner of a person was lost: {wanted} became {given} ({reason})"
    if reason == "BrokerLost" and up and owner_of(old) in ready:
        return f"a move to {wanted} was withdrawn as lost, and {wanted} runs"
    return ""


def _by_person(raw: Raw) -> bool:
    return bool((raw["spec"].get("assignment") or {}).get("owner", "") != raw["spec"].get("owner", ""))


def _balancing(raw: Raw) -> bool:
    """Whether the policy's move of a bundle is pending."""
    assignment = raw["spec"].get("assignment") or {}
    if assignment.get("reason") not in {"Overloaded", "Approved"}:
        return False
    return assignment.get("owner") == raw["spec"].get("owner") and owner_pending(raw)
