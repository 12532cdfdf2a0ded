"""Random scenarios of every algorithm of Pulsar that is compared with ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import scenarios_extensible
import scenarios_placement
import scenarios_shedding
import scenarios_splits
from scenario_draws import Draw, Fields

GENERATORS: Mapping[str, Callable[[Draw], Fields]] = {
    "base.resource_usage": scenarios_placement.resource_usage,
    "extensible.BrokerLoadData": scenarios_extensible.broker_load,
    "extensible.DefaultNamespaceBundleSplitStrategyImpl": scenarios_splits.extensible,
    "extensible.LeastResourceUsageWithWeight": scenarios_extensible.placement,
    "extensible.TopKBundles": scenarios_extensible.top_bundles,
    "extensible.TransferShedder": scenarios_extensible.transfer,
    "modular.AvgShedder": partial(scenarios_shedding.shedding, scenarios_shedding.average),
    "modular.AvgShedder.selectBroker": scenarios_shedding.average_placement,
    "modular.BundleSplitterTask": scenarios_splits.modular,
    "modular.LeastLongTermMessageRate": scenarios_placement.least_message_rate,
    "modular.LeastResourceUsageWithWeight": scenarios_placement.least_resource_usage,
    "modular.OverloadShedder": partial(scenarios_shedding.shedding, scenarios_shedding.overload),
    "modular.RoundRobinBrokerSelector": scenarios_placement.round_robin,
    "modular.ThresholdShedder": partial(scenarios_shedding.shedding, scenarios_shedding.threshold),
    "modular.UniformLoadShedder": partial(scenarios_shedding.shedding, scenarios_shedding.uniform),
    "naming.hash_to_bundle": scenarios_splits.hash_to_bundle,
    "naming.topic_to_bundle": scenarios_splits.topic_to_bundle,
    "split.boundaries": scenarios_splits.boundaries,
    "split.children": scenarios_splits.children,
}
"""The function that draws a scenario, by algorithm."""


def generate(algorithm: str, seed: int) -> Fields:
    """The scenario of this seed, in the oracle's format. It is the same on every machine."""
    drawn = GENERATORS[algorithm](Draw(f"{algorithm}#{seed}"))
    return {"id": f"{algorithm}#{seed}", "algorithm": algorithm, "seed": seed, **drawn}
