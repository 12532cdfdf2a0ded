"""Adds up topics to bundles, finds idle bundles, and selects the hottest bundles."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import INSIDE, TRAFFIC
from trimtab_pipeline.transform.arrays import filled
from trimtab_pipeline.transform.relations import BUNDLE_SUMS
from trimtab_pipeline.transform.topic_to_bundle import HashRanges
from trimtab_strategies.model.cluster_load import FloatArray, IntArray


def bundle_sums(samples: pa.Table, ranges: HashRanges | None) -> pa.Table:
    """`columns.BUNDLE_SAMPLES` of a shard, without its report -> `relations.BUNDLE_SUMS`.

    Rows of bundles stay as they are. Topics are added up by bundle and pod; ranges: None if there are none.
    """
    is_topic = samples["topic"].is_valid()
    topics, own = samples.filter(is_topic), samples.filter(pc.invert(is_topic))
    columns = {name: own[name] for name in ("bundle", "pod", *TRAFFIC, "topics")}
    columns |= {"sessions": pc.add(own["producers"], own["consumers"]), "summed": pa.array(np.zeros(len(own), bool))}
    sums = [filled(BUNDLE_SUMS, len(own), columns)]
    return pa.concat_tables(sums if ranges is None else [_sums(topics, ranges), *sums])


def _sums(topics: pa.Table, ranges: HashRanges) -> pa.Table:
    """The topics in each bundle on each pod, added up."""
    row, _ = ranges.place(topics["topic"].combine_chunks())
    pods = topics["pod"].combine_chunks().dictionary_encode()
    known = {name: pc.fill_null(topics[name], 0.0) for name in (*TRAFFIC, "producers", "consumers")}
    load = {name: known[name] for name in TRAFFIC} | {"sessions": pc.add(known["producers"], known["consumers"])}
    keys = {"row": pa.array(row), "pod": pa.array(np.where(row < 0, -1, pods.indices.to_numpy()))}
    sums = [*((name, "sum") for name in load), ([], "count_all")]
    found = pa.table(keys | load).group_by(list(keys), use_threads=False).aggregate(sums)
    row, pod = (pa.array(found[key].to_numpy(), mask=found[key].to_numpy() < 0) for key in keys)
    columns = {"bundle": ranges.labels.take(row), "pod": pods.dictionary.take(pod)}
    columns |= {name: found[f"{name}_sum"] for name in load} | {"topics": found["count_all"].cast(pa.float64())}
    return filled(BUNDLE_SUMS, len(found), columns | {"summed": pa.array(np.ones(len(found), bool))})


def idle_bundles(sums: pa.Table, ranges: HashRanges, complete: Collection[str]) -> pa.Table:
    """`relations.BUNDLE_SUMS` of the bundles without a topic. sums: those of all shards.

    complete: the pods that are known to report every topic that they serve. If such a pod should own a bundle, and no
    pod reports the bundle, then it is idle.
    """
    ours = np.isin(ranges.owner, [number for number, pod in enumerate(ranges.pods) if pod in complete])
    names = ranges.labels.filter(pa.array(ours))
    names = names.filter(pc.invert(pc.is_in(names, value_set=sums["bundle"])))
    columns = {name: pa.repeat(0.0, len(names)) for name in (*TRAFFIC, "topics", "sessions")}
    columns |= {"bundle": names, "pod": pa.repeat("", len(names)), "summed": pa.array(np.zeros(len(names), bool))}
    return filled(BUNDLE_SUMS, len(names), columns)


def topics_inside(topics: pa.Table, ranges: HashRanges) -> pa.Table:
    """The topics (`columns.BUNDLE_SAMPLES`) that lie in `ranges`, as columns `INSIDE`."""
    topics = topics.filter(topics["topic"].is_valid())
    rows, place = ranges.place(topics["topic"].combine_chunks())
    found = pa.array(np.flatnonzero(rows >= 0))
    picked = topics.take(found)
    columns = {
        "topic": picked["topic"],
        "bundle": pa.array(ranges.names(rows[rows >= 0]), pa.string()),
        "pod": picked["pod"],
        "place": pa.array(place[rows >= 0].astype(np.float64)),
        **{name: pc.fill_null(picked[name], 0.0) for name in TRAFFIC},
    }
    return pa.table(columns, schema=pa.schema(list(INSIDE)))


def hottest(load: Mapping[str, FloatArray], count: int) -> IntArray:
    """Rows of the `count` bundles with the most messages, and of the `count` with the most bytes, each in plus out.

    load: columns `TRAFFIC`, (m,) each, NaN if unknown. A bundle that is among the hottest of the cluster is also among
    the hottest of any part of the cluster that it belongs to.
    """
    messages = np.nan_to_num(load["rate_in"]) + np.nan_to_num(load["rate_out"])
    volume = np.nan_to_num(load["throughput_in"]) + np.nan_to_num(load["throughput_out"])
    picked = [_most(total, count) for total in (messages, volume)]
    return np.unique(np.concatenate(picked)).astype(np.int64)


def _most(total: FloatArray, count: int) -> IntArray:
    """Rows of the `count` highest totals, without those of 0."""
    rows = np.argsort(-total, kind="stable")[:count]
    return rows[total[rows] > 0]
