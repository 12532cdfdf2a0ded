"""What every splitter must keep to, over several decisions in a row: some answer only after a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.load import BoolArray
from trimtab_strategies.protocols import Splitter, Splitting, SplitWish
from trimtab_strategies.testing.comparing import MINUTE, ROUNDS, Unchanged, reordered, restored, upside_down
from trimtab_strategies.testing.drawing import cluster as drawn
from trimtab_strategies.topics import parse_bundle


def splits_only_what_may_be_split(splitter: Splitter, cluster: ClusterLoad) -> None:
    """Each bundle is split at most once, only if it is splittable, at boundaries strictly inside its range."""
    splittable = np.arange(len(cluster.bundles)) % 3 != 0
    for shown, splitting in splittings(splitter, cluster, splittable):
        rows = [wish.bundle for wish in splitting.wishes]
        assert splittable[rows].all(), "a bundle that may not be split is split"
        assert len(rows) == len(set(rows)), "a bundle is split twice"
        for wish in splitting.wishes:
            _check_wish(shown, wish)
    for _, splitting in splittings(splitter, cluster, np.zeros(len(cluster.bundles), dtype=bool)):
        assert not splitting.wishes, "no bundle may be split, yet some are"


def _check_wish(cluster: ClusterLoad, wish: SplitWish) -> None:
    bundle = parse_bundle(cluster.bundles.names[wish.bundle])
    edges = np.array([bundle.lower, *wish.boundaries.tolist(), bundle.upper])
    assert len(wish.boundaries), "a split without a boundary"
    assert (np.diff(edges) > 0).all(), f"boundaries {wish.boundaries} do not ascend inside {bundle}"
    if len(wish.shares):
        assert len(wish.shares) == len(wish.boundaries) + 1, "not a share for each child"
        assert (wish.shares >= 0).all(), "a negative share"
        assert abs(float(wish.shares.sum()) - 1) < 1e-9, "the shares do not sum to 1"  # noqa: PLR2004 - rounding


def says_why_nothing_is_split(splitter: Splitter, cluster: ClusterLoad) -> None:
    """An answer without a wish gives a reason, and no answer gives one per bundle of a large cluster."""
    for _, splitting in splittings(splitter, cluster, _whole(cluster)):
        assert splitting.wishes or splitting.held_back, "nothing is split, and no reason is given"


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
    assert _all_in_words(splitter, cluster) == _all_in_words(splitter, other)


def splitter_memory_survives_a_restart(splitter: Splitter, cluster: ClusterLoad) -> None:
    """The memory is plain JSON, and a splitter that reads it back goes on as if nothing had happened."""
    for shown, splitting in splittings(splitter, cluster, _whole(cluster)):
        memory = restored(splitting.memory)
        assert memory == splitting.memory
        ours, again = (splitter.split(shown, _whole(cluster), kept) for kept in (splitting.memory, memory))
        assert _in_words(shown, ours) == _in_words(shown, again)


def splitting_an_empty_cluster_is_fine(splitter: Splitter, _: ClusterLoad) -> None:
    """No broker and no bundle: nothing is split."""
    assert not splitter.split(drawn(), np.zeros(0, dtype=bool), {}).wishes


def _whole(cluster: ClusterLoad) -> BoolArray:
    return np.ones(len(cluster.bundles), dtype=bool)


def splittings(
    splitter: Splitter, cluster: ClusterLoad, splittable: BoolArray
) -> Iterator[tuple[ClusterLoad, Splitting]]:
    """`ROUNDS` answers in a row, a minute apart on the same load, each with the cluster as it was shown."""
    memory: Mapping[str, Any] = {}
    for turn in range(ROUNDS):
        shown = replace(cluster, now=cluster.now + MINUTE * turn)
        splitting = splitter.split(shown, splittable, memory)
        yield shown, splitting
        memory = splitting.memory


def _in_words(cluster: ClusterLoad, splitting: Splitting) -> list[tuple[str, list[int], str]]:
    return sorted(
        (cluster.bundles.names[wish.bundle], wish.boundaries.tolist(), str(wish.reason)) for wish in splitting.wishes
    )


def _all_in_words(splitter: Splitter, cluster: ClusterLoad) -> list[list[tuple[str, list[int], str]]]:
    return [_in_words(shown, splitting) for shown, splitting in splittings(splitter, cluster, _whole(cluster))]


SPLITTER_CHECKS: tuple[Callable[[Splitter, ClusterLoad], None], ...] = (
    splits_only_what_may_be_split,
    says_why_nothing_is_split,
    splitting_leaves_its_input_alone,
    broker_order_does_not_matter_to_splitting,
    splitter_memory_survives_a_restart,
    splitting_an_empty_cluster_is_fine,
)
"""What every splitter must keep to."""
