"""The common part of the models of Kubernetes objects: two operators, an API server, brokers and a person.

Each operator runs one coroutine of the product at a time. What can happen to each of its requests:

| event | budget |
|---|---|
| it is carried out and answered | - |
| it is not carried out, and the operator gets an error | a fault |
| it is carried out, and the answer is lost: the operator gets an error | a fault |
| it is carried out, its answer is lost, and the client sends it again | a fault |
| the operator gets an error, and the request is carried out at any later time | a fault |
| the operator ends before the request is sent | a fault |

A change reaches an operator's stores at any time after it was made. The operator that does not lead may take over at
any time. Then the fence of the former leader is closed, but requests that the former leader sent before may still
arrive.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from explorer import Event
from objects import Answer, Objects, Request
from process import IDLE, Node, Processes
from trimtab_operator.kube.errors import ApiUnavailableError, FencedError
from trimtab_operator.kube.fence import Fence
from trimtab_operator.pulsar.client.errors import PulsarUnavailableError

STANDBY, LEADS, DEPOSED = 0, 1, 2
NAMES = ("the first operator", "the second operator")
LOST = Answer(error=ApiUnavailableError, text="no answer")
LOST_CALL = Answer(error=PulsarUnavailableError, text="no answer")


class Operator(NamedTuple):
    """One operator. views: numbers of the objects in its stores, by slot. node: number of the process that it runs."""

    role: int
    epoch: int
    views: tuple[int, ...]
    node: int = IDLE


class Late(NamedTuple):
    """A request that is still under way although its sender gave up. held: objects that it names."""

    request: Request
    epoch: int
    held: frozenset[int]


class Left(NamedTuple):
    """Budgets: how many more of each event may happen. timeouts: for moves, splits. lag: whether stores may be late."""

    faults: int
    takeovers: int
    crashes: int
    acts: int
    lag: bool = True
    timeouts: int = 1
    slips: int = 0
    """Number of requests that were under way after their sender had given up. It only grows."""


def operators_of(left: Left, views: tuple[int, ...]) -> tuple[Operator, ...]:
    """The operators at the start: a leader, and a second one if `left` allows takeovers."""
    leader, other = Operator(LEADS, 1, views), Operator(STANDBY, 0, views)
    return (leader, other) if left.takeovers else (leader,)


class BrokerState(NamedTuple):
    """A simulated broker. up: whether it runs. serves: slots of the bundles that it serves."""

    up: bool
    serves: frozenset[int] = frozenset()


class World(NamedTuple):
    """A state. slots: the objects on the API server. writers: epoch of the last leader that wrote each of them."""

    slots: tuple[int, ...]
    operators: tuple[Operator, ...]
    brokers: tuple[BrokerState, ...]
    late: Late | None
    left: Left
    writers: tuple[int, ...]
    extra: tuple[Any, ...] = ()


def put(items: tuple[Any, ...], place: int, item: Any) -> tuple[Any, ...]:
    """`items` with `item` at `place`."""
    return (*items[:place], item, *items[place + 1 :])


class KubeEvents:
    """The events of operators and their requests, for a model of the objects `names` (kind, name), by slot.

    watched: slots that operators watch; all, if left out. late_pulsar: whether calls of Pulsar may be late, too.
    """

    def __init__(
        self,
        objects: Objects,
        processes: Processes,
        names: Sequence[tuple[str, str]],
        watched: Sequence[int] = (),
        *,
        late_pulsar: bool = True,
    ) -> None:
        self.objects, self.processes, self.names, self._late_pulsar = objects, processes, tuple(names), late_pulsar
        self._watched = tuple(watched) or tuple(range(len(self.names)))
        self._slot: Mapping[tuple[str, str], int] = {name: slot for slot, name in enumerate(self.names)}

    # -- the API server --

    def serve(self, world: World, request: Request, *more: int) -> tuple[tuple[int, ...], Answer]:
        """The objects after `request`, and its answer. more: further object numbers that a process holds."""
        if request.verb == "list":
            found = [n for (kind, _), n in zip(self.names, world.slots, strict=True) if n and kind == request.kind]
            return world.slots, Answer(tuple(found))
        slot = self._slot[request.kind, request.name]
        held = self.held(world).union(more) if request.writes else ()
        new, answer = self.objects.serve(world.slots[slot], request, held)
        return (world.slots if new == world.slots[slot] else put(world.slots, slot, new)), answer

    def held(self, world: World) -> frozenset[int]:
        """Numbers of the objects that a process may still name."""
        found = frozenset[int]().union(*(o.views for o in world.operators))
        for operator in world.operators:
            if operator.node:
                found |= self.processes[operator.node].held
        return found if world.late is None else found | world.late.held

    # -- requests --

    def of_operators(self, world: World, ended: Callable[[World, int, Node], World], check: Check) -> Iterator[Event]:
        """All events of requests, watches, exits and takeovers.

        ended: the world after a process of an operator has ended. check: what a landed write violates.
        """
        for place, operator in enumerate(world.operators):
            if operator.node:
                yield from self._of_request(world, place, operator, ended, check)
            for slot in self._watched:
                if operator.views[slot] != (now := world.slots[slot]):
                    after = operator._replace(views=put(operator.views, slot, now))
                    text = f"{NAMES[place]} sees the change of {self.names[slot][1]}"
                    yield Event(text, world._replace(operators=put(world.operators, place, after)))
        if world.late is not None:
            yield self._arrives(world, world.late, check)
        leader = next((place for place, o in enumerate(world.operators) if o.role == LEADS), None)
        if leader is None:
            yield from (self._leads(world, place, calm=True) for place in range(len(world.operators)))
        elif world.left.takeovers:
            yield self._take_over(world, leader)

    def _of_request(
        self, world: World, place: int, operator: Operator, ended: Callable[[World, int, Node], World], check: Check
    ) -> Iterator[Event]:
        request = self.processes[operator.node].request
        assert request is not None
        who, what = NAMES[place], told(request)

        def after(slots: tuple[int, ...], answer: Answer, base: World = world) -> World:
            node = self.processes.answered(operator.node, answer)
            new = base._replace(slots=slots, operators=put(base.operators, place, operator._replace(node=node)))
            return self._finish(new, place, ended)

        if request.writes and not may_write(operator.role):
            refused = Answer(error=FencedError, text="the fence is closed")
            yield Event(f"{who} is fenced: {what} is not sent", after(world.slots, refused))
            return
        slots, answer = self.serve(world, request)
        changed = slots != world.slots
        broken = ""
        if changed:
            if operator.role == DEPOSED:
                broken = "a write of a deposed leader landed"
            broken = broken or check(world, slots, request, operator.epoch)
        base = self._written(world, slots, operator.epoch)
        how = "" if answer.error is None else f", and gets {answer.error.__name__}"
        yield Event(f"{who}: {what}{how}", after(slots, answer, base), broken=broken)
        if not (world.left.faults and request.writes):
            return
        faulty = world._replace(left=world.left._replace(faults=world.left.faults - 1))
        lost = LOST if request.kind != "pulsar" else LOST_CALL
        yield Event(f"{who}: {what} fails on its way", after(world.slots, lost, faulty), calm=False)
        views = tuple(now if slot in self._watched else 0 for slot, now in enumerate(world.slots))
        dead = operator._replace(role=STANDBY, node=IDLE, views=views)
        alive = put(faulty.operators, place, dead)
        yield Event(f"{who} ends before {what}, and starts again", faulty._replace(operators=alive), calm=False)
        if world.late is None and (self._late_pulsar or request.kind != "pulsar"):
            sent = Late(request, operator.epoch, self.processes[operator.node].held)
            text = f"{who}: {what} hangs on its way, and is given up"
            yield Event(text, after(world.slots, lost, _slipped(faulty, sent)), calm=False)
        if not changed:
            return
        lossy = self._written(faulty, slots, operator.epoch)
        yield Event(f"{who}: {what}, and the answer is lost", after(slots, lost, lossy), calm=False)
        if request.kind == "pulsar":
            return
        again, second = self.serve(lossy._replace(slots=slots), request)
        text = f"{who}: {what}, and is sent a second time"
        yield Event(text, after(again, second, self._written(lossy, again, operator.epoch)), calm=False)

    def _finish(self, world: World, place: int, ended: Callable[[World, int, Node], World]) -> World:
        operator = world.operators[place]
        node = self.processes[operator.node]
        if node.request is not None:
            return world
        rests = operator._replace(node=IDLE)
        if operator.role == DEPOSED:
            rests = operator._replace(node=IDLE, role=STANDBY)
        return ended(world._replace(operators=put(world.operators, place, rests)), place, node)

    def _written(self, world: World, slots: tuple[int, ...], epoch: int) -> World:
        changed = [slot for slot, (old, new) in enumerate(zip(world.slots, slots, strict=True)) if old != new]
        writers = world.writers
        for slot in changed:
            writers = put(writers, slot, max(writers[slot], epoch))
        return world._replace(slots=slots, writers=writers)

    def _arrives(self, world: World, late: Late, check: Check) -> Event:
        slots, _ = self.serve(world, late.request)
        text = f"the delayed request of epoch {late.epoch} arrives: {told(late.request)}"
        broken = ""
        if slots != world.slots:
            slot = self._slot[late.request.kind, late.request.name]
            if late.epoch < world.writers[slot] and world.slots[slot]:
                broken = "a delayed write of an older leader landed on what a newer one had written"
            broken = broken or check(world, slots, late.request, late.epoch)
        else:
            text += ", and is refused"
        return Event(text, self._written(world._replace(late=None), slots, late.epoch), broken=broken)

    def _take_over(self, world: World, leader: int) -> Event:
        before = world.operators[leader]
        former = before._replace(role=DEPOSED if before.node else STANDBY)
        left = world.left._replace(takeovers=world.left.takeovers - 1)
        world = world._replace(operators=put(world.operators, leader, former), left=left)
        return self._leads(world, 1 - leader, calm=False)

    def _leads(self, world: World, place: int, *, calm: bool) -> Event:
        epoch = max(o.epoch for o in world.operators) + 1
        after = world.operators[place]._replace(role=LEADS, epoch=epoch, node=IDLE)
        new = world._replace(operators=put(world.operators, place, after))
        return Event(f"{NAMES[place]} leads from now on, with epoch {epoch}", new, calm=calm)

    def seen(self, event: Event) -> Event:
        """The event. If stores may not be late, they show its result immediately."""
        world = World(*event.state)  # type: ignore[arg-type]
        if world.left.lag:
            return event
        views = tuple(now if slot in self._watched else 0 for slot, now in enumerate(world.slots))
        operators = tuple(operator._replace(views=views) for operator in world.operators)
        return event._replace(state=world._replace(operators=operators))

    def started(self, world: World, place: int, node: int) -> World | None:
        """The world in which an operator runs this process; None if that process does nothing."""
        if self.processes[node].request is None:
            return None
        operator = world.operators[place]._replace(node=node)
        return world._replace(operators=put(world.operators, place, operator))


Check = Callable[[World, tuple[int, ...], Request, int], str]
"""What a write violates that changed the objects of a world: called with the world before, the objects after it, the
request and the epoch of its sender."""


def forgets(event: Event, fresh: Any, first: int = 0) -> Event:
    """The event, after which an operator that does not lead remembers only `fresh`: it will lead as a new process.

    first: the place of the first operator's memory in `World.extra`.
    """
    world = World(*event.state)  # type: ignore[arg-type]
    kept = tuple(k if o.role == LEADS else fresh for k, o in zip(world.extra[first:], world.operators, strict=True))
    return event._replace(state=world._replace(extra=(*world.extra[:first], *kept)))


def _slipped(world: World, sent: Late) -> World:
    return world._replace(late=sent, left=world.left._replace(slips=world.left.slips + 1))


def may_write(role: int) -> bool:
    """Whether the real fence lets an operator with this role write. Only the fence of a leader has been extended."""
    fence = Fence(clock=lambda: 0.0)
    if role == LEADS:
        fence.extend(1.0)
    try:
        fence.check("a write")
    except FencedError:
        return False
    return True


def told(request: Request) -> str:
    """A request in words."""
    if request.kind == "pulsar":
        return f"asks Pulsar to {request.verb} {request.body}"
    what = f"{request.verb}s {request.kind}/{request.name}"
    if request.verb == "patch":
        what = f"writes {'the status' if request.sub else 'the spec'} of {request.name} {short(request.body)}"
    return what


def short(body: str) -> str:
    """The part of a merge patch that matters."""
    found = json.loads(body)
    spec, status, meta = found.get("spec") or {}, found.get("status") or {}, found.get("metadata") or {}
    parts = {**spec, **status}
    assignment = parts.pop("assignment", None) or {}
    for dull in ("since", "conditions", "observedGeneration", "startedAt", "finishedAt", "topicNamespace", "children"):
        parts.pop(dull, None)
    if reason := assignment.get("reason"):
        parts["reason"] = reason
    if "annotations" in meta:
        parts["annotations"] = meta["annotations"]
    return "(" + ", ".join(f"{key}={value}" for key, value in parts.items()) + ")"
