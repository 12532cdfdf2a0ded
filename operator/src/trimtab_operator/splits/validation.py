"""Validates a BundleSplit (whether and where its bundle can be split), and makes its `SplitOrder` with the children."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from trimtab_operator.kube.naming import bundle_name, pulsar_bundle
from trimtab_operator.kube.records import SplitRecord, TopicNamespaceRecord
from trimtab_operator.resources.bundle_split import Algorithm, BundleSplitSpec
from trimtab_operator.splits.steps import Child, Raw, SplitOrder, owner_of, owner_pending, parent_of, split_of
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.splitting_bundles import KnownTopics, TopicsOf, unborn
from trimtab_strategies.model import Reason
from trimtab_strategies.model.cluster_load import IntArray
from trimtab_strategies.params import quantity
from trimtab_strategies.splitting.boundaries import (
    InvalidBoundaryError,
    can_split,
    children,
    flow_or_qps_equally_divide,
    range_equally_divide,
    specified_positions_divide,
    topic_count_equally_divide,
)
from trimtab_strategies.splitting.limits import PulsarSplitParams, SplitLimits


def split_environment(cluster: ClusterState, parent: Raw | None) -> SplitEnvironment:
    """What a split of the bundle `parent` is validated against. parent: None if it does not exist."""
    stores = cluster.stores
    space = stores.topic_namespaces.items.get(parent["spec"]["topicNamespace"]) if parent is not None else None
    splitters = (settings.pair.splitter for settings in cluster.policies.settings.values())
    params = (getattr(splitter, "params", None) for splitter in splitters)
    rules = [rule for rule in params if isinstance(rule, SplitLimits)]
    return SplitEnvironment(
        space=space,
        count=_bundle_count(cluster, space.name) if space is not None else 0,
        bundles=stores.bundles.items.keys(),
        brokers=stores.brokers.items.keys(),
        most=min((rule.max_bundles for rule in rules), default=None),
        limits=rules[0] if rules else PulsarSplitParams(),
        topics=tuple(cluster.policies.topics.values()),
    )


def _bundle_count(cluster: ClusterState, space: str) -> int:
    """Number of bundles of a TopicNamespace object once all running splits are done."""
    bundles = cluster.rings.members(space)
    now = sum(not unborn(b, bundles) for b in bundles.values())
    begun = [r for r in cluster.stores.splits.items.values() if r.begun and r.status.topic_namespace == space]
    return now + sum(len(r.status.children) - 1 for r in begun if r.spec.bundle in bundles)


class InvalidSplitError(ValueError):
    """A split that is not possible. reason: for status and metrics. The text says what to do instead."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class SplitMustWaitError(ValueError):
    """A split that is not possible yet. The text says what it waits for."""


@dataclass(frozen=True, slots=True)
class SplitEnvironment:
    """What a split is validated against.

    space:   the bundle's TopicNamespace, None if it does not exist. count: number of its bundles after all running
             splits.
    most:    the lowest limit for the bundles of a namespace in the policies' split rules; None without a limit.
    limits:  load limits of one bundle, up to which `flow_or_qps_equally_divide` fills each child.
    bundles, brokers: names of those that exist. topics: those that each policy has measured.
    """

    space: TopicNamespaceRecord | None
    count: int
    bundles: Collection[str]
    brokers: Collection[str]
    most: int | None = None
    limits: SplitLimits = field(default_factory=PulsarSplitParams)
    topics: Sequence[KnownTopics] = ()


def split_order(split: SplitRecord, parent: Raw | None, environment: SplitEnvironment) -> SplitOrder:
    """Validate a split, and return its order. parent: the bundle to split, None if it does not exist.

    Raises `InvalidSplitError`, or `SplitMustWaitError` while the bundle has no confirmed owner.
    """
    if parent is None:
        raise InvalidSplitError(Reason.UNKNOWN_BUNDLE, f"there is no Bundle {split.spec.bundle}: check its name")
    if (space := environment.space) is None:
        text = f"TopicNamespace {parent['spec']['topicNamespace']} of the bundle does not exist: create it first"
        raise InvalidSplitError(Reason.UNKNOWN_BUNDLE, text)
    _check_free(split, parent, environment)
    ranges = _ranges(split, parent, space, environment)
    _check_room(split, len(ranges), space, environment)
    destinations = _destinations(split, len(ranges), environment)
    tenant, name = space.full_name.split("/")
    cut = tuple(
        Child(bundle_name(tenant, name, lower, upper), lower, upper, destination)
        for (lower, upper), destination in zip(ranges, destinations, strict=True)
    )
    if taken := [child.bundle for child in cut if child.bundle in environment.bundles]:
        text = f"Bundle {taken[0]} exists already, inside {split.spec.bundle}: delete the one that is wrong"
        raise InvalidSplitError(Reason.CONFLICT, text)
    return SplitOrder(
        split=split.name, bundle=split.spec.bundle, topic_namespace=space.name, source=owner_of(parent), children=cut
    )


