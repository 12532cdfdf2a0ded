"""Replays of splitting: boundaries, children, and the strategies that choose bundles (``split.*`` and others)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance import pulsar_clusters
from conformance.pulsar_clusters import Algorithm, Answer, Input, params
from trimtab_strategies.hash_ring import parse_bundle, range_text, topic_hash
from trimtab_strategies.java_compat import concurrent_map_order
from trimtab_strategies.model import ClusterLoad, Reason
from trimtab_strategies.model.cluster_load import IntArray
from trimtab_strategies.splitting.boundaries import (
    InvalidBoundaryError,
    can_split,
    children,
    flow_or_qps_equally_divide,
    range_equally_divide,
    specified_positions_divide,
    specified_positions_force,
    topic_count_equally_divide,
)
from trimtab_strategies.splitting.bundle_splitter_task import BundleSplitterTask, BundleSplitterTaskParams
from trimtab_strategies.splitting.limits import carried, first_exceeded
from trimtab_strategies.splitting.namespace_bundle_split import (
    DefaultNamespaceBundleSplitStrategy,
    DefaultNamespaceBundleSplitStrategyParams,
    SplitContext,
)
from trimtab_strategies.usage import MEBIBYTE

MANY = 2**31
"""Stands for a number of bundles that cannot be read: the modular manager then splits no bundle of that namespace."""

FAILURES = {Reason.TOO_NARROW, Reason.NO_LOAD_DATA, Reason.UNKNOWN}
"""Reasons that Pulsar counts as ``Failure/Unknown``. It does not count other bundles that stay whole."""


def bundle_splitter_task(given: Input) -> Answer:
    """``modular.BundleSplitterTask``: the bundles to split, and their brokers."""
    splitter = BundleSplitterTask(params(BundleSplitterTaskParams, given["conf"]))
    stats = {name: entry.get("stats", {}) for name, entry in given["brokers"].items()}
    everything = {bundle: fields for of_broker in stats.values() for bundle, fields in of_broker.items()}
    listed = {name: {"bundles": list(of_broker)} for name, of_broker in stats.items()}
    cluster = _with_stats(pulsar_clusters.cluster(listed, given["bundles"]), everything)
    exceeded = splitter.too_large(splitter.load(cluster))
    walked = [bundle for name in concurrent_map_order(stats) for bundle in concurrent_map_order(stats[name])]
    rows = np.array([cluster.bundles.index[bundle] for bundle in walked], dtype=np.int64)
    chosen, _ = splitter.with_room(
        cluster, rows[exceeded[rows] >= 0], _counts(cluster, given["namespace_bundle_count"], MANY)
    )
    names, owner = cluster.bundles.names, cluster.bundles.owner
    return {"splits": {names[row]: cluster.brokers.names[owner[row]] for row in chosen.tolist()}}


def _with_stats(cluster: ClusterLoad, stats: Mapping[str, Mapping[str, Any]]) -> ClusterLoad:
    """The cluster with current numbers of topics and sessions."""
    entries = [stats.get(name, {}) for name in cluster.bundles.names]
    topics = np.array([entry.get("topics", 0) for entry in entries], dtype=np.float64)
    sessions = [entry.get("consumer_count", 0) + entry.get("producer_count", 0) for entry in entries]
    return replace(
        cluster, bundles=replace(cluster.bundles, topics=topics, sessions=np.array(sessions, dtype=np.float64))
    )


def _counts(cluster: ClusterLoad, counts: Mapping[str, int], unknown: int) -> IntArray:
    return np.array([counts.get(namespace, unknown) for namespace in cluster.namespaces], dtype=np.int64)


def default_split_strategy(given: Input) -> Answer:
    """``extensible.DefaultNamespaceBundleSplitStrategyImpl``: splits, failures and hits of each round."""
    strategy = DefaultNamespaceBundleSplitStrategy(params(DefaultNamespaceBundleSplitStrategyParams, given["conf"]))
    bundles = {name: dict(fields) for name, fields in given["bundles"].items()}
    hits: Mapping[str, int] = {}
    rounds = []
    for step in given["rounds"]:
        for name in step.get("remove_bundles", ()):
            bundles.pop(name, None)
        bundles |= {name: dict(fields) for name, fields in step.get("set_bundles", {}).items()}
        answer = _split_round(strategy, bundles, {**given, **step}, hits)
        hits = answer["hit_counts"]
        rounds.append(answer)
    return {"rounds": rounds}


def _split_round(
    strategy: DefaultNamespaceBundleSplitStrategy,
    bundles: Mapping[str, Mapping[str, Any]],
    given: Input,
    hits: Mapping[str, int],
) -> Answer:
    cluster = _with_stats(pulsar_clusters.cluster({"self": {"bundles": list(bundles)}}, bundles), bundles)
    names = cluster.bundles.names
    skipped = np.isin(np.array(names, dtype=object), given["not_owned"]) | (cluster.bundles.topics < 2)
    around = SplitContext(
        _counts(cluster, given["namespace_bundle_count"], -1),
        given["splitting"],
        lambda row: _evenly_spaced(names[row], given["split_boundaries_returned"]),
    )
    exceeded = first_exceeded(carried(cluster, cluster.bundles.short), strategy.params.ceilings)
    kept = {name: count for name, count in hits.items() if name in bundles}
    walk = strategy.walk(cluster, np.flatnonzero(~skipped), exceeded, kept, around)
    splits = [
        {
            "bundle": names[split.bundle],
            "reason": str(split.reason),
            "children": _ranges(names[split.bundle], split.boundaries.tolist()),
        }
        for split in walk.proposed
    ]
    failures = sum(len(rows) for reason, rows in walk.left_out.items() if reason in FAILURES)
    return {"splits": splits, "counted": ["Failure/Unknown"] * failures, "hit_counts": walk.hits}


def _evenly_spaced(name: str, count: int | None) -> IntArray | None:
    """`count` evenly spaced boundaries, as the recorded algorithm finds them; None if it failed (-1) or gave null."""
    if count is None or count < 0:
        return None
    _, lower, upper = parse_bundle(name)
    return lower + np.arange(1, count + 1) * ((upper - lower) // (count + 1))


def _ranges(name: str, boundaries: Sequence[int]) -> list[str]:
    _, lower, upper = parse_bundle(name)
    return sorted(range_text(*child) for child in children(lower, upper, boundaries))


def split_boundaries(given: Input) -> Answer:
    """``split.boundaries``: the boundaries that each algorithm finds."""
    return {"cases": [_boundaries(case) for case in given["cases"]]}


def _boundaries(case: Input) -> Answer:
    try:
        found = _found(case)
    except InvalidBoundaryError:
        return {"exception": "IllegalArgumentException"}
    return {"boundaries": None if found is None else found.tolist()}


def _found(case: Input) -> IntArray | None:
    lower, upper = case["lower"], case["upper"]
    hashes = case["hashes"] if "hashes" in case else [topic_hash(topic) for topic in case["topics"]]
    places = np.array(hashes, dtype=np.int64)
    match case["algorithm"]:
        case "range_equally_divide":
            return range_equally_divide(lower, upper)
        case "topic_count_equally_divide":
            return topic_count_equally_divide(places)
        case "specified_positions_divide":
            return specified_positions_divide(lower, upper, case["positions"], len(places))
        case "specified_positions_divide_force":
            return specified_positions_force(lower, upper, case["positions"])
        case _:
            return _by_flow(case, places)


def _by_flow(case: Input, places: IntArray) -> IntArray | None:
    known = [k for k, stats in enumerate(case["stats"]) if stats is not None]
    load = np.array([case["stats"][k] for k in known], dtype=np.float64).reshape(-1, 2)
    return flow_or_qps_equally_divide(
        places[known],
        load[:, 0],
        load[:, 1],
        max_rate=case["max_msg_rate"],
        max_throughput=case["max_bandwidth_mbytes"] * MEBIBYTE,
        difference=case["diff_percent"],
    )


def split_children(given: Input) -> Answer:
    """``split.children``: whether a bundle can be split, and its children."""
    return {"cases": [_children(case) for case in given["cases"]]}


def _children(case: Input) -> Answer:
    _, lower, upper = parse_bundle(f"t/n/{case['parent']}")
    answer: Answer = {"can_split": can_split(lower, upper)}
    try:
        ranges = children(lower, upper, case.get("boundaries", ()), case["num_bundles"])
    except InvalidBoundaryError:
        return {**answer, "exception": "IllegalArgumentException"}
    return {**answer, "children": [range_text(*child) for child in ranges]}


ALGORITHMS: Mapping[str, Algorithm] = {
    "extensible.DefaultNamespaceBundleSplitStrategyImpl": default_split_strategy,
    "modular.BundleSplitterTask": bundle_splitter_task,
    "split.boundaries": split_boundaries,
    "split.children": split_children,
}
