"""The protocols of the operator, run by the product's own code in every order of events up to a bound."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import pytest

import move_world
import split_world
from explorer import Event, Model, State, explore
from kube_world import World
from trimtab_operator.pulsar.client.api import LoadManager
from worlds import CLOSED, CLOSED_WITH_FAULTS, LARGE, BudgetedWorld, moves, pulsar_splits, splits

pytestmark = pytest.mark.long

BOUNDED = 80_000
"""States of the large worlds that are explored here, together."""

WHOLE = 150_000


def explored_whole(world: BudgetedWorld) -> None:
    done = explore(world(), WHOLE)

    sys.stdout.write(f"{done}\n")
    assert done.found is None, str(done.found)
    assert done.closed


@pytest.mark.parametrize("world", LARGE, ids=lambda world: world.text)
def test_no_order_of_events_up_to_the_bound_violates_an_invariant(world: BudgetedWorld) -> None:
    most = round(BOUNDED * LARGE[world])
    done = explore(world(), most)

    sys.stdout.write(f"{done}\n")
    assert done.found is None, str(done.found)
    assert done.states >= most


def test_the_shares_of_the_large_worlds_are_all_there_is() -> None:
    assert sum(LARGE.values()) == pytest.approx(1)


@pytest.mark.parametrize("world", CLOSED, ids=lambda world: world.text)
def test_without_faults_every_reachable_state_is_explored_and_leads_to_a_settled_one(world: BudgetedWorld) -> None:
    explored_whole(world)


@pytest.mark.slow
@pytest.mark.parametrize("world", CLOSED_WITH_FAULTS, ids=lambda world: world.text)
def test_with_one_fault_every_reachable_state_is_explored_and_leads_to_a_settled_one(world: BudgetedWorld) -> None:
    explored_whole(world)


class Goal:
    """A model that reports a goal as its violation, to show that an exploration reaches it."""

    def __init__(self, model: Model, goal: Callable[[World], bool]) -> None:
        self.name, self._model, self._goal = model.name, model, goal

    def initial(self) -> State:
        return self._model.initial()

    def events(self, state: State) -> Iterable[Event]:
        return self._model.events(state)

    def broken(self, state: State) -> str:
        reached = self._model.settled(state) and self._goal(World(*state))  # type: ignore[arg-type]
        return "the goal is reached" if reached else ""

    def settled(self, state: State) -> bool:
        return self._model.settled(state)


def both_moved(model: move_world.MoveWorld) -> Callable[[World], bool]:
    def goal(world: World) -> bool:
        owners = [model.objects[world.slots[slot]]["spec"]["owner"] for slot in (move_world.L, move_world.H)]
        return owners == ["y", "z"]

    return goal


@pytest.mark.parametrize("faults", [0, 1])
def test_both_moves_of_a_proposal_end_inside_the_bound(faults: int) -> None:
    world = moves(faults=faults, lag=False)()
    assert isinstance(world, move_world.MoveWorld)

    assert explore(Goal(world, both_moved(world)), WHOLE).found is not None


@pytest.mark.parametrize("faults", [0, 1])
def test_a_whole_split_ends_inside_the_bound(faults: int) -> None:
    def split(world: World) -> bool:
        return bool(world.slots[split_world.L] and world.slots[split_world.H] and not world.slots[split_world.P])

    assert explore(Goal(splits(faults=faults, lag=False)(), split), WHOLE).found is not None


def test_a_whole_split_by_pulsar_ends_inside_the_bound() -> None:
    model = pulsar_splits(lag=False, manager=LoadManager.MODULAR)()

    assert explore(Goal(model, lambda world: not world.slots[0]), WHOLE).found is not None
