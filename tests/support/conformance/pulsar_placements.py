"""Replays of placements of Pulsar's modular manager (``modular.*``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from conformance import pulsar_clusters
from conformance.pulsar_clusters import Algorithm, Answer, Input, candidates, names_of, params
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.placement.least_message_rate import LeastLongTermMessageRate, LeastLongTermMessageRateParams
from trimtab_strategies.placement.least_resource_usage import (
    LeastResourceUsageWithWeight,
    LeastResourceUsageWithWeightParams,
)
from trimtab_strategies.placement.round_robin import next_turn


def least_resource_usage(given: Input) -> Answer:
    """``modular.LeastResourceUsageWithWeight``: tied best brokers, and smoothed usage, after each step."""
    placement = LeastResourceUsageWithWeight(params(LeastResourceUsageWithWeightParams, given["conf"]))
    memory: Mapping[str, Any] = {"brokers": {"ema": {}}}
    steps = []
    for now, (step, brokers) in enumerate(_steps(given)):
        # Recordings use the same bundle names for all brokers. Only the number of bundles matters, so rename them.
        told_apart = {
            name: {**entry, "bundles": [f"{name}/{k}" for k in range(len(entry.get("bundles", ())))]}
            for name, entry in brokers.items()
        }
        cluster = pulsar_clusters.cluster(told_apart, {}, now)
        allowed = candidates(cluster, step["candidates"])
        best = allowed
        if len(allowed):
            choice = placement.best(cluster, 0, allowed, memory)
            best, memory = choice.brokers, choice.memory
        steps.append({"one_of": names_of(cluster, best), "ema": memory["brokers"]["ema"]})
    return {"steps": steps}


def least_long_term_message_rate(given: Input) -> Answer:
    """``modular.LeastLongTermMessageRate``: the tied best brokers of each step."""
    placement = LeastLongTermMessageRate(params(LeastLongTermMessageRateParams, given["conf"]))
    steps = []
    for now, (step, brokers) in enumerate(_steps(given)):
        cluster, given_since = _with_rates(brokers, now)
        memory: Mapping[str, Any] = {}
        for bundle, broker in given_since.items():
            memory = placement.chosen(cluster, bundle, broker, memory)
        allowed = candidates(cluster, step["candidates"])
        best = placement.best(cluster, 0, allowed, memory).brokers if len(allowed) else allowed
        steps.append({"one_of": names_of(cluster, best)})
    return {"steps": steps}


def _with_rates(brokers: Mapping[str, pulsar_clusters.Fields], now: float) -> tuple[ClusterLoad, dict[int, int]]:
    """A cluster whose brokers each own a bundle with their recorded rates; and preallocated bundle -> broker (rows)."""
    bundles: dict[str, pulsar_clusters.Fields] = {}
    destination: list[int] = []
    for row, (name, entry) in enumerate(brokers.items()):
        bundles[f"{name}/sum"] = {key: entry.get(f"long_term_{key}", 0.0) for key in ("msg_rate_in", "msg_rate_out")}
        for k, (rate_in, rate_out) in enumerate(entry.get("preallocated", ())):
            bundles[f"{name}/{k}"] = {"msg_rate_in": rate_in, "msg_rate_out": rate_out}
            destination.append(row)
    owning = {name: {**entry, "bundles": [f"{name}/sum"]} for name, entry in brokers.items()}
    cluster = pulsar_clusters.cluster(owning, bundles, now)
    since = np.flatnonzero(cluster.bundles.owner < 0).tolist()
    return cluster, dict(zip(since, destination, strict=True))


def round_robin(given: Input) -> Answer:
    """``modular.RoundRobinBrokerSelector``: the broker of each step; candidates come in the order of Java's set."""
    memory: Mapping[str, Any] = {"count": given["start_count"]}
    steps = []
    for step in given["steps"]:
        name = None
        if step["candidates"]:
            name, memory = next_turn(step["candidates"], memory)
        steps.append({"broker": name})
    return {"steps": steps}


def _steps(given: Input) -> Iterator[tuple[Mapping[str, Any], Mapping[str, pulsar_clusters.Fields]]]:
    """Each step, and the brokers at that step."""
    brokers = {name: dict(entry) for name, entry in given["brokers"].items()}
    for step in given["steps"]:
        pulsar_clusters.merge(brokers, step.get("set_brokers", {}))
        yield step, brokers


ALGORITHMS: Mapping[str, Algorithm] = {
    "modular.LeastResourceUsageWithWeight": least_resource_usage,
    "modular.LeastLongTermMessageRate": least_long_term_message_rate,
    "modular.RoundRobinBrokerSelector": round_robin,
}
