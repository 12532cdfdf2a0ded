"""Recorded strategies of Pulsar's modular manager (``modular.*``, ``base.*``), run here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trimtab_strategies.conformance import world
from trimtab_strategies.conformance.shared import Algorithm, Answer, Input, candidates, names_of, params
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.load import BoolArray
from trimtab_strategies.placement.least_resource_usage import (
    LeastResourceUsageWithWeight,
    LeastResourceUsageWithWeightParams,
)
from trimtab_strategies.protocols import Shedder, forget_others
from trimtab_strategies.shedding.threshold import ThresholdShedder, ThresholdShedderParams
from trimtab_strategies.topics import is_monitoring
from trimtab_strategies.usage import MODULAR_COLUMNS, Weights, percent, unweighted_maximum, weighted_maximum


def threshold_shedder(given: Input) -> Answer:
    """``modular.ThresholdShedder``: unloads and smoothed usage after each round."""
    return _shed_rounds(given, ThresholdShedder(params(ThresholdShedderParams, given["conf"])))


def _shed_rounds(given: Input, shedder: Shedder) -> Answer:
    brokers = {name: dict(entry) for name, entry in given["brokers"].items()}
    bundles = {name: dict(entry) for name, entry in given["bundles"].items()}
    unloaded: list[str] = []
    memory: Mapping[str, Any] = {}
    rounds = []
    for step in given["rounds"]:
        _remove(brokers, step.get("remove_brokers", ()))
        _remove(bundles, step.get("remove_bundles", ()))
        world.merge(brokers, step.get("set_brokers", {}))
        world.merge(bundles, step.get("set_bundles", {}))
        unloaded = step.get("recently_unloaded", unloaded)
        if step.get("notify_active"):
            memory = forget_others(memory, list(brokers))
        cluster = world.cluster(brokers, bundles)
        shedding = shedder.shed(cluster, _sheddable(cluster, unloaded), memory)
        memory = shedding.memory
        unloads = {
            cluster.brokers.names[unload.broker]: [cluster.bundles.names[row] for row in unload.bundles]
            for unload in shedding.unloads
        }
        rounds.append({"unloads": unloads, "state": {"ema": memory["brokers"]["ema"]}})
    return {"rounds": rounds}


def _remove(entries: dict[str, Any], names: list[str]) -> None:
    for name in names:
        entries.pop(name, None)


def _sheddable(cluster: ClusterLoad, unloaded: list[str]) -> BoolArray:
    """Bundles that were averaged, are out of their grace period, and are no broker's own heartbeat."""
    bundles = cluster.bundles
    recent = np.isin(np.array(bundles.names, dtype=object), unloaded)
    monitoring = np.array([is_monitoring(name) for name in cluster.namespaces], dtype=bool)[bundles.namespace]
    allowed: BoolArray = np.isfinite(bundles.short).all(axis=1) & ~recent & ~monitoring
    return allowed


def modular_least_resource_usage(given: Input) -> Answer:
    """``modular.LeastResourceUsageWithWeight``: the tied best and the smoothed usage after each step."""
    placement = LeastResourceUsageWithWeight(params(LeastResourceUsageWithWeightParams, given["conf"]))
    brokers = {name: dict(entry) for name, entry in given["brokers"].items()}
    memory: Mapping[str, Any] = {"brokers": {"ema": {}}}
    steps = []
    for now, step in enumerate(given["steps"]):
        world.merge(brokers, step.get("set_brokers", {}))
        # Only their number matters, and recordings give all brokers bundles of the same names.
        told_apart = {
            name: {**entry, "bundles": [f"{name}/{k}" for k in range(len(entry.get("bundles", ())))]}
            for name, entry in brokers.items()
        }
        cluster = world.cluster(told_apart, {}, now)
        allowed = candidates(cluster, step["candidates"])
        best = allowed
        if len(allowed):
            choice = placement.best(cluster, 0, allowed, memory)
            best, memory = choice.brokers, choice.memory
        steps.append({"one_of": names_of(cluster, best), "ema": memory["brokers"]["ema"]})
    return {"steps": steps}


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


ALGORITHMS: Mapping[str, Algorithm] = {
    "base.resource_usage": resource_usage,
    "modular.LeastResourceUsageWithWeight": modular_least_resource_usage,
    "modular.ThresholdShedder": threshold_shedder,
}
