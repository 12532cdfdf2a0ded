"""Recorded strategies of Pulsar's extensible manager (``extensible.*``), run here."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab_strategies.conformance import world
from trimtab_strategies.conformance.shared import Algorithm, Answer, Input, candidates, names_of, params
from trimtab_strategies.placement.least_resource_usage import (
    ExtensibleLeastResourceUsageWithWeight,
    ExtensibleLeastResourceUsageWithWeightParams,
)


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


ALGORITHMS: Mapping[str, Algorithm] = {
    "extensible.LeastResourceUsageWithWeight": extensible_least_resource_usage,
}
