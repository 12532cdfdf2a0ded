"""Brokers that are leaving: terminating, drained, or next in a rolling restart.

A StatefulSet restarts its pods one by one, from the highest ordinal down. The label `controller-revision-hash` names
the revision of a pod. The ordinals and ages of the pods tell which revision is the newest. Only pods are read. So the
operator needs no permission to read StatefulSets, and a new leader finds what the last one found.

Pods of other controllers (the label `pod-template-hash` names their revision), and pods without one, restart in any
order, so no pod is known to be the next. Their restart is seen all the same: pods end, start, or became ready lately.

A rolling restart that makes no progress for `STALLS` (a partition, a canary, an image that can't be pulled) does not
hold back shedding any longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab_operator.kube.broker_records import BrokerRecord, NodeRecord, PodRecord
from trimtab_operator.state.cluster import ClusterState
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.planner.drain import Drains

REVISION = "controller-revision-hash"
"""Label of a pod: the revision of its StatefulSet, or of another controller."""
TEMPLATE = "pod-template-hash"
"""Label of a pod of a Deployment: its revision, which is also a part of the pod's name."""
POD_NAME = "statefulset.kubernetes.io/pod-name"
"""Label that only pods of a StatefulSet carry."""

STALLS = 600.0
"""Seconds without progress after which a rolling restart is ignored."""
SETTLES = 300.0
"""Maximum number of seconds for which shedding waits until the load of a new pod is trusted."""


@dataclass(frozen=True, slots=True)
class Member:
    """A broker, and its pod. ordinal: the pod's number in its StatefulSet; -1 for pods without an order."""

    broker: str
    pod: PodRecord
    ordinal: int

    @property
    def revision(self) -> str | None:
        """The revision that the pod has; None: unknown."""
        return self.pod.labels.get(REVISION, self.pod.labels.get(TEMPLATE))


@dataclass(frozen=True, slots=True)
class RollingRestart:
    """The state of rolling restarts, by names of brokers.

    restarted: brokers that are ready and have the newest revision, while others of their set have an older one.
    following: those that restart next, one of each StatefulSet. text: the progress; empty when there is no restart.
    young: brokers whose pod is new.
    """

    restarted: frozenset[str] = frozenset()
    following: frozenset[str] = frozenset()
    text: str = ""
    young: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Departures:
    """Brokers that are leaving, by name.

    ending: brokers whose pod is being terminated. cordoned: brokers whose pod is on a cordoned node. drained: brokers
    that should be empty according to their spec or their node.
    """

    ending: frozenset[str] = frozenset()
    cordoned: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    rollout: RollingRestart = RollingRestart()

    @property
    def closed(self) -> frozenset[str]:
        """Brokers that accept no bundles, whatever their spec says."""
        return self.ending | self.cordoned

    def drains(self, load: ClusterLoad | None = None) -> Drains:
        """The brokers to be emptied, and why shedding pauses in the meantime.

        load: the measured load, which says whether new brokers are trusted yet; None: unknown.
        """
        rollout, text = self.rollout, self.rollout.text
        if not text and load is not None and (names := _not_believed(load, rollout.young)):
            text = f"{', '.join(names)} started lately and can't be measured yet: nothing is shed meanwhile"
        pause = HeldBack("", Reason.ROLLING_OUT, text) if text else None
        return Drains(self.drained, rollout.following - self.ending, rollout.restarted, pause)


NO_DEPARTURES = Departures()
"""No broker is leaving."""


def departures_of(cluster: ClusterState, policy: str) -> Departures:
    """The brokers of a policy that are leaving now."""
    return departures(cluster.brokers_of(policy), cluster.stores.pods.items, cluster.known_nodes(), cluster.now())


def departures(
    brokers: Mapping[str, BrokerRecord], pods: Mapping[str, PodRecord], nodes: Mapping[str, NodeRecord], now: float
) -> Departures:
    """The brokers that are leaving. now: epoch seconds. nodes: empty where they are not watched."""
    there = {name: pods[broker.pod] for name, broker in brokers.items() if broker.pod in pods}
    ending = frozenset(name for name, pod in there.items() if pod.deleted)
    cordoned = frozenset(name for name, pod in there.items() if pod.node in nodes and nodes[pod.node].cordoned)
    closed = frozenset(name for name, broker in brokers.items() if not broker.schedulable)
    return Departures(ending, cordoned, (closed | cordoned) - ending, rolling_restart(there, now))


