"""Replays of the rules that both load managers share: names and hash ring (``naming.*``), averages (``base.*``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from conformance import pulsar_clusters
from conformance.pulsar_clusters import Algorithm, Answer, Input, params
from trimtab_strategies.hash_ring import default_boundaries, find_bundle, range_text, topic_hash
from trimtab_strategies.java_compat import hash_map_order
from trimtab_strategies.model.cluster_load import IntArray
from trimtab_strategies.shedding.threshold import ThresholdShedderParams
from trimtab_strategies.shedding.transfer.matching import Spread
from trimtab_strategies.usage import (
    MODULAR_COLUMNS,
    Weights,
    averaged_steps,
    compared,
    percent,
    reported_steps,
    unweighted_maximum,
    weighted_maximum,
    with_sample,
)


def topic_to_bundle(given: Input) -> Answer:
    """``naming.topic_to_bundle``: hash and bundle of each topic, for default and for given boundaries."""
    rings = [default_boundaries(count) for count in given["num_bundles"]]
    rings += [_boundaries(given["boundaries"])] if given.get("boundaries") else []
    hashes = [topic_hash(topic) for topic in given["topics"]]
    columns = [_bundles(ring, hashes) for ring in rings]
    answers = zip(given["topics"], hashes, zip(*columns, strict=True), strict=True)
    return {"topics": [{"name": name, "hash": place, "bundles": list(bundles)} for name, place, bundles in answers]}


def hash_to_bundle(given: Input) -> Answer:
    """``naming.hash_to_bundle``: the bundle of each hash; for the last hash of the ring, Pulsar raises an exception."""
    return {"bundles": _bundles(_boundaries(given["boundaries"]), given["hashes"])}


def _boundaries(texts: list[str]) -> IntArray:
    return np.array([int(text, 16) for text in texts], dtype=np.int64)


def _bundles(boundaries: IntArray, hashes: list[int]) -> list[str]:
    rows = find_bundle(boundaries, hashes, last_hash_included=False)
    edges = boundaries.tolist()
    ranges = [range_text(*edges[row : row + 2]) for row in range(len(edges) - 1)]
    ranges.append("exception IndexOutOfBoundsException")
    return [ranges[row] for row in rows]


NAMING_ALGORITHMS: Mapping[str, Algorithm] = {
    "naming.hash_to_bundle": hash_to_bundle,
    "naming.topic_to_bundle": topic_to_bundle,
}


def resource_usage(given: Input) -> Answer:
    """``base.resource_usage``: percent, weighted and unweighted maximum of one broker."""
    usage, limit = pulsar_clusters.resources(given["usage"])
    percents = percent(np.array([usage]), np.array([limit]))
    weights: Weights = params(ThresholdShedderParams, given["conf"]).weights
    every = dict(zip(pulsar_clusters.RESOURCE_FIELDS, percents[0].tolist(), strict=True))
    return {
        "percent": {name: every[name] for name in given["usage"]},
        "weighted_ratio": float(weighted_maximum(percents, weights, MODULAR_COLUMNS)[0]),
        "unweighted_ratio": float(unweighted_maximum(percents)[0]),
    }


def time_average(given: Input) -> Answer:
    """``base.time_average``: number of samples and average after each sample."""
    average, count = np.array(float(given["start"]["value"])), int(given["start"]["num_samples"])
    steps = []
    for sample in given["samples"]:
        average, count = with_sample(average, count, np.array(float(sample)), given["max_samples"])
        steps.append({"num_samples": count, "value": float(average)})
    return {"steps": steps}


def averaged_order(given: Input) -> Answer:
    """``base.TimeAverageMessageData_compare``: the order of two averages."""
    return _compared(given, lambda entry: averaged_steps(pulsar_clusters.traffic([entry])))


def reported_order(given: Input) -> Answer:
    """``base.NamespaceBundleStats_compare``: the order of two bundles in a broker's report."""
    return _compared(given, _reported)


def _compared(given: Input, steps: Callable[[Mapping[str, Any]], IntArray]) -> Answer:
    left, right = (steps(given[side])[0].tolist() for side in "ab")
    return {"order": compared(left, right)}


def _reported(entry: Mapping[str, Any]) -> IntArray:
    sessions = sum(entry.get(name, 0) for name in ("topics", "consumer_count", "producer_count"))
    return reported_steps(
        pulsar_clusters.traffic([entry]), np.array([float(sessions)]), np.array([entry.get("cache_size", 0.0)])
    )


def float_sum_order(given: Input) -> Answer:
    """``base.float_sum_order``: brokers in hash map order; mean and deviation of their usage, summed in that order."""
    names = hash_map_order(given["loads_percent"])
    spread = Spread.of(np.array([given["loads_percent"][name] / 100 for name in names]), exact=True)
    return {"order": names, "avg": spread.mean, "std": spread.deviation}


BASE_ALGORITHMS: Mapping[str, Algorithm] = {
    "base.NamespaceBundleStats_compare": reported_order,
    "base.TimeAverageMessageData_compare": averaged_order,
    "base.float_sum_order": float_sum_order,
    "base.resource_usage": resource_usage,
    "base.time_average": time_average,
}
