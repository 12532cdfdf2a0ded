"""The checks that every strategy must pass: plain functions of a strategy and a cluster that raise AssertionError."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
from pydantic import ValidationError

from trimtab_strategies import registry
from trimtab_strategies.balancer import Pair, decide
from trimtab_strategies.constraints import Limits, guard, measured
from trimtab_strategies.model import Brokers, ClusterLoad, Memory, Plan
from trimtab_strategies.model.load import IntArray
from trimtab_strategies.params import StrategyParams
from trimtab_strategies.protocols import Placement, Shedder
from trimtab_strategies.testing.drawing import cluster
from trimtab_strategies.usage import DEFAULT_WEIGHTS, MOVING, weighted_maximum


def strategy_checks() -> Iterator[tuple[str, Callable[[ClusterLoad], None]]]:
    """Every check of every strategy in the registry with its default parameters: an id, and a function of a cluster."""
    models = [(name, row.params) for name, row in registry.SHEDDERS.items()]
    models += [(name, row.params) for name, row in registry.PLACEMENTS.items()]
    for name, model in models:
        yield f"{name}-{parameters_are_checked.__name__}", partial(parameters_are_checked, model)
    for name, shedding in registry.SHEDDERS.items():
        shedder = shedding.build(shedding.params())
        for on_shedder in SHEDDER_CHECKS:
            yield f"{name}-{on_shedder.__name__}", partial(on_shedder, shedder)
        for other in registry.PLACEMENTS:
            for on_pair in PAIR_CHECKS:
                yield f"{name}-{other}-{on_pair.__name__}", partial(on_pair, registry.pair(name, {}, other, {}))
    for name, placing in registry.PLACEMENTS.items():
        for on_placement in PLACEMENT_CHECKS:
            yield f"{name}-{on_placement.__name__}", partial(on_placement, placing.build(placing.params()))


def parameters_are_checked(params: type[StrategyParams], _: ClusterLoad) -> None:
    """Defaults are valid, an unknown parameter is refused by its name, and parameters can't be changed."""
    tuned = params()
    assert params.model_validate(tuned.model_dump(by_alias=True)) == tuned
    field = next(iter(params.model_fields))
    assert _refused(lambda: params.model_validate({"noSuchKey": 1})) == "noSuchKey"
    assert _refused(lambda: setattr(tuned, field, 1)) == field


def _refused(change: Callable[[], object]) -> str:
    """The parameter that is refused, empty when nothing is."""
    try:
        change()
    except ValidationError as problem:
        return str(problem.errors()[0]["loc"][0])
    return ""


def level_cluster_is_left_alone(shedder: Shedder, cluster: ClusterLoad) -> None:
    """Brokers that are all alike shed nothing, and the answer says why."""
    brokers = cluster.brokers
    alike: dict[str, Any] = {
        name: np.tile(getattr(brokers, name)[:1], (len(brokers), 1)) for name in ("usage", "limit", "traffic")
    }
    shedding = shedder.shed(replace(cluster, brokers=replace(brokers, **alike)), measured(cluster), {})
    assert not shedding.unloads, f"all brokers are alike, yet {len(shedding.unloads)} shed"
    assert shedding.held_back, "nothing is shed, and no reason is given"


def shedding_leaves_its_input_alone(shedder: Shedder, cluster: ClusterLoad) -> None:
    """Neither the cluster nor the memory is changed by a call."""
    memory = json.loads(json.dumps(shedder.shed(cluster, measured(cluster), {}).memory))
    with _Unchanged(cluster, memory):
        shedder.shed(cluster, measured(cluster), memory)


def same_cluster_sheds_the_same(shedder: Shedder, cluster: ClusterLoad) -> None:
    """Two calls on equal input give equal answers."""
    first, second = (_unloads(shedder, cluster) for _ in range(2))
    assert first == second


def broker_order_does_not_matter_to_shedding(shedder: Shedder, cluster: ClusterLoad) -> None:
    """The rows of the brokers may be in any order."""
    assert _unloads(shedder, cluster) == _unloads(shedder, _reversed(cluster))


