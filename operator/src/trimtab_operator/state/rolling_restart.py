"""Which brokers are on their way out, as their pods show it: ending, drained, or next in a rolling restart. Pure.

A StatefulSet restarts its pods one by one, from the highest ordinal down; the label `controller-revision-hash` says
which revision a pod is of, and the youngest pod is of the newest. Nothing else is asked, so this needs no right to
read StatefulSets, and a new leader sees what the last one saw.

A roll-out that makes no progress for `STALLS` (a partition, a canary, an image that can't be pulled) holds nothing up
any longer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trimtab_operator.kube.broker_records import BrokerRecord, NodeRecord, PodRecord
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.planner.drain import Drains

REVISION = "controller-revision-hash"
"""Label of a pod: the revision of its StatefulSet that it was made of."""
POD_NAME = "statefulset.kubernetes.io/pod-name"
"""Label that only pods of a StatefulSet carry."""

STALLS = 600.0
"""Seconds without progress after which a roll-out is waited for no longer."""
SETTLES = 300.0
"""Seconds for which shedding waits at most until a pod that is new can be believed."""


@dataclass(frozen=True, slots=True)
class Member:
    """A broker of a StatefulSet, and its pod."""

    broker: str
    pod: PodRecord
    ordinal: int


@dataclass(frozen=True, slots=True)
class RollingRestart:
    """Rolling restarts as they stand, by names of brokers.

    restarted: ready and of the newest revision, while others are not. following: those that restart next, one of each
    StatefulSet. text: how far it is; empty when nobody restarts. young: brokers whose pod is new.
    """

    restarted: frozenset[str] = frozenset()
    following: frozenset[str] = frozenset()
    text: str = ""
    young: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Departures:
    """Brokers on their way out, by name.

    ending: their pod is being terminated. cordoned: the node of their pod takes no pods. drained: people want them
    empty, by either way.
    """

    ending: frozenset[str] = frozenset()
    cordoned: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    rollout: RollingRestart = RollingRestart()

    @property
    def closed(self) -> frozenset[str]:
        """Those that take nothing, whatever their spec says."""
        return self.ending | self.cordoned

    def evacuation(self, load: ClusterLoad | None = None) -> Drains:
        """What is to be moved before the load is asked. load: as measured; None: nothing is known of it."""
        rollout, text = self.rollout, self.rollout.text
        if not text and load is not None and (names := _not_believed(load, rollout.young)):
            text = f"{', '.join(names)} started lately and can't be measured yet: nothing is shed meanwhile"
        pause = HeldBack("", Reason.ROLLING_OUT, text) if text else None
        return Drains(self.drained, rollout.following - self.ending, rollout.restarted, pause)


NO_DEPARTURES = Departures()
"""All stay."""


def departures(
    brokers: Mapping[str, BrokerRecord],
    pods: Mapping[str, PodRecord],
    nodes: Mapping[str, NodeRecord],
    now: float,
) -> Departures:
    """Who of `brokers` leaves; now: epoch seconds. nodes: empty where they are not watched."""
    there = {name: pods[broker.pod] for name, broker in brokers.items() if broker.pod in pods}
    ending = frozenset(name for name, pod in there.items() if pod.deleted)
    cordoned = frozenset(name for name, pod in there.items() if pod.node in nodes and nodes[pod.node].cordoned)
    closed = frozenset(name for name, broker in brokers.items() if not broker.schedulable)
    return Departures(ending, cordoned, (closed | cordoned) - ending, rolling_restart(there, now))


def rolling_restart(pods: Mapping[str, PodRecord], now: float) -> RollingRestart:
    """What the pods behind brokers (by the broker's name) show; now: epoch seconds."""
    sets = dict[str, list[Member]]()
    for broker, pod in pods.items():
        name, _, ordinal = pod.name.rpartition("-")
        if POD_NAME in pod.labels and ordinal.isdecimal():
            sets.setdefault(name, []).append(Member(broker, pod, int(ordinal)))
    found = [_rollout(name, members, now) for name, members in sorted(sets.items())]
    return RollingRestart(
        restarted=frozenset().union(*(one.restarted for one in found)),
        following=frozenset().union(*(one.following for one in found)),
        text="; ".join(one.text for one in found if one.text),
        young=frozenset().union(*(one.young for one in found)),
    )


def _rollout(name: str, members: list[Member], now: float) -> RollingRestart:
    """The same of one StatefulSet."""
    newest = max((m.pod for m in members), key=lambda pod: (_known(pod.created), pod.name)).labels.get(REVISION)
    old = [m for m in members if m.pod.labels.get(REVISION) != newest]
    young = frozenset(m.broker for m in members if m.pod.ready and now - m.pod.since < SETTLES)
    under_way = old or [m for m in members if m.pod.deleted or _starts(m.pod, now)]
    if not under_way or now - _last_progress(members) > STALLS:
        return RollingRestart(young=young)
    updated = [m for m in members if m.pod.labels.get(REVISION) == newest]
    restarted = frozenset(m.broker for m in updated if m.pod.ready) if old else frozenset[str]()
    following = max((m for m in old if not m.pod.deleted), key=lambda m: m.ordinal, default=None)
    stands = f"{len(updated)} of {len(members)} are updated" if old else f"{len(under_way)} of {len(members)} restart"
    return RollingRestart(
        restarted=restarted,
        following=frozenset([following.broker] if following is not None else ()),
        text=f"pods of StatefulSet {name}: {stands}; nothing is shed until all are ready and measured",
        young=young,
    )


def _starts(pod: PodRecord, now: float) -> bool:
    """Whether a pod is not ready because it is new; one that broke is none of a roll-out's."""
    return not pod.ready and now - pod.created < STALLS


def _last_progress(members: Iterable[Member]) -> float:
    return max(_known(m.pod.since) for m in members)


def _known(time: float) -> float:
    return -math.inf if math.isnan(time) else time


def _not_believed(load: ClusterLoad, young: frozenset[str]) -> list[str]:
    trusted = dict(zip(load.brokers.names, load.brokers.trusted.tolist(), strict=True))
    return sorted(name for name in young if not trusted.get(name, True))
