"""Functions with which shedders choose bundles: what brokers carry, which bundles reach an amount or fit into it."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor, inf

import numpy as np

from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.params import Defect, as_quantity
from trimtab_strategies.protocols import Shedding, Unload
from trimtab_strategies.usage import both_directions, bundle_throughput, sum_by_broker

MARGIN = 0.05
"""Ratio of a broker's throughput that leaves in addition to its excess, so that the broker ends below the threshold."""

TWO_TIME_BASES = Defect(
    "The amount to shed is a share of the throughput that the broker reports now, but bundles are chosen by their"
    " short-term averages: after a change of traffic, too much or too little leaves.",
    "The amount is a share of the same averages, summed over the broker's bundles.",
)
"""A defect that several originals have."""


def reported(cluster: ClusterLoad) -> tuple[FloatArray, FloatArray]:
    """Rate and throughput of each broker (n,), as the brokers themselves report them."""
    return both_directions(cluster.brokers.traffic)


def carried(cluster: ClusterLoad) -> tuple[FloatArray, FloatArray]:
    """Rate and throughput of each broker (n,): sums of its bundles' short-term averages, without unmeasured bundles."""
    of_bundles = np.nan_to_num(np.stack(both_directions(cluster.bundles.short), axis=1), posinf=0.0, neginf=0.0)
    rate, throughput = sum_by_broker(cluster.bundles.owner, of_bundles, len(cluster.brokers)).T
    return rate, throughput


def busiest_first(cluster: ClusterLoad, bundles: IntArray, wanted: float) -> IntArray:
    """The busiest of `bundles` (rows) by short-term throughput that together reach `wanted` bytes/s.

    The bundle that reaches `wanted` is included. If there is any bundle, at least one is returned. Ties keep their
    order.
    """
    throughput = bundle_throughput(cluster, bundles)
    order = np.argsort(-throughput, kind="stable")
    with np.errstate(invalid="ignore"):  # unmeasured bundles may be infinite, of both signs
        marked_before = np.cumsum(throughput[order])[:-1]
    count = 1 + np.count_nonzero(marked_before < wanted)
    return bundles[order[:count]]


def sole_bundle(cluster: ClusterLoad, broker: int) -> HeldBack:
    """The entry for the only bundle of `broker` (row). It stays, because the hot spot would move with it."""
    bundle = cluster.bundles.names[cluster.bundles.owned_by(broker)[0]]
    text = f"all of its load is {bundle}: split it or add partitions"
    return HeldBack(cluster.brokers.names[broker], Reason.SOLE_BUNDLE, text)


def too_little(name: str, *minima: str) -> HeldBack:
    """The entry for broker `name`, which has too little to move. minima: the texts of `least_rate` and the like."""
    return HeldBack(name, Reason.BELOW_MINIMUM, "; or ".join(minima))


def least_rate(field: str, least: int, wanted: float, *, above: bool = False) -> str:
    """Text with a minimum of messages/s, the rate to move, and the largest minimum that would allow the move.

    field: path below spec.shedder; least: its value. wanted: msg/s to move. above: whether `wanted` must exceed the
    minimum; otherwise it may also be equal.
    """
    return _minimum(field, str(least), f"{wanted:.4g}" if wanted > 0 else "", str(_whole(wanted, above=above)), "msg/s")


def least_throughput(field: str, least: str, wanted: float, *, above: bool = False) -> str:
    """Like `least_rate`, for bytes/s as a quantity."""
    shown = as_quantity(wanted) if wanted > 0 else ""
    return _minimum(field, least, shown, as_quantity(_whole(wanted, above=above)), "bytes/s")


def _minimum(field: str, least: str, wanted: str, enough: str, unit: str) -> str:
    text = f"{field} is {least} {unit}"
    if not wanted:
        return f"{text}; this broker has no known traffic to move: no minimum would act"
    return f"{text}; this broker has {wanted} {unit} to move; {enough} {unit} or less would act"


def _whole(value: float, *, above: bool) -> int:
    """The largest whole number that is at most `value`, or that is below `value` if `above`."""
    return max(0, ceil(value) - 1 if above else floor(value)) if value > 0 else 0


def relieved(
    cluster: ClusterLoad, sheddable: BoolArray, broker: int, wanted: float, reason: Reason
) -> Unload | HeldBack:
    """The `busiest_first` bundles of `broker` (row) that are `sheddable` (m), or why nothing leaves it."""
    owned = cluster.bundles.owned_by(broker)
    if len(owned) == 1:
        return sole_bundle(cluster, broker)
    rows = busiest_first(cluster, owned[sheddable[owned]], wanted)
    if not len(rows):
        text = f"none of its {len(owned)} bundles may leave it now"
        return HeldBack(cluster.brokers.names[broker], Reason.NO_BUNDLES, text)
    return Unload(broker, rows, reason)


def that_fit(values: FloatArray, room: float, *, whole: bool = False) -> IntArray:
    """Positions of the `values` that fit into `room` one after the other, the largest first; equal ones in order.

    A value that is larger than the remaining room is skipped. whole: subtract only the integer part of a value from the
    room, as Pulsar's UniformLoadShedder does.
    """
    order = np.argsort(-values, kind="stable")
    taken = []
    for position, value in zip(order.tolist(), values[order].tolist(), strict=True):
        if -inf < value <= room:
            taken.append(position)
            room -= int(value) if whole else value
    return np.array(taken, dtype=np.int64)


def sorted_out(found: Iterable[Unload | HeldBack]) -> Shedding:
    """The result of a shedder: the unloads among these findings, and the entries for what stays, each in order."""
    found = tuple(found)
    return Shedding(
        tuple(answer for answer in found if isinstance(answer, Unload)),
        tuple(answer for answer in found if isinstance(answer, HeldBack)),
    )