def sheds_only_what_may_leave(shedder: Shedder, cluster: ClusterLoad) -> None:
    """Each bundle is shed by its own owner, at most once, and only if it is sheddable; nothing when none is."""
    sheddable = np.arange(len(cluster.bundles)) % 3 != 0
    seen: list[int] = []
    for unload in shedder.shed(cluster, sheddable, {}).unloads:
        assert (cluster.bundles.owner[unload.bundles] == unload.broker).all(), "a broker sheds what it does not own"
        assert sheddable[unload.bundles].all(), "a bundle that may not leave is shed"
        assert len(unload.bundles), "an unload without bundles"
        seen += unload.bundles.tolist()
    assert len(seen) == len(set(seen)), "a bundle is shed twice"
    assert not shedder.shed(cluster, np.zeros(len(cluster.bundles), dtype=bool), {}).unloads


def shedder_memory_survives_a_restart(shedder: Shedder, cluster: ClusterLoad) -> None:
    """The memory is plain JSON, and a shedder that reads it back goes on as if nothing had happened."""
    memory = shedder.shed(cluster, measured(cluster), {}).memory
    restored = json.loads(json.dumps(memory, allow_nan=False))
    assert restored == memory
    assert _unloads(shedder, cluster, memory) == _unloads(shedder, cluster, restored)


def shedding_an_empty_cluster_is_fine(shedder: Shedder, _: ClusterLoad) -> None:
    """No broker and no bundle: nothing is shed."""
    assert not shedder.shed(cluster(), np.zeros(0, dtype=bool), {}).unloads


def chooses_among_the_candidates(placement: Placement, cluster: ClusterLoad) -> None:
    """At least one broker is chosen, each of them is a candidate, and none twice."""
    for candidates in _candidate_sets(cluster):
        chosen = placement.best(cluster, 0, candidates, {}).brokers.tolist()
        assert chosen, "no broker was chosen"
        assert len(chosen) == len(set(chosen)), "a broker is chosen twice"
        assert set(chosen) <= set(candidates.tolist()), "a broker that is no candidate is chosen"


def placing_leaves_its_input_alone(placement: Placement, cluster: ClusterLoad) -> None:
    """Neither the cluster nor the memory is changed by a call, and equal calls give equal answers."""
    for candidates in _candidate_sets(cluster):
        memory = json.loads(json.dumps(placement.best(cluster, 0, candidates, {}).memory, allow_nan=False))
        with _Unchanged(cluster, memory):
            first, second = (placement.best(cluster, 0, candidates, memory) for _ in range(2))
        assert first.brokers.tolist() == second.brokers.tolist()
        assert first.memory == second.memory


def broker_order_does_not_matter_to_placing(placement: Placement, cluster: ClusterLoad) -> None:
    """The rows of the brokers may be in any order."""
    other = _reversed(cluster)
    for candidates in _candidate_sets(cluster):
        mirrored = np.sort(len(cluster.brokers) - 1 - candidates)
        chosen, again = placement.best(cluster, 0, candidates, {}), placement.best(other, 0, mirrored, {})
        assert _names(cluster, chosen.brokers) == _names(other, again.brokers)


def plan_keeps_the_guard_s_rules(pair: Pair, cluster: ClusterLoad) -> None:
    """Only movable bundles move, once, from their owner to another broker that may receive, within every cap."""
    limits = Limits(max_moves_per_cycle=5, max_moves_per_broker=3)
    plan = _decide(pair, cluster, limits)
    allowed = guard(cluster, limits, moved_last_hour=0)
    for move in plan.moves:
        bundle, destination = cluster.bundles.index[move.bundle], cluster.brokers.index[move.destination]
        assert allowed.sheddable.allowed[bundle], f"{move} moves a bundle that may not leave"
        assert cluster.brokers.names[cluster.bundles.owner[bundle]] == move.source, f"{move} starts elsewhere"
        assert move.source != move.destination, f"{move} goes nowhere"
        assert allowed.may_receive.allowed[destination], f"{move} goes to a broker that may not receive"
    assert len({move.bundle for move in plan.moves}) == len(plan.moves) <= limits.max_moves_per_cycle
    for end in ("source", "destination"):
        names = [getattr(move, end) for move in plan.moves]
        assert all(names.count(name) <= limits.max_moves_per_broker for name in names), f"too many from one {end}"


