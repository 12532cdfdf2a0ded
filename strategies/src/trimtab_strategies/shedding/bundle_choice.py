"""How shedders pick bundles: what brokers carry, and which of their bundles make up an amount or fit into one."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor, inf, log10

import numpy as np

from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.params import Defect
from trimtab_strategies.protocols import Shedding, Unload
from trimtab_strategies.usage import both_directions, bundle_throughput, sum_by_broker

MARGIN = 0.05
"""Ratio of a broker's throughput that leaves beyond its excess, so that it does not end on the threshold."""

TWO_TIME_BASES = Defect(
    "What has to leave is a share of the broker's own report, which is of this moment, but it is made up of bundles'"
    " short-term averages: after a change of traffic too much or too little leaves.",
    "The share is taken of the same averages, summed over the broker's bundles.",
)
"""A defect that several originals have."""


def reported(cluster: ClusterLoad) -> tuple[FloatArray, FloatArray]:
    """Rate and throughput of each broker (n,), as the brokers themselves report them."""
    return both_directions(cluster.brokers.traffic)


def carried(cluster: ClusterLoad) -> tuple[FloatArray, FloatArray]:
    """Rate and throughput of each broker (n,): short-term averages of its bundles, those never measured left out."""
    of_bundles = np.nan_to_num(np.stack(both_directions(cluster.bundles.short), axis=1), posinf=0.0, neginf=0.0)
    rate, throughput = sum_by_broker(cluster.bundles.owner, of_bundles, len(cluster.brokers)).T
    return rate, throughput


def busiest_first(cluster: ClusterLoad, bundles: IntArray, wanted: float) -> IntArray:
    """Of `bundles` (rows), the busiest by short-term throughput until `wanted` bytes/s are reached.

    At least one if there is any. Equal ones keep their order. The one that reaches `wanted` is taken whole.
    """
    throughput = bundle_throughput(cluster, bundles)
    order = np.argsort(-throughput, kind="stable")
    marked_before = np.cumsum(throughput[order])[:-1]
    count = 1 + np.count_nonzero(marked_before < wanted)
    return bundles[order[:count]]


def sole_bundle(cluster: ClusterLoad, broker: int) -> HeldBack:
    """That the only bundle of `broker` (row) stays: the hot spot would move along with it."""
    bundle = cluster.bundles.names[cluster.bundles.owned_by(broker)[0]]
    told = f"all of its load is {bundle}: split it or add partitions"
    return HeldBack(cluster.brokers.names[broker], Reason.SOLE_BUNDLE, told)


def too_little(name: str, *minima: str) -> HeldBack:
    """That broker `name` stays as it is, as it would move less than each of `minima` wants (`minimum`)."""
    return HeldBack(name, Reason.BELOW_MINIMUM, "; or ".join(minima))


def minimum(field: str, least: float, wanted: float, unit: str, *, above: bool = False) -> str:
    """What a minimum of the policy is, what there is to move, and which value would let that move, in words.

    field: path below spec.shedder; least: its value, an int where it is a whole number. wanted: what there is to move.
    above: whether that must exceed the minimum.
    """
    text = f"{field} is {least if isinstance(least, int) else f'{least:g}'} {unit}"
    if not wanted > 0:
        return f"{text}; this broker has no known traffic to move: no minimum would act"
    enough = _whole(wanted, above=above) if isinstance(least, int) else _two_digits(wanted)
    return f"{text}; this broker has {wanted:.4g} {unit} to move; {enough} {unit} or less would act"


def _whole(value: float, *, above: bool) -> str:
    """The largest whole number up to `value`, or below it if that must be `above`."""
    return str(max(0, ceil(value) - 1 if above else floor(value)))


def _two_digits(value: float) -> str:
    """The largest number of two digits up to `value`, which is above 0, or the next one below."""
    digits = 1 - floor(log10(value))
    found = floor(value * 10.0**digits) / 10.0**digits
    return f"{found if found <= value else found - 10.0**-digits:g}"


def relieved(
    cluster: ClusterLoad, sheddable: BoolArray, broker: int, wanted: float, reason: Reason
) -> Unload | HeldBack:
    """The `busiest_first` bundles of `broker` (row) that are `sheddable` (m), or why nothing leaves it."""
    owned = cluster.bundles.owned_by(broker)
    if len(owned) == 1:
        return sole_bundle(cluster, broker)
    rows = busiest_first(cluster, owned[sheddable[owned]], wanted)
    if not len(rows):
        told = f"none of its {len(owned)} bundles may leave it now"
        return HeldBack(cluster.brokers.names[broker], Reason.NO_BUNDLES, told)
    return Unload(broker, rows, reason)


def that_fit(values: FloatArray, room: float, *, whole: bool = False) -> IntArray:
    """Positions of the `values` that fit into `room` one after the other, the largest first; equal ones in order.

    One that is larger than what is left is passed over. whole: only its integer part is taken off the room (Pulsar's
    UniformLoadShedder counts so).
    """
    order = np.argsort(-values, kind="stable")
    taken = []
    for position, value in zip(order.tolist(), values[order].tolist(), strict=True):
        if -inf < value <= room:
            taken.append(position)
            room -= int(value) if whole else value
    return np.array(taken, dtype=np.int64)


def sorted_out(found: Iterable[Unload | HeldBack]) -> Shedding:
    """The answer made of what was found, in order: what leaves, and what was held back."""
    found = tuple(found)
    return Shedding(
        tuple(answer for answer in found if isinstance(answer, Unload)),
        tuple(answer for answer in found if isinstance(answer, HeldBack)),
    )
