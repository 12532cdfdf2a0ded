"""Balancing by weight on drawn work: what holds whatever the weights are, and what only the corrected form keeps."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from conformance.hermes_model import Balance, Rules, balance, selective
from trimtab_strategies.params import Compatibility
from trimtab_strategies.shedding.weighted.exchange import Sides, acceptable, best_exchange, first_acceptable, hopeless
from trimtab_strategies.shedding.weighted.nodes import (
    Constraints,
    InvalidWorkError,
    NodeLoad,
    Profile,
    Profiles,
    Workload,
    rebuilt,
)
from trimtab_strategies.shedding.weighted.orders import Iteration
from trimtab_strategies.shedding.weighted.target_weights import Law, TargetRule

NOW = 10_000_000.0
weights = st.one_of(st.sampled_from([0.0, 1.0, 1.0, 2.0, 10.0]), st.floats(0, 100))
FORMS = [(compatibility, iteration) for compatibility in Compatibility for iteration in Iteration]


def rules(compatibility: Compatibility, iteration: Iteration, law: Law = Law.AVERAGE, min_change: float = 5.0) -> Rules:
    target = TargetRule(law, compatibility=compatibility, iteration=iteration)
    return Rules(1_800_000, min_change, target, compatibility, iteration)


CORRECTED = rules(Compatibility.CORRECTED, Iteration.SORTED)


@st.composite
def works(draw: st.DrawFn) -> Workload:
    """Up to six consumers and twenty subscriptions; some dead holders, some moved lately, some never reported."""
    consumers = [f"c{k}" for k in range(draw(st.integers(0, 6)))]
    names = [f"g{k % 3}.t{k % 2}$s{k}" for k in range(draw(st.integers(0, 20)))]
    anybody = st.lists(st.sampled_from([*consumers, "dead"]), max_size=3, unique=True)
    known = st.builds(Profile, weights, st.sampled_from([float("-inf"), NOW - 60_000, NOW - 7_200_000]))
    cpu = st.one_of(st.just(-1.0), st.floats(0, 1))
    return Workload(
        now=NOW,
        subscriptions=draw(st.permutations(names)),
        consumers=draw(st.permutations(consumers)),
        constraints=Constraints(
            active=len(consumers), per_subscription=draw(st.integers(1, 3)), most=draw(st.sampled_from([2, 5, 200]))
        ),
        holders={name: draw(anybody) for name in names},
        profiles={name: draw(known) for name in names if draw(st.integers(0, 5))},
        loads={name: NodeLoad(draw(cpu), {"g.t$s": 1.0}) for name in consumers},
    )


def wanted(work: Workload) -> int:
    return sum(work.constraints.wanted(name) for name in work.subscriptions)


def carried(work: Workload, found: Balance, unknown: float = 0.0) -> dict[str, float]:
    """What each consumer really has, ops/s."""
    total = dict.fromkeys(found.order, 0.0)
    for name, held in found.assignments.items():
        for consumer in held:
            total[consumer] += work.profiles[name].weight if name in work.profiles else unknown
    return total


@pytest.mark.parametrize(("compatibility", "iteration"), FORMS)
@settings(max_examples=60, deadline=None)
@given(work=works(), law=st.sampled_from(Law))
def test_every_task_is_placed_once_or_missing(
    compatibility: Compatibility, iteration: Iteration, work: Workload, law: Law
) -> None:
    found = balance(work, rules(compatibility, iteration, law))

    assert all(len(set(held)) == len(held) for held in found.assignments.values())
    assert {consumer for held in found.assignments.values() for consumer in held} <= set(work.consumers)
    assert set(found.assignments) <= set(work.subscriptions)
    assert sum(map(len, found.assignments.values())) + found.missing == wanted(work)
    assert set(found.targets.weights) == set(work.consumers) == set(found.order)


@settings(max_examples=100, deadline=None)
@given(work=works(), law=st.sampled_from(Law))
def test_corrected_balance_keeps_a_true_book_and_every_limit(work: Workload, law: Law) -> None:
    found = balance(work, rules(Compatibility.CORRECTED, Iteration.SORTED, law))

    known = [work.profiles[name].weight for name in work.subscriptions if name in work.profiles]
    unknown = sum(known) / len(known) if known else 0.0
    assert found.after == pytest.approx(carried(work, found, unknown), abs=1e-6)
    counts = Counter(consumer for held in found.assignments.values() for consumer in held)
    assert all(count <= work.constraints.most for count in counts.values())
    assert not any(transfer.phantom for transfer in found.transfers)


@settings(max_examples=100, deadline=None)
@given(work=works(), law=st.sampled_from(Law))
def test_corrected_steps_bring_consumers_nearer_to_their_targets(work: Workload, law: Law) -> None:
    found = balance(work, rules(Compatibility.CORRECTED, Iteration.SORTED, law))

    before, after = (
        sum((book[name] - found.targets.weights[name]) ** 2 for name in found.order)
        for book in (found.before, found.after)
    )
    assert after <= before * (1 + 1e-9) + 1e-9


@settings(max_examples=100, deadline=None)
@given(work=works())
def test_what_was_moved_lately_is_not_moved_again(work: Workload) -> None:
    found = balance(work, CORRECTED)

    lately = {name for name, profile in work.profiles.items() if profile.last_rebalance > NOW - 1_800_000}
    touched = [
        found.subscriptions[task] for step in found.transfers for task in (step.task, step.returned) if task >= 0
    ]
    assert not lately & set(touched)
    assert len(touched) == len(set(touched)) or work.constraints.per_subscription > 1


@settings(max_examples=60, deadline=None)
@given(work=works(), seed=st.integers(0, 99))
def test_sorted_balance_does_not_know_the_order_of_its_input(work: Workload, seed: int) -> None:
    shuffled = random.Random(seed)
    names, consumers = list(work.subscriptions), list(work.consumers)
    shuffled.shuffle(names)
    shuffled.shuffle(consumers)
    holders = {name: list(reversed(held)) for name, held in sorted(work.holders.items())}
    other = Workload(work.now, names, consumers, work.constraints, holders, work.profiles, work.loads)

    for compatibility in Compatibility:
        form = rules(compatibility, Iteration.SORTED, Law.SCORING)
        assert balance(work, form) == balance(other, form)


@settings(max_examples=60, deadline=None)
@given(work=works())
def test_selective_balance_places_all_that_there_is_room_for(work: Workload) -> None:
    found = selective(work)

    placed = sum(map(len, found.assignments.values()))
    assert placed + found.missing == wanted(work)
    assert all(len(set(held)) == len(held) for held in found.assignments.values())
    room = sum(max(0, work.constraints.most - count) for count in found.counts.values())
    assert not found.missing or not room
    assert (
        max(found.counts.values(), default=0) - min(found.counts.values(), default=0) <= 1
        or len(found.assignments) <= 1
    )


sorted_weights = st.lists(weights, max_size=40).map(lambda drawn: np.array(sorted(drawn, reverse=True)))


def naive(sides: Sides, heavy: np.ndarray, light: np.ndarray, row: int, column: int) -> tuple[int, int] | None:
    """The first acceptable pair, found by looking at all of them."""
    for i in range(row, len(heavy)):
        for j in range(column if i == row else 0, len(light)):
            if acceptable(sides, heavy[i], light[j]):
                return i, j
    return None


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    heavy=sorted_weights,
    light=sorted_weights,
    books=st.tuples(*[st.floats(0, 500)] * 4),
    min_change=st.sampled_from([0.0, 0.1, 5.0, 50.0]),
    start=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_bisection_finds_the_pair_that_a_search_of_all_pairs_finds(
    heavy: np.ndarray,
    light: np.ndarray,
    books: tuple[float, float, float, float],
    min_change: float,
    start: tuple[int, int],
) -> None:
    sides = Sides(*books, min_change)

    found = first_acceptable(sides, heavy, light, *start) if len(light) else None

    assert found == naive(sides, heavy, light, *start)
    assert not hopeless(sides, heavy, light) or naive(sides, heavy, light, 0, 0) is None


@settings(max_examples=200, deadline=None)
@given(heavy=sorted_weights, light=sorted_weights, excess=st.floats(0, 100), room=st.floats(0, 100))
def test_best_exchange_is_as_good_as_any_that_does_not_exceed_the_excess(
    heavy: np.ndarray, light: np.ndarray, excess: float, room: float
) -> None:
    sides = Sides(1000.0 + excess, 1000.0, 1000.0, 1000.0 + room, 0.0)

    found = best_exchange(sides, heavy, light)

    change = heavy[:, np.newaxis] - light[np.newaxis, :]
    within = np.where((change > 0) & (change <= sides.wanted), change * (sides.excess + sides.room - change), 0.0)
    best = within.max(initial=0.0)
    if found is None:
        assert best == 0
    else:
        taken = heavy[found[0]] - light[found[1]]
        assert 0 < taken <= sides.room
        assert taken * (sides.excess + sides.room - taken) >= best * (1 - 1e-12)


def placed(own: dict[str, list[float]]) -> Workload:
    """One subscription a weight, each on one consumer."""
    names = {f"g.{consumer}$s{k}": (consumer, weight) for consumer, of in own.items() for k, weight in enumerate(of)}
    return Workload(
        NOW,
        list(names),
        list(own),
        Constraints(len(own), 1),
        {name: [consumer] for name, (consumer, _) in names.items()},
        {name: Profile(weight) for name, (_, weight) in names.items()},
    )


def test_many_small_swaps_add_up() -> None:
    """No single swap of a hundred small tasks is worth 5 percent, so the original leaves one consumer at the double."""
    work = placed({"a": [2.0] * 100, "b": [1.0] * 100})

    original, corrected = (balance(work, rules(form, Iteration.SORTED)) for form in Compatibility)

    assert original.after == {"a": 200, "b": 100}
    assert corrected.after == pytest.approx({"a": 150, "b": 150}, rel=0.03)
    assert len(corrected.assignments) == 200


def test_consumer_within_the_significant_change_is_left_alone() -> None:
    assert not balance(placed({"a": [26.0, 26.0], "b": [24.0, 24.0]}), CORRECTED).transfers


def test_unknown_tasks_weigh_as_much_as_the_average_one() -> None:
    known = placed({"a": [6.0, 6.0], "b": [6.0]})
    names = [*known.subscriptions, "g.new$1", "g.new$2", "g.new$3"]
    work = Workload(NOW, names, known.consumers, known.constraints, known.holders, known.profiles)

    original, corrected = (balance(work, rules(form, Iteration.SORTED)) for form in Compatibility)

    assert sorted(held for name, held in original.assignments.items() if ".new" in name) == [("b",)] * 3
    assert sorted(held for name, held in corrected.assignments.items() if ".new" in name) == [("a",), ("b",), ("b",)]


def test_lowered_limit_evicts_in_the_corrected_form_only() -> None:
    crowded = placed({"a": [1.0, 1.0, 1.0, 1.0], "b": []})
    work = Workload(
        NOW, crowded.subscriptions, crowded.consumers, Constraints(2, 1, 2), crowded.holders, crowded.profiles
    )

    found = balance(work, CORRECTED)

    assert Counter(held[0] for held in found.assignments.values()) == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: Profile(-1.0), "a weight is -1.0: it must be"),
        (lambda: Profile(float("nan")), "a weight is nan"),
        (lambda: Workload(0, ["a", "a"], [], Constraints(0)), "subscription 'a' is listed twice"),
        (lambda: Workload(0, [], ["c", "c"], Constraints(2)), "consumer 'c' is listed twice"),
        (lambda: Rules(stabilization=-1), "the stabilization window is -1 ms"),
        (lambda: Rules(min_change=float("nan")), "the significant change is nan percent"),
        (lambda: TargetRule(window=0), "the window of scores is 0 ms: it must be above 0"),
        (lambda: TargetRule(fixed={"a": -2.0}), "the fixed weight of 'a' is -2.0"),
        (lambda: rebuilt(Profiles(), {}, 0, 0), "a window is 0 ms: it must be above 0"),
        (
            lambda: balance(Workload(0, ["plain"], ["c"], Constraints(1)), rules(Compatibility.JAVA, Iteration.JAVA)),
            "subscription 'plain' has no place in a hash map: name it group.topic$name",
        ),
    ],
)
def test_bad_input_is_named_with_its_value_and_bound(wrong: object, told: str) -> None:
    with pytest.raises(InvalidWorkError) as error:
        wrong()  # type: ignore[operator]

    assert str(error.value).startswith(told)
