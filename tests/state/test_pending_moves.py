"""A move is followed from its desired owner until its load is measured at the destination."""

from __future__ import annotations

from dataclasses import replace

import pytest

from records import bundle, moving_bundle
from trimtab_operator.state.pending_moves import PendingMoves
from trimtab_strategies.model import Reason


def confirmed(name: str = "b", owner: str = "y"):  # noqa: ANN201  a record
    return bundle(name, owner, generation=4, observed_generation=4)


def reasons(pending_moves: PendingMoves) -> list[Reason]:
    return [outcome.reason for outcome in pending_moves.outcomes()]


def test_an_open_desired_owner_is_a_move_from_its_server_to_its_desired_owner() -> None:
    pending_moves = PendingMoves()

    pending_moves.update(moving_bundle(source="x", destination="y"), None, now=10)

    assert [(f.bundle, f.source, f.destination, f.since) for f in pending_moves.moving()] == [("b", "x", "y", 10)]


def test_the_source_is_remembered_after_it_let_go() -> None:
    pending_moves = PendingMoves()
    pending_moves.update(moving_bundle(source="x"), None, now=10)

    pending_moves.update(moving_bundle(source=""), None, now=11)

    assert pending_moves.open["b"].source == "x"


def test_a_confirmed_move_lands_once() -> None:
    pending_moves = PendingMoves()
    pending_moves.update(moving_bundle(), None, now=10)

    pending_moves.update(confirmed(), None, now=12)

    assert reasons(pending_moves) == [Reason.LANDED]
    assert reasons(pending_moves) == []
    assert not pending_moves.open


@pytest.mark.parametrize(("now", "share"), [(12, 1.0), (27, 0.75), (42, 0.5), (72, 0.0), (100, 0.0)])
def test_a_landed_move_is_still_measured_at_its_source_until_the_window_is_over(now: float, share: float) -> None:
    pending_moves = PendingMoves()
    pending_moves.update(moving_bundle(), None, now=10)
    pending_moves.update(confirmed(), None, now=12)

    assert pending_moves.landed["b"].still_measured(now, window=60) == pytest.approx(share)


def test_a_move_whose_load_is_all_at_the_destination_is_forgotten() -> None:
    pending_moves = PendingMoves()
    pending_moves.update(moving_bundle(), None, now=10)
    pending_moves.update(confirmed(), None, now=12)

    pending_moves.forget_landed(now=72, window=60)

    assert list(pending_moves.moving()) == []


def test_a_second_desired_owner_supersedes_the_first_one() -> None:
    pending_moves = PendingMoves()
    pending_moves.update(moving_bundle(destination="y"), None, now=10)

    pending_moves.update(moving_bundle(destination="z", generation=5), None, now=11)

    assert reasons(pending_moves) == [Reason.SUPERSEDED]
    assert pending_moves.open["b"].destination == "z"


def test_a_desired_owner_for_the_broker_that_serves_it_is_no_move() -> None:
    pending_moves = PendingMoves()
    pending_moves.update(moving_bundle(source="x", destination="x"), None, now=10)
    assert list(pending_moves.moving()) == []

    pending_moves.update(confirmed(owner="x"), None, now=11)

    assert reasons(pending_moves) == []


def test_an_overdue_move_is_reported_once_and_stays_open() -> None:
    pending_moves = PendingMoves()
    pending_moves.update(moving_bundle(), None, now=10)

    first, second = pending_moves.overdue(now=71, timeout=60), pending_moves.overdue(now=80, timeout=60)

    assert [f.bundle for f in first] == [f.bundle for f in second] == ["b"]
    assert reasons(pending_moves) == [Reason.TIMED_OUT]


def test_a_deleted_bundle_leaves_nothing_behind() -> None:
    pending_moves = PendingMoves()
    pending_moves.update(moving_bundle(), None, now=10)

    pending_moves.update(None, moving_bundle(), now=11)

    assert list(pending_moves.moving()) == []


def test_seeing_the_same_desired_owner_again_does_not_restart_its_clock() -> None:
    pending_moves = PendingMoves()
    pending_moves.update(moving_bundle(), None, now=10)

    pending_moves.update(replace(moving_bundle(), resource_version="8"), None, now=50)

    assert pending_moves.open["b"].since == 10


def taking_turns() -> PendingMoves:
    """Two moves that wait for their turn since 10: b and late."""
    pending_moves = PendingMoves()
    pending_moves.take_turns()
    pending_moves.update(moving_bundle(), None, now=10)
    pending_moves.update(moving_bundle("late"), None, now=10)
    return pending_moves


def test_where_moves_take_turns_the_time_of_each_begins_with_its_turn() -> None:
    pending_moves = taking_turns()

    pending_moves.begin("b", now=50)
    pending_moves.begin("b", now=90)  # it is tried again

    assert pending_moves.overdue(now=110, timeout=60) == []
    assert [f.bundle for f in pending_moves.overdue(now=111, timeout=60)] == ["b"]
    assert reasons(pending_moves) == [Reason.TIMED_OUT]


def test_when_no_one_starts_moves_any_more_the_time_of_those_that_waited_begins() -> None:
    pending_moves = taking_turns()
    pending_moves.begin("b", now=50)

    pending_moves.end_turns(now=100)
    pending_moves.update(moving_bundle("new"), None, now=105)

    assert [f.bundle for f in pending_moves.overdue(now=111, timeout=60)] == ["b"]
    assert [f.bundle for f in pending_moves.overdue(now=161, timeout=60)] == ["b", "late"]
    assert len(pending_moves.overdue(now=166, timeout=60)) == 3


def test_another_desired_owner_waits_for_its_own_turn() -> None:
    pending_moves = PendingMoves()
    pending_moves.take_turns()
    pending_moves.update(moving_bundle(destination="y"), None, now=10)
    pending_moves.begin("b", now=11)

    pending_moves.update(moving_bundle(destination="z", generation=5), None, now=20)

    assert pending_moves.overdue(now=1000, timeout=60) == []


def test_starting_moves_again_gives_each_move_another_turn() -> None:
    pending_moves = taking_turns()
    pending_moves.end_turns(now=100)

    pending_moves.take_turns()
    pending_moves.begin("late", now=130)

    assert [f.bundle for f in pending_moves.overdue(now=191, timeout=60)] == ["late"]


def test_a_move_whose_turn_is_yet_to_come_is_not_late_before_moves_start() -> None:
    pending_moves = PendingMoves()
    pending_moves.update(moving_bundle(), None, now=10)

    assert pending_moves.overdue(now=1000, timeout=60, turns=True) == []
    assert [f.bundle for f in pending_moves.overdue(now=1000, timeout=60)] == ["b"]