def rolling_restart(pods: Mapping[str, PodRecord], now: float) -> RollingRestart:
    """The rolling restarts among `pods` (name of the broker -> its pod). now: epoch seconds."""
    sets = dict[str, list[Member]]()
    for broker, pod in pods.items():
        name, ordinal = _place(pod)
        sets.setdefault(name, []).append(Member(broker, pod, ordinal))
    found = [_rollout(name, members, now) for name, members in sorted(sets.items())]
    return RollingRestart(
        restarted=frozenset().union(*(one.restarted for one in found)),
        following=frozenset().union(*(one.following for one in found)),
        text="; ".join(one.text for one in found if one.text),
        young=frozenset().union(*(one.young for one in found)),
    )


def _place(pod: PodRecord) -> tuple[str, int]:
    """The set of pods that restart together, in words, and the ordinal of a pod in it; -1 if its pods have no order."""
    name, _, ordinal = pod.name.rpartition("-")
    if POD_NAME in pod.labels and ordinal.isdecimal():
        return f"pods of StatefulSet {name}", int(ordinal)
    name = pod.name.rpartition(f"-{pod.labels.get(TEMPLATE)}-")[0]
    return f"pods of {name}" if name else "pods", -1


def _rollout(name: str, members: list[Member], now: float) -> RollingRestart:
    """The rolling restart of one set of pods."""
    newest = _newest(members)
    updated = [m for m in members if m.revision == newest]
    others = [m for m in members if m.revision != newest]
    old = others if _goes_on(updated, others, now) else []
    young = frozenset(m.broker for m in members if m.pod.ready and now - m.pod.since < SETTLES)
    under_way = old or [m for m in members if m.pod.deleted or _starts(m.pod, now)]
    if not under_way or now - max(_known(m.pod.since) for m in members) > STALLS:
        return RollingRestart(young=young)
    restarted = frozenset(m.broker for m in updated if m.pod.ready) if old else frozenset[str]()
    following = max((m for m in old if m.ordinal >= 0 and not m.pod.deleted), key=_ordinal, default=None)
    stands = f"{len(updated)} of {len(members)} are updated" if old else f"{len(under_way)} of {len(members)} restart"
    return RollingRestart(
        restarted=restarted,
        following=frozenset([following.broker] if following is not None else ()),
        text=f"{name}: {stands}; nothing is shed until all are ready and measured",
        young=young,
    )


def _goes_on(updated: list[Member], others: list[Member], now: float) -> bool:
    """Whether an updated pod, or the one that is updated next, changed lately. Other pods may restart at any time."""
    following = max((m for m in others if m.ordinal >= 0), key=_ordinal, default=None)
    concerned = updated if following is None else [*updated, following]
    return bool(updated) and now - max(_known(m.pod.since) for m in concerned) <= STALLS


def _newest(members: list[Member]) -> str | None:
    """The revision that a set of pods rolls out; None: it has none, or the pods do not tell which.

    Without an order of the pods, it is the revision that began last. In a StatefulSet it is that of the youngest pod.
    But a pod that restarts before its turn comes back with its old revision. Then it is that of the highest ordinal, as
    long as the youngest pod's revision has an older pod. Otherwise a person may have deleted the pods in an order of
    their own.
    """
    youngest = max(members, key=lambda m: (_known(m.pod.created), m.pod.name)).revision
    if members[0].ordinal < 0:
        return max((m.revision for m in members), key=lambda revision: _begun(members, revision))
    top = max(members, key=_ordinal).revision
    if top == youngest or _begun(members, top) > _begun(members, youngest):
        return top
    return None


def _ordinal(member: Member) -> int:
    return member.ordinal


def _begun(members: list[Member], revision: str | None) -> float:
    """When the oldest pod of a revision was created."""
    return min(_known(m.pod.created) for m in members if m.revision == revision)


def _starts(pod: PodRecord, now: float) -> bool:
    """Whether a pod is not ready because it is new, rather than because it failed."""
    return not pod.ready and now - pod.created < STALLS


def _known(time: float) -> float:
    return -math.inf if math.isnan(time) else time


def _not_believed(load: ClusterLoad, young: frozenset[str]) -> list[str]:
    trusted = dict(zip(load.brokers.names, load.brokers.trusted.tolist(), strict=True))
    return sorted(name for name in young if not trusted.get(name, True))