def _check_free(split: SplitRecord, parent: Raw, environment: SplitEnvironment) -> None:
    """Raise unless a broker has confirmed the bundle, and the bundle is in no other split.

    A policy's split is also refused if the bundle is pinned, or has moved since the plan.
    """
    name, request, owner = split.spec.bundle, split.spec.request, owner_of(parent)
    if (other := split_of(parent)) not in {"", split.name}:
        raise InvalidSplitError(Reason.SPLITTING, f"{name} is being split by {other}: wait for its children")
    if parent_of(parent) in environment.bundles:
        raise InvalidSplitError(Reason.SPLITTING, f"{name} is still a part of {parent_of(parent)}: wait")
    if request is not None and parent["spec"].get("pinned"):
        raise InvalidSplitError(Reason.PINNED, f"{name} is pinned: only a person may split it")
    if request is not None and request.source and owner != request.source:
        text = f"{name} went from {request.source} to {owner or 'no broker'} since the split was planned"
        raise InvalidSplitError(Reason.SUPERSEDED, text)
    if not owner or owner_pending(parent):
        text = f"{name} has {'a pending owner' if owner else 'no owner'}"
        raise SplitMustWaitError(f"{text}: it can be split once a broker has confirmed it")


def _ranges(
    split: SplitRecord, parent: Raw, space: TopicNamespaceRecord, environment: SplitEnvironment
) -> list[tuple[str, str]]:
    texts = parent["spec"]["range"]["lower"], parent["spec"]["range"]["upper"]
    lower, upper = (int(text, 16) for text in texts)
    if not can_split(lower, upper):
        raise InvalidSplitError(Reason.TOO_NARROW, f"{split.spec.bundle} is a single hash wide")
    tenant, name = space.full_name.split("/")
    full = pulsar_bundle(tenant, name, *texts)
    try:
        inside = next((topics for known in environment.topics if (topics := known.inside(full)) is not None), None)
        found = _boundaries(split.spec, lower, upper, inside, environment.limits)
        ranges = children(lower, upper, found)
    except InvalidBoundaryError as error:
        raise InvalidSplitError(Reason.INVALID_SPLIT, str(error)) from error
    return [(f"0x{left:08x}", f"0x{right:08x}") for left, right in ranges]


def _boundaries(
    spec: BundleSplitSpec, lower: int, upper: int, inside: TopicsOf | None, limits: SplitLimits
) -> list[int]:
    given = [int(text, 16) for text in spec.boundaries or ()]
    if spec.algorithm is None:
        return given
    if spec.algorithm is Algorithm.RANGE:
        return [int(boundary) for boundary in range_equally_divide(lower, upper)]
    if inside is None:
        text = f"{spec.algorithm} needs the bundle's topics, and no policy has measured those"
        raise InvalidSplitError(Reason.NO_LOAD_DATA, f"{text}: name boundaries, or use {Algorithm.RANGE}")
    found = _among_topics(spec.algorithm, given, (lower, upper), inside, limits)
    if found is None or not len(found):
        text = f"{spec.algorithm} finds no boundary among its {len(inside.places)} topics"
        raise InvalidSplitError(Reason.TOO_FEW_TOPICS, text)
    return [int(boundary) for boundary in found]


def _among_topics(
    algorithm: Algorithm, given: list[int], whole: tuple[int, int], inside: TopicsOf, limits: SplitLimits
) -> IntArray | None:
    match algorithm:
        case Algorithm.TOPIC_COUNT:
            return topic_count_equally_divide(inside.places)
        case Algorithm.POSITIONS:
            return specified_positions_divide(*whole, given, len(inside.places))
        case _:
            return flow_or_qps_equally_divide(
                *inside,
                max_rate=limits.max_rate,
                max_throughput=quantity(limits.max_throughput),
                difference=getattr(limits, "flow_difference", PulsarSplitParams().flow_difference),
            )


def _check_room(split: SplitRecord, count: int, space: TopicNamespaceRecord, environment: SplitEnvironment) -> None:
    after = environment.count - 1 + count
    if environment.most is not None and after > environment.most:
        most = f"{environment.most} (maxBundles of a split rule)"
        text = f"{space.full_name} would have {after} bundles, and may have {most}"
        raise InvalidSplitError(Reason.MAX_BUNDLES, f"{text}: {split.spec.bundle} stays whole")


def _destinations(split: SplitRecord, count: int, environment: SplitEnvironment) -> list[str]:
    given = split.spec.destinations
    if given is None:
        return [""] * count
    if len(given) != count:
        text = f"{len(given)} destinations for {count} children: name one for each, or none at all"
        raise InvalidSplitError(Reason.INVALID_SPLIT, text)
    if unknown := [name for name in given if name and name not in environment.brokers]:
        text = f"destinations: no Broker object is called {unknown[0]}"
        raise InvalidSplitError(Reason.UNKNOWN_BROKER, text)
    return given
