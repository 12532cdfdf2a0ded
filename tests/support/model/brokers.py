"""Simulated brokers of the models: they follow desired owners in the same steps as the testbed's brokers.

A broker sees each change immediately. Late views need no model, because the API server would refuse a write based on an
older version. A broker first stops serving a bundle, and writes that in a second step. A broker that takes a bundle
does so in two steps, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from explorer import Event
from kube_world import BrokerState, KubeEvents, World, put
from objects import Request
from trimtab_operator.resources.bundle import PARENT
from trimtab_testbed.simulated.ownership import Step, step

BROKERS = ("x", "y", "z")


class Brokers:
    """The events of brokers. bundles: slots of the Bundle objects in `World.slots`."""

    def __init__(self, kube: KubeEvents, bundles: Sequence[int]) -> None:
        self._kube, self._bundles = kube, tuple(bundles)
        self._steps: dict[tuple[int, str], Step] = {}

    def events(self, world: World) -> Iterator[Event]:
        """All events of running brokers."""
        for place, broker in enumerate(world.brokers):
            if not broker.up:
                continue
            gone = [slot for slot in broker.serves if not world.slots[slot]]
            for slot in self._bundles:
                if world.slots[slot]:
                    yield from self._of(world, place, slot, busy=bool(gone))
            for slot in gone:
                text = f"{BROKERS[place]} stops serving {self._name(slot)}, which is gone"
                yield Event(text, self._serving(world, place, broker.serves - {slot}))

    def crashes(self, world: World) -> Iterator[Event]:
        """A running broker crashes, and stays down."""
        for place, broker in enumerate(world.brokers):
            if broker.up and world.left.crashes:
                left = world.left._replace(crashes=world.left.crashes - 1)
                down = put(world.brokers, place, BrokerState(up=False))
                yield Event(f"{BROKERS[place]} crashes", world._replace(brokers=down, left=left), calm=False)

    def ready(self, world: World) -> tuple[str, ...]:
        """Names of the running brokers."""
        return tuple(name for name, broker in zip(BROKERS, world.brokers, strict=True) if broker.up)

    def _name(self, slot: int) -> str:
        return self._kube.names[slot][1]

    def _serving(self, world: World, place: int, serves: frozenset[int]) -> World:
        return world._replace(brokers=put(world.brokers, place, world.brokers[place]._replace(serves=serves)))

    def _of(self, world: World, place: int, slot: int, *, busy: bool) -> Iterator[Event]:
        me, broker, raw = BROKERS[place], world.brokers[place], self._kube.objects[world.slots[slot]]
        name, serves, blocked = self._name(slot), slot in broker.serves, self._blocked(world, raw)
        if serves and blocked:
            yield Event(f"{me} stops serving {name}", self._serving(world, place, broker.serves - {slot}))
            return
        what = self._step(world.slots[slot], me)
        if what in {Step.RELEASE, Step.LEAVE} and serves:
            yield Event(f"{me} stops serving {name}", self._serving(world, place, broker.serves - {slot}))
        elif what is Step.RELEASE and not busy and not blocked:
            yield self._writes(world, slot, f"{me} writes that it has released {name}", owner="", state="Free")
        elif what is Step.TAKE:
            text = f"{me} writes that it takes {name}"
            yield self._writes(world, slot, text, owner=me, state="Owned", observedGeneration=_generation(raw))
        elif what in {Step.CONFIRM, Step.SERVE} and not serves and not blocked:
            yield Event(f"{me} serves {name}", self._serving(world, place, broker.serves | {slot}))
        elif what is Step.CONFIRM:
            yield self._writes(world, slot, f"{me} confirms {name}", observedGeneration=_generation(raw))

    def _step(self, number: int, me: str) -> Step:
        if (found := self._steps.get((number, me))) is None:
            found = self._steps[number, me] = step(self._kube.objects[number], me)
        return found

    def _blocked(self, world: World, raw: dict[str, Any]) -> bool:
        """Whether the bundle is a child whose parent still exists."""
        parent = (raw["metadata"].get("annotations") or {}).get(PARENT, "")
        names = {self._name(slot) for slot in self._bundles if world.slots[slot]} if parent else set()
        return parent in names

    def _writes(self, world: World, slot: int, text: str, **status: Any) -> Event:
        body = json.dumps({"status": status}, sort_keys=True)
        slots, _ = self._kube.serve(world, Request("patch", "bundles", self._name(slot), body, "status"))
        return Event(text, world._replace(slots=slots))


def _generation(raw: dict[str, Any]) -> int:
    return int(raw["metadata"]["generation"])
