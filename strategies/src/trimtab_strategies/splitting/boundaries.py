"""Split boundaries: Pulsar's algorithms as functions of a range and its topics' places on the hash ring, and our own.

A bundle holds the hashes from `lower` up to, not including, `upper` (only a namespace's last bundle includes its upper
end). n boundaries strictly inside make n + 1 children. Two results mean that there is no split: None, which is Java's
null, and the empty array. Only `flow_or_qps_equally_divide` returns the empty array: when the bundle exceeds a limit,
but no topic overflows a child. `cut_into` is our own: it cuts a bundle between its topics into children of about equal
weight.

Source. Pulsar 4.2.4 `org.apache.pulsar.common.naming.*BundleSplitAlgorithm` and `NamespaceBundleFactory.splitBundles`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from trimtab_strategies.hash_ring import LAST_HASH, range_text
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.params import Compatibility, Defect

FEWEST_TOPICS = 2
"""A split can help only a bundle with at least this many topics."""


DEFECTS = (
    Defect(
        original="Of topics with the same hash, only the last one's rate and throughput count, and they count once for"
        " each of these topics. A boundary may lie between these topics, although it can't separate them.",
        corrected="Topics with the same hash count as one, with the sum of their rates and throughputs.",
    ),
)
"""Known defects of `flow_or_qps_equally_divide`."""


class InvalidBoundaryError(ValueError):
    """A bundle can't be split as requested. The message names the value, the bound and the fix.

    Java: IllegalArgumentException.
    """


class SplitAlgorithm(StrEnum):
    """The algorithms that need no positions from a user, spelled as in Pulsar."""

    RANGE = "range_equally_divide"
    TOPIC_COUNT = "topic_count_equally_divide"
    FLOW_OR_QPS = "flow_or_qps_equally_divide"


def can_split(lower: int, upper: int) -> bool:
    """Whether a range can hold two children: it must be wider than one hash."""
    return upper - lower > 1


def children(lower: int, upper: int, boundaries: Sequence[int] = (), count: int = 2) -> list[tuple[int, int]]:
    """The ranges into which `boundaries` (in any order) divide a bundle, ascending; without any, `count` equal ones.

    The last of the equal ones gets the remainder. Raises `InvalidBoundaryError` when the range is too narrow, a
    boundary is not strictly inside or given twice, or a child would have no hash.
    """
    whole = range_text(lower, upper)
    if not can_split(lower, upper):
        raise InvalidBoundaryError(f"range {whole} can't be split: it must be wider than 1")
    if not boundaries and not 1 <= count <= upper - lower:
        raise InvalidBoundaryError(f"range {whole} can't be split into {count}: use 2 to {upper - lower}")
    inner = sorted(boundaries) or [lower + k * ((upper - lower) // count) for k in range(1, count)]
    if inner and not lower < inner[0] <= inner[-1] < upper:
        outside = inner[0] if inner[0] <= lower else inner[-1]
        raise InvalidBoundaryError(f"boundary 0x{outside:08x} is not strictly inside {whole}: leave it out")
    edges = [lower, *inner, upper]
    for left, right in pairwise(edges):
        if left >= right:
            raise InvalidBoundaryError(f"boundary 0x{left:08x} of {whole} is given twice: leave one out")
    return list(pairwise(edges))


def range_equally_divide(lower: int, upper: int) -> IntArray:
    """The middle of a range (1,), rounded down."""
    return np.array([lower + (upper - lower) // 2], dtype=np.int64)


def topic_count_equally_divide(places: IntArray) -> IntArray | None:
    """The middle (1,) between the two topics in the middle, by their `places` (t,). None for fewer than two topics."""
    if len(places) < FEWEST_TOPICS:
        return None
    middle = len(places) // 2
    start, end = np.partition(places, (middle - 1, middle))[middle - 1 : middle + 1].tolist()
    return np.array([start + (end - start) // 2], dtype=np.int64)


def specified_positions_divide(lower: int, upper: int, positions: Sequence[int], topics: int) -> IntArray | None:
    """Those of `positions` that are strictly inside, ascending; None if there are none, or fewer than two topics.

    Raises `InvalidBoundaryError` if `positions` is empty. A position given twice is returned twice, as in Pulsar.
    """
    inside = specified_positions_force(lower, upper, positions)
    return inside if topics >= FEWEST_TOPICS else None


def specified_positions_force(lower: int, upper: int, positions: Sequence[int]) -> IntArray | None:
    """`specified_positions_divide` for any number of topics, as Pulsar's state channel uses it internally."""
    if not len(positions):
        raise InvalidBoundaryError(f"no position was given for {range_text(lower, upper)}: name at least one inside it")
    inside = sorted(position for position in positions if lower < position < upper)
    return np.array(inside, dtype=np.int64) if inside else None


