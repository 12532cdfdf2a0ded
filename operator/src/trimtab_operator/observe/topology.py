"""Turns the objects of the cluster into the pipeline's `Topology`: 60,000 rows, built off the event loop.

It also reads what TopicNamespaces ask for and what Brokers are, in the words of the strategies. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab_operator.kube.broker_records import BrokerRecord, PodRecord
from trimtab_operator.kube.records import BundleRecord, TopicNamespaceRecord
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.departures import NO_DEPARTURES, Departures
from trimtab_operator.state.pending_moves import PendingMove
from trimtab_operator.state.settings import Settings
from trimtab_operator.state.splitting_bundles import Expected, still_expected, unborn
from trimtab_pipeline.api import Topology
from trimtab_strategies.model import NO_POLICY, RESOURCES, BrokerTraits, NamespacePolicy, Reason

COUNTS_AS_MOVE = frozenset(
    {Reason.OVERLOADED, Reason.UNDERLOADED, Reason.ADOPTED, Reason.DRAINED}
    | {Reason.TOPICS, Reason.SESSIONS, Reason.MSG_RATE, Reason.BANDWIDTH}
)
"""Assignments that start a bundle's cool-down: a child that left its parent's owner has moved. Giving an unowned bundle
an owner is no move, nor is being found with one, nor being cut out, nor making way for a restart: the plan after it may
need the bundle."""


@dataclass(frozen=True, slots=True)
class ClusterRecords:
    """The resources at one moment: immutable records, in the order in which they become rows.

    namespaces: object name of a TopicNamespace -> ``tenant/name``.
    flights:    moves whose load may still be measured at their source.
    clock:      the moment, on the clock of the flights.
    policies:   what is asked, by ``tenant/name``. traits: what brokers are, by name.
    expected:   what is believed of bundles that were cut out lately, in Pulsar's spelling.
    departures: brokers on their way out. admin: by name of a broker the URL it is asked for its statistics at.
    """

    brokers: Sequence[BrokerRecord]
    bundles: Sequence[BundleRecord]
    namespaces: Mapping[str, str]
    pending_moves: Sequence[PendingMove]
    clock: float
    policies: Mapping[str, NamespacePolicy] = field(default_factory=dict)
    traits: Mapping[str, BrokerTraits] = field(default_factory=dict)
    expected: Mapping[str, Expected] = field(default_factory=dict)
    departures: Departures = NO_DEPARTURES
    admin: Mapping[str, str] = field(default_factory=dict)


def last_unload(bundle: BundleRecord) -> float:
    """Epoch seconds at which the bundle last moved from one owner to another, NaN never.

    What the operator decided carries its own time. An owner that differs from the one the operator chose was written
    by a person or by Git; such a move counts from when it was confirmed, noted as `ADMIN` or not.
    """
    if bundle.assigned_owner != bundle.owner or bundle.reason == Reason.ADMIN:
        return bundle.since if bundle.generation > 1 else np.nan
    return bundle.assigned_at if bundle.reason in COUNTS_AS_MOVE else np.nan


def topology(picture: ClusterRecords, *, window: float) -> tuple[Topology, tuple[BundleRecord, ...]]:
    """The topology in `picture`, and the record of each bundle row.

    window: seconds over which the source averages rates (for the moves in flight). A bundle whose TopicNamespace is
    unknown is left out: nothing can be measured under a name nobody knows.
    """
    row = {broker.name: i for i, broker in enumerate(picture.brokers)}
    spaces = {name: i for i, name in enumerate(sorted(picture.namespaces))}
    bundles = tuple(b for b in picture.bundles if b.topic_namespace in spaces)
    index = {bundle.name: i for i, bundle in enumerate(bundles)}
    closed = picture.departures.closed
    moving_from, moving_share = np.full(len(bundles), -1), np.zeros(len(bundles))
    for pending in picture.pending_moves:
        if (i := index.get(pending.bundle)) is not None and pending.source in row:
            moving_from[i], moving_share[i] = row[pending.source], pending.still_measured(picture.clock, window)
    return Topology(
        brokers=tuple(broker.name for broker in picture.brokers),
        pods=tuple(broker.pod or broker.name for broker in picture.brokers),
        declared_limit=_declared_limits(picture.brokers),
        ready=np.array([broker.ready for broker in picture.brokers], dtype=bool),
        schedulable=np.array([b.schedulable and b.name not in closed for b in picture.brokers], dtype=bool),
        namespaces=tuple(picture.namespaces[name] for name in sorted(picture.namespaces)),
        bundles=tuple(f"{picture.namespaces[b.topic_namespace]}/{b.lower}_{b.upper}" for b in bundles),
        namespace=np.array([spaces[b.topic_namespace] for b in bundles], dtype=np.int64),
        owner=np.array([row.get(_effective_owner(b), -1) for b in bundles], dtype=np.int64),
        last_unload=np.array([last_unload(b) for b in bundles], dtype=np.float64),
        pinned=np.array([b.pinned for b in bundles], dtype=bool),
        in_flight=np.array([b.owner_pending or bool(b.split) for b in bundles], dtype=bool),
        moving_from=moving_from,
        moving_share=moving_share,
        admin=tuple(picture.admin.get(broker.name, "") for broker in picture.brokers),
    ), bundles


def _effective_owner(bundle: BundleRecord) -> str:
    """Who has the bundle, or will once its open wish lands: a move in flight counts as done."""
    return bundle.owner if bundle.owner_pending else bundle.status_owner


def _declared_limits(brokers: Sequence[BrokerRecord]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    limits = np.full((len(brokers), len(RESOURCES)), np.nan)
    for i, broker in enumerate(brokers):
        for j, resource in enumerate(RESOURCES):
            limits[i, j] = broker.capacity.get(resource, np.nan)
    return limits


ZONE = "topology.kubernetes.io/zone"
"""Label of the failure domain; recent Kubernetes copies it from a node to its pods."""


def policies(spaces: Iterable[TopicNamespaceRecord]) -> dict[str, NamespacePolicy]:
    """What is asked, by ``tenant/name``, of the namespaces for which anything is.

    Where two objects speak of one namespace, the one that has its bundles counts, else the first by name.
    """
    found: dict[str, NamespacePolicy] = {}
    for record in sorted(spaces, key=lambda record: (not record.bundles, record.name)):
        found.setdefault(record.full_name, record.policy)
    return {space: policy for space, policy in found.items() if policy != NO_POLICY}


def traits(
    brokers: Iterable[BrokerRecord], pods: Mapping[str, PodRecord], *, load_manager: str = ""
) -> dict[str, BrokerTraits]:
    """What each broker is, by name, of those of which anything is known.

    load_manager: what a policy asks for; a broker that does not say which one it runs is taken to run this.
    """
    found = {}
    for broker in brokers:
        domain = broker.failure_domain or _zone(pods.get(broker.pod))
        weight = math.nan if broker.weight is None else broker.weight
        if domain or broker.version or broker.load_manager or broker.weight is not None:
            manager = broker.load_manager or load_manager
            found[broker.name] = BrokerTraits(broker.version, domain, manager, weight=weight)
    return found


def _zone(pod: PodRecord | None) -> str:
    return "" if pod is None else pod.labels.get(ZONE, "")


def cluster_records(context: ClusterState, settings: Settings, *, of_bundles: bool = True) -> ClusterRecords:
    """The records a policy decides upon. Cheap: no copy of a record is made. of_bundles: False: brokers alone."""
    bundles, several = context.stores.bundles.items, len(context.shares.standing) > 1
    spaces, selection = context.stores.topic_namespaces.items, settings.pair.selection
    brokers = list(context.brokers_of(settings.name).values())
    load_manager = selection.params.load_manager if selection is not None else ""
    return ClusterRecords(
        brokers=brokers,
        bundles=[
            b
            for b in (bundles.values() if of_bundles else ())
            if not (b.parent and unborn(b, bundles)) and (not several or context.caretaker(b) == settings.name)
        ],
        namespaces={r.name: r.full_name for r in spaces.values()},
        pending_moves=list(context.pending_moves.moving()),
        clock=context.clock(),
        policies=policies(spaces.values()),
        traits=traits(brokers, context.stores.pods.items, load_manager=load_manager),
        expected=still_expected(context.expected, context.clock()),
        departures=context.departures(settings.name),
        admin=context.link.urls if settings.asks_brokers else {},
    )
