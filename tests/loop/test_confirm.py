"""Repairs keep desired owners and owners equal. They move no bundle with a living owner and no pending move."""

from __future__ import annotations

import pytest

from records import bundle, moving_bundle
from trimtab_operator.confirm import BundleRepairs, repairs_of
from trimtab_operator.kube.records import BundleRecord
from trimtab_strategies.model import Reason

NO_BROKER: frozenset[str] = frozenset()


def summary(work: BundleRepairs) -> tuple[list[tuple[str, Reason]], list[str], list[Reason]]:
    return (
        [(w.owner, w.reason) for w in work.desired_owners],
        [b.status_owner for b in work.frees],
        [r for _, r in work.unassigned],
    )


#        found: lost, overdue; desired owners, frees, unassigned
CASES = {
    "an owned bundle is left alone": (bundle(), "", "", [], [], []),
    "a pending move is left alone": (moving_bundle(), "", "", [], [], []),
    "a released bundle waits for its destination": (moving_bundle(source=""), "", "", [], [], []),
    "an owner that changed becomes the desired owner": (
        bundle(owner="x", serving="y"), "", "", [("y", Reason.ADOPTED)], [], [],
    ),
    "the first owner of a bundle is where it was found": (
        bundle(owner="", serving="y"), "", "", [("y", Reason.FOUND)], [], [],
    ),
    "the first owner of a child is where it was found": (
        bundle(owner="", serving="y", reason="Splitting"), "", "", [("y", Reason.FOUND)], [], [],
    ),
    "an owner after a move that was given up is adopted": (
        bundle(owner="", serving="y", reason="TimedOut"), "", "", [("y", Reason.ADOPTED)], [], [],
    ),
    "a pinned bundle is driven back": (
        bundle(owner="x", serving="y", pinned=True), "", "", [("x", Reason.RESTORED)], [], [],
    ),
    "a pinned bundle follows when its broker is lost": (
        bundle(owner="x", serving="y", pinned=True), "x", "", [("y", Reason.ADOPTED)], [], [],
    ),
    "a bundle without owner is unassigned": (bundle(owner=""), "", "", [], [], [Reason.UNOWNED]),
    "a lost owner is freed and its bundle unassigned": (bundle(owner="x"), "x", "", [], ["x"], [Reason.BROKER_LOST]),
    "a lost source is freed, the destination takes it": (moving_bundle(source="x"), "x", "", [], ["x"], []),
    "a move to a lost broker is withdrawn": (moving_bundle(), "y", "", [("x", Reason.BROKER_LOST)], [], []),
    "released, and the destination lost: placed": (moving_bundle(source=""), "y", "", [], [], [Reason.BROKER_LOST]),
    "an overdue move of a served bundle is withdrawn": (moving_bundle(), "", "b", [("x", Reason.TIMED_OUT)], [], []),
    "released, and the move overdue: placed": (moving_bundle(source=""), "", "b", [], [], [Reason.TIMED_OUT]),
    "both ends lost: freed and unassigned": (moving_bundle(), "x y", "", [], ["x"], [Reason.BROKER_LOST]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "lost", "overdue", "desired_owners", "frees", "unassigned"), CASES.values(), ids=CASES
)
def test_repairs(
    found: BundleRecord,
    lost: str,
    overdue: str,
    desired_owners: list[tuple[str, Reason]],
    frees: list[str],
    unassigned: list[Reason],
) -> None:
    work = repairs_of([found], frozenset(lost.split()), frozenset(overdue.split()))

    assert summary(work) == (desired_owners, frees, unassigned)


OVERRULED = {"assigned_owner": "x", "reason": "Overloaded"}


@pytest.mark.parametrize("linked", [False, True])
def test_a_desired_owner_that_a_person_wrote_over_an_older_one_is_noted(
    linked: bool,  # noqa: FBT001
) -> None:
    landed, pending = bundle(owner="y", **OVERRULED), moving_bundle("c", **OVERRULED)
    removed = moving_bundle("d", assigned_owner="")  # as `trimtab move` does
    work = repairs_of([landed, pending, removed], NO_BROKER, NO_BROKER, linked=linked)

    assert landed.needs_repair
    assert [(note.name, note.owner) for note in work.notes] == [("b", "y"), ("c", "y"), ("d", "y")]
    assert (work.desired_owners, work.unassigned) == ([], [])


@pytest.mark.parametrize("linked", [False, True])
def test_a_desired_owner_that_is_withdrawn_is_not_noted(linked: bool) -> None:  # noqa: FBT001
    late = moving_bundle(**OVERRULED)
    work = repairs_of([late], NO_BROKER, frozenset({late.name}), linked=linked)

    assert (summary(work)[0], work.notes) == ([("x", Reason.TIMED_OUT)], [])


@pytest.mark.parametrize(
    "found",
    [
        bundle(owner="y", assigned_owner=""),
        moving_bundle(source="", assigned_owner=""),
        bundle(owner="y", assigned_owner="y", reason="Admin"),
        bundle(owner="y", **OVERRULED, split="s"),
        bundle(owner="y", **OVERRULED, parent="p"),
    ],
    ids=["no desired owner before", "one that is created with it", "noted", "being split", "a child of a split"],
)
def test_nothing_is_noted_twice_nor_while_a_bundle_is_split(found: BundleRecord) -> None:
    assert repairs_of([found], NO_BROKER, NO_BROKER).empty


@pytest.mark.parametrize("found", [case[0] for case in CASES.values() if not case[1]], ids=str)
def test_only_bundles_that_need_repair_get_one(found: BundleRecord) -> None:
    if not found.needs_repair:
        assert repairs_of([found], NO_BROKER, NO_BROKER).empty


UNKNOWN = {
    "a move to a name that no broker has is withdrawn": (moving_bundle(destination="typo"), "typo", ""),
    "one that is overdue before that is known for sure": (moving_bundle(destination="typo"), "", "b"),
}


@pytest.mark.parametrize("linked", [False, True], ids=["Declarative", "Pulsar"])
@pytest.mark.parametrize(("found", "lost", "overdue"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_desired_owner_that_does_not_exist_leaves_the_bundle_where_it_is(
    found: BundleRecord, lost: str, overdue: str, *, linked: bool
) -> None:
    work = repairs_of([found], frozenset(lost.split()), frozenset(overdue.split()), known={"x", "y"}, linked=linked)

    assert summary(work) == ([("x", Reason.UNKNOWN_BROKER)], [], [])


def test_a_bundle_without_owner_that_is_desired_for_an_unknown_broker_is_placed() -> None:
    work = repairs_of([moving_bundle(source="", destination="typo")], {"typo"}, (), known={"x", "y"})

    assert summary(work) == ([], [], [Reason.UNKNOWN_BROKER])


def test_a_broker_that_exists_and_is_lost_is_lost() -> None:
    assert summary(repairs_of([moving_bundle()], {"y"}, (), known={"x", "y"})) == ([("x", Reason.BROKER_LOST)], [], [])


def test_a_lost_owner_without_a_broker_object_is_lost() -> None:
    assert summary(repairs_of([bundle(owner="x")], {"x"}, (), known={"y"})) == ([], ["x"], [Reason.BROKER_LOST])
