"""Invariants that are watched from outside during a round: who serves each bundle, and what Bundle objects say.

It shares no code with the operator. The brokers report when they start and stop serving, and Bundles and policies come
from watches of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.client import HTTPException

from kube_watch import Raw
from trimtab_testbed.servers.kube_rest import KubeApiError

PARENT = "trimtab.dev/parent"
LAST = 0xFFFFFFFF
AWAY = (OSError, HTTPException, ValueError, KubeApiError)
"""Errors of an API server that was killed, is paused, or has just started again."""


def holes(bundles: Iterable[Raw]) -> str:
    """The parts of a ring that are not covered exactly once, as text; empty if there are none.

    A child of a split does not count while its parent exists.
    """
    there = {bundle["metadata"]["name"]: bundle for bundle in bundles}
    rings = dict[str, list[tuple[int, int, str]]]()
    for name, bundle in there.items():
        if (bundle["metadata"].get("annotations") or {}).get(PARENT) not in there:
            span = bundle["spec"]["range"]
            ring = rings.setdefault(bundle["spec"]["topicNamespace"], [])
            ring.append((int(span["lower"], 16), int(span["upper"], 16), name))
    return "; ".join(filter(None, (_gap(space, sorted(ring)) for space, ring in sorted(rings.items()))))


def _gap(space: str, ring: list[tuple[int, int, str]]) -> str:
    at = 0
    for lower, upper, name in ring:
        if lower != at:
            what = "not covered is" if lower > at else "twice covered is"
            return f"{space}: {what} what is between 0x{min(at, lower):08x} and 0x{max(at, lower):08x}, before {name}"
        at = upper
    return "" if at == LAST else f"{space}: the ring ends at 0x{at:08x}"


def _span(bundle: str) -> tuple[str, int, int]:
    namespace, _, edges = bundle.rpartition("/")
    lower, _, upper = edges.partition("_")
    return namespace, int(lower, 16), int(upper, 16)


@dataclass
class Served:
    """Who serves which bundles (Pulsar's spelling). `SimulatedCluster` calls `told`. now: seconds of any clock."""

    now: Callable[[], float] = time.monotonic
    violations: list[str] = field(default_factory=list)
    by: dict[str, set[str]] = field(default_factory=dict)
    longest: tuple[float, str] = (0.0, "")
    """The longest time in seconds without a broker for a bundle that moved from one broker to another."""
    _since: dict[str, float] = field(default_factory=dict)

    def told(self, broker: str, bundle: str, serves: bool) -> None:  # noqa: FBT001  (the value is the fact itself)
        """Note that a broker starts or stops serving a bundle."""
        mine = self.by.setdefault(broker, set())
        if not serves:
            mine.discard(bundle)
            self._since[bundle] = self.now()
            return
        mine.add(bundle)
        if (since := self._since.pop(bundle, None)) is not None:
            self.longest = max(self.longest, (self.now() - since, bundle))
        namespace, lower, upper = _span(bundle)
        for other, served in self.by.items():
            for theirs in served if other != broker else ():
                space, begin, end = _span(theirs)
                if space == namespace and begin < upper and lower < end:
                    self.violations.append(f"{broker} serves {bundle} while {other} serves {theirs}")


@dataclass
class Bundles:
    """Bundle objects as their watch shows them, one change after the other."""

    violations: list[str] = field(default_factory=list)
    there: dict[str, Raw] = field(default_factory=dict)

    def listed(self, items: Iterable[Raw]) -> None:
        """Replace all objects."""
        self.there = {item["metadata"]["name"]: item for item in items}
        self._check(f"{len(self.there)} bundles listed")

    def see(self, kind: str, bundle: Raw) -> None:
        """One event: ADDED, MODIFIED or DELETED."""
        name = bundle["metadata"]["name"]
        before = self.there.pop(name, None)
        if kind != "DELETED":
            self.there[name] = bundle
            if kind == "MODIFIED" and before is not None:
                self._follow(before, bundle)
        self._check(f"{kind} {name}")

    def _follow(self, before: Raw, after: Raw) -> None:
        had, has = (((b.get("status") or {}).get("owner") or "") for b in (before, after))
        if had and has and had != has:
            self.violations.append(f"{after['metadata']['name']} went from {had} to {has} without being given free")
        was, now = ((b["spec"].get("assignment") or {}).get("epoch", 0) for b in (before, after))
        if now and now < was:
            self.violations.append(f"{after['metadata']['name']}: epoch {now} was written over epoch {was}")

    def _check(self, after: str) -> None:
        if hole := holes(self.there.values()):
            self.violations.append(f"after {after}: {hole}")


@dataclass
class Cycles:
    """The cycles that the policy's status showed, each once."""

    seen: dict[tuple[str, int], Raw] = field(default_factory=dict)

    def listed(self, items: Iterable[Raw]) -> None:
        """Replace all policies."""
        for item in items:
            self.see("MODIFIED", item)

    def see(self, _kind: str, policy: Raw) -> None:
        if cycle := (policy.get("status") or {}).get("lastCycle"):
            self.seen[cycle["time"], cycle["moved"]] = cycle
