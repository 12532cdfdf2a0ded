"""Hermes' rules on its own test cases and on hand-made ones: as the original classes answered, and in sorted order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hermes_vectors as vectors
from conformance.hermes_model import (
    Balance,
    HermesCycle,
    HermesState,
    SelectiveBalance,
    balance,
    diff,
    run,
    selective,
)
from hermes_vectors import BALANCES, VECTORS
from trimtab_strategies import java_compat
from trimtab_strategies.shedding.weighted import target_weights
from trimtab_strategies.shedding.weighted.nodes import (
    UNDEFINED,
    Constraints,
    NodeLoad,
    Profile,
    Profiles,
    Workload,
    averages,
    rebuilt,
    stamped,
)
from trimtab_strategies.shedding.weighted.orders import Iteration, JavaOrder, subscription_hashes
from trimtab_strategies.shedding.weighted.target_weights import AverageScore, Law, TargetRule

NOT_OURS = {"meta", "metrics_lifecycle"}
"""Neither is a rule: where the numbers come from, and when the original registers its gauges."""


def by_id(case: dict[str, Any]) -> str:
    return str(case["id"])


def events(found: Balance) -> list[list[str]]:
    """The steps of a balance as the cases tell them."""
    told = []
    for step in found.transfers:
        task, ends = found.subscriptions[step.task], [found.order[step.source], found.order[step.destination]]
        if step.returned < 0:
            told.append(["move", task, *ends])
        else:
            kind = "phantom_swap" if step.phantom else "swap"
            told.append([kind, task, ends[0], found.subscriptions[step.returned], ends[1]])
    return told


def test_every_kind_of_case_is_a_test_here() -> None:
    balances = {kind for kind in VECTORS if kind.startswith("weighted_balancer_")}
    tested = Path(__file__).read_text() + Path(__file__).with_name("test_java_compat.py").read_text()

    assert {case["id"] for case in BALANCES} == {case["id"] for kind in balances for case in VECTORS[kind]}
    assert [kind for kind in set(VECTORS) - balances - NOT_OURS if f'"{kind}"' not in tested] == []


@pytest.mark.parametrize("case", BALANCES, ids=by_id)
def test_balance_is_the_original_s_step_by_step(case: dict[str, Any]) -> None:
    expected = case["expect_java"]

    found = balance(vectors.work(case["input"]), vectors.rules(case["input"], Iteration.JAVA))

    assert {name: list(held) for name, held in found.assignments.items()} == expected["assignments"]
    assert found.missing == expected["missing"]
    assert list(found.order) == expected["consumer_iteration_order"]
    assert found.limit == expected["tasks_per_consumer_limit_N"]
    assert events(found) == expected["events"]
    assert found.before == expected["weights_before_rebalance"]
    assert found.targets.weights == expected["target_weights"]
    assert found.after == expected["book_weights_after"]


@pytest.mark.parametrize("case", [case for case in BALANCES if "real_weights_after" in case["expect_java"]], ids=by_id)
def test_phantom_swaps_leave_the_book_wrong(case: dict[str, Any]) -> None:
    work = vectors.work(case["input"])

    found = balance(work, vectors.rules(case["input"], Iteration.JAVA))

    carried = dict.fromkeys(found.order, 0.0)
    for name, held in found.assignments.items():
        for consumer in held:
            carried[consumer] += work.profile(name).weight
    assert carried == pytest.approx(case["expect_java"]["real_weights_after"])
    assert carried != found.after


@pytest.mark.parametrize("case", BALANCES, ids=by_id)
def test_sorted_balance_is_as_predicted(case: dict[str, Any]) -> None:
    expected = case["expect_sorted"]
    if expected == "same assignments and missing":
        expected = {name: case["expect_java"][name] for name in ("assignments", "missing")}

    found = balance(vectors.work(case["input"]), vectors.rules(case["input"], Iteration.SORTED))

    assert {name: list(held) for name, held in found.assignments.items()} == expected["assignments"]
    assert found.missing == expected["missing"]
    assert events(found) == expected.get("events", events(found))
    assert list(found.order) == sorted(case["input"]["consumers_in_order"])


@pytest.mark.parametrize("case", VECTORS["control_loop"], ids=by_id)
def test_cycles_carry_on_what_the_original_carries_on(case: dict[str, Any]) -> None:
    state, rules = HermesState(), vectors.rules(case, Iteration.JAVA)
    for cycle in case["cycles"]:
        expected, active = cycle["expect_java"], cycle["active_consumers"]
        constraints = Constraints(
            len(active), case["consumers_per_subscription"], case["max_subscriptions_per_consumer"]
        )
        given = HermesCycle(
            cycle["now"], case["subscriptions_in_order"], active, vectors.loads(cycle["loads"]), constraints
        )

        outcome = run(state, given, rules, case["window_ms"])

        state = outcome.state
        assert {name: list(held) for name, held in outcome.balance.assignments.items()} == expected["assignments"]
        assert outcome.balance.missing == expected["missing"]
        assert outcome.balance.targets.weights == expected["target_weights"]
        assert list(outcome.diff.rebalanced) == expected["rebalanced"]
        assert profiles_of(expected["profiles_persisted"]) == state.profiles.of
        assert state.profiles.updated == expected["profiles_update"]


def profiles_of(given: dict[str, Any]) -> dict[str, Profile]:
    return {name: Profile(of["weight"], vectors.instant(of["last"])) for name, of in given.items()}


@pytest.mark.parametrize("case", VECTORS["scoring_target_weights"], ids=by_id)
def test_controller_s_targets_are_the_original_s(case: dict[str, Any]) -> None:
    rule = TargetRule(Law.SCORING, case["gain"], case["window_ms"], iteration=Iteration.JAVA)
    memory: dict[str, AverageScore] = {}
    for step in case["steps"]:
        books = {of["id"]: java_compat.plain_sum(of["weights"]) for of in step["consumers"]}
        loads = {
            of["id"]: NodeLoad(
                UNDEFINED if of["cpu"] is None else of["cpu"], {f"g.t$s{k}": ops for k, ops in enumerate(of["ops"])}
            )
            for of in step["consumers"]
        }

        found = target_weights.update(books, loads, memory, step["now"], rule)

        memory = dict(found.memory)
        assert found.weights == pytest.approx(step["expect_target_weights"], rel=1e-12, abs=1e-12)


def test_fixed_floor_flattens_the_targets_of_many() -> None:
    case = VECTORS["scoring_min_score_flattening"]
    books = {f"k{k:03d}": 1.0 + k for k in range(150)}
    loads = {name: NodeLoad(0.5, {"g.t$s": weight}) for name, weight in books.items()}
    rule = TargetRule(Law.SCORING, case["gain"], case["window_ms"], iteration=Iteration.JAVA)

    found = target_weights.update(books, loads, {}, 0, rule)

    sampled = {name: found.weights[name] for name in case["expect_target_weight_samples"]}
    assert sampled == pytest.approx(case["expect_target_weight_samples"], rel=1e-12)


@pytest.mark.parametrize("case", VECTORS["average_target_weights"]["cases"], ids=by_id)
def test_average_target_is_sum_over_count(case: dict[str, Any]) -> None:
    books = {f"c{k}": weight for k, weight in enumerate(case["weights"])}

    assert target_weights.update(books, {}, {}, 0, TargetRule()).weights == dict.fromkeys(books, case["expect"])


@pytest.mark.parametrize("case", VECTORS["ewma"], ids=by_id)
def test_average_forgets_by_elapsed_time(case: dict[str, Any]) -> None:
    samples = [(vectors.instant(instant), value) for instant, value in case["samples"]]

    assert averages(samples, case["window_ms"]) == case["expect"]


@pytest.mark.parametrize("case", VECTORS["subscription_profiles"], ids=by_id)
def test_profiles_follow_the_largest_report(case: dict[str, Any]) -> None:
    before = Profiles(profiles_of(case["previous_profiles"]), vectors.instant(case["previous_update"]))
    loads = {name: NodeLoad(ops=ops) for name, ops in case["reported_loads"].items()}

    found = rebuilt(before, loads, case["now"], case["window_ms"])

    assert found == Profiles(profiles_of(case["expect_profiles"]), case["expect_update"])


@pytest.mark.parametrize("case", VECTORS["rebalance_timestamps"], ids=by_id)
def test_only_what_moved_is_stamped(case: dict[str, Any]) -> None:
    before = Profiles(profiles_of(case["previous_profiles"]))
    loads = {name: NodeLoad(ops=ops) for name, ops in case["reported"].items()}

    found = stamped(rebuilt(before, loads, case["now"], case["window_ms"]), case["rebalanced"], case["now"])

    assert {name: of.last_rebalance for name, of in found.of.items()} == case["expect_last_rebalance"]
    assert "sub9" not in stamped(found, ["sub9"], 5).of


@pytest.mark.parametrize("case", VECTORS["constraints"], ids=by_id)
def test_consumers_of_a_subscription_are_constrained(case: dict[str, Any]) -> None:
    constraints = Constraints(
        case["active_consumers"],
        case["consumers_per_subscription"],
        of_subscription=case["subscription_constraints"],
        of_topic=case["topic_constraints"],
    )

    assert {name: constraints.wanted(name) for name in case["expect"]} == case["expect"]


@pytest.mark.parametrize("case", VECTORS["assignment_diff"], ids=by_id)
def test_diff_tells_deletions_and_additions(case: dict[str, Any]) -> None:
    found = diff(case["current"], case["target"])

    assert {name: list(held) for name, held in found.deletions.items()} == case["deletions"]
    assert {name: list(held) for name, held in found.additions.items()} == case["additions"]
    assert list(found.rebalanced) == case["rebalanced"]


def names(count: int) -> list[str]:
    return [f"tech.topic$s{k:02d}" for k in range(count)]


def selected(
    count: int, consumers: list[str], constraints: Constraints, before: SelectiveBalance | None = None
) -> SelectiveBalance:
    holders = before.assignments if before else {}
    return selective(Workload(0, names(count), consumers, constraints, holders))


def nonzero(counts: dict[str, int]) -> list[int]:
    return sorted(count for count in counts.values() if count)


@pytest.mark.parametrize("case", [of for of in VECTORS["selective_balancer"]["cases"] if "consumers" in of], ids=by_id)
def test_selective_balance_has_the_original_s_counts(case: dict[str, Any]) -> None:
    per, most = case["consumers_per_subscription"], case["max_subscriptions_per_consumer"]
    count = int(case["subscriptions"][-2:]) + 1

    first = selected(count, case["consumers"], Constraints(len(case["consumers"]), per, most))

    assert nonzero(dict(first.counts)) == nonzero(case["expect_first"]["tasks_per_consumer"])
    assert first.missing == case["expect_first"]["missing"]
    if "second_call" in case:
        call, expected = case["second_call"], case["expect_second"]
        constraints = Constraints(call["active_in_constraints"], per, most, call["subscription_constraints"])
        second = selected(call["subscriptions"], call["consumers"], constraints, first)
        changed = diff(first.assignments, second.assignments)
        assert nonzero(dict(second.counts)) == nonzero(expected["tasks_per_consumer"])
        assert second.missing == expected["missing"]
        assert sum(map(len, changed.deletions.values())) == expected["deleted"]
        assert sum(map(len, changed.additions.values())) == expected["created"]
        placed = [len(held) for _, held in sorted(second.assignments.items())]
        assert placed == expected["consumers_per_subscription_counts"]


@pytest.mark.parametrize("first", [1, 3])
def test_selective_balance_gives_one_subscription_its_own_number(first: int) -> None:
    """Cases se12_1 and se12_3."""
    constraints = Constraints(3, 2, 4, {"tech.topic$s00": first})

    found = selected(4, ["c1", "c2", "c3"], constraints)

    assert [len(found.assignments[name]) for name in names(4)] == [first, 2, 2, 2]
    assert found.missing == 0


@pytest.mark.parametrize(
    "case", [of for of in VECTORS["java_hash_codes"]["cases"] if of["kind"] in ("subscription", "task")], ids=str
)
def test_subscriptions_are_hashed_as_in_the_original(case: dict[str, Any]) -> None:
    (found,) = subscription_hashes([case["value"]]).tolist()

    assert found + (31 if case["kind"] == "task" else 0) == case["hash"]


@pytest.mark.parametrize("case", VECTORS["java_iteration_orders"]["cases"], ids=by_id)
def test_tasks_come_in_the_order_of_a_set_that_never_shrinks(case: dict[str, Any]) -> None:
    order, tasks = JavaOrder(), case["insert_tasks"]
    order.subscriptions(tasks)
    kept = np.array([row for row, name in enumerate(tasks) if name not in case["remove_tasks"]])

    assert [tasks[row] for row in order.tasks(kept, len(tasks))] == case["expect_task_order"]
