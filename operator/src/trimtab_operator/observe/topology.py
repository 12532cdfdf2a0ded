"""Turns the resources as they stand into the pipeline's `Topology`. Pure, and run off the event loop: 60,000 rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab_operator.cluster.brokers import BrokerRecord
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.control.flights import Flight
from trimtab_operator.control.newborn import Expected
from trimtab_operator.control.rollout import NO_DEPARTURES, Departures
from trimtab_pipeline.source import Topology
from trimtab_strategies.model import RESOURCES, BrokerTraits, NamespacePolicy, Reason

COUNTS_AS_MOVE = frozenset(
    {Reason.OVERLOADED, Reason.UNDERLOADED, Reason.ADOPTED, Reason.ADMIN, Reason.DRAINED}
    | {Reason.TOPICS, Reason.SESSIONS, Reason.MSG_RATE, Reason.BANDWIDTH}
)
"""Assignments that start a bundle's cool-down: a child that left its parent's owner has moved. Giving an unowned bundle
an owner is no move, nor is being found with one, nor being cut out, nor making way for a restart: the plan after it may
need the bundle."""


@dataclass(frozen=True, slots=True)
class Picture:
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
    flights: Sequence[Flight]
    clock: float
    policies: Mapping[str, NamespacePolicy] = field(default_factory=dict)
    traits: Mapping[str, BrokerTraits] = field(default_factory=dict)
    expected: Mapping[str, Expected] = field(default_factory=dict)
    departures: Departures = NO_DEPARTURES
    admin: Mapping[str, str] = field(default_factory=dict)


def last_unload(bundle: BundleRecord) -> float:
    """Epoch seconds at which the bundle last moved from one owner to another, NaN never.

    What the operator decided carries its own time. An owner that differs from the one the operator chose was written
    by a person or by Git; such a move counts from when it was confirmed.
    """
    if bundle.assigned_owner != bundle.owner:
        return bundle.since if bundle.generation > 1 else np.nan
    return bundle.assigned_at if bundle.reason in COUNTS_AS_MOVE else np.nan


def topology(picture: Picture, *, window: float) -> tuple[Topology, tuple[BundleRecord, ...]]:
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
    for flight in picture.flights:
        if (i := index.get(flight.bundle)) is not None and flight.source in row:
            moving_from[i], moving_share[i] = row[flight.source], flight.still_measured(picture.clock, window)
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
        in_flight=np.array([b.open_wish or bool(b.split) for b in bundles], dtype=bool),
        moving_from=moving_from,
        moving_share=moving_share,
        admin=tuple(picture.admin.get(broker.name, "") for broker in picture.brokers),
    ), bundles


def _effective_owner(bundle: BundleRecord) -> str:
    """Who has the bundle, or will once its open wish lands: a move in flight counts as done."""
    return bundle.owner if bundle.open_wish else bundle.status_owner


def _declared_limits(brokers: Sequence[BrokerRecord]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    limits = np.full((len(brokers), len(RESOURCES)), np.nan)
    for i, broker in enumerate(brokers):
        for j, resource in enumerate(RESOURCES):
            limits[i, j] = broker.capacity.get(resource, np.nan)
    return limits
