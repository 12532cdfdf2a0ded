"""Decisions of Trim minute by minute on a small cluster, with the record of each decision."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recorded_decisions import cycle_result, settings
from trim_world import World, spread
from trimtab_operator.decision_log.build import decision_record
from trimtab_operator.decision_log.record import DecisionRecord
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.settings import Settings
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_strategies.model import Decision, Memory, Plan
from trimtab_strategies.planner.decide import decide
from trimtab_strategies.shedding.trim.samples import SampleRing


def skewed(top: float = 85.0, low: float = 40.0) -> World:
    """Four brokers at `low` percent and one at `top`."""
    loads = (*(spread(low, 20, seed) for seed in range(4)), spread(top, 20, 9))
    return World.of(*loads, nic=np.full((5, 2), 1.25e9))


@dataclass
class TrimDecisions:
    """Decides once a minute; each plan has landed by the next minute. trim: parameters of the shedder."""

    world: World
    trim: dict[str, Any] = field(default_factory=dict)
    ring: SampleRing = field(default_factory=SampleRing)
    memory: Memory = field(default_factory=Memory)
    result: CycleResult | None = None
    records: list[DecisionRecord] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        """The policy: Trim, and everything else at its default."""
        shedder = {"type": "Trim", **({"trim": self.trim} if self.trim else {})}
        return settings(shedder=shedder, placement={"type": "Trim"}, split={"type": "Trim"})

    def minute(self) -> DecisionRecord:
        """Measure, decide, record and land."""
        load, of = self.ring.add(self.world.cluster()), self.settings
        found = decide(load, of.pair, of.limits, self.memory, np.random.default_rng(1))
        self.memory = found.memory
        self.result = replace(cycle_result(load, found), predictions=of.pair.shedder.predictions(found.memory.shedder))
        self.records.append(decision_record(self.result, of, PolicyState(found.memory)))
        self.land(found)
        self.world.now += 60
        return self.records[-1]

    def minutes(self, count: int) -> DecisionRecord:
        """Run `count` minutes; returns the record of the last one."""
        return [self.minute() for _ in range(count)][-1]

    def until_it_moves(self) -> DecisionRecord:
        """Run minutes until the first plan; returns its record."""
        while not self.minute().moves:
            assert len(self.records) < 30
        return self.records[-1]

    def land(self, found: Decision) -> None:
        plan: Plan = found.plan
        for move in plan.moves:
            row = self.world.bundles.index(move.bundle)
            self.world.owner[row] = self.world.brokers.index(move.destination)
            self.world.moved[row] = self.world.now
