"""Recorded ground rules that both of Pulsar's managers share (``base.*``), run here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trimtab_strategies.averages import averaged_steps, compared, reported_steps, with_sample
from trimtab_strategies.conformance import world
from trimtab_strategies.conformance.shared import Algorithm, Answer, Input, params
from trimtab_strategies.java import hash_map_order
from trimtab_strategies.model.load import IntArray
from trimtab_strategies.shedding.threshold import ThresholdShedderParams
from trimtab_strategies.shedding.transferring import Spread
from trimtab_strategies.usage import MODULAR_COLUMNS, Weights, percent, unweighted_maximum, weighted_maximum


def resource_usage(given: Input) -> Answer:
    """``base.resource_usage``: percent, weighted and unweighted maximum of one broker."""
    usage, limit = world.resources(given["usage"])
    percents = percent(np.array([usage]), np.array([limit]))
    weights: Weights = params(ThresholdShedderParams, given["conf"]).weights
    every = dict(zip(world.RESOURCE_FIELDS, percents[0].tolist(), strict=True))
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
    return _compared(given, lambda entry: averaged_steps(world.traffic([entry])))


def reported_order(given: Input) -> Answer:
    """``base.NamespaceBundleStats_compare``: the order of two bundles in a broker's report."""
    return _compared(given, _reported)


def _compared(given: Input, steps: Callable[[Mapping[str, Any]], IntArray]) -> Answer:
    left, right = (steps(given[side])[0].tolist() for side in "ab")
    return {"order": compared(left, right)}


def _reported(entry: Mapping[str, Any]) -> IntArray:
    sessions = sum(entry.get(name, 0) for name in ("topics", "consumer_count", "producer_count"))
    return reported_steps(world.traffic([entry]), np.array([float(sessions)]), np.array([entry.get("cache_size", 0.0)]))


def float_sum_order(given: Input) -> Answer:
    """``base.float_sum_order``: a hash map's order of brokers, and mean and deviation of their usage, added up so."""
    names = hash_map_order(given["loads_percent"])
    spread = Spread.of(np.array([given["loads_percent"][name] / 100 for name in names]), exact=True)
    return {"order": names, "avg": spread.mean, "std": spread.deviation}


ALGORITHMS: Mapping[str, Algorithm] = {
    "base.NamespaceBundleStats_compare": reported_order,
    "base.TimeAverageMessageData_compare": averaged_order,
    "base.float_sum_order": float_sum_order,
    "base.resource_usage": resource_usage,
    "base.time_average": time_average,
}
