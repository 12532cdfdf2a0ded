"""Upkeep keeps wishes and owners honest and moves nothing that has a living owner and no open wish."""

from __future__ import annotations

import pytest

from records import bundle, wished
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.control.upkeep import Upkeep, needs_care, upkeep
from trimtab_strategies.model import Reason

NOBODY: frozenset[str] = frozenset()


def summary(work: Upkeep) -> tuple[list[tuple[str, Reason]], list[str], list[Reason]]:
    return (
        [(w.owner, w.reason) for w in work.wishes],
        [b.status_owner for b in work.frees],
        [r for _, r in work.homeless],
    )


#        what is found lost, overdue, wishes, frees, homeless
CASES = {
    "an owned bundle is left alone": (bundle(), "", "", [], [], []),
    "an open move is left alone": (wished(), "", "", [], [], []),
    "a released bundle waits for its destination": (wished(source=""), "", "", [], [], []),
    "the wish follows an owner that changed": (bundle(owner="x", serving="y"), "", "", [("y", Reason.ADOPTED)], [], []),
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
    "a bundle nobody has is homeless": (bundle(owner=""), "", "", [], [], [Reason.UNOWNED]),
    "a lost owner is freed and its bundle homeless": (bundle(owner="x"), "x", "", [], ["x"], [Reason.BROKER_LOST]),
    "a lost source is freed, the destination takes it": (wished(source="x"), "x", "", [], ["x"], []),
    "a wish for a lost broker is withdrawn": (wished(), "y", "", [("x", Reason.BROKER_LOST)], [], []),
    "a released bundle with a lost destination is homeless": (wished(source=""), "y", "", [], [], [Reason.BROKER_LOST]),
    "an overdue move is withdrawn while its source serves": (wished(), "", "b", [("x", Reason.TIMED_OUT)], [], []),
    "an overdue move whose source let go finds another": (wished(source=""), "", "b", [], [], [Reason.TIMED_OUT]),
    "both ends lost: freed and homeless": (wished(), "x y", "", [], ["x"], [Reason.BROKER_LOST]),
}  # fmt: skip


@pytest.mark.parametrize(("found", "lost", "overdue", "wishes", "frees", "homeless"), CASES.values(), ids=CASES)
def test_upkeep(
    found: BundleRecord,
    lost: str,
    overdue: str,
    wishes: list[tuple[str, Reason]],
    frees: list[str],
    homeless: list[Reason],
) -> None:
    work = upkeep([found], frozenset(lost.split()), frozenset(overdue.split()))

    assert summary(work) == (wishes, frees, homeless)


@pytest.mark.parametrize("found", [case[0] for case in CASES.values() if not case[1]], ids=str)
def test_only_bundles_that_need_care_are_ever_worked_on(found: BundleRecord) -> None:
    if not needs_care(found):
        assert upkeep([found], NOBODY, NOBODY).empty
