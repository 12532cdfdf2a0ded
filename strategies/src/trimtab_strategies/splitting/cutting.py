"""Cutting a bundle between its topics so that its children carry about the same."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab_strategies.model.load import FloatArray, IntArray


class Cut(NamedTuple):
    """Boundaries, ascending and strictly inside, and the ratio 0-1 of the weight in the heaviest child."""

    boundaries: IntArray
    heaviest: float


def distinct_places(places: IntArray, weights: FloatArray, lower: int, upper: int) -> tuple[IntArray, FloatArray]:
    """The places between which a bundle can be cut, ascending, and the weight up to and including each (ratio).

    places, weights: (t,) of the bundle's topics. Topics that are not in the bundle are left out; the hash that only a
    namespace's last bundle has, its upper end, can't be parted from the one before it.
    """
    inside = (places >= lower) & (places <= upper)
    distinct, group = np.unique(np.minimum(places[inside], upper - 1), return_inverse=True)
    sums: FloatArray = np.cumsum(np.bincount(group, weights[inside], minlength=len(distinct)), dtype=np.float64)
    return distinct, sums / sums[-1] if len(sums) and sums[-1] > 0 else sums


def cut_into(places: IntArray, sums: FloatArray, count: int) -> Cut:
    """The cut into at most `count` children that comes closest to equal ones; fewer when a topic is too heavy.

    places, sums: (p,) two or more, as `distinct_places` gives them. Cut k lies where the sum is closest to k/count,
    halfway between the two places there.
    """
    aims = np.arange(1, count) / count
    after = np.clip(np.searchsorted(sums, aims), 1, len(sums) - 1)  # places left of each cut, if it comes early
    later = np.minimum(after + 1, len(sums) - 1)
    closer = np.abs(sums[later - 1] - aims) < np.abs(sums[after - 1] - aims)
    left = np.unique(np.where(closer, later, after))
    gap = places[left] - places[left - 1]
    heaviest = float(np.diff([0.0, *sums[left - 1].tolist(), 1.0]).max())
    return Cut(places[left - 1] + (gap + 1) // 2, heaviest)
