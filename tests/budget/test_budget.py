"""What moves spend of disruption budgets, and which moves must wait."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trimtab_operator.budget.account import StoredAccount
from trimtab_operator.budget.left import in_words
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_strategies.budget import (
    HOUR,
    TINY,
    BudgetLedger,
    BudgetRules,
    BudgetTally,
    Charge,
    DisruptionBudget,
    Holder,
    Price,
)

NOW = 1_000_000.0
BOUNDS = DisruptionBudget(connections=10.0, in_flight=3)


def rules(own: DisruptionBudget = BOUNDS, **spaces: DisruptionBudget) -> BudgetRules:
    """The budget of policy main, and budgets of namespaces ``t/NAME``."""
    of = {f"t/{name}": Holder(f"TopicNamespace t-{name}", budget) for name, budget in spaces.items()}
    return BudgetRules("main", Holder("policy main", own), of)


def charge(bundle: str = "b", at: float = NOW, **fields: Any) -> Charge:
    """A move of a bundle of namespace t/n that cuts 4 % of the policy's clients and 8 % of its namespace's."""
    given: dict[str, Any] = {"generation": 1, "policy": "main", "namespace": "t/n", "price": Price(4.0, 8.0)}
    return Charge(at, bundle, **{**given, **fields})


def spent(
    *charges: Charge, now: float = NOW, by: BudgetRules | None = None, **in_flight: frozenset[str]
) -> BudgetTally:
    """A tally `now`, after `charges` that were admitted one after the other, each at its time."""
    ledger, known = BudgetLedger(), by or rules()
    for one in charges:
        ledger = ledger.charged([one], one.at)
    return BudgetTally(known, ledger, now, {f"t/{space}": names for space, names in in_flight.items()})


def refused(tally: BudgetTally, one: Charge) -> str:
    """Why the move must wait, in words; empty if it fits."""
    found = tally.admit([one])
    return "" if found is None else in_words(found[1], tally.now)


def test_connections_of_a_policy_are_bounded_over_all_its_namespaces() -> None:
    tally = spent(charge("a", NOW - 600), charge("b", NOW - 300, namespace="t/m"))

    why = refused(tally, charge("c"))

    assert why == (
        "connectionsPercentPerHour of policy main is 10 %, 8 % spent and it costs 4 %: "
        "it fits from 1970-01-12T14:36:41Z on"
    )
    assert not refused(spent(charge("a", NOW - 600)), charge("c"))


@given(
    paid=st.lists(st.tuples(st.floats(1, 3000), st.sampled_from([0.0, 0.5, 3.0, 4.0])), max_size=12),
    price=st.floats(0.1, 12),
)
def test_a_move_fits_once_enough_has_left_the_window(paid: list[tuple[float, float]], price: float) -> None:
    """The first moment at which the sum of what is younger than an hour leaves room."""
    charges = [charge(f"b{k}", NOW - ago, price=Price(cost)) for k, (ago, cost) in enumerate(paid)]
    tally = spent(*sorted(charges, key=lambda one: one.at))
    short = tally.shortfall("x", "t/n", Price(price))
    if short is None:
        return
    assert tally.shortfall("x", "t/n", Price(price), dated=False) is not None
    ends = sorted(one.at + HOUR for one in charges)
    left = (sum(one.price.of_policy for one in charges if one.at + HOUR > end) for end in ends)
    fits = [end for end, rest in zip(ends, left, strict=True) if rest + price <= 10.0 + TINY]
    assert short.frees_at == (min(fits) if fits else None)


def test_a_namespace_counts_its_own_clients_and_the_stricter_budget_holds() -> None:
    strict = rules(DisruptionBudget(connections=100.0), n=DisruptionBudget(connections=10.0))
    tally = spent(charge("a"), by=strict)

    assert "of TopicNamespace t-n is 10 %, 8 % spent and it costs 8 %" in refused(tally, charge("b"))
    assert not refused(tally, charge("b", namespace="t/m"))


def test_pending_moves_of_a_namespace_are_bounded_also_within_one_plan() -> None:
    tally = spent(by=rules(DisruptionBudget(in_flight=2)), n=frozenset({"a"}))

    assert not refused(tally, charge("b"))
    assert "movesInFlight of policy main is 2, and 2 are pending: it waits until one lands" in refused(
        tally, charge("c")
    )
    assert not refused(tally, charge("d", namespace="t/m"))


def test_moves_that_belong_together_fit_together_or_not_at_all() -> None:
    tally = spent(by=rules(DisruptionBudget(connections=6.0)))

    assert tally.admit([charge("a"), charge("b")]) is not None

    assert tally.clients_of_policy() == 0
    assert tally.made == []
    assert tally.admit([charge("c")]) is None


def test_a_price_that_was_not_measured_never_fits_and_never_counts() -> None:
    unknown = Price(math.nan, math.nan)
    tally = spent(charge("a", forced="Drained", price=unknown))

    assert "the connections of the bundle were not measured" in refused(tally, charge("b", price=unknown))
    assert tally.clients_of_policy() == 0


def test_a_move_that_costs_more_than_the_whole_budget_says_that_it_never_fits() -> None:
    assert "this move alone costs 40 %: it never fits, raise the budget" in refused(
        spent(), charge(price=Price(40.0, 40.0))
    )


def test_a_forced_move_always_fits_and_is_spent_for_the_others() -> None:
    tally = spent(*(charge(f"a{k}", forced="Drained") for k in range(5)))

    assert tally.clients_of_policy() == pytest.approx(20.0)
    assert not refused(tally, charge("x", forced="BrokerLost"))
    assert refused(tally, charge("y"))


def test_a_repeated_write_of_the_same_move_is_paid_once() -> None:
    tally = spent(charge("a", NOW - 60), charge("a", NOW), by=rules(DisruptionBudget(connections=5.0)))

    assert tally.clients_of_policy() == pytest.approx(4.0)
    assert not refused(tally, charge("a"))


def test_a_clock_that_was_set_back_holds_spending_for_one_window_and_not_longer() -> None:
    tally = spent(charge("a", NOW + 10 * HOUR), by=rules(DisruptionBudget(connections=5.0)), now=NOW)

    assert refused(tally, charge("b"))
    kept = tally.ledger.at(NOW)
    assert not refused(BudgetTally(tally.rules, kept, NOW + HOUR), charge("b", NOW + HOUR))


def test_what_no_window_holds_is_forgotten() -> None:
    ledger = spent(*(charge(f"b{k}", NOW + k) for k in range(100)), now=NOW + 100).ledger

    assert ledger.at(NOW + 2 * HOUR) == BudgetLedger()


def test_what_was_spent_survives_the_way_through_a_config_map() -> None:
    stored = StoredAccount(spent(charge("a"), charge("b", forced="Drained", over=True)).ledger, epoch=7)

    assert StoredAccount.from_json(stored.to_json()) == stored


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2}', '{"version": 1, "epoch": 1, "charges": [[1]]}'])
def test_what_trimtab_did_not_write_is_refused(text: str) -> None:
    with pytest.raises(UnreadableContentError):
        StoredAccount.from_json(text)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "d"]),
        st.sampled_from(["t/n", "t/m"]),
        st.sampled_from([0.0, 1.0, 59.0, 600.0, 3599.0, 3600.0, 20_000.0]),
        st.sampled_from(["move", "move", "move", "repeat", "restart", "land", "forced"]),
        st.floats(0, 6),
    ),
    max_size=60,
)


@given(STEPS)
def test_no_window_holds_more_than_the_budget_whatever_happens_in_between(
    steps: list[tuple[str, str, float, str, float]],
) -> None:
    """Moves, confirmations, repeated writes, restarts and forced moves in any order."""
    by, now, ledger = rules(), NOW, BudgetLedger()
    pending = dict[str, str]()
    generation = dict.fromkeys("abcd", 1)
    made = list[Charge]()
    for bundle, space, later, what, cost in steps:
        now += later
        if what == "land":
            pending.pop(bundle, None)
        if what == "restart":
            ledger = StoredAccount.from_json(StoredAccount(ledger).to_json()).ledger
        if what in {"land", "restart"}:
            continue
        if what != "repeat" or generation[bundle] == 1:
            generation[bundle] += 1
        flights = {s: frozenset(b for b, of in pending.items() if of == s) for s in ("t/n", "t/m")}
        forced = "Drained" if what == "forced" else ""
        tally = BudgetTally(by, ledger, now, flights)
        one = charge(
            bundle, now, namespace=space, generation=generation[bundle], price=Price(cost, cost), forced=forced
        )
        if tally.admit([one]) is not None:
            continue
        ledger = tally.result
        pending[bundle] = space
        made = [other for other in made if other.key != one.key] + [one]
        if not forced:
            _within(made, now, pending, space)


def _within(made: list[Charge], now: float, pending: dict[str, str], space: str) -> None:
    """What an unforced move left behind keeps every bound, forced moves included."""
    hour = [one for one in made if now - one.at < HOUR]
    assert sum(one.price.of_policy for one in hour) <= 10 + TINY
    assert sum(of == space for of in pending.values()) <= 3
