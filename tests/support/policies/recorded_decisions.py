"""Records of real decisions on generated clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strategy_testing.clusters import NOW
from trimtab_operator.actuators import WriteResult
from trimtab_operator.decision_log.build import decision_record
from trimtab_operator.decision_log.record import DecisionRecord
from trimtab_operator.kube.naming import bundle_name, parse_pulsar_bundle
from trimtab_operator.loop.gates import refused_by_guard
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.settings import Settings
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_strategies.model import ClusterLoad, Decision, HeldBack, Memory
from trimtab_strategies.planner.decide import decide


def settings(**spec: Any) -> Settings:
    shedder = {"type": "ThresholdShedder", "thresholdShedder": {"historyPercent": 0, "minThroughput": 0}}
    placement = {
        "type": "LeastResourceUsageWithWeight",
        "leastResourceUsageWithWeight": {"averageDifference": 5, "historyPercent": 0},
    }
    base = {"mode": "Auto", "shedder": shedder, "placement": placement}
    whole = {**base, "source": {"prometheus": {"url": "http://prometheus:9090"}}, **spec}
    return Settings.of({"metadata": {"name": "main", "namespace": "messaging", "generation": 1}, "spec": whole})


def decided(
    load: ClusterLoad, *, at: float = NOW, moved: int = 0, shown: HeldBack | None = None, **spec: Any
) -> DecisionRecord:
    """The record of a decision on `load`. All its moves were written, or only shown for the reason in `shown`.

    moved: moves within the hour before, all made a minute before.
    """
    of = settings(**spec)
    load = replace(load, now=at)
    found = decide(load, of.pair, of.limits, Memory(), np.random.default_rng(1), moved_last_hour=moved)
    state = PolicyState(found.memory, ((at - 60, moved),) if moved else ())
    return decision_record(cycle_result(load, found, shown), of, state)


def cycle_result(load: ClusterLoad, found: Decision, shown: HeldBack | None = None) -> CycleResult:
    """The result of a cycle with this decision. All its moves were written, or only shown for the reason in `shown`."""
    names = {name: bundle_name(*parse_pulsar_bundle(name)) for name in found.plan.named}
    return CycleResult(
        started=load.now,
        seconds={},
        generation=1,
        load=load,
        plan=found.plan,
        refusal=refused_by_guard(found.plan),
        restraint=shown,
        written=[WriteResult(names[move.bundle], shown and shown.reason) for move in found.plan.moves],
        split_requests=[WriteResult(names[split.bundle], shown and shown.reason) for split in found.plan.splits],
        namespace="messaging",
        names=names,
    )
