"""Scores of runs, and the comparison of all shedders in all scenarios, as Pulsar runs them and under our planner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from trimtab_lab.simulation.run import AsPulsar, Decider, Record, UnderTrimtab, run
from trimtab_lab.simulation.scenarios import SCENARIOS, SimulationScenario
from trimtab_strategies import registry
from trimtab_strategies.model.cluster_load import BoolArray
from trimtab_strategies.params import Compatibility, StrategyParams

LEVEL = 20.0
"""Percent points of imbalance below which a cluster counts as balanced. Most strategies leave 10 above the average."""

OVERLOADED = 0.85
"""Ratio of usage above which Pulsar calls a broker overloaded."""


@dataclass(frozen=True, slots=True)
class RunScore:
    """The score of one run.

    balanced:  rounds after the last event until the imbalance stays below `LEVEL`; None for never.
    quiet:     rounds after the last event until the last move; None if bundles still moved in the last round.
    moves:     bundles moved for balance.
    repeated:  moves of bundles that had moved before in the run.
    backward:  moves to a broker with more usage than the source, see `Record`.
    imbalance: percent points at the end.
    overload:  broker-minutes above `OVERLOADED`.
    """

    balanced: int | None
    quiet: int | None
    moves: int
    repeated: int
    backward: int
    imbalance: float
    overload: int


def score(record: Record, event: int = 0) -> RunScore:
    """The score of a run whose last event (a broker came or went) was in round `event`."""
    moving = np.flatnonzero(record.moves[event:])
    rounds = len(record.moves) - event
    quiet = int(moving[-1]) + 1 if len(moving) else 0
    return RunScore(
        balanced=_first_of_the_rest(record.imbalance[event:] < LEVEL),
        quiet=quiet if quiet < rounds else None,
        moves=int(record.moves.sum()),
        repeated=int(np.maximum(record.times - 1, 0).sum()),
        backward=record.backward,
        imbalance=float(record.imbalance[-1]),
        overload=int((record.pressure[1:] > OVERLOADED).sum()),
    )


def _first_of_the_rest(good: BoolArray) -> int | None:
    """The first position from which on all are true; None if the last one is false."""
    bad = np.flatnonzero(~good)
    first = int(bad[-1]) + 1 if len(bad) else 0
    return first if first < len(good) else None


SEED = 364
"""Seed of every simulated cluster and every run."""

CUSTOMARY: Mapping[str, str] = {
    "ThresholdShedder": "LeastResourceUsageWithWeight",
    "OverloadShedder": "LeastLongTermMessageRate",
    "UniformLoadShedder": "LeastLongTermMessageRate",
    "AvgShedder": "AvgShedder",
    "TransferShedder": "ExtensibleLeastResourceUsageWithWeight",
    "WeightedBalancer": "LeastResourceUsageWithWeight",
}
"""The placement for each shedder, as recommended in Pulsar's documentation."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A shedder with its placement.

    compatibility: None for strategies without that parameter. guarded: under Trimtab's planner with its default limits;
    otherwise as Pulsar runs it.
    """

    shedder: str
    compatibility: Compatibility | None
    guarded: bool

    @property
    def placement(self) -> str:
        """The customary placement."""
        return CUSTOMARY[self.shedder]

    def decider(self) -> Decider:
        """A new decider without memory."""
        shedder, placement = registry.SHEDDERS[self.shedder], registry.PLACEMENTS[self.placement]
        pair = registry.pair(self.shedder, self._params(shedder.params), self.placement, self._params(placement.params))
        return UnderTrimtab(pair) if self.guarded else AsPulsar(pair)

    def _params(self, model: type[StrategyParams]) -> dict[str, str]:
        known = self.compatibility is not None and "compatibility" in model.model_fields
        return {"compatibility": str(self.compatibility)} if known else {}


def contenders() -> Iterator[Contender]:
    """Every shedder of the registry, with each value of `compatibility`, unguarded and guarded."""
    for name, row in registry.SHEDDERS.items():
        both: tuple[Compatibility | None, ...] = (
            tuple(Compatibility) if "compatibility" in row.params.model_fields else (None,)
        )
        yield from (Contender(name, value, guarded) for value in both for guarded in (False, True))


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """A contender's run of a scenario."""

    record: Record
    score: RunScore


def compare(scenario: SimulationScenario) -> dict[Contender, SimulationResult]:
    """The result of every contender, in the same simulated cluster with the same random numbers."""
    return {contender: played(scenario, contender) for contender in contenders()}


def played(scenario: SimulationScenario, contender: Contender, seed: int = SEED) -> SimulationResult:
    """Run one contender in a scenario."""
    world = scenario.build(np.random.default_rng(seed))
    record = run(world, contender.decider(), np.random.default_rng(seed))
    return SimulationResult(record, score(record, scenario.event))


def comparison() -> dict[str, dict[Contender, SimulationResult]]:
    """All results: by the scenario's title, then by contender."""
    return {scenario.title: compare(scenario) for scenario in SCENARIOS}
