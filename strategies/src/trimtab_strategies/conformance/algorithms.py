"""How each recorded algorithm is run here: a function from the recorded input to an answer of the recorded shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import numpy as np

from trimtab_strategies.conformance import world
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.load import BoolArray, IntArray
from trimtab_strategies.params import StrategyParams, pulsar_keys
from trimtab_strategies.placement.least_resource_usage import (
    ExtensibleLeastResourceUsageWithWeight,
    ExtensibleLeastResourceUsageWithWeightParams,
    LeastResourceUsageWithWeight,
    LeastResourceUsageWithWeightParams,
)
from trimtab_strategies.protocols import Shedder, forget_others
from trimtab_strategies.shedding.threshold import ThresholdShedder, ThresholdShedderParams
from trimtab_strategies.topics import default_boundaries, find_bundle, is_monitoring, range_text, topic_hash
from trimtab_strategies.usage import MODULAR_COLUMNS, Weights, percent, unweighted_maximum, weighted_maximum

Input = Mapping[str, Any]
Answer = dict[str, Any]
Params = TypeVar("Params", bound=StrategyParams)


def params(model: type[Params], conf: Mapping[str, Any]) -> Params:
    """A strategy's parameters from Pulsar's configuration keys; keys of other strategies are left aside.

    Our bounds are not applied: recordings try values, such as a threshold of 0, that no policy may have. Like Pulsar,
    the old spelling ``...Bandwith...`` is read where the right one is absent or 1.
    """
    keys = pulsar_keys(model)
    old = {key.replace("Bandwidth", "Bandwith"): key for key in keys if "Bandwidth" in key}
    values = {keys[old[key]]: value for key, value in conf.items() if key in old}
    known = {keys[key]: value for key, value in conf.items() if key in keys}
    values.update({name: value for name, value in known.items() if value != 1 or name not in values})
    return cast("Params", model.model_construct(**values))


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
        candidates = _candidates(cluster, step["candidates"])
        best = candidates
        if len(candidates):
            choice = placement.best(cluster, 0, candidates, memory)
            best, memory = choice.brokers, choice.memory
        steps.append({"one_of": _names(cluster, best), "ema": memory["brokers"]["ema"]})
    return {"steps": steps}


def extensible_least_resource_usage(given: Input) -> Answer:
    """``extensible.LeastResourceUsageWithWeight``: the tied best of each step.

    The recording gives the smoothed usage that brokers reported, so it is handed in as what the strategy remembers.
    """
    placement = ExtensibleLeastResourceUsageWithWeight(
        params(ExtensibleLeastResourceUsageWithWeightParams, given["conf"])
    )
    steps = []
    for step in given["steps"]:
        ema = {name: float(value) for name, value in step["weighted_max_ema"].items()}
        cluster = world.cluster({name: {} for name in [*ema, *step["candidates"]]}, {})
        memory = {"now": cluster.now, "brokers": {"ema": ema, "usage": dict.fromkeys(ema, 0.0)}}
        candidates = _candidates(cluster, step["candidates"])
        best = placement.best(cluster, 0, candidates, memory).brokers if len(candidates) else candidates
        steps.append({"one_of": _names(cluster, best)})
    return {"steps": steps}


def _candidates(cluster: ClusterLoad, names: list[str]) -> IntArray:
    return np.array(sorted(cluster.brokers.index[name] for name in names), dtype=np.int64)


def _names(cluster: ClusterLoad, rows: IntArray) -> list[str]:
    return sorted(cluster.brokers.names[row] for row in rows)


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


def topic_to_bundle(given: Input) -> Answer:
    """``naming.topic_to_bundle``: hash and bundle of each topic, for default and for given boundaries."""
    rings = [default_boundaries(count) for count in given["num_bundles"]]
    rings += [_boundaries(given["boundaries"])] if given.get("boundaries") else []
    hashes = [topic_hash(topic) for topic in given["topics"]]
    columns = [_bundles(ring, hashes) for ring in rings]
    answers = zip(given["topics"], hashes, zip(*columns, strict=True), strict=True)
    return {"topics": [{"name": name, "hash": place, "bundles": list(bundles)} for name, place, bundles in answers]}


def hash_to_bundle(given: Input) -> Answer:
    """``naming.hash_to_bundle``: the bundle of each hash, with Pulsar's exception for the last one."""
    return {"bundles": _bundles(_boundaries(given["boundaries"]), given["hashes"])}


def _boundaries(texts: list[str]) -> IntArray:
    return np.array([int(text, 16) for text in texts], dtype=np.int64)


def _bundles(boundaries: IntArray, hashes: list[int]) -> list[str]:
    rows = find_bundle(boundaries, hashes, last_hash_included=False)
    edges = boundaries.tolist()
    ranges = [range_text(*edges[row : row + 2]) for row in range(len(edges) - 1)]
    ranges.append("exception IndexOutOfBoundsException")
    return [ranges[row] for row in rows]


ALGORITHMS: Mapping[str, Callable[[Input], Answer]] = {
    "modular.ThresholdShedder": threshold_shedder,
    "modular.LeastResourceUsageWithWeight": modular_least_resource_usage,
    "extensible.LeastResourceUsageWithWeight": extensible_least_resource_usage,
    "base.resource_usage": resource_usage,
    "naming.topic_to_bundle": topic_to_bundle,
    "naming.hash_to_bundle": hash_to_bundle,
}
"""What can be replayed. A recorded algorithm that is not in this table is reported as not implemented."""