def flow_or_qps_equally_divide(
    places: IntArray,
    rates: FloatArray,
    throughputs: FloatArray,
    *,
    max_rate: float,
    max_throughput: float,
    difference: float,
    compatibility: Compatibility = Compatibility.JAVA,
) -> IntArray | None:
    """Boundaries (any number) after each run of topics that fills a child.

    places, rates (msg/s), throughputs (bytes/s): (t,) of the topics. Returns None if fewer than two different places
    have load. Also returns None if the total rate is below `max_rate` plus `difference` percent and the total
    throughput is below `max_throughput` plus `difference` percent. The caller leaves out topics without stats; this
    function leaves out topics without load.
    """
    loaded = ~((rates <= 0) & (throughputs <= 0))
    places, load = places[loaded], np.stack([rates[loaded], throughputs[loaded]], axis=1)
    limit = np.array([max_rate, max_throughput])
    total = load.cumsum(axis=0)[-1] if len(load) else np.zeros(2)
    if len(np.unique(places)) < FEWEST_TOPICS or (total < limit * (1 + difference / 100)).all():
        return None
    return _run_ends(*_in_ring_order(places, load, compatibility), limit)


def _in_ring_order(places: IntArray, load: FloatArray, compatibility: Compatibility) -> tuple[IntArray, FloatArray]:
    """Places and load (t, 2), sorted by place.

    With `Java`, all topics on one place have the load of the last one. With `Corrected`, each place has one row with
    the sum of its topics' load.
    """
    if compatibility is Compatibility.CORRECTED:
        distinct, group = np.unique(places, return_inverse=True)
        summed = np.zeros((len(distinct), load.shape[1]))
        np.add.at(summed, group, load)
        return distinct, summed
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    last = np.searchsorted(ordered, ordered, side="right") - 1
    return ordered, load[order][last]


def _run_ends(places: IntArray, load: FloatArray, limit: FloatArray) -> IntArray:
    """Boundaries. Each is halfway between a topic that would lift the child above `limit` (2,) and the topic before."""
    found = []
    filled = load[0]
    for k in range(1, len(places)):
        together = filled + load[k]
        if (together > limit).any():
            found.append(int(places[k - 1] + (places[k] - places[k - 1]) // 2 + 1))
            together = load[k]
        filled = together
    return np.array(found, dtype=np.int64)


def checked(lower: int, upper: int, boundaries: IntArray) -> IntArray:
    """The boundaries, ascending, if they divide the range into children. Raises `InvalidBoundaryError` otherwise."""
    edges = children(lower, upper, boundaries.tolist())
    return np.array([left for left, _ in edges[1:]], dtype=np.int64)


def child_of(boundaries: IntArray, places: IntArray) -> IntArray:
    """The child (0 the lowest) of each place (t,) of a bundle that is split at `boundaries` (b,)."""
    found: IntArray = np.searchsorted(boundaries, np.minimum(places, LAST_HASH), side="right").astype(np.int64)
    return found


class Cut(NamedTuple):
    """A cut: boundaries, ascending and strictly inside, and the ratio 0-1 of the weight in the heaviest child."""

    boundaries: IntArray
    heaviest: float


def distinct_places(places: IntArray, weights: FloatArray, lower: int, upper: int) -> tuple[IntArray, FloatArray]:
    """The places between which a bundle can be cut, ascending, and the weight up to and including each (ratio).

    places, weights: (t,) of the bundle's topics. Topics outside the bundle are left out. Only a namespace's last bundle
    includes the hash at its upper end. No cut can separate that hash from the one before it.
    """
    inside = (places >= lower) & (places <= upper)
    distinct, group = np.unique(np.minimum(places[inside], upper - 1), return_inverse=True)
    sums: FloatArray = np.cumsum(np.bincount(group, weights[inside], minlength=len(distinct)), dtype=np.float64)
    return distinct, sums / sums[-1] if len(sums) and sums[-1] > 0 else sums


def cut_into(places: IntArray, sums: FloatArray, count: int) -> Cut:
    """The cut into at most `count` children of about equal weight; fewer if a topic is too heavy.

    places, sums: (p,) two or more, as `distinct_places` returns them. Boundary k lies where the sum is closest to
    k/count, halfway between the two places there.
    """
    aims = np.arange(1, count) / count
    after = np.clip(np.searchsorted(sums, aims), 1, len(sums) - 1)  # number of places below each cut
    later = np.minimum(after + 1, len(sums) - 1)
    closer = np.abs(sums[later - 1] - aims) < np.abs(sums[after - 1] - aims)
    left = np.unique(np.where(closer, later, after))
    gap = places[left] - places[left - 1]
    heaviest = float(np.diff([0.0, *sums[left - 1].tolist(), 1.0]).max())
    return Cut(places[left - 1] + (gap + 1) // 2, heaviest)
