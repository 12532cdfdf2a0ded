"""Recorded strategies of Pulsar's extensible manager (``extensible.*``), run here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trimtab_strategies.conformance import world
from trimtab_strategies.conformance.shared import Algorithm, Answer, Input, candidates, names_of, params
from trimtab_strategies.conformance.top_bundles import top_k_bundles
from trimtab_strategies.conformance.transfer import transfer_shedder
from trimtab_strategies.placement.least_resource_usage import (
    ExtensibleLeastResourceUsageWithWeight,
    ExtensibleLeastResourceUsageWithWeightParams,
)
from trimtab_strategies.shedding.transfer import TransferShedder, TransferShedderParams
from trimtab_strategies.usage import MODULAR_COLUMNS, percent


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
        allowed = candidates(cluster, step["candidates"])
        best = placement.best(cluster, 0, allowed, memory).brokers if len(allowed) else allowed
        steps.append({"one_of": names_of(cluster, best)})
    return {"steps": steps}


def broker_load_data(given: Input) -> Answer:
    """``extensible.BrokerLoadData``: the averages of one broker after each of its reports."""
    shedder = TransferShedder(params(TransferShedderParams, given["conf"]))
    memory: Mapping[str, Any] = {}
    rounds = []
    for now, report in enumerate(given["rounds"]):
        cluster = world.cluster({"broker": report}, {}, now)
        memory = shedder.averaged(cluster, memory)
        percents = percent(cluster.brokers.usage, cluster.brokers.limit)
        largest = np.fmax.reduce(percents[0, list(MODULAR_COLUMNS)], initial=np.float32(-np.inf))
        averages = {
            "weighted_max_ema": memory["brokers"]["ema"]["broker"],
            "msg_throughput_ema": memory["brokers"]["throughput"]["broker"],
        }
        rounds.append({**averages, "max_resource_usage": float(largest) / 100})  # divided in 64 bits, unlike elsewhere
    return {"rounds": rounds}


ALGORITHMS: Mapping[str, Algorithm] = {
    "extensible.BrokerLoadData": broker_load_data,
    "extensible.LeastResourceUsageWithWeight": extensible_least_resource_usage,
    "extensible.TopKBundles": top_k_bundles,
    "extensible.TransferShedder": transfer_shedder,
}
