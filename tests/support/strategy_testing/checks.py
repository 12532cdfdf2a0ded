"""Checks of placements, and of pairs (a shedder and a placement): functions of a cluster that raise `AssertionError`.

`strategy_checks` lists the checks of each strategy in the registry. Pairs are checked over several plans in a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from pydantic import ValidationError

from strategy_testing.compare import Unchanged, plans, reordered, restored, upside_down
from strategy_testing.strategy_checks import SHEDDER_CHECKS, SPLITTER_CHECKS
from trimtab_strategies import registry
from trimtab_strategies.guard import Guarded, MoveLimits, guard
from trimtab_strategies.model import ClusterLoad, Plan, Split
from trimtab_strategies.model.cluster_load import IntArray
from trimtab_strategies.params import Compatibility, StrategyParams
from trimtab_strategies.planner.decide import Pair
from trimtab_strategies.protocols import Placement, RemembersChoices, Shedder, Splitter
from trimtab_strategies.registry import Row
from trimtab_strategies.usage import MOVING, weighted_maximum

SPLIT_ROUNDS = 6
"""After so many plans in a row, every splitter that counts hits has had enough hits to split."""


def plan_keeps_the_guard_s_rules(pair: Pair, cluster: ClusterLoad) -> None:
    """Only movable bundles move, at most once, from their owner to another broker that may receive, within all caps."""
    limits = MoveLimits(max_moves_per_cycle=5, max_moves_per_broker=3)
    for shown, plan in plans(pair, cluster, limits):
        _check_moves(shown, plan, limits)
        assert len({move.bundle for move in plan.moves}) == len(plan.moves) <= limits.cycle_cap(len(plan.brokers))
        for end in ("source", "destination"):
            names = [getattr(move, end) for move in plan.moves]
            assert all(names.count(name) <= limits.max_moves_per_broker for name in names), f"too many: one {end}"


def _check_moves(cluster: ClusterLoad, plan: Plan, limits: MoveLimits) -> None:
    allowed = guard(cluster, limits, moved_last_hour=0)
    for move in plan.moves:
        bundle, destination = cluster.bundles.index[move.bundle], cluster.brokers.index[move.destination]
        assert allowed.sheddable.allowed[bundle], f"{move} moves a bundle that may not leave"
        assert cluster.brokers.names[cluster.bundles.owner[bundle]] == move.source, f"{move} starts elsewhere"
        assert move.source != move.destination, f"{move} goes nowhere"
        assert allowed.may_receive.allowed[destination], f"{move} goes to a broker that may not receive"
        assert cluster.policy_of(bundle).unload, f"{move} moves a bundle of a namespace that must be left alone"
        assert _may_own(cluster, bundle, move.destination), f"{move} goes where its namespace may not be"


def _may_own(cluster: ClusterLoad, bundle: int, broker: str) -> bool:
    """Whether isolation allows the bundle (row) on `broker`.

    A bundle of a namespace without isolation may be on every broker that no isolation names primary.
    """
    own = cluster.policy_of(bundle).isolation
    if own is not None:
        return any(re.fullmatch(host, broker) for host in (*own.primary, *own.secondary))
    others = [policy.isolation for policy in cluster.policies.values() if policy.isolation is not None]
    return not any(re.fullmatch(host, broker) for isolation in others for host in isolation.primary)


def plan_never_makes_the_busiest_busier(pair: Pair, cluster: ClusterLoad) -> None:
    """The most used broker is not more used after the plan than before."""
    trusted = guard(cluster, MoveLimits(), moved_last_hour=0).may_shed.allowed
    for _, plan in plans(pair, cluster, MoveLimits()):
        before, after = (
            weighted_maximum(percents[trusted].astype(np.float32), pair.weights, MOVING).max(initial=0)
            for percents in (plan.before, plan.after)
        )
        assert after <= before * (1 + 1e-6) + 1e-6, f"the busiest broker goes from {before:.4f} to {after:.4f}"


def idle_plan_says_why(pair: Pair, cluster: ClusterLoad) -> None:
    """A plan that does nothing gives a reason, and no plan gives a separate reason for each bundle."""
    for _, plan in plans(pair, cluster, MoveLimits()):
        assert not plan.empty or plan.held_back
        assert len(plan.held_back) <= 10 + 8 * len(cluster.brokers)


def plan_splits_only_what_it_may(pair: Pair, cluster: ClusterLoad) -> None:
    """A bundle is split at most once, and is not moved in the same plan. Each split passes `_check_split`."""
    for shown, plan in plans(pair, cluster, MoveLimits(), count=SPLIT_ROUNDS):
        names = [split.bundle for split in plan.splits]
        assert len(names) == len(set(names)), "a bundle is split twice"
        assert not {move.bundle for move in plan.moves} & set(names), "a bundle is split and moved"
        allowed = guard(shown, MoveLimits(), moved_last_hour=0)
        for split in plan.splits:
            _check_split(shown, split, allowed)


def _check_split(cluster: ClusterLoad, split: Split, allowed: Guarded) -> None:
    """The bundle may be split. Children leave only if the bundle itself may, and only to brokers that may receive."""
    bundle, source = cluster.bundles.index[split.bundle], cluster.brokers.index[split.source]
    assert not cluster.bundles.pinned[bundle], f"{split} divides a pinned bundle"
    assert not cluster.bundles.in_flight[bundle], f"{split} divides a bundle that is moving"
    assert allowed.may_shed.allowed[source], f"{split} divides a bundle of {split.source}, which is not trusted"
    assert len(split.destinations) in (0, len(split.boundaries) + 1), f"{split} does not have an owner for each child"
    leaving = set(split.destinations) - {split.source}
    assert not leaving or allowed.sheddable.allowed[bundle], f"{split} gives away children of a bundle that may not go"
    for owner in leaving:
        index = cluster.brokers.index[owner]
        assert allowed.may_receive.allowed[index], f"{split} gives a child to {owner}, which may not receive"


def deciding_leaves_its_input_alone(pair: Pair, cluster: ClusterLoad) -> None:
    """The snapshot is not changed, and equal input with an equal random seed gives equal plans."""
    with Unchanged(cluster, {}):
        first, second = ([plan for _, plan in plans(pair, cluster, MoveLimits(), count=2)] for _ in range(2))
    assert [(plan.moves, plan.held_back) for plan in first] == [(plan.moves, plan.held_back) for plan in second]


PAIR_CHECKS: tuple[Callable[[Pair, ClusterLoad], None], ...] = (
    plan_keeps_the_guard_s_rules,
    plan_never_makes_the_busiest_busier,
    idle_plan_says_why,
    plan_splits_only_what_it_may,
    deciding_leaves_its_input_alone,
)
"""The checks of every pair under the planner."""


def chooses_among_the_candidates(placement: Placement, cluster: ClusterLoad) -> None:
    """At least one broker is chosen, each chosen broker is a candidate, and none is chosen twice."""
    for candidates in _candidate_sets(cluster):
        chosen = placement.best(cluster, 0, candidates, {}).brokers.tolist()
        assert chosen, "no broker was chosen"
        assert len(chosen) == len(set(chosen)), "a broker is chosen twice"
        assert set(chosen) <= set(candidates.tolist()), "a broker that is not a candidate is chosen"


def placing_leaves_its_input_alone(placement: Placement, cluster: ClusterLoad) -> None:
    """Neither the cluster nor the memory is changed by a call, and equal calls give equal answers."""
    for candidates in _candidate_sets(cluster):
        memory = restored(placement.best(cluster, 0, candidates, {}).memory)
        with Unchanged(cluster, memory):
            first, second = (placement.best(cluster, 0, candidates, memory) for _ in range(2))
        assert first.brokers.tolist() == second.brokers.tolist()
        assert first.memory == second.memory


def placement_memory_survives_a_restart(placement: Placement, cluster: ClusterLoad) -> None:
    """The memory is plain JSON, and a placement that reads it back continues unchanged."""
    for candidates in _candidate_sets(cluster):
        memory = placement.best(cluster, 0, candidates, {}).memory
        ours, again = (placement.best(cluster, 0, candidates, kept) for kept in (memory, restored(memory)))
        assert ours.brokers.tolist() == again.brokers.tolist()
        assert restored(ours.memory) == restored(again.memory)


def remembering_a_choice_leaves_its_input_alone(placement: Placement, cluster: ClusterLoad) -> None:
    """A placement that is told which broker was taken changes nothing in place, and its memory is plain JSON."""
    if not isinstance(placement, RemembersChoices):
        return
    for candidates in _candidate_sets(cluster):
        choice = placement.best(cluster, 0, candidates, {})
        memory = restored(choice.memory)
        with Unchanged(cluster, memory):
            after = placement.chosen(cluster, 0, int(choice.brokers[0]), memory)
        again = placement.best(cluster, 0, candidates, restored(after))
        assert set(again.brokers.tolist()) <= set(candidates.tolist())


def broker_order_does_not_matter_to_placing(placement: Placement, cluster: ClusterLoad) -> None:
    """The rows of the brokers may be in any order."""
    last = len(cluster.brokers) - 1
    other = reordered(cluster, brokers=upside_down(len(cluster.brokers)))
    for candidates in _candidate_sets(cluster):
        chosen = placement.best(cluster, 0, candidates, {})
        again = placement.best(other, 0, np.sort(last - candidates), {})
        assert _names(cluster, chosen.brokers) == _names(other, again.brokers)


def bundle_order_does_not_matter_to_placing(placement: Placement, cluster: ClusterLoad) -> None:
    """The rows of the bundles may be in any order."""
    last = len(cluster.bundles) - 1
    other = reordered(cluster, bundles=upside_down(len(cluster.bundles)))
    for candidates in _candidate_sets(cluster):
        chosen, again = placement.best(cluster, 0, candidates, {}), placement.best(other, last, candidates, {})
        assert _names(cluster, chosen.brokers) == _names(other, again.brokers)


def _names(cluster: ClusterLoad, rows: IntArray) -> set[str]:
    return {cluster.brokers.names[row] for row in rows.tolist()}


def _candidate_sets(cluster: ClusterLoad) -> list[IntArray]:
    """All brokers, and every second one; none on a cluster without brokers or without bundles."""
    everyone = np.arange(len(cluster.brokers))
    return [rows for rows in (everyone, everyone[::2]) if len(rows) and len(cluster.bundles)]


PLACEMENT_CHECKS: tuple[Callable[[Placement, ClusterLoad], None], ...] = (
    chooses_among_the_candidates,
    placing_leaves_its_input_alone,
    placement_memory_survives_a_restart,
    remembering_a_choice_leaves_its_input_alone,
    broker_order_does_not_matter_to_placing,
    bundle_order_does_not_matter_to_placing,
)
"""The checks of every placement."""


Strategy = TypeVar("Strategy", Shedder, Placement, Splitter)

Subject = TypeVar("Subject")

Check = tuple[str, Callable[[ClusterLoad], None]]


EXCEPTIONS: Mapping[tuple[str, str], str] = {
    ("OverloadShedder", "level_cluster_is_left_alone"): "its limit is absolute: when all are overloaded, all shed",
    ("WeightedBalancer[Java]", "level_cluster_is_left_alone"): "it also evens out the numbers of bundles",
}
"""Rules that a strategy (or one form of it) breaks because the original does: strategy and check, and why."""


def variants(table: Mapping[str, Row[Strategy]]) -> Iterator[tuple[str, str, Strategy]]:
    """Each strategy as (id, name, strategy): with its defaults, or with each value of its `compatibility`, if any."""
    for name, row in table.items():
        for label, params in parameter_sets(row.params):
            yield f"{name}{label}", name, row.build(params)


def parameter_sets(model: type[StrategyParams]) -> Iterator[tuple[str, StrategyParams]]:
    """Pairs of a label and parameters: ``""`` and the defaults, or one pair for each value of `compatibility`."""
    if "compatibility" not in model.model_fields:
        yield "", model()
        return
    for value in Compatibility:
        yield f"[{value}]", model.model_validate({"compatibility": value})


def strategy_checks() -> Iterator[Check]:
    """Every check of every strategy in the registry: an id, and a function of a cluster."""
    for kind in (registry.SHEDDERS, registry.PLACEMENTS, registry.SPLITTERS):
        for name, row in kind.items():
            yield f"{name}-{parameters_are_checked.__name__}", partial(parameters_are_checked, row.params)
    yield from _checked(variants(registry.SHEDDERS), SHEDDER_CHECKS)
    yield from _checked(variants(registry.PLACEMENTS), PLACEMENT_CHECKS)
    yield from _checked(variants(registry.SPLITTERS), SPLITTER_CHECKS)


def pair_checks() -> Iterator[Check]:
    """Every check of every pair of a shedder and a placement with their default parameters, and of every splitter."""
    for shedder in registry.SHEDDERS:
        for placement in registry.PLACEMENTS:
            pair = registry.pair(shedder, {}, placement, {})
            yield from _checked([(f"{shedder}-{placement}", shedder, pair)], PAIR_CHECKS)
    pair = registry.pair("ThresholdShedder", {}, "LeastResourceUsageWithWeight", {})
    for label, name, splitter in variants(registry.SPLITTERS):
        yield from _checked([(label, name, replace(pair, splitter=splitter))], PAIR_CHECKS)


def _checked(
    subjects: Iterable[tuple[str, str, Subject]], checks: tuple[Callable[[Subject, ClusterLoad], None], ...]
) -> Iterator[Check]:
    for label, name, subject in subjects:
        for check in checks:
            if not {(name, check.__name__), (label, check.__name__)} & EXCEPTIONS.keys():
                yield f"{label}-{check.__name__}", partial(check, subject)


def parameters_are_checked(params: type[StrategyParams], _: ClusterLoad) -> None:
    """Defaults are valid, the error for an unknown parameter names it, and parameters can't be changed."""
    tuned = params()
    assert params.model_validate(tuned.model_dump(by_alias=True)) == tuned
    assert _refused(lambda: params.model_validate({"noSuchKey": 1})) == "noSuchKey"
    for field in params.model_fields:
        assert _refused(partial(setattr, tuned, field, 1)) == field


def _refused(change: Callable[[], object]) -> str:
    """The name of the parameter that is refused; empty if none is."""
    try:
        change()
    except ValidationError as problem:
        return str(problem.errors()[0]["loc"][0])
    return ""
