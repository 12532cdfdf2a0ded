"""Percent, weighted maximum and moving average as Pulsar computes them, and the estimated load of a single bundle.

Pulsar computes percentages in 32-bit floats and all later steps in doubles. The last bit can decide whether a value is
above a threshold (60 of 100 is a little above 60 %). So decisions agree with Pulsar's only if every step is rounded in
the same way.

The module also has Pulsar's two orders of bundles, and its averages of a bundle's traffic, which count samples rather
than time. A bundle has a short window of 10 samples and a long one of 1000. Until a window is full, all its samples
have equal weight. Then each new sample has a weight of a tenth, or a thousandth. So the interval of the samples decides
how fast an average follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from trimtab_strategies.model import (
    CPU,
    DIRECT_MEMORY,
    MEMORY,
    NETWORK_IN,
    NETWORK_OUT,
    RATE_IN,
    RATE_OUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    ClusterLoad,
)
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray, somewhere

MEBIBYTE = 1048576
"""Bytes in what Pulsar's settings call a megabyte."""


MOVING = (CPU, NETWORK_IN, NETWORK_OUT)
"""Columns of `RESOURCES` that move with a bundle to its new owner; memory and direct memory stay with the process."""


Weight = Annotated[float, Field(ge=0, le=100)]
"""Factor on a resource's percent. The largest product counts. 0 leaves the resource out."""


class Weights(NamedTuple):
    """Factor on each resource's percent; columns `RESOURCES`. Pulsar's modular manager ignores heap memory."""

    cpu: float = 1.0
    memory: float = 0.0
    direct_memory: float = 0.0
    network_in: float = 1.0
    network_out: float = 1.0


DEFAULT_WEIGHTS = Weights()


def percent(usage: FloatArray, limit: FloatArray) -> npt.NDArray[np.float32]:
    """Usage in percent of the limit (float32, any shape). A limit of 0 or less gives 0; NaN usage gives NaN."""
    with np.errstate(all="ignore"):
        percents = usage.astype(np.float32)
        percents /= limit.astype(np.float32)
        percents *= np.float32(100)
    percents[~(limit > 0)] = 0
    return percents


def measured_percent(usage: FloatArray, limit: FloatArray) -> FloatArray:
    """Like `percent`, but for display: NaN where the usage is unknown or no limit above 0 exists."""
    return np.where(limit > 0, percent(usage, limit).astype(np.float64), np.nan)


def network_limits(limit: FloatArray) -> FloatArray:
    """(n, 2) bytes/s in and out that count as 100 % of each broker's network; infinite where they are not known.

    limit: (n, 5) as in `Brokers.limit`. The network's limits are not known where all usage is in percent, as with
    ``resources: Pulsar``. Such a broker has the limit 100 for each resource, and no broker has a memory of 100 bytes.
    """
    network, in_percent = limit[:, [NETWORK_IN, NETWORK_OUT]], limit[:, [MEMORY]] == 100  # noqa: PLR2004
    return np.where((network > 0) & ~in_percent, network, np.inf)


def weighted_maximum(percents: npt.NDArray[np.float32], weights: Weights, columns: Sequence[int]) -> FloatArray:
    """The largest weighted usage among `columns`, as a ratio: (n, 5) percent to (n,).

    NaN is ignored; -inf when every column is NaN. There is no division by the sum of the weights.
    """
    with np.errstate(all="ignore"):
        weighted = percents * _factors(weights, tuple(columns))
    largest: FloatArray = np.fmax.reduce(np.ascontiguousarray(weighted.T), axis=0, initial=-np.inf)
    return largest / 100


@lru_cache
def _factors(weights: Weights, columns: tuple[int, ...]) -> FloatArray:
    """The weights of `columns` as doubles (5,); NaN for the other columns, so that they are ignored."""
    return np.array([weight if column in columns else np.nan for column, weight in enumerate(weights)])


MODULAR_COLUMNS = (CPU, DIRECT_MEMORY, NETWORK_IN, NETWORK_OUT)
"""The resources that Pulsar's modular manager compares: all except the heap."""


def broker_usage(cluster: ClusterLoad, weights: Weights, columns: Sequence[int] = MODULAR_COLUMNS) -> FloatArray:
    """Weighted usage of each broker as a ratio (n,); -inf where it is unknown."""
    return weighted_maximum(percent(cluster.brokers.usage, cluster.brokers.limit), weights, columns)


