"""The API server's audit log of a round: who wrote what, in which order, and whether that was allowed.

The log has request and response bodies of bundles, so the order of writes is the order of their resourceVersions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

_BUNDLES = [{"group": "trimtab.dev", "resources": ["bundles", "bundles/status"]}]

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "RequestResponse", "resources": _BUNDLES},
        {"level": "Metadata"},
    ],
}
"""Audit policy: only writes. Those of Bundle objects are logged with the bodies of request and response."""

BALANCING = frozenset({"Overloaded", "Underloaded"})
CAPPED = BALANCING | {"Topics", "Sessions", "MsgRate", "Bandwidth", "NoRoom"} | {"Drained", "RollingOut"}
"""Reasons of moves that count towards the limits, including children that leave their parent's owner, and drains."""

BURST = 0.15
"""Maximum seconds between two moves of one cycle. Two cycles are further apart: the loop waits 0.2 s between them."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One accepted write by an operator; times in epoch seconds.

    version: the resulting resourceVersion, 0 if the log does not have it. desired: the requested spec of a Bundle.
    owner: the owner of the bundle at that time.
    """

    version: int
    at: float
    user: str
    verb: str
    resource: str
    name: str
    desired: Mapping[str, Any]
    owner: str = ""

    @property
    def reason(self) -> str:
        """The reason of the desired owner; empty if the write does not set one."""
        return str((self.desired.get("assignment") or {}).get("reason", ""))

    @property
    def moves(self) -> bool:
        """Whether the move counts towards the limits."""
        return self.verb == "patch" and self.reason in CAPPED


def deeds(log: Path, users: Iterable[str]) -> list[Deed]:
    """The accepted writes of `users` except to Leases and Events. Those to bundles are in the order of their effect."""
    wanted = set(users)
    found = [_deed(event) for event in map(json.loads, log.read_text().splitlines()) if _counts(event, wanted)]
    return sorted(found, key=lambda deed: (deed.version, deed.at))


def _counts(event: Mapping[str, Any], users: set[str]) -> bool:
    accepted = event.get("responseStatus", {}).get("code", 500) < 400
    resource = event.get("objectRef", {}).get("resource", "")
    return accepted and event["user"]["username"] in users and resource not in {"leases", "events"}


def _deed(event: Mapping[str, Any]) -> Deed:
    about, answer = event["objectRef"], event.get("responseObject") or {}
    meta, asked = answer.get("metadata") or {}, event.get("requestObject") or {}
    return Deed(
        version=int(meta.get("resourceVersion") or 0),
        at=datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp(),
        user=event["user"]["username"],
        verb=event["verb"],
        resource="/".join(filter(None, (about["resource"], about.get("subresource")))),
        name=about.get("name") or meta.get("name", ""),
        desired=asked.get("spec") or {},
        owner=_owner(answer),
    )


def _owner(answer: Mapping[str, Any]) -> str:
    """The owner in the response. The response to a deletion has another kind."""
    return str((answer.get("status") or {}).get("owner", "")) if answer.get("kind") == "Bundle" else ""


def by_older_leaders(done: Iterable[Deed], epochs: Mapping[str, int]) -> list[str]:
    """Writes by operators that never led, and writes to a bundle by an older leader after a write by a newer one.

    epochs: user -> epoch.
    """
    latest, wrong = dict[str, Deed](), list[str]()
    for deed in done:
        if not epochs[deed.user]:
            wrong.append(f"{deed.user} never led, and wrote: {deed.verb} {deed.resource} {deed.name}")
        if not deed.resource.startswith("bundles") or not deed.version:
            continue
        before = latest.setdefault(deed.name, deed)
        if epochs[before.user] > epochs[deed.user]:
            wrong.append(
                f"{deed.name}: {deed.user} (epoch {epochs[deed.user]}) wrote version {deed.version} after "
                f"{before.user} (epoch {epochs[before.user]}) had written version {before.version}"
            )
        latest[deed.name] = deed
    return wrong


@dataclass(frozen=True, slots=True)
class Caps:
    """The policy's limits: moves in one cycle, from or to one broker in one cycle, and in an hour."""

    cycle: int
    broker: int
    hour: int


def over(caps: Caps, done: Iterable[Deed]) -> list[str]:
    """Cases in which more moved than the limits allow. A round is shorter than an hour, so all its moves count."""
    moves = sorted((deed for deed in done if deed.moves), key=lambda deed: (deed.user, deed.at))
    wrong = [f"{len(moves)} moves within an hour, {caps.hour} are allowed"] if len(moves) > caps.hour else []
    for burst in _bursts(moves):
        when = f"{burst[0].user} at {burst[0].at:.2f}: {', '.join(deed.name for deed in burst)}"
        if len(burst) > caps.cycle:
            wrong.append(f"{len(burst)} moves in one cycle, {caps.cycle} are allowed, by {when}")
        ends = Counter([f"to {deed.desired.get('owner', '')}" for deed in burst])
        ends.update(f"from {deed.owner}" for deed in burst)
        wrong += [
            f"{n} moves {end} in one cycle, {caps.broker} are allowed, by {when}"
            for end, n in ends.items()
            if n > caps.broker
        ]
    return wrong


def _bursts(moves: Sequence[Deed]) -> list[list[Deed]]:
    found = list[list[Deed]]()
    for deed in moves:
        last = found[-1][-1] if found else None
        if last is not None and last.user == deed.user and deed.at - last.at < BURST:
            found[-1].append(deed)
        else:
            found.append([deed])
    return found


@dataclass(frozen=True, slots=True)
class Span:
    """From `begin` to `end`, epoch seconds."""

    begin: float
    end: float

    def overlaps(self, begin: float, end: float) -> bool:
        """Whether the two intervals overlap."""
        return self.begin < end and begin < self.end


def blind(
    done: Iterable[Deed], cycles: Iterable[Mapping[str, Any]], outages: Sequence[Span], disturbed: Sequence[Span]
) -> list[str]:
    """Moves that were decided while load was unknown.

    A cycle that measured before an outage may still act in the first seconds of the outage. How late it may act is
    unknown while operators or API server are `disturbed`, so those moments are not checked.
    """
    wrong = list[str]()
    for outage in outages:
        calm = [deed for deed in done if deed.moves and deed.reason in BALANCING and _within(outage, deed.at, deed.at)]
        wrong += [
            f"{deed.user} moved {deed.name} ({deed.reason}) at {deed.at:.2f}, without data since {outage.begin:.2f}"
            for deed in calm
            if not any(span.overlaps(outage.begin - 2, deed.at) for span in disturbed)
        ]
        for cycle in cycles:
            begun = datetime.fromisoformat(cycle["time"]).timestamp()
            ended = begun + cycle["seconds"] + 1
            calm_then = not any(span.overlaps(begun - 2, ended + 1) for span in disturbed)
            if cycle["moved"] and outage.begin + 1 < begun and ended < outage.end and calm_then:
                wrong.append(f"the cycle of {cycle['time']} moved {cycle['moved']} without data: {cycle['outcome']}")
    return wrong


_ACTS_WITHIN = 3.0


def _within(outage: Span, begin: float, end: float) -> bool:
    return outage.begin + _ACTS_WITHIN < begin and end < outage.end
