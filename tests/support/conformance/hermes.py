"""Replays of Hermes' balancers (``hermes.*``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from conformance.hermes_model import (
    HermesCycle,
    HermesOutcome,
    HermesState,
    Rules,
    balance,
    diff,
    run,
    selective,
)
from conformance.pulsar_clusters import Algorithm, Answer, Input
from trimtab_strategies.java_compat import plain_sum
from trimtab_strategies.shedding.weighted import target_weights
from trimtab_strategies.shedding.weighted.nodes import (
    NEVER,
    UNDEFINED,
    Constraints,
    NodeLoad,
    Profile,
    Profiles,
    Workload,
    averages,
    rebuilt,
)
from trimtab_strategies.shedding.weighted.orders import Iteration
from trimtab_strategies.shedding.weighted.target_weights import AverageScore, Law, TargetRule


def weighted(given: Input) -> Answer:
    """``hermes.weighted``: one balancing run with its intermediate results."""
    found = balance(_work(given), rules(given))
    return {
        "assignments": _lists(found.assignments),
        "missing": found.missing,
        "target_weights": dict(found.targets.weights),
        "consumer_order": list(found.order),
        "task_limit": found.limit,
        "weights_before": dict(found.before),
        "weights_after": dict(found.after),
    }


def weighted_cycles(given: Input) -> Answer:
    """``hermes.weighted.cycles``: several cycles, with the state that is passed between them."""
    state = HermesState(
        assignments={name: sorted(held) for name, held in given.get("initial_assignments", {}).items()},
        profiles=Profiles(
            _profiles(given.get("initial_profiles", {})), _instant(given.get("initial_profiles_update_ms"))
        ),
    )
    cycles = []
    for step in given["cycles"]:
        if step.get("new_leader"):
            state = replace(state, scores={})
        if step.get("leader") is False:
            cycles.append({"skipped": True})
            continue
        outcome = _cycle(state, {**given, **step})
        state = outcome.state
        cycles.append(_answer(outcome))
    return {"cycles": cycles}


def _cycle(state: HermesState, given: Input) -> HermesOutcome:
    constraints = _constraints(given, len(given["consumers"]))
    cycle = HermesCycle(
        given["now_ms"], given["subscriptions"], given["consumers"], _loads(given["loads"]), constraints
    )
    return run(state, cycle, rules(given), given["weight_window_ms"])


def _answer(outcome: HermesOutcome) -> Answer:
    profiles = outcome.state.profiles
    return {
        "assignments": _lists(outcome.balance.assignments),
        "missing": outcome.balance.missing,
        "target_weights": dict(outcome.balance.targets.weights),
        "created": sum(map(len, outcome.diff.additions.values())),
        "deleted": sum(map(len, outcome.diff.deletions.values())),
        "rebalanced": list(outcome.diff.rebalanced),
        "profile_weights": {name: profile.weight for name, profile in profiles.of.items()},
        "last_rebalance_ms": {
            name: profile.last_rebalance for name, profile in profiles.of.items() if profile.last_rebalance != NEVER
        },
        "profiles_update_ms": profiles.updated,
    }


def selective_counts(given: Input) -> Answer:
    """``hermes.selective``: one balancing run by the numbers of tasks."""
    found = selective(_work({"now_ms": 0, "profiles": {}, "loads": {}, **given}))
    changed = diff(given["current_assignments"], found.assignments)
    return {
        "assignments": _lists(found.assignments),
        "missing": found.missing,
        "tasks_per_consumer": dict(found.counts),
        "created": sum(map(len, changed.additions.values())),
        "deleted": sum(map(len, changed.deletions.values())),
    }


def settled_counts(expected: Input, answer: Input) -> tuple[Answer, Answer]:
    """The parts of the recorded answer and of ours that do not depend on the order of hash maps.

    The order of hash maps decides which consumer holds what, and whether Hermes evens out the numbers of tasks. So if
    the recorded answer lacks a placement, only this is compared: no consumer may hold a subscription twice. Otherwise
    ours must lack none either. If the recorded numbers of tasks also differ by at most one, their sum determines the
    sorted numbers, so ours must equal them.
    """
    consumers = len(answer["tasks_per_consumer"])
    recorded, ours = (_sorted_tasks(of, consumers) for of in (expected, answer))
    twice = [name for name, held in answer["assignments"].items() if len(set(held)) != len(held)]
    if expected["missing"] != 0:
        return {"held_twice": []}, {"held_twice": sorted(twice)}
    settled: Answer = {"held_twice": [], "missing": 0}
    found: Answer = {"held_twice": sorted(twice), "missing": answer["missing"]}
    if max(recorded, default=0) - min(recorded, default=0) <= 1:
        settled["sorted_tasks"], found["sorted_tasks"] = recorded, ours
    return settled, found


def _sorted_tasks(answer: Input, consumers: int) -> list[int]:
    """Number of tasks of each consumer, ascending. Recordings leave out consumers without tasks."""
    counts = sorted(answer["tasks_per_consumer"].values())
    return [0] * (consumers - len(counts)) + counts


def scoring_targets(given: Input) -> Answer:
    """``hermes.target_weights.scoring``: only the controller, step by step."""
    rule = rules({**given, "target_weight_strategy": "scoring"}).targets
    memory: Mapping[str, AverageScore] = {}
    steps = []
    for step in given["steps"]:
        loads = _loads({entry["id"]: entry["load"] for entry in step["consumers"]})
        found = target_weights.update(_books(step["consumers"]), loads, memory, step["now_ms"], rule)
        memory = found.memory
        steps.append({"target_weights": dict(found.weights)})
    return {"steps": steps}


def average_targets(given: Input) -> Answer:
    """``hermes.target_weights.avg``: the same target for all."""
    found = target_weights.update(_books(given["consumers"]), {}, {}, 0, TargetRule())
    return {"target_weights": dict(found.weights)}


def moving_average(given: Input) -> Answer:
    """``hermes.ewma``: the average after each sample."""
    samples = [(_instant(instant), value) for instant, value in given["samples"]]
    return {"averages": averages(samples, given["window_ms"])}


def profiles_rebuilt(given: Input) -> Answer:
    """``hermes.profiles``: profiles after one set of reports."""
    before = Profiles(_profiles(given["previous_profiles"]), _instant(given["previous_update_ms"]))
    found = rebuilt(before, _loads(given["loads"]), given["now_ms"], given["weight_window_ms"])
    return {"profiles": _written(found.of), "update_ms": found.updated}


def consumer_counts(given: Input) -> Answer:
    """``hermes.constraints``: consumers that each subscription gets."""
    constraints = _constraints(given, given["active_consumer_count"])
    return {"consumer_counts": {name: constraints.wanted(name) for name in given["subscriptions"]}}


def assignment_diff(given: Input) -> Answer:
    """``hermes.diff``: what changes between two assignments."""
    found = diff(given["current_assignments"], given["target_assignments"])
    return {
        "deletions": _lists(found.deletions),
        "additions": _lists(found.additions),
        "rebalanced": list(found.rebalanced),
    }


def rules(given: Input) -> Rules:
    """Hermes' rules with the settings of a recording, and with the order of Java's hash maps that Hermes goes by."""
    law = Law.SCORING if given.get("target_weight_strategy") == "scoring" else Law.AVERAGE
    return Rules(
        stabilization=given.get("stabilization_window_ms", 0),
        min_change=given.get("min_significant_change_percent", 0.0),
        targets=TargetRule(
            law=law,
            gain=given.get("scoring_gain", 1.0),
            window=given.get("scoring_window_ms", 1),
            iteration=Iteration.JAVA,
        ),
        iteration=Iteration.JAVA,
    )


def _work(given: Input) -> Workload:
    return Workload(
        now=given["now_ms"],
        subscriptions=given["subscriptions"],
        consumers=given["consumers"],
        constraints=_constraints(given, given["active_consumer_count"]),
        holders=given["current_assignments"],
        profiles=_profiles(given["profiles"]),
        loads=_loads(given["loads"]),
    )


def _constraints(given: Input, active: int) -> Constraints:
    return Constraints(
        active=active,
        per_subscription=given["consumers_per_subscription"],
        most=given.get("max_subscriptions_per_consumer", 200),
        of_subscription=given["subscription_constraints"],
        of_topic=given["topic_constraints"],
    )


def _instant(recorded: float | None) -> float:
    return NEVER if recorded is None else recorded


def _profiles(recorded: Mapping[str, Any]) -> dict[str, Profile]:
    return {
        name: Profile(entry["weight_ops"], _instant(entry["last_rebalance_ms"])) for name, entry in recorded.items()
    }


def _written(profiles: Mapping[str, Profile]) -> dict[str, Any]:
    return {
        name: {
            "weight_ops": profile.weight,
            "last_rebalance_ms": None if profile.last_rebalance == NEVER else profile.last_rebalance,
        }
        for name, profile in profiles.items()
    }


def _loads(recorded: Mapping[str, Any]) -> dict[str, NodeLoad]:
    found = {}
    for name, entry in recorded.items():
        if entry is not None:
            cpu = entry.get("cpu_utilization")
            found[name] = NodeLoad(UNDEFINED if cpu is None else cpu, entry.get("ops", {}))
    return found


def _books(consumers: list[Mapping[str, Any]]) -> dict[str, float]:
    """The weight of each consumer: the sum of the weights of its tasks, in their order."""
    return {entry["id"]: plain_sum(entry["task_weights_ops"]) for entry in consumers}


def _lists(names: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {name: list(of) for name, of in names.items()}


ALGORITHMS: Mapping[str, Algorithm] = {
    "hermes.constraints": consumer_counts,
    "hermes.diff": assignment_diff,
    "hermes.ewma": moving_average,
    "hermes.profiles": profiles_rebuilt,
    "hermes.selective": selective_counts,
    "hermes.target_weights.avg": average_targets,
    "hermes.target_weights.scoring": scoring_targets,
    "hermes.weighted": weighted,
    "hermes.weighted.cycles": weighted_cycles,
}

SETTLED: Mapping[str, Callable[[Input, Input], tuple[Answer, Answer]]] = {"hermes.selective": settled_counts}
"""By algorithm, a function that reduces the recorded answer and ours to what can be compared."""