def overloaded(cluster: ClusterLoad, rows: IntArray, weights: Weights, threshold: float) -> BoolArray:
    """Which of the brokers `rows` have a weighted usage above `threshold` (percent)."""
    percents = percent(cluster.brokers.usage[rows], cluster.brokers.limit[rows])
    above: BoolArray = weighted_maximum(percents, weights, MODULAR_COLUMNS) > threshold / 100
    return above


def smooth(before: FloatArray, usage: FloatArray, history: float) -> FloatArray:
    """One step of Pulsar's moving average: `history` (ratio 0-1) of `before`, the rest `usage`.

    NaN in `before` means no history: the average starts at `usage`.
    """
    return np.where(np.isnan(before), usage, before * history + (1 - history) * usage)


def mean(values: FloatArray) -> float:
    """Arithmetic mean; 0 without values.

    Values are added one by one (as in Java), in ascending order. So the mean does not depend on the brokers' order.
    """
    return float(np.cumsum(np.sort(values))[-1] / len(values)) if len(values) else 0.0


def both_directions(traffic: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rate (msg/s) and throughput (bytes/s), in plus out, of rows with the columns `TRAFFIC`; NaN for inf minus inf."""
    with np.errstate(invalid="ignore"):
        return traffic[:, RATE_IN] + traffic[:, RATE_OUT], traffic[:, THROUGHPUT_IN] + traffic[:, THROUGHPUT_OUT]


def bundle_throughput(cluster: ClusterLoad, bundles: IntArray) -> FloatArray:
    """Short-term throughput in plus out of the bundles (rows), bytes/s; NaN where never measured."""
    return both_directions(cluster.bundles.short[bundles])[1]


def drivers(cluster: ClusterLoad) -> FloatArray:
    """The traffic that is assumed to drive each resource, (m, 5) bytes/s: total for CPU, its own direction for network.

    Bundles that were never measured count 0, and so do memory and direct memory.
    """
    short = np.nan_to_num(cluster.bundles.short, nan=0.0, posinf=0.0, neginf=0.0)
    drive = np.zeros((len(cluster.bundles), 5))
    drive[:, CPU] = short[:, THROUGHPUT_IN] + short[:, THROUGHPUT_OUT]
    drive[:, NETWORK_IN] = short[:, THROUGHPUT_IN]
    drive[:, NETWORK_OUT] = short[:, THROUGHPUT_OUT]
    return drive


def attributed(cluster: ClusterLoad, bundles: IntArray) -> FloatArray:
    """The estimated part of its owner's usage that each bundle (rows, k) causes: (k, 5) in each resource's unit.

    A bundle causes CPU in proportion to its share of the short-term throughput of the owner's bundles, and network in
    and out by its share of each direction; memory does not move. 0 where it is unknown: a bundle without owner or data,
    a broker without usage. Expects a cluster in which pending moves count as landed (`with_moves_in_flight`).
    """
    drive = drivers(cluster)
    owner = cluster.bundles.owner
    total = sum_by_broker(owner, drive, len(cluster.brokers))
    return _share_of_usage(cluster, owner[bundles], drive[bundles], total)


def sum_by_broker(broker: IntArray, values: FloatArray, count: int) -> FloatArray:
    """Sum of rows (m, c) by broker row (m,), (count, c); rows of broker -1 are left out."""
    columns = [np.bincount(broker + 1, weights=values[:, c], minlength=count + 1)[1:] for c in range(values.shape[1])]
    return np.stack(columns, axis=1).astype(np.float64, copy=False)  # the sums of an empty array are integers


def _share_of_usage(cluster: ClusterLoad, broker: IntArray, drive: FloatArray, total: FloatArray) -> FloatArray:
    """Usage of `broker` (k,) times drive / total of that broker; 0 where a value is unknown or the broker is -1."""
    usage = np.where(cluster.brokers.limit > 0, np.nan_to_num(cluster.brokers.usage, posinf=0.0, neginf=0.0), 0.0)
    known: BoolArray = (broker >= 0)[:, np.newaxis] & (total[broker] > 0)
    share = np.divide(drive, total[broker], out=np.zeros_like(drive), where=known)
    return usage[broker] * share


def with_moves_in_flight(cluster: ClusterLoad) -> ClusterLoad:
    """The cluster as if every pending move had landed: load follows its bundle from `moving_from` to `owner`.

    The function shifts only `moving_share` (ratio) of each bundle's load: the part that is still measured at the old
    broker. Without this shift, the next cycle would find the old load again and move the same amount once more.
    """
    bundles, n = cluster.bundles, len(cluster.brokers)
    if not somewhere(bundles.moving_from >= 0):
        return cluster
    moving = np.flatnonzero(
        (bundles.moving_from >= 0) & (bundles.moving_share > 0) & (bundles.moving_from != bundles.owner)
    )
    if not len(moving):
        return cluster
    share = np.clip(bundles.moving_share[moving], 0, 1)[:, np.newaxis]
    source, destination = bundles.moving_from[moving], bundles.owner[moving]
    drive = drivers(cluster)
    there = drive[moving] * share
    total = sum_by_broker(bundles.owner, drive, n)
    total += sum_by_broker(source, there, n) - sum_by_broker(destination, there, n)
    load = _share_of_usage(cluster, source, there, total)
    traffic = np.nan_to_num(bundles.short[moving], posinf=0.0, neginf=0.0) * share
    brokers = replace(
        cluster.brokers,
        usage=_shifted(cluster.brokers.usage, load, source, destination),
        traffic=_shifted(cluster.brokers.traffic, traffic, source, destination),
    )
    landed = replace(bundles, moving_from=np.full(len(bundles), -1), moving_share=np.zeros(len(bundles)))
    return replace(cluster, brokers=brokers, bundles=landed)


def _shifted(values: FloatArray, load: FloatArray, source: IntArray, destination: IntArray) -> FloatArray:
    """Copy of `values` (n, c) with each row of `load` (k, c) taken from its source and added to its destination."""
    n = len(values)
    left = np.maximum(values - sum_by_broker(source, load, n), np.minimum(values, 0))
    return left + sum_by_broker(destination, load, n)


def unweighted_maximum(percents: npt.NDArray[np.float32]) -> FloatArray:
    """Usage of the busiest resource except the heap, as a ratio: (n, 5) percent to (n,). Divided in 32 bits."""
    largest = np.fmax.reduce(percents[:, list(MODULAR_COLUMNS)], axis=1, initial=np.float32(-np.inf))
    ratio: FloatArray = (largest / np.float32(100)).astype(np.float64)
    return ratio


SHORT_WINDOW = 10
"""Samples of the short-term average."""


LONG_WINDOW = 1000
"""Samples of the long-term average."""


UNSEEN = np.array([50.0, 50.0, 50_000.0, 50_000.0])
"""Columns `TRAFFIC`: the assumed first sample of a new bundle."""


BYTES = 1e5
"""Bytes/s of one step: bundles are ordered by whole steps of their load."""


MESSAGES = 100
"""Messages/s per step."""


SESSIONS = 500
"""Topics, producers and consumers per step."""


CACHE = 100_000
"""Bytes of cache per step."""


def with_sample(average: FloatArray, count: int, sample: FloatArray, window: int) -> tuple[FloatArray, int]:
    """The average (any shape) and its number of samples after one more `sample`, in a window of `window` samples."""
    count = min(count + 1, window)
    return ((count - 1) * average + sample) / count, count


def averaged_steps(traffic: FloatArray) -> IntArray:
    """Sort keys (k, 3) of averaged bundles (k, 4), the most significant first: bytes in, bytes out, messages.

    The keys are cut to whole steps, so many bundles tie. Bytes out decide only between bundles with equal bytes in.
    """
    return np.trunc(_in_steps(traffic)).astype(np.int64)


def reported_steps(traffic: FloatArray, sessions: FloatArray, cache: FloatArray) -> IntArray:
    """Sort keys of bundles in a broker's report, (k, 5): as `averaged_steps`, but rounded half up.

    Then follow sessions: (k,) topics, producers and consumers; and cache: (k,) bytes. Both are cut to whole steps.
    """
    rounded = np.floor(_in_steps(traffic) + 0.5)
    rest = np.stack([np.trunc(sessions / SESSIONS), np.trunc(cache / CACHE)], axis=1)
    return np.concatenate([rounded, rest], axis=1).astype(np.int64)


def _in_steps(traffic: FloatArray) -> FloatArray:
    messages = (traffic[:, RATE_IN] + traffic[:, RATE_OUT]) / MESSAGES
    return np.stack([traffic[:, THROUGHPUT_IN] / BYTES, traffic[:, THROUGHPUT_OUT] / BYTES, messages], axis=1)


def compared(left: Sequence[int], right: Sequence[int]) -> int:
    """-1, 0 or 1: the order of two bundles by their steps."""
    return (tuple(left) > tuple(right)) - (tuple(left) < tuple(right))
