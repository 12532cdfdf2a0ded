"""Builders of small test clusters.

cluster(a=0.9, b=0.1)                                   two brokers at 90 and 10 % CPU, four equal bundles each
cluster(a=0.9, b=0.1, bundles={"a": [8, 1, 1], "b": []})  a's load in one large and two small bundles, b has none
cluster(a=0.5, b=0.5, lost=["b"])                       b is not ready, and its data is not trusted

with_bundles(cluster(...), pinned={0: True})            bundle 0 is pinned
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trimtab_strategies.hash_ring import bundle_names, default_boundaries
from trimtab_strategies.model import CPU, NETWORK_IN, NETWORK_OUT, Brokers, Bundles, ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray, IntArray

FULL = 2.0**30
"""Throughput (bytes/s) of a test broker at 100 % CPU; its network limits are four times as much."""

NOW = 1_000_000.0
"""Time (epoch seconds) of a test cluster."""


def cluster(
    *,
    bundles: int | Mapping[str, Sequence[float]] = 4,
    unowned: int = 0,
    lost: Sequence[str] = (),
    untrusted: Sequence[str] = (),
    unschedulable: Sequence[str] = (),
    **cpu: float,
) -> ClusterLoad:
    """A cluster of the brokers named by keyword, each with its CPU ratio.

    bundles: number of equal bundles of each broker, or per broker the relative sizes of its bundles. A broker's
    throughput is its CPU ratio times `FULL`, a third of it incoming, distributed over its bundles by size.
    unowned: number of bundles without an owner, never measured. lost, untrusted, unschedulable: names of these brokers.
    """
    sizes = [([1.0] * bundles if isinstance(bundles, int) else list(bundles.get(name, ()))) for name in cpu]
    owner = [row for row, own in enumerate(sizes) for _ in own] + [-1] * unowned
    share = [size / (sum(own) or 1) * use for own, use in zip(sizes, cpu.values(), strict=True) for size in own]
    throughput = np.array(share + [np.nan] * unowned) * FULL
    short = np.stack([throughput / 3072, throughput / 1536, throughput / 3, throughput * 2 / 3], axis=1)
    spaces = {f"public/{name}": len(own) for name, own in zip(cpu, sizes, strict=True)} | {"public/new": unowned}
    return ClusterLoad(
        brokers=_brokers(cpu, _owner_sums(owner, short, len(cpu)), lost, untrusted, unschedulable),
        bundles=_bundles(spaces, np.array(owner, dtype=np.int64), short),
        namespaces=tuple(spaces),
        now=NOW,
    )


def _owner_sums(owner: Sequence[int], values: FloatArray, count: int) -> FloatArray:
    sums = np.zeros((count, values.shape[1]))
    for row, value in zip(owner, values, strict=True):
        if row >= 0:
            sums[row] += value
    return sums


def _brokers(
    cpu: Mapping[str, float],
    traffic: FloatArray,
    lost: Sequence[str],
    untrusted: Sequence[str],
    unschedulable: Sequence[str],
) -> Brokers:
    names = tuple(cpu)
    usage = np.zeros((len(names), 5))
    usage[:, CPU] = list(cpu.values())
    usage[:, [NETWORK_IN, NETWORK_OUT]] = traffic[:, 2:]
    limit = np.tile([1.0, FULL, FULL, 4 * FULL, 4 * FULL], (len(names), 1))
    return Brokers(
        names=names,
        usage=usage,
        limit=limit,
        traffic=traffic,
        age=np.zeros(len(names)),
        ready=np.array([name not in lost for name in names], dtype=bool),
        schedulable=np.array([name not in unschedulable for name in names], dtype=bool),
        trusted=np.array([name not in lost and name not in untrusted for name in names], dtype=bool),
    )


def _bundles(spaces: Mapping[str, int], owner: IntArray, short: FloatArray) -> Bundles:
    m = len(owner)
    drawn = [bundle_names(space, default_boundaries(count)) for space, count in spaces.items() if count]
    return Bundles(
        names=tuple(name for names in drawn for name in names),
        namespace=np.repeat(np.arange(len(spaces)), list(spaces.values())),
        owner=owner,
        short=short,
        long=short,
        topics=np.ones(m),
        sessions=np.ones(m),
        last_unload=np.full(m, np.nan),
        pinned=np.zeros(m, dtype=bool),
        in_flight=np.zeros(m, dtype=bool),
        moving_from=np.full(m, -1, dtype=np.int64),
        moving_share=np.zeros(m),
    )


def with_bundles(cluster: ClusterLoad, **columns: Mapping[int, Any]) -> ClusterLoad:
    """The cluster with single values of bundle columns changed: ``with_bundles(c, pinned={0: True}, owner={2: 1})``."""
    changed = {}
    for name, values in columns.items():
        column = getattr(cluster.bundles, name).copy()
        for row, value in values.items():
            column[row] = value
        changed[name] = column
    return replace(cluster, bundles=replace(cluster.bundles, **changed))
