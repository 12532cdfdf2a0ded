"""Verdicts: ties, the best baseline, what dominates what, and the ratio of costs."""

from __future__ import annotations

import pytest

from trimtab_lab.simulation import Goal, contender, named
from trimtab_lab.simulation.compare import COLUMNS, SeedInterval, measured
from trimtab_lab.simulation.verdict import TIES, Cell, cell, dominates, is_less, verdict


def reached(**medians: float) -> Cell:
    """A cell with these medians, and 0 elsewhere."""
    return {name: SeedInterval(0, medians.get(name, 0), 100) for name in (*TIES, "cost")}


def test_a_cell_has_the_interval_of_every_score() -> None:
    [played] = measured({"idle": named("idle")}, [contender("AvgShedder")], [1, 2, 3])

    found = cell(played["runs"])

    assert list(found) == list(COLUMNS)
    assert found["moves"] == SeedInterval(0, 0, 0)
    areas = sorted(run["area"] for run in played["runs"])
    assert areas[0] <= found["area"].low <= found["area"].median == areas[1] <= found["area"].high <= areas[2]


@pytest.mark.parametrize(
    ("score", "one", "other"),
    [("moves", 10, 11), ("moves", 100, 105), ("cut", 1.0, 1.5), ("left", 4.0, 6.0), ("unserved", 0.0, 0.1)],
)
def test_scores_tie_within_an_amount_or_five_percent(score: str, one: float, other: float) -> None:
    assert not is_less(score, one, other)
    assert not is_less(score, other, one)


@pytest.mark.parametrize(
    ("score", "one", "other"),
    [("moves", 10, 12), ("moves", 100, 106), ("cut", 1.0, 1.6), ("left", 4.0, 6.1), ("unserved", 0.0, 0.2)],
)
def test_scores_beyond_a_tie_differ(score: str, one: float, other: float) -> None:
    assert is_less(score, one, other)
    assert not is_less(score, other, one)


def test_a_verdict_counts_scores_against_the_cheapest_baseline() -> None:
    ours = reached(moves=10, cut=5.0, area=4.0, left=4.0, cost=12.0)
    baselines = {"dear": reached(moves=2, cost=40.0), "cheap": reached(moves=5, cut=9.0, area=4.5, cost=24.0)}

    found = verdict(ours, baselines, Goal.LEVEL)

    assert (found.best, found.better, found.worse) == ("cheap", ("cut",), ("moves", "left"))
    assert len(found.better) + len(found.tied) + len(found.worse) == len(TIES)
    assert found.cost == 0.5


def test_only_moves_and_cuts_count_where_nothing_should_move() -> None:
    ours, still = reached(moves=3, cut=1.0, area=2.0, cost=4.0), reached(area=30.0)

    found = verdict(ours, {"still": still}, Goal.STILL)

    assert (found.better, found.tied, found.worse) == ((), (), ("moves", "cut"))
    assert found.cost == float("inf")
    assert found.dominated_by == ("still",)
    assert verdict(still, {"still": still}, Goal.STILL).cost == 1


def test_a_strategy_dominates_if_it_is_worse_in_nothing_and_better_in_something() -> None:
    one, other = reached(moves=10, area=4.0), reached(moves=10, area=9.0)

    assert dominates(one, other, Goal.LEVEL)
    assert not dominates(other, one, Goal.LEVEL)
    assert not dominates(one, one, Goal.LEVEL)
    assert not dominates(one, reached(moves=2, area=9.0), Goal.LEVEL)
    assert verdict(one, {"other": other}, Goal.LEVEL).dominates == ("other",)
