"""Pure functions that convert the cluster's objects to the pipeline's `Topology`.

They also convert the constraints of TopicNamespaces and the traits of Brokers to the types of the strategies. A cluster
may have 60,000 bundles. So `topology` runs in a thread if it converts bundles, to keep the event loop free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab_operator.kube.broker_records import BrokerRecord, PodRecord
from trimtab_operator.kube.move_costs import Measured
from trimtab_operator.kube.pod_limits import LIMITED
from trimtab_operator.kube.records import BundleRecord, TopicNamespaceRecord
from trimtab_operator.observe.departures import NO_DEPARTURES, Departures, departures_of
from trimtab_operator.observe.limits import NO_FACTS, PodFacts, pod_facts
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.hash_rings import seniority
from trimtab_operator.state.pending_moves import PendingMove
from trimtab_operator.state.pulsar_link import CrossCheck
from trimtab_operator.state.settings import Settings
from trimtab_operator.state.splitting_bundles import Expected, still_expected, unborn
from trimtab_pipeline.api import Topology
from trimtab_strategies.model import (
    NO_POLICY,
    RESOURCES,
    SPLIT_REASONS,
    UNKNOWN_TRAITS,
    BrokerTraits,
    NamespacePolicy,
    Reason,
)

COUNTS_AS_MOVE = frozenset({Reason.OVERLOADED, Reason.UNDERLOADED, Reason.ADOPTED, *SPLIT_REASONS})
"""Reasons of assignments that start a bundle's cool-down. A child that left its parent's owner has moved. Other
assignments do not count as moves, because the next plan may need to move the bundle: an owner for an unassigned bundle,
an owner that was found, an owner that took over from a broker that was away, the parent's owner for a new child, and a
move for a drain or a restart."""

CONFIRMED_WITHIN = 600.0
"""Seconds after which the confirmation of an owner is not that of the move that a person requested."""


@dataclass(frozen=True, slots=True)
class ClusterRecords:
    """The resources at one moment: immutable records, in the order in which they become rows.

    namespaces: object name of a TopicNamespace -> ``tenant/name``.
    pending_moves: moves whose load may still be measured at their source.
    clock: the moment, in seconds, by the clock that the pending moves use.
    policies: ``tenant/name`` -> constraints of the namespace. traits: broker -> its traits.
    expected: what the children of recent splits are expected to carry, by their names in Pulsar.
    departures: brokers that leave. admin: URL of each broker's statistics, by its name.
    cross_check: Pulsar's own figures; None where no Pulsar cluster is connected.
    publish_gaps: as in `ClusterLoad`. facts: what the brokers' pods say.
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
    cross_check: CrossCheck | None = None
    publish_gaps: Mapping[str, float] = field(default_factory=dict)
    facts: PodFacts = NO_FACTS


def last_unload(bundle: BundleRecord) -> float:
    """Epoch seconds at which the bundle last moved from one owner to another, NaN if never.

    A decision of the operator carries its own time. An owner that differs from the operator's choice was written by a
    person or by Git. Such a move counts from its confirmation, whether or not it is recorded as `ADMIN`. A confirmation
    long after that record is not of the move: the broker was away, and took the bundle again.
    """
    if bundle.asked_by_person:
        latest = bundle.assigned_at + CONFIRMED_WITHIN if bundle.desired_for else np.inf
        return min(bundle.since, latest) if bundle.generation > 1 else np.nan
    return bundle.assigned_at if bundle.reason in COUNTS_AS_MOVE else np.nan


def topology(records: ClusterRecords, *, window: float) -> tuple[Topology, tuple[BundleRecord, ...]]:
    """The topology of `records`, and the record of each bundle row.

    window: seconds over which the source averages rates (for the pending moves). A bundle whose TopicNamespace is
    unknown is left out, because its name in Pulsar is unknown. A person can create a second Bundle with the same name
    in Pulsar. Then the one that comes first by `seniority` is used.
    """
    row = {broker.name: i for i, broker in enumerate(records.brokers)}
    spaces = {name: i for i, name in enumerate(sorted(records.namespaces))}
    named = [
        (f"{records.namespaces[b.topic_namespace]}/{b.lower}_{b.upper}", b)
        for b in records.bundles
        if b.topic_namespace in spaces
    ]
    names, bundles = _distinct(named)
    index = {bundle.name: i for i, bundle in enumerate(bundles)}
    closed = records.departures.closed
    moving_from, moving_share = np.full(len(bundles), -1), np.zeros(len(bundles))
    for pending in records.pending_moves:
        if (i := index.get(pending.bundle)) is not None and pending.source in row:
            moving_from[i], moving_share[i] = row[pending.source], pending.still_measured(records.clock, window)
    return Topology(
        brokers=tuple(broker.name for broker in records.brokers),
        pods=tuple(broker.pod or records.facts.pods.get(broker.name, broker.name) for broker in records.brokers),
        declared_limit=_declared_limits(records.brokers, records.facts),
        ready=np.array([broker.ready for broker in records.brokers], dtype=bool),
        schedulable=np.array([b.schedulable and b.name not in closed for b in records.brokers], dtype=bool),
        namespaces=tuple(records.namespaces[name] for name in sorted(records.namespaces)),
        bundles=names,
        namespace=np.array([spaces[b.topic_namespace] for b in bundles], dtype=np.int64),
        owner=np.array([row.get(_effective_owner(b), -1) for b in bundles], dtype=np.int64),
        last_unload=np.array([last_unload(b) for b in bundles], dtype=np.float64),
        pinned=np.array([b.pinned for b in bundles], dtype=bool),
        in_flight=np.array([b.owner_pending or bool(b.split) for b in bundles], dtype=bool),
        moving_from=moving_from,
        moving_share=moving_share,
        admin=tuple(records.admin.get(broker.name, "") for broker in records.brokers),
        started=tuple(records.traits.get(broker.name, UNKNOWN_TRAITS).started for broker in records.brokers),
        containers=tuple(records.facts.containers.get(broker.name, "") for broker in records.brokers),
        unlimited=records.facts.unlimited,
        chosen={what: tuple(one.name for one in records.brokers if what in one.capacity) for what in LIMITED},
    ), bundles


