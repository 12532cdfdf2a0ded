"""The search by pairs: small plans that are close to the best there is, and keep to every rule of greedy ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trim_plans import Drawn, gaps, planned, small_case, worlds
from trim_world import World, spread
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.shedding.trim.plan import PlanBounds, PlannedLoad, PlannedMove
from trimtab_strategies.shedding.trim.search import COARSE, FEW, PairSearch
from trimtab_strategies.shedding.trim.shedder import best_plan

CASES = 40
"""Small cases that are compared with the best assignment."""


def by_pairs(
    balance: PlannedLoad, owner: IntArray, price: FloatArray, bounds: PlanBounds
) -> tuple[list[PlannedMove], PlannedLoad]:
    """The plan of the pair search alone, and the load after it."""
    search = PairSearch(balance, owner, price, bounds)
    moves, _ = search.run()
    return moves, search.balance


def pairs(world: World, **limits: Any) -> Drawn:
    return planned(world, maker=by_pairs, **limits)


@pytest.mark.slow
def test_plans_are_close_to_the_best_there_is_with_as_many_moves() -> None:
    """Brute force over every assignment as the referee."""
    found = gaps(CASES, best_plan)

    assert found.min() >= -1e-9  # the referee is right
    assert found.mean() <= 0.02
    assert found.max() <= 0.10


@pytest.mark.slow
def test_a_plan_gains_at_least_as_much_as_the_greedy_one() -> None:
    gained = [(planned(world, maker=best_plan).net(), planned(world).net()) for world in map(small_case, range(CASES))]

    assert all(best >= alone - 1e-6 for best, alone in gained)
    assert any(best > alone + 1 for best, alone in gained)


@pytest.mark.slow
@settings(max_examples=40)
@given(world=worlds())
def test_any_plan_gains_at_least_as_much_as_the_greedy_one(world: World) -> None:
    assert planned(world, maker=best_plan).net() >= planned(world).net() - 1e-6


@settings(max_examples=40)
@given(world=worlds())
def test_the_search_knows_its_gain_and_leaves_the_balance_as_it_was(world: World) -> None:
    found: list[float] = []

    def maker(
        balance: PlannedLoad, owner: IntArray, price: FloatArray, bounds: PlanBounds
    ) -> tuple[list[PlannedMove], PlannedLoad]:
        before = balance.usage.copy()
        search = PairSearch(balance, owner, price, bounds)
        moves, net = search.run()
        found.append(net)
        assert (balance.usage == before).all()
        return moves, search.balance

    assert planned(world, maker=maker).net() == pytest.approx(found[0], abs=1e-6)


@pytest.mark.slow
@settings(max_examples=80)
@given(world=worlds())
def test_no_move_of_a_pair_goes_uphill(world: World) -> None:
    """No single move goes to a busier broker, of a swap the larger load goes downhill, and no one gets hotter than
    the hottest broker, nor than the giver was.
    """
    drawn = pairs(world)
    before, after = drawn.before.busiest(), drawn.after.busiest()
    for move in drawn.moves:
        assert before[move.destination] < before[move.source]
        assert after[move.destination] <= before[move.source] + 1e-6
    for move in (move for move in drawn.moves if move.returned >= 0):
        unit, load = drawn.before.unit[move.source], drawn.before.load
        assert ((load[move.bundle] - load[move.returned]) * unit).max() > 0
    assert after.max() <= before.max() + 1e-6


@pytest.mark.slow
@settings(max_examples=50)
@given(world=worlds(), most=st.integers(1, 12), per_broker=st.integers(1, 4), data=st.data())
def test_a_plan_by_pairs_keeps_to_its_bounds(world: World, most: int, per_broker: int, data: st.DataObject) -> None:
    n, m = len(world.brokers), len(world.load)
    movable: BoolArray = np.array(data.draw(st.lists(st.booleans(), min_size=m, max_size=m)))
    receivers: BoolArray = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    trips = pairs(world, movable=movable, receivers=receivers, most=most, per_broker=per_broker).trips()
    rows = [bundle for bundle, _, _ in trips]

    assert len(rows) == len(set(rows)) <= min(most, FEW)
    assert movable[rows].all()
    assert (world.owner[rows] == [source for _, source, _ in trips]).all()
    assert receivers[[destination for _, _, destination in trips]].all()
    assert max(Counter(source for _, source, _ in trips).values(), default=0) <= per_broker
    assert max(Counter(destination for _, _, destination in trips).values(), default=0) <= per_broker


def test_a_bundle_moves_to_a_broker_that_it_fills_a_little_beyond_its_target() -> None:
    """80, 30 and 0 %, the level is 37: on the empty broker 40 is 3 points too much."""
    world = World.of([40, 40], [30], [])

    assert planned(world).moves == []
    assert [move.destination for move in pairs(world).moves] == [2]
    assert pairs(world).usage() == pytest.approx([40, 30, 40])


def test_a_pair_makes_room_for_a_large_bundle() -> None:
    """The second broker passes 45 on to the third, and takes 30; the best single move leaves it at 80 %."""
    drawn = pairs(World.of([55, 30], [35, 45], [5]))

    assert {(move.bundle, move.destination) for move in drawn.moves} == {(1, 1), (3, 2)}
    assert drawn.usage() == pytest.approx([55, 65, 50])
    assert planned(drawn.world).usage().max() == pytest.approx(80)


def test_a_swap_is_one_planned_move_whose_larger_bundle_goes_downhill() -> None:
    (move,) = pairs(World.of([27, 23], [17, 13]), price=100.0).moves

    assert (move.bundle, move.returned) in {(0, 2), (1, 3)}
    assert (move.source, move.destination) == (0, 1)


def test_with_room_for_one_move_no_pair_is_made() -> None:
    assert pairs(World.of([27, 23], [17, 13]), price=100.0, most=1).moves == []
    assert len(pairs(World.of([10] * 7, [10] * 3), most=1).moves) == 1


def test_nothing_is_found_where_nothing_may_move() -> None:
    drawn = pairs(World.of([40, 40], [10]), movable=np.zeros(3, dtype=bool))

    assert drawn.moves == []
    assert drawn.net() == 0


@pytest.mark.parametrize(("bundles", "searches"), [(COARSE // 2, 1), (2 * COARSE, 0)])
def test_only_plans_of_lumpy_bundles_are_searched(bundles: int, searches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[PairSearch] = []

    def run(search: PairSearch) -> tuple[list[PlannedMove], float]:
        found.append(search)
        return [], 0.0

    monkeypatch.setattr(PairSearch, "run", run)
    planned(World.of(spread(60, bundles, 1), spread(40, bundles, 2)), maker=best_plan)

    assert len(found) == searches


def test_a_large_plan_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(PairSearch, "run")
    drawn = planned(World.of([4.0] * 24, []), maker=best_plan)

    assert drawn.moves == planned(World.of([4.0] * 24, [])).moves
    assert len(drawn.moves) == FEW
