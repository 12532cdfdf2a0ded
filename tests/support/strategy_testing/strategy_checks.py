"""Checks of shedders and splitters over several consecutive decisions, because some act only after a few cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from strategy_testing.clusters import cluster as drawn
from strategy_testing.compare import (
    MINUTE,
    ROUNDS,
    Unchanged,
    in_words,
    movable,
    reordered,
    restored,
    sheddings,
    upside_down,
)
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray
from trimtab_strategies.protocols import Shedder, Shedding, SplitCandidate, Splitter, Splitting, Unload


def level_cluster_is_left_alone(shedder: Shedder, cluster: ClusterLoad) -> None:
    """Equal brokers shed nothing, and the result gives a reason."""
    brokers = cluster.brokers
    alike: dict[str, Any] = {
        name: np.tile(getattr(brokers, name)[:1], (len(brokers), 1)) for name in ("usage", "limit", "traffic")
    }
    level = replace(cluster, brokers=replace(brokers, **alike))
    for _, shedding in sheddings(shedder, level, movable(level)):
        assert not shedding.unloads, f"all brokers are alike, yet {len(shedding.unloads)} shed"
        assert shedding.held_back, "nothing is shed, and no reason is given"


def says_why_nothing_is_shed(shedder: Shedder, cluster: ClusterLoad) -> None:
    """A result without unloads gives a reason. No result gives a separate reason for each bundle."""
    for _, shedding in sheddings(shedder, cluster, movable(cluster)):
        assert shedding.unloads or shedding.held_back, "nothing is shed, and no reason is given"
        assert len(shedding.held_back) <= 10 + 4 * len(cluster.brokers), "too many reasons: about one for each bundle"


def shedding_leaves_its_input_alone(shedder: Shedder, cluster: ClusterLoad) -> None:
    """Neither the cluster nor the memory is changed by a call."""
    for shown, shedding in sheddings(shedder, cluster, movable(cluster)):
        memory = restored(shedding.memory)
        with Unchanged(shown, memory):
            shedder.shed(shown, movable(cluster), memory)


def same_cluster_sheds_the_same(shedder: Shedder, cluster: ClusterLoad) -> None:
    """Equal input gives equal answers."""
    assert _all_in_words(shedder, cluster) == _all_in_words(shedder, cluster)


def broker_order_does_not_matter_to_shedding(shedder: Shedder, cluster: ClusterLoad) -> None:
    """The rows of the brokers may be in any order."""
    other = reordered(cluster, brokers=upside_down(len(cluster.brokers)))
    assert _all_in_words(shedder, cluster) == _all_in_words(shedder, other)


def bundle_order_does_not_matter_to_shedding(shedder: Shedder, cluster: ClusterLoad) -> None:
    """The rows of the bundles may be in any order. Among bundles with equal load, any may be taken."""
    other = reordered(cluster, bundles=upside_down(len(cluster.bundles)))
    assert _all_in_words(shedder, cluster, by_traffic=True) == _all_in_words(shedder, other, by_traffic=True)


def sheds_only_what_may_leave(shedder: Shedder, cluster: ClusterLoad) -> None:
    """Each bundle is shed by its own owner, at most once, and only if it is sheddable. If none is, nothing is shed."""
    sheddable = np.arange(len(cluster.bundles)) % 3 != 0
    for shown, shedding in sheddings(shedder, cluster, sheddable):
        _check_unloads(shown, shedding, sheddable)
    for _, shedding in sheddings(shedder, cluster, np.zeros(len(cluster.bundles), dtype=bool)):
        assert not shedding.unloads, "no bundle may leave, yet some are shed"


def _check_unloads(cluster: ClusterLoad, shedding: Shedding, sheddable: BoolArray) -> None:
    seen: list[int] = []
    for unload in shedding.unloads:
        _check_destination(cluster, unload)
        assert (cluster.bundles.owner[unload.bundles] == unload.broker).all(), "a broker sheds what it does not own"
        assert sheddable[unload.bundles].all(), "a bundle that may not leave is shed"
        assert sheddable[unload.returned].all(), "a bundle that may not leave is returned"
        assert len(unload.bundles), "an unload without bundles"
        seen += [*unload.bundles.tolist(), *unload.returned.tolist()]
    assert len(seen) == len(set(seen)), "a bundle is shed twice"


def _check_destination(cluster: ClusterLoad, unload: Unload) -> None:
    """A destination is not the source, and owns all bundles that are given back.

    Without a destination, no bundle is given back.
    """
    assert -1 <= unload.destination < len(cluster.brokers), "the destination is not a broker"
    assert unload.destination != unload.broker, "the destination is the source"
    owners = cluster.bundles.owner[unload.returned]
    assert (owners == unload.destination).all(), "a broker gives back a bundle that it does not own"
    assert unload.destination >= 0 or not len(unload.returned), "a swap without a destination"


def shedder_memory_survives_a_restart(shedder: Shedder, cluster: ClusterLoad) -> None:
    """The memory is plain JSON, and a shedder that reads it back continues unchanged."""
    sheddable = movable(cluster)
    for shown, shedding in sheddings(shedder, cluster, sheddable):
        memory = restored(shedding.memory)
        assert memory == shedding.memory
        ours, again = (shedder.shed(shown, sheddable, kept) for kept in (shedding.memory, memory))
        assert in_words(shown, ours) == in_words(shown, again)


def shedding_an_empty_cluster_is_fine(shedder: Shedder, _: ClusterLoad) -> None:
    """Without brokers and bundles nothing is shed, and the result gives a reason."""
    shedding = shedder.shed(drawn(), np.zeros(0, dtype=bool), {})
    assert not shedding.unloads
    assert shedding.held_back, "nothing is shed, and no reason is given"


def a_single_broker_sheds_nothing(shedder: Shedder, _: ClusterLoad) -> None:
    """A single broker may shed bundles, but the shedder names no destination for them, and does not fail."""
    alone = drawn(a=0.95, bundles={"a": [3, 2, 1]})
    for shown, shedding in sheddings(shedder, alone, movable(alone)):
        _check_unloads(shown, shedding, movable(alone))


def _all_in_words(shedder: Shedder, cluster: ClusterLoad, *, by_traffic: bool = False) -> list[list[tuple[Any, ...]]]:
    return [
        in_words(shown, shedding, by_traffic=by_traffic)
        for shown, shedding in sheddings(shedder, cluster, movable(cluster))
    ]


SHEDDER_CHECKS: tuple[Callable[[Shedder, ClusterLoad], None], ...] = (
    level_cluster_is_left_alone,
    says_why_nothing_is_shed,
    shedding_leaves_its_input_alone,
    same_cluster_sheds_the_same,
    broker_order_does_not_matter_to_shedding,
    bundle_order_does_not_matter_to_shedding,
    sheds_only_what_may_leave,
    shedder_memory_survives_a_restart,
    shedding_an_empty_cluster_is_fine,
    a_single_broker_sheds_nothing,
)
"""The checks of every shedder."""


def splits_only_what_may_be_split(splitter: Splitter, cluster: ClusterLoad) -> None:
    """Each bundle is split at most once, only if it is splittable, at boundaries strictly inside its range."""
    splittable = np.arange(len(cluster.bundles)) % 3 != 0
    for shown, splitting in splittings(splitter, cluster, splittable):
        rows = [split.bundle for split in splitting.proposed]
        assert splittable[rows].all(), "a bundle that may not be split is split"
        assert len(rows) == len(set(rows)), "a bundle is split twice"
        for split in splitting.proposed:
            _check_split(shown, split)
    for _, splitting in splittings(splitter, cluster, np.zeros(len(cluster.bundles), dtype=bool)):
        assert not splitting.proposed, "no bundle may be split, yet some are"


def _check_split(cluster: ClusterLoad, split: SplitCandidate) -> None:
    bundle = parse_bundle(cluster.bundles.names[split.bundle])
    edges = np.array([bundle.lower, *split.boundaries.tolist(), bundle.upper])
    assert len(split.boundaries), "a split without a boundary"
    assert (np.diff(edges) > 0).all(), f"boundaries {split.boundaries} do not ascend inside {bundle}"
    if len(split.shares):
        assert len(split.shares) == len(split.boundaries) + 1, "not a share for each child"
        assert (split.shares >= 0).all(), "a negative share"
        assert abs(float(split.shares.sum()) - 1) < 1e-9, "the shares do not sum to 1"


def says_why_nothing_is_split(splitter: Splitter, cluster: ClusterLoad) -> None:
    """A result without a split gives a reason."""
    for _, splitting in splittings(splitter, cluster, _whole(cluster)):
        assert splitting.proposed or splitting.held_back, "nothing is split, and no reason is given"


def splitting_leaves_its_input_alone(splitter: Splitter, cluster: ClusterLoad) -> None:
    """Neither the cluster nor the memory is changed by a call, and equal input gives equal answers."""
    for shown, splitting in splittings(splitter, cluster, _whole(cluster)):
        memory = restored(splitting.memory)
        with Unchanged(shown, memory):
            first, second = (splitter.split(shown, _whole(cluster), memory) for _ in range(2))
        assert _in_words(shown, first) == _in_words(shown, second)


def broker_order_does_not_matter_to_splitting(splitter: Splitter, cluster: ClusterLoad) -> None:
    """The rows of the brokers may be in any order."""
    other = reordered(cluster, brokers=upside_down(len(cluster.brokers)))
    assert _split_reasons_in_words(splitter, cluster) == _split_reasons_in_words(splitter, other)


def splitter_memory_survives_a_restart(splitter: Splitter, cluster: ClusterLoad) -> None:
    """The memory is plain JSON, and a splitter that reads it back continues unchanged."""
    for shown, splitting in splittings(splitter, cluster, _whole(cluster)):
        memory = restored(splitting.memory)
        assert memory == splitting.memory
        ours, again = (splitter.split(shown, _whole(cluster), kept) for kept in (splitting.memory, memory))
        assert _in_words(shown, ours) == _in_words(shown, again)


def splitting_an_empty_cluster_is_fine(splitter: Splitter, _: ClusterLoad) -> None:
    """Without brokers and bundles nothing is split."""
    assert not splitter.split(drawn(), np.zeros(0, dtype=bool), {}).proposed


def _whole(cluster: ClusterLoad) -> BoolArray:
    return np.ones(len(cluster.bundles), dtype=bool)


def splittings(
    splitter: Splitter, cluster: ClusterLoad, splittable: BoolArray
) -> Iterator[tuple[ClusterLoad, Splitting]]:
    """`ROUNDS` results in a row, a minute apart with the same load, each with its cluster."""
    memory: Mapping[str, Any] = {}
    for step in range(ROUNDS):
        shown = replace(cluster, now=cluster.now + MINUTE * step)
        splitting = splitter.split(shown, splittable, memory)
        yield shown, splitting
        memory = splitting.memory


def _in_words(cluster: ClusterLoad, splitting: Splitting) -> list[tuple[str, list[int], str]]:
    return sorted(
        (cluster.bundles.names[split.bundle], split.boundaries.tolist(), str(split.reason))
        for split in splitting.proposed
    )


def _split_reasons_in_words(splitter: Splitter, cluster: ClusterLoad) -> list[list[tuple[str, list[int], str]]]:
    return [_in_words(shown, splitting) for shown, splitting in splittings(splitter, cluster, _whole(cluster))]


SPLITTER_CHECKS: tuple[Callable[[Splitter, ClusterLoad], None], ...] = (
    splits_only_what_may_be_split,
    says_why_nothing_is_split,
    splitting_leaves_its_input_alone,
    broker_order_does_not_matter_to_splitting,
    splitter_memory_survives_a_restart,
    splitting_an_empty_cluster_is_fine,
)
"""The checks of every splitter."""
