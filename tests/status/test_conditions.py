"""What a person reads of a cycle: outcome, conditions, proposal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trimtab_operator.actuators import Written
from trimtab_operator.control.report import CycleResult, conditions, cpu_range, policy_status, transitions
from trimtab_strategies.model import DataQuality, Doubt, HeldBack, Move, Plan, Reason
from trimtab_strategies.testing import cluster

MOVE = Move("t/n/0x0_0x1", "a", "b", Reason.OVERLOADED)


def plan(*moves: Move, held: tuple[HeldBack, ...] = (), cpu: tuple[float, float] = (80.0, 20.0)) -> Plan:
    before = np.zeros((2, 5))
    before[:, 0] = cpu
    return Plan(moves, held, ("a", "b"), before, np.full((2, 5), 50.0))


def result(**changes: Any) -> CycleResult:
    return CycleResult(**{"started": 0.0, "seconds": {"spark": 0.5}, "generation": 3, **changes})


def by_type(found: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in found}


def test_only_written_moves_count_as_moved() -> None:
    written = [Written("x", None), Written("y", Reason.CONFLICT, "409")]

    done = result(plan=plan(MOVE, MOVE), written=written)

    assert len(done.moved) == 1
    assert done.held_back == {"Conflict": 1}


def test_a_dry_run_proposes_and_moves_nothing() -> None:
    done = result(plan=plan(MOVE), written=[Written("x", Reason.DRY_RUN)], names={MOVE.bundle: "t-n-x"})

    status = policy_status(done, {}, in_flight=0)

    assert status["proposal"]["total"] == 1
    assert status["proposal"]["moves"][0]["bundle"] == "t-n-x"
    assert status["lastCycle"]["moved"] == 0
    assert status["proposal"]["cpuBefore"] == {"lowest": 20.0, "highest": 80.0}


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ((HeldBack("", Reason.BALANCED),), ("True", "Balanced")),
        ((HeldBack("a", Reason.SOLE_BUNDLE, "split it"),), ("False", "SoleBundle")),
        ((), ("True", "Balanced")),
        ((HeldBack("", Reason.COOL_DOWN, "3 bundles"), HeldBack("", Reason.BALANCED)), ("True", "Balanced")),
    ],
    ids=["nothing to do", "something in the way", "nothing said", "nothing to do, some cool down"],
)
def test_balanced_says_whether_something_is_in_the_way(held: tuple[HeldBack, ...], expected: tuple[str, str]) -> None:
    assert by_type(conditions(result(plan=plan(held=held)), []))["Balanced"] == expected


def test_a_refusal_for_want_of_data_is_no_verdict_on_the_cluster() -> None:
    refused = result(refusal=HeldBack("", Reason.SOURCE_UNAVAILABLE, "http://p:9090: connection refused"))

    found = by_type(conditions(refused, []))

    assert found["DataTrusted"] == ("False", "SourceUnavailable")
    assert found["Balanced"] == ("Unknown", "SourceUnavailable")
    assert found["Ready"] == ("False", "SourceUnavailable")
    assert found["Valid"][0] == "True"


def data_message(of: CycleResult) -> str:
    return next(c["message"] for c in conditions(of, []) if c["type"] == "DataTrusted")


def test_the_data_s_condition_says_what_is_wrong_with_whose_data() -> None:
    doubts = {
        "b": Doubt(Reason.OUT_DATED_DATA, "newest sample 130 s old"),
        "c": Doubt(Reason.NO_LOAD_DATA, "never measured"),
    }
    load = replace(cluster(a=0.5, b=0.5, c=0.5, untrusted=["b", "c"]), quality=DataQuality(doubts=doubts))
    told = "b (newest sample 130 s old), c (never measured)"

    assert (
        data_message(result(plan=plan(), load=load))
        == f"{told}: neither shed nor receive until their metrics can be believed"
    )

    refusal = HeldBack("", Reason.OUT_DATED_DATA, "1 of 3 ready brokers have trusted data")
    assert data_message(result(load=load, refusal=refusal)) == f"{refusal.detail}: {told}"


def test_a_status_keeps_nothing_of_the_cycle_before() -> None:
    before = {"lastCycle": {"heldBack": {"NoBrokers": 2}, "phases": {"spark": 1.0}}}

    cycle = policy_status(result(plan=plan(), seconds={"decide": 0.1}), before, in_flight=0)["lastCycle"]

    assert cycle["heldBack"] == {"NoBrokers": None}
    assert cycle["phases"] == {"spark": None, "decide": 0.1}


def test_conditions_of_others_are_kept() -> None:
    other = {"type": "Audited", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": "x"}

    assert conditions(result(plan=plan()), [other])[0] == other


def told(previous: CycleResult | None, now: CycleResult) -> list[tuple[str, str]]:
    before = conditions(previous, []) if previous else []
    return [(c["type"], c["reason"]) for c in transitions(before, conditions(now, before))]


REFUSED = result(refusal=HeldBack("", Reason.SOURCE_UNAVAILABLE, "connection refused"))
PAUSED = result(refusal=HeldBack("", Reason.PAUSED))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, result(plan=plan()), []),
        (result(plan=plan()), result(plan=plan()), []),
        (None, REFUSED, [("DataTrusted", "SourceUnavailable")]),
        (REFUSED, REFUSED, []),
        (result(plan=plan()), PAUSED, [("Ready", "Paused")]),
    ],
    ids=["fine from the start", "still fine", "wrong from the start", "still wrong", "only Ready changed"],
)
def test_an_event_is_due_when_something_went_wrong_or_came_right(
    before: CycleResult | None, now: CycleResult, expected: list[tuple[str, str]]
) -> None:
    assert told(before, now) == expected


def test_unmeasured_brokers_have_no_part_in_the_range() -> None:
    assert cpu_range(plan(cpu=(float("nan"), 20.0))) == (20.0, 20.0)
    assert cpu_range(plan(cpu=(float("nan"), float("nan")))) is None