def plan_never_makes_the_busiest_busier(pair: Pair, cluster: ClusterLoad) -> None:
    """The most used broker is not more used after the plan than before."""
    plan = _decide(pair, cluster, Limits())
    trusted = guard(cluster, Limits(), moved_last_hour=0).may_shed.allowed
    before, after = (
        weighted_maximum(percents[trusted].astype(np.float32), DEFAULT_WEIGHTS, MOVING).max(initial=0)
        for percents in (plan.before, plan.after)
    )
    assert after <= before + 1e-6, f"the busiest broker goes from {before:.4f} to {after:.4f}"


def idle_plan_says_why(pair: Pair, cluster: ClusterLoad) -> None:
    """A plan that moves nothing gives a reason, and no plan gives one per bundle."""
    plan = _decide(pair, cluster, Limits())
    assert plan.moves or plan.held_back
    assert len(plan.held_back) <= 10 + 8 * len(cluster.brokers)


SHEDDER_CHECKS: tuple[Callable[[Shedder, ClusterLoad], None], ...] = (
    level_cluster_is_left_alone,
    shedding_leaves_its_input_alone,
    same_cluster_sheds_the_same,
    broker_order_does_not_matter_to_shedding,
    sheds_only_what_may_leave,
    shedder_memory_survives_a_restart,
    shedding_an_empty_cluster_is_fine,
)
"""What every shedder must keep to."""

PLACEMENT_CHECKS: tuple[Callable[[Placement, ClusterLoad], None], ...] = (
    chooses_among_the_candidates,
    placing_leaves_its_input_alone,
    broker_order_does_not_matter_to_placing,
)
"""What every placement must keep to."""

PAIR_CHECKS: tuple[Callable[[Pair, ClusterLoad], None], ...] = (
    plan_keeps_the_guard_s_rules,
    plan_never_makes_the_busiest_busier,
    idle_plan_says_why,
)
"""What every pair must keep to under the balancer."""


class _Unchanged:
    """A block that must leave a cluster and a memory as they are."""

    def __init__(self, cluster: ClusterLoad, memory: Mapping[str, Any]) -> None:
        self.cluster, self.memory = cluster, memory
        self.picture, self.text = _picture(cluster), json.dumps(memory)

    def __enter__(self) -> None:
        """Nothing to do: the pictures were taken when the block was made."""

    def __exit__(self, *_: object) -> None:
        assert json.dumps(self.memory) == self.text, "the memory was changed in place"
        assert _picture(self.cluster) == self.picture, "the cluster was changed in place"


def _picture(cluster: ClusterLoad) -> list[bytes]:
    parts = [getattr(part, f.name) for part in (cluster.brokers, cluster.bundles) for f in fields(part)]
    return [part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode() for part in parts]


def _unloads(
    shedder: Shedder, cluster: ClusterLoad, memory: Mapping[str, Any] | None = None
) -> dict[str, tuple[str, list[int]]]:
    unloads = shedder.shed(cluster, measured(cluster), memory or {}).unloads
    return {cluster.brokers.names[u.broker]: (u.reason, u.bundles.tolist()) for u in unloads}


def _names(cluster: ClusterLoad, rows: IntArray) -> set[str]:
    return {cluster.brokers.names[row] for row in rows.tolist()}


def _candidate_sets(cluster: ClusterLoad) -> list[IntArray]:
    """All brokers, and every second one; none on an empty cluster."""
    everyone = np.arange(len(cluster.brokers))
    return [rows for rows in (everyone, everyone[::2]) if len(rows)]


def _reversed(cluster: ClusterLoad) -> ClusterLoad:
    """The same cluster with the rows of the brokers upside down."""
    n, brokers, bundles = len(cluster.brokers), cluster.brokers, cluster.bundles
    columns = {f.name: getattr(brokers, f.name)[::-1] for f in fields(brokers)}
    owner, moving = (np.where(rows >= 0, n - 1 - rows, -1) for rows in (bundles.owner, bundles.moving_from))
    return replace(cluster, brokers=Brokers(**columns), bundles=replace(bundles, owner=owner, moving_from=moving))


def _decide(pair: Pair, cluster: ClusterLoad, limits: Limits) -> Plan:
    return decide(cluster, pair, limits, Memory(), np.random.default_rng(0)).plan
