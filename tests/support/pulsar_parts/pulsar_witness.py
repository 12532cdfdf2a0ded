"""Records the desired owner of each bundle and the broker that serves it, independently of the operator.

Desired owners come from a watch of the Bundle objects. Owners come from the brokers, through the tests' own client, so
a move counts as landed only when the brokers say so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import pairwise
from typing import Protocol, Self

from kube_watch import Raw, Watch
from real_pulsar.cluster import PulsarCluster
from real_pulsar.rest import PulsarRestError
from small_cluster import API
from trimtab_testbed.servers.kube_rest import KubeRest
from trimtab_testbed.simulated.cluster import object_name

LOOK_EVERY = 0.15
"""Seconds between two reads of all owners."""

_SEEN_LATE = 2 * LOOK_EVERY


class Environment(Protocol):
    """The cluster under test: a `RealPulsarCluster`."""

    rest: KubeRest
    cluster: PulsarCluster

    def name_of(self, broker_id: str) -> str:
        """Name of the Broker object of a broker id."""


@dataclass(frozen=True, slots=True)
class Change:
    """From `at` (epoch seconds) on, a bundle has this desired owner, or this owner (broker name; empty for none)."""

    at: float
    broker: str


@dataclass(frozen=True, slots=True)
class Move:
    """A desired owner other than the broker that served the bundle (Pulsar's spelling). Times in epoch seconds.

    landed:   when the destination was first seen to serve the bundle; None if another desired owner came first, or if
              the destination never served it.
    to_fresh: whether the destination had served no bundle before: the first move there costs more.
    """

    bundle: str
    source: str
    destination: str
    asked: float
    landed: float | None
    to_fresh: bool


@dataclass
class Witness:
    """Context manager. Records the bundles of `namespaces` (``tenant/name``)."""

    env: Environment
    namespaces: tuple[str, ...]
    _desired: dict[str, list[Change]] = field(default_factory=dict)
    _owners: dict[str, list[Change]] = field(default_factory=dict)
    _spelt: dict[str, str] = field(default_factory=dict)
    _done: threading.Event = field(default_factory=threading.Event)
    _watch: Watch = field(init=False)
    _owning: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        self._look()
        self._watch = Watch(self.env.rest, f"{API}/bundles", self)
        self._watch.start()
        self._owning = threading.Thread(target=self._follow_owners, daemon=True)
        self._owning.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watch.stop()
        self._owning.join()
        self._watch.join()

    # -- what was recorded --

    def owner(self, bundle: str, at: float | None = None) -> str:
        """The owner of a bundle now or at a time, by the last read before."""
        return _holding(self._owners.get(bundle, []), at)

    def moves(self) -> list[Move]:
        """All moves so far, in the order of their desired owners."""
        found = [move for bundle in list(self._desired) for move in self._moves_of(bundle)]
        return sorted(found, key=lambda move: move.asked)

    def strays(self) -> list[str]:
        """Brokers that served a bundle without being its desired owner, as text."""
        found = []
        for bundle, changes in self._owners.items():
            for before, change in pairwise(changes):
                desired_owners = self._desired.get(bundle, [])
                desired = {_holding(desired_owners, change.at), _holding(desired_owners, change.at - _SEEN_LATE)}
                if change.broker and change.broker not in desired:
                    found.append(f"{bundle}: {before.broker or 'none'} -> {change.broker}, desired: {desired}")
        return found

    def changes(self, bundle: str) -> list[Change]:
        """Each owner of the bundle, with the time it was first seen."""
        return list(self._owners.get(bundle, []))

    def quiet_since(self) -> float:
        """When the last change of a desired owner or an owner was seen (epoch seconds)."""
        every = (*self._desired.values(), *self._owners.values())
        return max((changes[-1].at for changes in every if changes), default=0.0)

    def _moves_of(self, bundle: str) -> Iterable[Move]:
        desired_owners, owners = list(self._desired[bundle]), list(self._owners.get(bundle, []))
        for n, desired in enumerate(desired_owners):
            source = _holding(owners, desired.at)
            if not desired.broker or not source or source == desired.broker:
                continue
            until = desired_owners[n + 1].at if n + 1 < len(desired_owners) else float("inf")
            landed = next(
                (o.at for o in owners if desired.at < o.at <= until + _SEEN_LATE and o.broker == desired.broker), None
            )
            yield Move(
                bundle, source, desired.broker, desired.at, landed, not self._served_before(desired.broker, desired.at)
            )

    def _served_before(self, broker: str, at: float) -> bool:
        return any(c.broker == broker and c.at < at for changes in list(self._owners.values()) for c in list(changes))

    # -- recording --

    def _follow_owners(self) -> None:
        while not self._done.wait(LOOK_EVERY):
            self._look()

    def _look(self) -> None:
        """Query the first broker that answers; without an answer, keep the last state."""
        now = time.time()
        for n in range(len(self.env.cluster.ids)):
            with suppress(OSError, HTTPException, PulsarRestError):
                owners = self.env.cluster.rest(n).owners(*self.namespaces)
                break
        else:
            return
        for bundle in owners.keys() | self._owners.keys():
            name = self.env.name_of(owners[bundle]) if bundle in owners else ""
            _note(self._owners.setdefault(bundle, []), Change(now, name))

    def listed(self, items: Iterable[Raw]) -> None:
        """Replace all Bundle objects."""
        for item in items:
            self._noted(item)

    def see(self, kind: str, item: Raw) -> None:
        """One event of a Bundle object."""
        if kind != "DELETED":
            self._noted(item)

    def _noted(self, bundle: Raw) -> None:
        name = self._spelling(bundle["metadata"]["name"])
        if name:
            _note(self._desired.setdefault(name, []), Change(time.time(), bundle["spec"].get("owner", "")))

    def _spelling(self, name: str) -> str:
        """Pulsar's name of a bundle that some broker has served; empty for others."""
        if name not in self._spelt:
            self._spelt.update({object_name(bundle): bundle for bundle in list(self._owners)})
        return self._spelt.get(name, "")


def _note(changes: list[Change], change: Change) -> None:
    if not changes or changes[-1].broker != change.broker:
        changes.append(change)


def _holding(changes: list[Change], at: float | None = None) -> str:
    past = changes if at is None else [change for change in changes if change.at <= at]
    return past[-1].broker if past else ""