def _distinct(named: Sequence[tuple[str, BundleRecord]]) -> tuple[tuple[str, ...], tuple[BundleRecord, ...]]:
    """The names in Pulsar, each once, and their bundles. named: all bundles with their names."""
    if len({name for name, _ in named}) < len(named):
        seniors: dict[str, BundleRecord] = {}
        for name, bundle in sorted(named, key=lambda one: seniority(one[1])):
            seniors.setdefault(name, bundle)
        named = [(name, bundle) for name, bundle in named if seniors[name] is bundle]
    return tuple(name for name, _ in named), tuple(bundle for _, bundle in named)


def _effective_owner(bundle: BundleRecord) -> str:
    """The owner, or the desired owner of a pending move: a pending move counts as done."""
    return bundle.owner if bundle.owner_pending else bundle.status_owner


def _declared_limits(
    brokers: Sequence[BrokerRecord], facts: PodFacts
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """(n, 5) limits that are known without the source: the capacity of the Broker, else the limit of its pod."""
    limits = np.full((len(brokers), len(RESOURCES)), np.nan)
    for i, broker in enumerate(brokers):
        of_pod = {resource: limit.value for resource, limit in facts.limits.get(broker.name, {}).items()}
        for j, resource in enumerate(RESOURCES):
            limits[i, j] = broker.capacity.get(resource, of_pod.get(resource, np.nan))
    return limits


ZONE = "topology.kubernetes.io/zone"
"""Label of the failure domain; recent Kubernetes copies it from a node to its pods."""


def policies(spaces: Iterable[TopicNamespaceRecord]) -> dict[str, NamespacePolicy]:
    """Constraints by ``tenant/name``, of the namespaces that have any.

    If two TopicNamespace objects are for one namespace, the one with bundles is used, or else the first by name.
    """
    found: dict[str, NamespacePolicy] = {}
    for record in sorted(spaces, key=lambda record: (not record.bundles, record.name)):
        found.setdefault(record.full_name, record.policy)
    return {space: policy for space, policy in found.items() if policy != NO_POLICY}


FEWEST_MEASURED = 3
"""Number of measured moves that a namespace needs before its publish gap is used."""


def publish_gaps(costs: Measured) -> dict[str, float]:
    """Median publish gap (seconds) by namespace, of those with enough measured moves."""
    gaps = {space: cost.publish_gap for space, cost in costs.items()}
    return {space: gap.median for space, gap in gaps.items() if gap is not None and gap.moves >= FEWEST_MEASURED}


def traits(
    brokers: Iterable[BrokerRecord], pods: Mapping[str, PodRecord], *, load_manager: str = ""
) -> dict[str, BrokerTraits]:
    """Traits by broker, of the brokers that have at least one known trait.

    load_manager: the one that the policy names. It is the default for a broker whose load manager is unknown.
    """
    found = {}
    for broker in brokers:
        pod = pods.get(broker.pod)
        zone = "" if pod is None else pod.labels.get(ZONE, "")
        started = math.nan if pod is None or pod.started is None else pod.started
        domain = broker.failure_domain or zone
        weight = math.nan if broker.weight is None else broker.weight
        if domain or broker.version or broker.load_manager or broker.weight is not None or math.isfinite(started):
            manager = broker.load_manager or load_manager
            found[broker.name] = BrokerTraits(broker.version, domain, manager, weight=weight, started=started)
    return found


def cluster_records(cluster: ClusterState, settings: Settings, *, of_bundles: bool = True) -> ClusterRecords:
    """The records that a policy's decision is based on; none is copied. of_bundles: False leaves bundles out."""
    bundles, several = cluster.stores.bundles.items, len(cluster.policies.shares.standing) > 1
    spaces, selection = cluster.stores.topic_namespaces.items, settings.pair.selection
    brokers = list(cluster.brokers_of(settings.name).values())
    load_manager = selection.params.load_manager if selection is not None else ""
    return ClusterRecords(
        brokers=brokers,
        bundles=[
            b
            for b in (bundles.values() if of_bundles else ())
            if not (b.parent and unborn(b, bundles)) and (not several or cluster.caretaker(b) == settings.name)
        ],
        namespaces={r.name: r.full_name for r in spaces.values()},
        pending_moves=list(cluster.pending_moves.moving()),
        clock=cluster.clock(),
        policies=policies(spaces.values()),
        traits=traits(brokers, cluster.stores.pods.items, load_manager=load_manager),
        facts=pod_facts(brokers, cluster.stores.pods.items, cluster.known_nodes(), settings.prometheus),
        expected=still_expected(cluster.expected, cluster.clock()),
        departures=departures_of(cluster, settings.name),
        admin=cluster.link.urls if settings.asks_brokers else {},
        cross_check=cluster.link.cross_check if cluster.link.linked else None,
        publish_gaps=publish_gaps(cluster.move_costs() or {}),
    )
