"""Every shedder with its customary placement through every scenario, as Pulsar runs it and under our balancer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from trimtab_lab.simulation.run import AsPulsar, Decider, Record, UnderTrimtab, run
from trimtab_lab.simulation.scenarios import SCENARIOS, SimulationScenario
from trimtab_lab.simulation.score import RunScore, score
from trimtab_strategies import registry
from trimtab_strategies.params import Compatibility, StrategyParams

SEED = 364
"""Of every world and every run."""

CUSTOMARY: Mapping[str, str] = {
    "ThresholdShedder": "LeastResourceUsageWithWeight",
    "OverloadShedder": "LeastLongTermMessageRate",
    "UniformLoadShedder": "LeastLongTermMessageRate",
    "AvgShedder": "AvgShedder",
    "TransferShedder": "ExtensibleLeastResourceUsageWithWeight",
    "WeightedBalancer": "LeastResourceUsageWithWeight",
}
"""The placement that each shedder is used with: Pulsar's documents recommend these."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A shedder with its placement.

    compatibility: None for those that have no such parameter. guarded: under Trimtab's balancer with its default
    limits, else as Pulsar runs it.
    """

    shedder: str
    compatibility: Compatibility | None
    guarded: bool

    @property
    def placement(self) -> str:
        """The customary one."""
        return CUSTOMARY[self.shedder]

    def decider(self) -> Decider:
        """A fresh one, which remembers nothing."""
        shedder, placement = registry.SHEDDERS[self.shedder], registry.PLACEMENTS[self.placement]
        pair = registry.pair(self.shedder, self._params(shedder.params), self.placement, self._params(placement.params))
        return UnderTrimtab(pair) if self.guarded else AsPulsar(pair)

    def _params(self, model: type[StrategyParams]) -> dict[str, str]:
        known = self.compatibility is not None and "compatibility" in model.model_fields
        return {"compatibility": str(self.compatibility)} if known else {}


def contenders() -> Iterator[Contender]:
    """Every shedder of the registry, with each `compatibility` it has, in both ways."""
    for name, row in registry.SHEDDERS.items():
        both: tuple[Compatibility | None, ...] = (
            tuple(Compatibility) if "compatibility" in row.params.model_fields else (None,)
        )
        yield from (Contender(name, value, guarded) for value in both for guarded in (False, True))


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What a contender made of a scenario."""

    record: Record
    score: RunScore


def compare(scenario: SimulationScenario) -> dict[Contender, SimulationResult]:
    """The outcome for every contender in the same world, with the same chance."""
    return {contender: played(scenario, contender) for contender in contenders()}


def played(scenario: SimulationScenario, contender: Contender, seed: int = SEED) -> SimulationResult:
    """One run."""
    world = scenario.build(np.random.default_rng(seed))
    record = run(world, contender.decider(), np.random.default_rng(seed))
    return SimulationResult(record, score(record, scenario.event))


def comparison() -> dict[str, dict[Contender, SimulationResult]]:
    """The whole table: by the scenario's title, then by contender."""
    return {scenario.title: compare(scenario) for scenario in SCENARIOS}
