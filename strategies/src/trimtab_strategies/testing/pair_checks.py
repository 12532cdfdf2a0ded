"""What every pair must keep to under the balancer, over several plans in a row."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from trimtab_strategies.balancer import Pair
from trimtab_strategies.constraints import Limits, guard
from trimtab_strategies.model import ClusterLoad, Plan
from trimtab_strategies.testing.comparing import Unchanged, plans
from trimtab_strategies.usage import MOVING, weighted_maximum

SPLIT_ROUNDS = 6
"""Plans in a row after which every splitter that counts hits has answered."""


def plan_keeps_the_guard_s_rules(pair: Pair, cluster: ClusterLoad) -> None:
    """Only movable bundles move, once, from their owner to another broker that may receive, within every cap."""
    limits = Limits(max_moves_per_cycle=5, max_moves_per_broker=3)
    for shown, plan in plans(pair, cluster, limits):
        _check_moves(shown, plan, limits)
        assert len({move.bundle for move in plan.moves}) == len(plan.moves) <= limits.max_moves_per_cycle
        for end in ("source", "destination"):
            names = [getattr(move, end) for move in plan.moves]
            assert all(names.count(name) <= limits.max_moves_per_broker for name in names), f"too many: one {end}"


def _check_moves(cluster: ClusterLoad, plan: Plan, limits: Limits) -> None:
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
    """Whether isolation lets the bundle (row) be there: among its own hosts, or on one that is nobody's primary."""
    own = cluster.policy_of(bundle).isolation
    if own is not None:
        return any(re.fullmatch(host, broker) for host in (*own.primary, *own.secondary))
    others = [policy.isolation for policy in cluster.policies.values() if policy.isolation is not None]
    return not any(re.fullmatch(host, broker) for isolation in others for host in isolation.primary)


def plan_never_makes_the_busiest_busier(pair: Pair, cluster: ClusterLoad) -> None:
    """The most used broker is not more used after the plan than before."""
    trusted = guard(cluster, Limits(), moved_last_hour=0).may_shed.allowed
    for _, plan in plans(pair, cluster, Limits()):
        before, after = (
            weighted_maximum(percents[trusted].astype(np.float32), pair.weights, MOVING).max(initial=0)
            for percents in (plan.before, plan.after)
        )
        assert after <= before * (1 + 1e-6) + 1e-6, f"the busiest broker goes from {before:.4f} to {after:.4f}"


def idle_plan_says_why(pair: Pair, cluster: ClusterLoad) -> None:
    """A plan that does nothing gives a reason, and no plan gives one per bundle."""
    for _, plan in plans(pair, cluster, Limits()):
        assert not plan.empty or plan.held_back
        assert len(plan.held_back) <= 10 + 8 * len(cluster.brokers)


def plan_splits_only_what_it_may(pair: Pair, cluster: ClusterLoad) -> None:
    """A bundle is split once, is not moved in the same plan, and its children go to brokers that may receive."""
    for shown, plan in plans(pair, cluster, Limits(), count=SPLIT_ROUNDS):
        names = [split.bundle for split in plan.splits]
        assert len(names) == len(set(names)), "a bundle is split twice"
        assert not {move.bundle for move in plan.moves} & set(names), "a bundle is split and moved"
        receivers = guard(shown, Limits(), moved_last_hour=0).may_receive.allowed
        for split in plan.splits:
            bundle = shown.bundles.index[split.bundle]
            assert not shown.bundles.pinned[bundle], f"{split} divides a pinned bundle"
            assert not shown.bundles.in_flight[bundle], f"{split} divides a bundle that is moving"
            assert len(split.destinations) in (0, len(split.boundaries) + 1), f"{split} has not an owner for each child"
            for owner in set(split.destinations) - {split.source}:
                assert receivers[shown.brokers.index[owner]], f"{split} gives a child to {owner}, which may not receive"


def deciding_leaves_its_input_alone(pair: Pair, cluster: ClusterLoad) -> None:
    """The picture of the cluster is not changed, and equal input with equal chance gives equal plans."""
    with Unchanged(cluster, {}):
        first, second = ([plan for _, plan in plans(pair, cluster, Limits(), count=2)] for _ in range(2))
    assert [(plan.moves, plan.held_back) for plan in first] == [(plan.moves, plan.held_back) for plan in second]


PAIR_CHECKS: tuple[Callable[[Pair, ClusterLoad], None], ...] = (
    plan_keeps_the_guard_s_rules,
    plan_never_makes_the_busiest_busier,
    idle_plan_says_why,
    plan_splits_only_what_it_may,
    deciding_leaves_its_input_alone,
)
"""What every pair must keep to under the balancer."""
