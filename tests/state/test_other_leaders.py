"""The words by which leaders with different Leases know each other, and their ranks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from trimtab_operator.kube.leader_election import LAST_EPOCH
from trimtab_operator.kube.records import bundle_record
from trimtab_operator.state.other_leaders import Term, active, attended, overtaken, term_of

OURS = Term("us", 5, "ops/trimtab")
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)
TERMS = st.builds(
    Term,
    st.text(min_size=1, max_size=20).filter(str.isprintable),
    st.integers(0, LAST_EPOCH),
    st.builds("{}/{}".format, NAMES, NAMES),
)


def policy(message: str, status: str = "True", time: str = "2026-01-31T12:00:00Z") -> dict[str, Any]:
    led = {"type": "Led", "status": status, "reason": "x", "message": message}
    return {"spec": {"interval": "60s"}, "status": {"conditions": [led], "lastCycle": {"time": time}}}


def bundle(epoch: int) -> Any:
    spec = {
        "topicNamespace": "t",
        "range": {"lower": "0x00000000", "upper": "0x80000000"},
        "assignment": {"owner": "a", "epoch": epoch, "reason": "x", "time": "2026-01-31T12:00:00Z"},
    }
    return bundle_record({"metadata": {"name": "b", "resourceVersion": "1", "uid": "1", "generation": 1}, "spec": spec})


@given(TERMS, st.sampled_from(["", "; and a note"]))
def test_a_leader_reads_of_another_what_that_one_wrote(term: Term, note: str) -> None:
    assert term_of(policy(f"{term}{note}"), "another/lease") == term
    assert term_of(policy(f"{term}{note}"), term.lease) is None
    assert term_of(policy(f"{term}{note}", "False"), "another/lease") is None
    assert term_of(policy(f"{term}{note}"), "") is None  # without an election there is no one to compete with


@pytest.mark.parametrize(
    "message", ["", "x leads, epoch 7", "x leads, epoch 99999999999, with the Lease a/b", "no one leads"]
)
def test_what_no_leader_with_a_lease_wrote_names_none(message: str) -> None:
    assert term_of(policy(message), OURS.lease) is None


@given(TERMS, TERMS)
def test_of_two_leaders_with_different_leases_exactly_one_counts(one: Term, other: Term) -> None:
    assert (one.lease == other.lease and one.epoch == other.epoch) or one.outranks(other) != other.outranks(one)


def test_a_leader_is_deposed_by_a_higher_epoch_and_by_nothing_else() -> None:
    assert overtaken([bundle(5)], [Term("b", 4, "z/z"), Term("b", 5, "a/a")], OURS) == ""
    assert overtaken([bundle(4), bundle(6)], [], OURS).startswith("Bundle b carries epoch 6, and ours is 5")
    assert overtaken([], [Term("b", 6, "a/a")], OURS) == "b leads, epoch 6, with the Lease a/a, and our epoch is 5"
    assert overtaken([], [Term("b", 5, "z/z")], OURS)


def test_an_epoch_that_none_can_exceed_deposes_no_leader() -> None:
    assert overtaken([bundle(LAST_EPOCH)], [], OURS) == ""


def test_a_leader_whose_cycles_ended_long_ago_is_not_active() -> None:
    at, theirs = 1769860800.0, policy("b leads, epoch 6, with the Lease a/a")  # 2026-01-31T12:00:00Z

    assert active([policy("x"), theirs], OURS.lease, at + 179) == Term("b", 6, "a/a")
    assert active([theirs], OURS.lease, at + 181) is None
    assert not attended(policy("b", time=""), at)
