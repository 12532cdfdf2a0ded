"""What a change of a bundle's owner was: a move, a person's move, an external change, or a move reverted."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from records import bundle, moving_bundle
from trimtab_operator.state.competing_balancer import owner_written
from trimtab_operator.state.ownership_changes import ChangeKind, OwnershipChanges

HOUR = 3600.0


def seen(*records: Any, lost: str = "") -> OwnershipChanges:
    """What is known after a bundle was seen as each of `records`, a second apart."""
    ownership_changes = OwnershipChanges(lambda _, broker: broker == lost)
    for at, (old, new) in enumerate(pairwise(records)):
        ownership_changes.update(old, new, float(at))
    return ownership_changes


def kinds(ownership_changes: OwnershipChanges) -> list[ChangeKind]:
    return [change.kind for change in ownership_changes.take(lambda _: True, 10.0)]


OURS = {"assigned_owner": "y", "assigned_at": 0.0, "reason": "Overloaded"}
FLYING = moving_bundle(**OURS, resource_version="8")
LANDED = bundle(owner="y", **OURS, generation=4, observed_generation=4, resource_version="9")


def test_a_desired_owner_that_is_carried_out_is_a_move() -> None:
    released = bundle(owner="y", serving="", **OURS, generation=4, resource_version="9")

    assert kinds(seen(bundle(), FLYING, released, LANDED)) == [ChangeKind.MOVED]


def test_an_owner_that_changes_by_itself_is_external() -> None:
    assert kinds(seen(bundle(), bundle(serving="z", resource_version="8"))) == [ChangeKind.EXTERNAL]


def test_a_move_of_ours_that_goes_back_by_itself_is_reverted() -> None:
    back = bundle(owner="y", serving="x", **OURS, generation=4, observed_generation=4, resource_version="10")

    assert kinds(seen(bundle(), FLYING, LANDED, back)) == [ChangeKind.MOVED, ChangeKind.REVERTED]


def test_another_client_that_writes_over_a_fresh_desired_owner_of_ours_is_distinguished_from_our_own_withdrawal() -> (
    None
):
    theirs = bundle(owner="x", **OURS, generation=5, observed_generation=4, resource_version="9")
    withdrawn = bundle(owner="x", assigned_owner="x", assigned_at=1.0, reason="TimedOut", generation=5)

    assert kinds(seen(FLYING, theirs)) == [ChangeKind.OVERRULED]
    assert kinds(seen(FLYING, withdrawn)) == []


def overruled(ownership_changes: OwnershipChanges, *names: str, at: float) -> list[ChangeKind]:
    """The kinds of change when a person overwrites new desired owners of these bundles, ten seconds apart."""
    for number, name in enumerate(names):
        ours = moving_bundle(name, **{**OURS, "assigned_at": at})
        ownership_changes.update(
            ours, moving_bundle(name, destination="z", **{**OURS, "assigned_at": at}), at + 10 * number
        )
    return [change.kind for change in ownership_changes.take(lambda _: True, at)]


def test_one_batch_of_desired_owners_is_no_contest_and_the_same_bundle_again_is() -> None:
    ownership_changes = OwnershipChanges(lambda *_: False)

    assert overruled(ownership_changes, "b1", "b2", "b3", "b4", "b5", "b6", at=0) == [ChangeKind.OVERRULED] * 6
    assert overruled(ownership_changes, "b3", "b1", at=60) == [ChangeKind.OVERWRITTEN] * 2
    assert overruled(ownership_changes, "b1", at=20 * HOUR) == [ChangeKind.OVERWRITTEN]
    assert overruled(ownership_changes, "b1", at=45 * HOUR) == [ChangeKind.OVERRULED], "once a day is not a competition"


def test_each_further_batch_within_the_hour_counts_once() -> None:
    """Who writes over other bundles each time is found, too: a tool that holds owners, not a person in one go."""
    ownership_changes = OwnershipChanges(lambda *_: False)
    told = [overruled(ownership_changes, f"b{at}", f"c{at}", f"d{at}", at=at) for at in (0, 60, 600, 660, 1200)]

    assert [found.count(ChangeKind.OVERWRITTEN) for found in told] == [0, 0, 1, 0, 1]
    assert overruled(ownership_changes, "e", "f", at=5000) == [ChangeKind.OVERRULED] * 2


def test_a_bundle_that_a_lost_broker_leaves_behind_is_no_contest() -> None:
    assert kinds(seen(bundle(), bundle(serving="z", resource_version="8"), lost="x")) == []


@pytest.mark.parametrize("reason", ["BrokerLost", "TimedOut", "Unowned", "Restored", "Drained", "RollingOut"])
def test_what_upkeep_or_a_drain_moves_does_not_count_as_a_change_of_owner(reason: str) -> None:
    housed = bundle(owner="z", assigned_owner="z", reason=reason, generation=4, resource_version="9")
    ownership_changes = seen(bundle(), housed)

    assert kinds(ownership_changes) == []


def test_a_child_that_a_policy_placed_and_that_goes_back_is_reverted() -> None:
    ours = {**OURS, "reason": "MsgRate"}
    landed = bundle(owner="y", **ours, generation=4, observed_generation=4, resource_version="9")
    back = bundle(owner="y", serving="x", **ours, generation=4, observed_generation=4, resource_version="10")

    assert kinds(seen(bundle(), moving_bundle(**ours, resource_version="8"), landed, back)) == [
        ChangeKind.MOVED,
        ChangeKind.REVERTED,
    ]


def test_a_person_may_move_a_bundle_back_and_forth() -> None:
    there = bundle(owner="y", assigned_owner="x", generation=4, resource_version="8")
    back = bundle(owner="x", assigned_owner="", generation=5, resource_version="9")
    ownership_changes = seen(bundle(), there, back)

    assert kinds(ownership_changes) == [ChangeKind.DESIRED, ChangeKind.DESIRED]
    assert [change.taken for change in ownership_changes.manual_moves(lambda _: True, -1.0)] == ["y", "x"]


def test_a_move_of_a_person_is_theirs_also_once_it_is_noted() -> None:
    noted = bundle(owner="y", assigned_owner="y", reason="Admin", generation=5, resource_version="9")

    assert kinds(seen(bundle(), noted)) == [ChangeKind.DESIRED]


def test_a_person_s_moves_of_yesterday_are_forgotten() -> None:
    ownership_changes = seen(bundle(), bundle(owner="y", assigned_owner="x", generation=4, resource_version="8"))
    ownership_changes.take(lambda _: True, 100.0)
    assert ownership_changes.manual_moves(lambda _: True, -1.0)

    ownership_changes.take(lambda _: True, 25 * HOUR)
    assert not ownership_changes.manual_moves(lambda _: True, -1.0)


def test_the_writer_of_the_owner_is_read_from_the_managed_fields() -> None:
    fields = [
        {"manager": "trimtab", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:owner": {}}}},
        {"manager": "argocd", "time": "2026-01-01T00:00:05Z", "fieldsV1": {"f:spec": {"f:owner": {}}}},
        {"manager": "kubectl", "time": "2026-01-01T00:00:09Z", "fieldsV1": {"f:spec": {"f:pinned": {}}}},
    ]

    assert owner_written({"metadata": {"managedFields": fields}})[0] == "argocd"
    assert owner_written({"metadata": {}})[0] == ""
