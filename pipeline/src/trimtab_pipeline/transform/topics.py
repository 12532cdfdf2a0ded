"""Topics summed up to bundles, and the topics of the hottest bundles, as plain columns; runs inside Spark's tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import TRAFFIC
from trimtab_pipeline.prometheus.queries import TOPICS
from trimtab_pipeline.transform.topic_to_bundle import HashRanges
from trimtab_strategies.model.cluster_load import FloatArray, IntArray

LOAD = TOPICS.columns
"""Columns of a topic's load: `TRAFFIC`, producers, consumers."""
_WHOLE = ("", "-1")  # partition labels of topics without partitions


@dataclass(frozen=True, slots=True)
class PlacedTopics:
    """Topics as pods report them, t rows, placed among bundles.

    names, pods: of each topic. load: (t, 6) columns `LOAD`, 0 where a pod does not report it.
    bundle: (t,) row of `ranges`, -1 outside. place: (t,) hash of the name.
    """

    names: pa.StringArray
    pods: pa.StringArray
    load: FloatArray
    bundle: IntArray
    place: IntArray
    ranges: HashRanges

    @classmethod
    def placed(cls, keys: Sequence[pa.StringArray], load: Sequence[pa.DoubleArray], ranges: HashRanges) -> PlacedTopics:
        """From columns as Prometheus answers them: keys topic, partition and pod; `load` as `LOAD`."""
        names = full_names(keys[0], keys[1])
        values = np.stack([np.nan_to_num(column.to_numpy(zero_copy_only=False)) for column in load], axis=1)
        bundle, place = ranges.place(names)
        return cls(names, keys[2], values, bundle, place, ranges)

    @property
    def outside(self) -> int:
        """Number of topics outside all known bundles."""
        return int((self.bundle < 0).sum())

    def by_bundle(self) -> SummedBundles:
        """The load of each bundle on each pod with topics of it."""
        inside = np.flatnonzero(self.bundle >= 0)
        coded = pc.dictionary_encode(self.pods)
        pod, count = coded.indices.to_numpy().astype(np.int64)[inside], max(len(coded.dictionary), 1)
        groups, group = np.unique(self.bundle[inside] * count + pod, return_inverse=True)
        sums = [np.bincount(group, self.load[inside, k], len(groups)) for k in range(len(LOAD))]
        topics = np.bincount(group, minlength=len(groups)).astype(np.float64)
        pods = coded.dictionary.take(pa.array(groups % count))
        return SummedBundles(groups // count, pods, np.stack([*sums, topics], axis=1), self.ranges)

    def within(self, bundles: IntArray) -> dict[str, pa.Array]:
        """Columns `INSIDE` of the topics in `bundles` (rows of `ranges`)."""
        rows = np.flatnonzero(np.isin(self.bundle, bundles) & (self.bundle >= 0))
        chosen, which = np.unique(self.bundle[rows], return_inverse=True)
        names, picked = pa.array(self.ranges.names(chosen), pa.string()), pa.array(rows)
        traffic = {name: pa.array(self.load[rows, k]) for k, name in enumerate(TRAFFIC)}
        keys = {"topic": self.names.take(picked), "bundle": names.take(pa.array(which)), "pod": self.pods.take(picked)}
        return {**keys, "place": pa.array(self.place[rows].astype(np.float64)), **traffic}


@dataclass(frozen=True, slots=True)
class SummedBundles:
    """Bundles as sums of topics, g rows: row of `ranges`, pod, and (g, 7) `LOAD` and the number of topics."""

    row: IntArray
    pods: pa.StringArray
    load: FloatArray
    ranges: HashRanges

    def with_idle(self, answered: Sequence[str]) -> SummedBundles:
        """The bundles, and idle ones: without a topic, on a pod of `answered` that should own them, under pod "".

        No pod reports them, so the name is empty: a pod that does report a bundle takes precedence.
        """
        ours = np.isin(self.ranges.owner, [k for k, pod in enumerate(self.ranges.pods) if pod in set(answered)])
        idle = np.setdiff1d(np.flatnonzero(ours), self.row)
        pods = pa.concat_arrays([self.pods, pa.repeat("", len(idle))])
        load = np.concatenate([self.load, np.zeros((len(idle), len(LOAD) + 1))])
        return SummedBundles(np.concatenate([self.row, idle]), pods, load, self.ranges)

    def columns(self) -> dict[str, pa.Array]:
        """Columns of `trimtab_pipeline.prometheus.queries.BUNDLES`."""
        values = dict(zip((*LOAD, "topics"), map(pa.array, self.load.T.copy()), strict=True))
        return {"bundle": pa.array(self.ranges.names(self.row), pa.string()), "pod": self.pods, **values}


def full_names(topics: pa.StringArray, partitions: pa.StringArray) -> pa.StringArray:
    """Names as they are hashed. A broker may be configured to put the partition's number in its own label."""
    whole = pc.is_in(partitions, value_set=pa.array(_WHOLE))
    if pc.all(whole).as_py():
        return topics
    return pc.if_else(whole, topics, pc.binary_join_element_wise(topics, partitions, "-partition-"))


def hottest(load: Mapping[str, FloatArray], count: int) -> IntArray:
    """Rows of the `count` bundles with the most messages, and of the `count` with the most bytes; both ways summed.

    load: columns `TRAFFIC`, (m,) each, NaN unknown. The rule is the same for a part of the cluster and for all of it: a
    bundle among the hottest of all is among the hottest of its part.
    """
    messages = np.nan_to_num(load["rate_in"]) + np.nan_to_num(load["rate_out"])
    volume = np.nan_to_num(load["throughput_in"]) + np.nan_to_num(load["throughput_out"])
    picked = [_most(total, count) for total in (messages, volume)]
    return np.unique(np.concatenate(picked)).astype(np.int64)


def _most(total: FloatArray, count: int) -> IntArray:
    """Rows of the `count` highest totals, without those of 0."""
    rows = np.argsort(-total, kind="stable")[:count]
    return rows[total[rows] > 0]
