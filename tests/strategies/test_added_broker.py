"""A broker that is added takes part once it is measured, and is not flooded."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from strategy_testing.clusters import cluster
from trimtab_strategies import registry
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import CPU, ClusterLoad, Memory
from trimtab_strategies.planner.decide import decide
from trimtab_strategies.usage import percent

PAIR = registry.pair("ThresholdShedder", {"historyPercent": 0}, "LeastResourceUsageWithWeight", {"historyPercent": 0})
LIMITS = MoveLimits(cool_down=1800.0, max_moves_per_broker=10, max_moves_per_cycle=20)


def busy(*, untrusted: str = "") -> ClusterLoad:
    """Four brokers at 75 %, and a fifth that has just come."""
    bundles = {name: [1.0] * 40 for name in "abcd"}
    return cluster(bundles=bundles, untrusted=untrusted, a=0.75, b=0.75, c=0.75, d=0.75, e=0.0)


def followed(cycles: int) -> list[tuple[Counter[str], float]]:
    """Each cycle's moves by destination, and the most used broker (percent) once they have landed."""
    load, memory, found = busy(), Memory(), list[tuple[Counter[str], float]]()
    for _ in range(cycles):
        decision = decide(load, PAIR, LIMITS, memory, np.random.default_rng(0))
        memory, plan = decision.memory, decision.plan
        owner, unload = load.bundles.owner.copy(), load.bundles.last_unload.copy()
        for move in plan.moves:
            row = load.bundles.index[move.bundle]
            owner[row], unload[row] = load.brokers.index[move.destination], load.now
        usage = load.brokers.usage.copy()
        usage[:, CPU] = np.bincount(owner, minlength=5) * 0.75 / 40 * load.brokers.limit[:, CPU]
        traffic = load.brokers.traffic
        load = replace(
            load,
            now=load.now + 60,
            brokers=replace(load.brokers, usage=usage, traffic=traffic),
            bundles=replace(load.bundles, owner=owner, last_unload=unload),
        )
        top = float(percent(usage, load.brokers.limit)[:, CPU].max())
        found.append((Counter(move.destination for move in plan.moves), top))
    return found


def test_until_it_is_measured_it_gets_nothing() -> None:
    assert decide(busy(untrusted="e"), PAIR, LIMITS, Memory(), np.random.default_rng(0)).plan.moves == ()


def test_it_gets_no_more_than_the_cap_in_one_cycle_and_no_bundle_moves_twice() -> None:
    cycles = followed(8)

    moves = sum((count for count, _ in cycles), Counter[str]())
    assert all(count["e"] <= LIMITS.max_moves_per_broker for count, _ in cycles)
    assert set(moves) == {"e"}, "no other broker gives or takes"
    assert cycles[-1][0] == Counter(), "it settles"
    assert cycles[-1][1] == pytest.approx(cycles[-2][1])
