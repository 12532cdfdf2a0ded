"""`trimtab explain` on bundles that a person moved, or that are elsewhere than their last move left them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from explained_decisions import FACTS, LATER, LEVEL_PAIR, of_bundle, written_by
from plan_clusters import HOT_OF_FOUR
from recorded_decisions import decided
from records import bundle, moving_bundle
from strategy_testing.clusters import NOW
from trimtab_operator.cli.why.bundle import BundleExplanation
from trimtab_operator.cli.why.manual_move import manual_move
from trimtab_operator.decision_log.outcome import followed
from trimtab_operator.decision_log.record import ManualMove
from trimtab_operator.kube.records import BundleRecord


@pytest.mark.parametrize(
    ("changes", "raw", "by_a_person"),
    [
        ({"assigned_owner": "b"}, written_by("kubectl-patch", NOW), True),
        ({"assigned_owner": ""}, written_by("trimtab", NOW), True),
        ({"assigned_owner": "a", "assigned_at": NOW - 60}, written_by("kubectl-patch", NOW), True),
        ({"assigned_owner": "a", "assigned_at": NOW}, written_by("kubectl-patch", NOW - 60), False),
        ({"assigned_owner": "a", "assigned_at": NOW, "reason": "Admin"}, written_by("kubectl-patch", NOW - 60), True),
        ({"assigned_owner": "a", "assigned_at": NOW - 60}, written_by("trimtab", NOW), False),
        ({"assigned_owner": ""}, written_by("kubectl-create", NOW, made=NOW), False),
        ({"assigned_owner": ""}, {"metadata": {}}, False),
    ],
    ids=["over the operator's", "trimtab move", "back", "before", "noted", "the operator", "made so", "nothing said"],
)
def test_who_wrote_the_owner_tells_a_person_s_move_from_the_operator_s(
    changes: dict[str, Any],
    raw: dict[str, Any],
    by_a_person: bool,  # noqa: FBT001 - a column
) -> None:
    assert (manual_move(raw, bundle("x", "a", **changes), ["a", "b"], []) is not None) is by_a_person


def test_a_manual_move_without_a_decision_is_an_answer() -> None:
    now = bundle("x", "a", assigned_owner="", since=NOW)
    facts = replace(FACTS, bundle=now, manual_move=manual_move(written_by("trimtab", NOW), now, ["a"], []))
    answer = BundleExplanation("x", "a", facts, []).explain()

    assert answer is not None
    assert answer.headline.startswith(
        "x was moved by a person (trimtab move) to a at 1970-01-12 13:46:40 UTC; it is on"
    )


def test_why_not_says_that_a_person_moved_it_and_asked_for_a_broker_that_there_is_not() -> None:
    record = decided(LEVEL_PAIR)
    cooling = bundle("x", "a", assigned_owner="", since=NOW)
    missing = moving_bundle("x", "a", "zz", assigned_owner="")

    def told(now: BundleRecord) -> str:
        hand = manual_move(written_by("kubectl-edit", NOW), now, ["a", "b"], [record])
        answer = of_bundle(record, "x", "a", replace(LATER, bundle=now, manual_move=hand)).why_not()
        assert answer is not None
        return answer.headline

    assert "moved by a person (kubectl-edit) 5m ago" in told(cooling)
    assert "(from a to zz, requested by a person (kubectl-edit); there is no broker zz)" in told(missing)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (
            {"reason": "Adopted", "assigned_at": NOW + 200, "since": NOW + 190},
            "it is on d now: its owner changed outside the operator, which adopted the new owner; before that it moved",
        ),
        (
            {"reason": "TimedOut", "assigned_at": NOW + 200, "since": NOW + 100},
            "it is on d now: a request for another broker was withdrawn at 1970-01-12 13:50:00 UTC, as the destination",
        ),
    ],
    ids=["adopted", "withdrawn"],
)
def test_a_move_that_is_no_longer_where_the_bundle_is_is_told_as_the_past(now: dict[str, Any], said: str) -> None:
    record = decided(HOT_OF_FOUR, limits={"maxMovesPerCycle": 1})
    move = record.moves[0]
    landed = followed(record, {move.name: bundle(move.name, move.destination)}, NOW + 20)
    answer = of_bundle(landed, move.name, "d", replace(FACTS, bundle=bundle(move.name, "d", **now))).explain()

    assert answer is not None
    assert said in answer.headline


def test_a_recorded_manual_move_is_explained_while_the_bundle_is_still_there() -> None:
    record = decided(HOT_OF_FOUR, limits={"maxMovesPerCycle": 1})
    move = record.moves[0]
    landed = followed(record, {move.name: bundle(move.name, move.destination)}, NOW + 20)
    manual = ManualMove(name=move.name, source=move.destination, destination="a", at=NOW + 60)
    later = decided(LEVEL_PAIR, at=NOW + 120).model_copy(update={"manual_moves": (manual,)})
    withdrawn = bundle(move.name, "a", reason="TimedOut", assigned_at=NOW + 200, since=NOW + 60)
    facts = replace(FACTS, bundle=withdrawn)
    answer = BundleExplanation(move.name, "a", facts, [landed, later]).explain()

    assert answer is not None
    assert answer.headline.startswith(f"{move.name} was moved by a person, or Git, from {move.destination} to a at ")
