"""The contenders: every shedder with its usual placement, as Pulsar runs it and under Trimtab's planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from trimtab_lab.simulation.build import build
from trimtab_lab.simulation.deciders import AsPulsar, Decider, UnderTrimtab, Watcher
from trimtab_lab.simulation.run import Record, run
from trimtab_lab.simulation.scenario import Scenario
from trimtab_lab.simulation.score import RunScore, score
from trimtab_lab.simulation.world import World
from trimtab_strategies import registry
from trimtab_strategies.params import Compatibility, StrategyParams
from trimtab_strategies.protocols import Splitter

USUAL_PLACEMENTS: Mapping[str, str] = {
    "Trim": "Trim",
    "ThresholdShedder": "LeastResourceUsageWithWeight",
    "OverloadShedder": "LeastLongTermMessageRate",
    "UniformLoadShedder": "LeastLongTermMessageRate",
    "AvgShedder": "AvgShedder",
    "TransferShedder": "ExtensibleLeastResourceUsageWithWeight",
    "WeightedBalancer": "LeastResourceUsageWithWeight",
}
"""The usual placement of each shedder; for Pulsar's, the one that its documentation recommends."""

OURS = ("Trim",)
"""Shedders that only Trimtab can run."""

MANY = 2**31 - 1
"""A limit of a splitter that no bundle reaches."""


class UnknownContenderError(ValueError):
    """No contender has this name. The message lists those that exist."""


class Player(Protocol):
    """Takes part in a comparison: a `Contender`, or a policy."""

    @property
    def name(self) -> str:
        """The name in tables."""

    def decider(self, world: World) -> Decider:
        """A new decider without memory."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A shedder with its placement.

    guarded: under Trimtab's planner with its default limits, and with corrected decisions; otherwise as Pulsar runs it,
    with original ones.
    """

    shedder: str
    guarded: bool

    @property
    def name(self) -> str:
        """``Shedder/Pulsar`` or ``Shedder/Trimtab``."""
        return f"{self.shedder}/{'Trimtab' if self.guarded else 'Pulsar'}"

    @property
    def placement(self) -> str:
        """The usual placement of the shedder."""
        return USUAL_PLACEMENTS[self.shedder]

    def decider(self, world: World) -> Decider:
        """A new decider without memory."""
        shedder, placement = registry.SHEDDERS[self.shedder], registry.PLACEMENTS[self.placement]
        pair = registry.pair(self.shedder, self._params(shedder.params), self.placement, self._params(placement.params))
        pair = replace(pair, splitter=self._splitter(world))
        return UnderTrimtab(pair) if self.guarded else AsPulsar(pair)

    def _params(self, model: type[StrategyParams]) -> dict[str, str]:
        if "compatibility" not in model.model_fields:
            return {}
        return {"compatibility": str(Compatibility.CORRECTED if self.guarded else Compatibility.JAVA)}

    def _splitter(self, world: World) -> Splitter | None:
        """The splitter with the shedder's name, if there is one.

        Otherwise, if the scenario splits bundles: `WeightedSplitter` under Trimtab, and else Pulsar's
        `BundleSplitterTask`.
        """
        if self.shedder in registry.SPLITTERS:
            return registry.splitter(self.shedder, {})
        if world.splitting is None:
            return None
        limits = {"max_throughput": f"{world.splitting.bandwidth}Mi", "max_bundles": MANY, "max_rate": MANY}
        limits |= {"max_topics": MANY, "max_sessions": -1}
        if self.guarded:
            return registry.splitter("WeightedSplitter", limits)
        return registry.splitter("BundleSplitterTask", limits | {"compatibility": "Corrected"})


def shown() -> list[Contender]:
    """The contenders in tables: every shedder of the registry, as Pulsar runs it and under Trimtab."""
    return [
        Contender(name, guarded)
        for name in registry.SHEDDERS
        for guarded in ((True,) if name in OURS else (False, True))
    ]


def contender(name: str) -> Contender:
    """The contender that ``Shedder``, ``Shedder/Pulsar`` or ``Shedder/Trimtab`` names; by default under Trimtab.

    Raises `UnknownContenderError`.
    """
    known = {who.name: who for who in shown()}
    asked = name if "/" in name else f"{name}/Trimtab"
    if asked not in known:
        raise UnknownContenderError(f"strategy {name!r} is unknown: use one of {', '.join(known)}")
    return known[asked]


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """A contender's run of a scenario."""

    record: Record
    score: RunScore


def played(scenario: Scenario, who: Player, seed: int, watcher: Watcher | None = None) -> SimulationResult:
    """Run one contender in a scenario. With the same seed, all contenders run in the same world."""
    world = build(scenario, np.random.default_rng(seed))
    record = run(world, who.decider(world), np.random.default_rng(seed), watcher)
    return SimulationResult(record, score(record, scenario.event, scenario.goal))
