"""Adds up topics to bundles, finds idle bundles, and selects the hottest bundles.

`summed` has the same rules as `sql/topics.sql`, in numpy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import BUNDLE_SAMPLES, INSIDE, TRAFFIC
from trimtab_pipeline.transform.arrays import filled
from trimtab_pipeline.transform.topic_to_bundle import HashRanges
from trimtab_strategies.model.cluster_load import FloatArray, IntArray

LOAD = (*TRAFFIC, "producers", "consumers")
"""Columns of a topic's load."""


def summed(bundle_samples: pa.Table, ranges: HashRanges, times: pa.Table) -> pa.Table:
    """Add up the topics of each bundle of one policy. Takes and returns `columns.BUNDLE_SAMPLES`.

    Rows of bundles stay as they are, and so do the reports of the shards. times: `relations.POD_TIMES`. If no pod
    reports a bundle, although the pod of its owner reports every topic that it serves, the bundle is idle: it gets a
    row of zeros. A shard with topics outside all bundles has one row without bundle and pod; ``topics`` of this row is
    the number of these topics.
    """
    is_topic = bundle_samples["topic"].is_valid()
    topics, others = bundle_samples.filter(is_topic), bundle_samples.filter(pc.invert(is_topic))
    rows, _ = ranges.place(topics["topic"].combine_chunks())
    sums = _sums(topics, rows, ranges)
    reported = pa.concat_tables([sums, others])["bundle"]
    return pa.concat_tables([sums, others, _idle(topics, others, reported, ranges, times)])


def _sums(topics: pa.Table, rows: IntArray, ranges: HashRanges) -> pa.Table:
    """The topics in each bundle on each pod, added up. rows: row of each topic's bundle in `ranges`, -1 for none."""
    names = pa.array(ranges.names(np.arange(len(ranges))), pa.string())
    inside = pa.array(rows >= 0)
    keys = {
        "bundle": names.take(pa.array(rows, mask=rows < 0)),
        "pod": pc.if_else(inside, topics["pod"], None),
    }
    columns = {name: pc.fill_null(topics[name], 0.0) for name in LOAD}
    by = [*(topics.select(["policy", "shard"]).columns), *keys.values()]
    table = pa.table([*by, *columns.values()], names=["policy", "shard", *keys, *LOAD])
    how = [*((name, "sum") for name in LOAD), ([], "count_all")]
    grouped = table.group_by(["policy", "shard", *keys], use_threads=False).aggregate(how)
    sums = {name: grouped[f"{name}_sum"] for name in LOAD}
    counts = {"topics": grouped["count_all"].cast(pa.float64())}
    return filled(
        BUNDLE_SAMPLES, len(grouped), {name: grouped[name] for name in ("policy", "shard", *keys)} | sums | counts
    )


def _idle(topics: pa.Table, others: pa.Table, reported: pa.Array, ranges: HashRanges, times: pa.Table) -> pa.Table:
    """Bundles without a topic: no pod reports them, although the pod of their owner reports every topic it serves.

    Their column ``pod`` is an empty text, because no pod reports them.
    """
    complete = _complete(topics, others, times)
    pods = pa.array(ranges.pods, pa.string())
    ours = np.isin(ranges.owner, np.flatnonzero(pc.is_in(pods, value_set=complete["pod"])))
    rows = np.flatnonzero(ours)
    names = pa.array(ranges.names(rows), pa.string())
    new = pc.invert(pc.is_in(names, value_set=reported))
    names, owner = names.filter(new), pods.take(pa.array(ranges.owner[rows])).filter(new)
    shard = complete["shard"].take(pc.index_in(owner, value_set=complete["pod"]))
    zeros = {name: pa.array(np.zeros(len(names))) for name in (*LOAD, "topics")}
    keys = {"bundle": names, "shard": shard, "pod": pa.repeat("", len(names))}
    policy = {"policy": pa.repeat(times["policy"][0], len(names))} if len(names) else {}
    return filled(BUNDLE_SAMPLES, len(names), keys | policy | zeros)


def _complete(topics: pa.Table, others: pa.Table, times: pa.Table) -> pa.Table:
    """The `times` of pods that are known to report all of their topics.

    If statistics are the source, these are the pods whose statistics were read. Otherwise they are the pods with recent
    metrics, in shards that report at least one topic. If a shard reports no topic, perhaps its brokers do not export
    metrics of topics.
    """
    told = [json.loads(text) for text in others["report"].drop_null().to_pylist()]
    read = {report["shard"]: report["answered"] for report in told if report.get("answered") is not None}
    busy = set(topics["shard"].unique().to_pylist()) - set(read)
    keep = [
        row["pod"] in read[row["shard"]] if row["shard"] in read else bool(row["young"]) and row["shard"] in busy
        for row in times.to_pylist()
    ]
    return times.filter(pa.array(keep, pa.bool_()))


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
