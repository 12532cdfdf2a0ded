"""Namespaces with the priority Last: their bundles move only when a plan without them would do nothing."""

from __future__ import annotations

from dataclasses import replace

from planned_moves import held, plan
from strategy_testing.clusters import cluster, with_bundles
from trimtab_strategies.model import ClusterLoad, NamespacePolicy, Reason

DRAWN = cluster(a=0.9, b=0.2, c=0.2, bundles={"a": [1] * 10, "b": [1] * 4, "c": [1] * 2})
"""Rows 0 to 9 are of public/a, on broker a."""


def last(drawn: ClusterLoad, *spaces: str) -> ClusterLoad:
    return replace(drawn, policies={space: NamespacePolicy(last=True) for space in spaces})


def moved(drawn: ClusterLoad) -> set[str]:
    """The namespaces whose bundles the plan moves."""
    return {move.bundle.rpartition("/")[0] for move in plan(drawn).moves}


def test_bundles_of_the_last_priority_move_when_nothing_else_can() -> None:
    assert moved(DRAWN) == {"public/a"}
    assert moved(last(DRAWN, "public/a")) == {"public/a"}


def test_bundles_of_the_last_priority_stay_while_others_can_move() -> None:
    #      broker a: ten bundles of public/a, and the four of public/b
    both = with_bundles(DRAWN, owner={10: 0, 11: 0, 12: 0, 13: 0})
    assert "public/a" in moved(both)

    made = plan(last(both, "public/a"))

    assert {move.bundle.rpartition("/")[0] for move in made.moves} == {"public/b"}
    assert Reason.LAST_PRIORITY in held(made)


def test_a_plan_is_the_same_when_everything_has_the_last_priority() -> None:
    everything = last(DRAWN, *DRAWN.namespaces)

    assert plan(everything).moves == plan(DRAWN).moves
