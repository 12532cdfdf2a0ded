"""The command that a condition or an Event names for the reasons."""

from __future__ import annotations

import numpy as np

from trimtab_operator.status.conditions import where_to_ask
from trimtab_strategies.model import CPU, Move, Plan, Reason


def plan(*moves: Move, cpu: tuple[float, ...] = (20.0, 90.0, 50.0)) -> Plan:
    before = np.full((len(cpu), 5), np.nan)
    before[:, CPU] = cpu
    return Plan(moves, (), ("a", "b", "c")[: len(cpu)], before, before)


def asked(of: Plan | None) -> str:
    return where_to_ask(of, "messaging")


def test_it_points_to_the_broker_that_the_first_move_leaves() -> None:
    assert asked(plan(Move("x", "c", "a", Reason.OVERLOADED))) == "; why: trimtab explain broker c -n messaging"


def test_it_points_to_the_new_owner_of_a_bundle_that_no_one_had() -> None:
    assert asked(plan(Move("x", "", "a", Reason.UNOWNED))) == "; why: trimtab explain broker a -n messaging"


def test_where_nothing_moves_it_points_to_the_most_used_broker() -> None:
    assert asked(plan()) == "; why: trimtab explain broker b -n messaging"
    assert asked(plan(cpu=(np.nan, 10.0))) == "; why: trimtab explain broker b -n messaging"


def test_without_figures_it_points_to_some_broker_and_without_brokers_nowhere() -> None:
    assert asked(plan(cpu=(np.nan,))) == "; why: trimtab explain broker a -n messaging"
    assert asked(plan(cpu=())) == ""
    assert asked(None) == ""
