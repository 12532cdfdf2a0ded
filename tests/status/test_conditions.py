"""What a person reads of a cycle: outcome, conditions, proposal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recorded_decisions import cycle_result, settings
from strategy_testing.clusters import cluster
from trim_decisions import TrimDecisions, skewed
from trimtab_operator.actuators import WriteResult
from trimtab_operator.proposals.model import Proposal
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.status.conditions import (
    conditions,
    cpu_range,
    event_type,
    policy_status,
    transitions,
    without_old_answer,
)
from trimtab_strategies.model import (
    DIRECT_MEMORY,
    ClusterLoad,
    DataQuality,
    Doubt,
    HeldBack,
    Memory,
    Move,
    Plan,
    Reason,
)
from trimtab_strategies.planner.decide import decide

MOVE = Move("t/n/0x0_0x1", "a", "b", Reason.OVERLOADED)


def plan(*moves: Move, held: tuple[HeldBack, ...] = (), cpu: tuple[float, float] = (80.0, 20.0)) -> Plan:
    before = np.zeros((2, 5))
    before[:, 0] = cpu
    return Plan(moves, held, ("a", "b"), before, np.full((2, 5), 50.0))


def result(**changes: Any) -> CycleResult:
    if (found := changes.get("plan")) is not None:
        load, names = changes.get("load"), changes.get("names", {})
        changes["proposal"] = Proposal.of(found, load, names=names, generation=3, made_at=0.0).shown()
    return CycleResult(**{"started": 0.0, "seconds": {"compute": 0.5}, "generation": 3, **changes})


def by_type(found: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in found}


def test_only_written_moves_count_as_moved() -> None:
    written = [WriteResult("x", None), WriteResult("y", Reason.CONFLICT, "409")]

    done = result(plan=plan(MOVE, MOVE), written=written)

    assert len(done.moved) == 1
    assert done.held_back == {"Conflict": 1}


def test_a_dry_run_proposes_and_moves_nothing() -> None:
    done = result(plan=plan(MOVE), written=[WriteResult("x", Reason.DRY_RUN)], names={MOVE.bundle: "t-n-x"})

    status = policy_status(done, {}, in_flight=0)

    assert status["proposal"]["total"] == 1
    assert status["proposal"]["moves"][0]["bundle"] == "t-n-x"
    assert status["lastCycle"]["moved"] == 0
    assert status["proposal"]["cpuBefore"] == {"lowest": 20.0, "highest": 80.0}
    assert status["lastCycle"]["cpu"] == {"lowest": 20.0, "highest": 80.0}


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ((HeldBack("", Reason.BALANCED),), ("True", "Balanced")),
        ((HeldBack("a", Reason.SOLE_BUNDLE, "split it"),), ("False", "SoleBundle")),
        ((), ("True", "Balanced")),
        ((HeldBack("", Reason.COOL_DOWN, "3 bundles"), HeldBack("", Reason.BALANCED)), ("True", "Balanced")),
        ((HeldBack("", Reason.AVERAGING, "a: 20 points"), HeldBack("", Reason.BALANCED)), ("False", "Averaging")),
        ((HeldBack("a", Reason.HIT_COUNT, "3 of 8"), HeldBack("", Reason.BALANCED)), ("False", "HitCount")),
        ((HeldBack("", Reason.BALANCED), HeldBack("", Reason.HIT_COUNT, "1 bundle")), ("True", "Balanced")),
    ],
    ids=[
        "nothing to do",
        "something in the way",
        "nothing said",
        "nothing to do, some cool down",
        "apart but not on average, no bundle is too large",
        "apart but not for long, no bundle is too large",
        "nothing to do, a bundle is too large but not for long",
    ],
)
def test_balanced_says_whether_something_is_in_the_way(held: tuple[HeldBack, ...], expected: tuple[str, str]) -> None:
    assert by_type(conditions(result(plan=plan(held=held)), []))["Balanced"] == expected


@pytest.mark.parametrize(
    ("kind", "status", "reason", "expected"),
    [
        ("Balanced", "True", "Balanced", "Normal"),
        ("Balanced", "False", "Averaging", "Normal"),
        ("Balanced", "False", "Overloaded", "Normal"),
        ("Balanced", "False", "SoleBundle", "Warning"),
        ("Ready", "False", "Paused", "Warning"),
        ("DataTrusted", "False", "Untrusted", "Warning"),
    ],
)
def test_an_event_warns_only_where_a_person_may_have_to_act(kind: str, status: str, reason: str, expected: str) -> None:
    assert event_type({"type": kind, "status": status, "reason": reason}) == expected


def test_a_splitter_that_finds_nothing_to_split_does_not_make_a_cluster_balanced() -> None:
    cases = TrimDecisions(skewed(25, low=10)), TrimDecisions(skewed(51.5), {"worth": 4000, "hot": 5})
    for policy in cases:
        policy.minutes(9)

        assert policy.result is not None
        assert policy.result.plan is not None
        assert Reason.BALANCED in {held.reason for held in policy.result.plan.held_back}, "the splitter's"
        assert by_type(conditions(policy.result, []))["Balanced"] == ("False", "BelowMinimum")


def test_bundles_that_no_broker_can_take_do_not_make_a_cluster_balanced() -> None:
    load = cluster(bundles=2, a=0.9, b=0.2, unschedulable=["b"])
    splitter = {"type": "WeightedSplitter"}
    policy = settings(split=splitter)
    found = decide(load, policy.pair, policy.limits, Memory(), np.random.default_rng(1))

    assert by_type(conditions(cycle_result(load, found), []))["Balanced"] == ("False", "SameBroker")


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
    level = Plan((), (), load.brokers.names, np.full((3, 5), 50.0), np.full((3, 5), 50.0))
    told = "c (never measured), b (newest sample 130 s old)"  # who can't be measured comes first

    assert (
        data_message(result(plan=level, load=load))
        == f"{told}: neither shed nor receive until their metrics are trusted again"
    )

    refusal = HeldBack("", Reason.OUT_DATED_DATA, "1 of 3 ready brokers have trusted data")
    assert data_message(result(load=load, refusal=refusal)) == f"{refusal.detail}: {told}"


def test_a_broker_that_never_started_needs_no_data_until_it_serves_something() -> None:
    doubts = {"c": Doubt(Reason.NO_LOAD_DATA, "never measured")}

    def told(bundles: int) -> tuple[tuple[str, str], str]:
        load = cluster(
            bundles={"a": [1], "b": [1], "c": [1] * bundles}, a=0.5, b=0.5, c=0.5, untrusted=["c"], lost=["c"]
        )
        load = replace(load, quality=DataQuality(doubts=doubts))
        figures = np.where(np.arange(3)[:, np.newaxis] == 2, np.nan, np.full((3, 5), 50.0))
        found = result(plan=Plan((), (), load.brokers.names, figures, figures), load=load)
        balanced = next(c["message"] for c in conditions(found, []) if c["type"] == "Balanced")
        assert ("CPU of c is unknown" in balanced) == bool(bundles)
        return by_type(conditions(found, []))["DataTrusted"], data_message(found)

    assert told(0) == (("True", "Trusted"), "2 brokers measured")
    assert told(1)[0] == ("False", "Untrusted")
    assert told(1)[1].startswith("c (never measured): ")


def test_a_status_keeps_nothing_of_the_cycle_before() -> None:
    before = {"lastCycle": {"heldBack": {"NoBrokers": 2}, "phases": {"compute": 1.0}}}

    cycle = policy_status(result(plan=plan(), seconds={"decide": 0.1}), before, in_flight=0)["lastCycle"]

    assert cycle["heldBack"] == {"NoBrokers": None}
    assert cycle["phases"] == {"compute": None, "decide": 0.1}


def test_conditions_of_others_are_kept() -> None:
    other = {"type": "Audited", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": "x"}

    assert conditions(result(plan=plan()), [other])[0] == other


@pytest.mark.parametrize("old", ["OneHand", "Contested"])
def test_a_condition_that_an_older_version_left_goes(old: str) -> None:
    left = {"type": old, "status": "True", "reason": old, "message": "", "lastTransitionTime": "x"}
    found = conditions(result(plan=plan()), [left])

    assert without_old_answer(found, 0.0) == found[1:]


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


def test_a_broker_that_was_never_measured_does_not_count_as_idle() -> None:
    load = unmeasured(cluster(bundles=2, a=0.52, b=0.5, c=0.0), "c")
    found = decide(load, settings().pair, settings().limits, Memory(), np.random.default_rng(1)).plan

    status = policy_status(result(plan=found, load=load, namespace="messaging"), {}, in_flight=0)

    message = next(c["message"] for c in status["conditions"] if c["type"] == "Balanced")
    assert message.startswith("CPU between 50 % and 52 %; CPU of c is unknown")
    assert status["proposal"]["cpuBefore"] == {"lowest": 50.0, "highest": 52.0}
    assert "directMemory" not in {found["resource"] for found in status["proposal"]["ranges"]}


def test_what_is_no_longer_known_of_a_broker_is_not_reported_as_its_cpu() -> None:
    load = cluster(bundles=2, a=0.8, b=0.2, untrusted=["b"])
    status = policy_status(result(plan=plan(), load=load), {}, in_flight=0)

    assert status["proposal"]["cpuBefore"] == status["lastCycle"]["cpu"] == {"lowest": 80.0, "highest": 80.0}
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Balanced")
    assert message.startswith("CPU between 80 % and 80 %; CPU of b is unknown")


def balanced_of(load: ClusterLoad) -> tuple[str, str]:
    """Reason and message of the condition `Balanced` after a decision on `load`."""
    found = decide(load, settings().pair, settings().limits, Memory(), np.random.default_rng(1)).plan
    status = policy_status(result(plan=found, load=load, namespace="messaging"), {}, in_flight=0)
    return next((c["reason"], c["message"]) for c in status["conditions"] if c["type"] == "Balanced")


def test_the_range_has_only_brokers_that_are_compared_and_the_others_are_named() -> None:
    _, message = balanced_of(cluster(bundles=2, a=0.1, b=0.08, c=0.45, unschedulable=["c"]))

    assert message.startswith("CPU between 8 % and 10 %; not compared: c")


def test_the_condition_names_the_cool_downs_that_bar_all_bundles_and_their_end() -> None:
    load = cluster(bundles=4, a=0.9, b=0.2, c=0.2)
    moved = np.full(len(load.bundles), load.now - 60)

    reason, message = balanced_of(replace(load, bundles=replace(load.bundles, last_unload=moved)))

    assert reason == "CoolDown"
    assert "nothing moves: a: 4 of its 4 bundles can't move now: 4 moved lately, until " in message


def unmeasured(load: ClusterLoad, broker: str) -> ClusterLoad:
    """`load`, nothing of which says what `broker` uses, or what it could use."""
    usage, limit, row = load.brokers.usage.copy(), load.brokers.limit.copy(), load.brokers.index[broker]
    usage[row], limit[row], limit[:, DIRECT_MEMORY] = np.nan, np.nan, np.nan
    return replace(load, brokers=replace(load.brokers, usage=usage, limit=limit))


def test_the_condition_of_a_cluster_too_small_for_the_minimum_names_it_and_what_would_act() -> None:
    of = settings(
        shedder={"type": "ThresholdShedder", "thresholdShedder": {"historyPercent": 0, "minThroughput": "100000Mi"}}
    )
    load = cluster(bundles=4, a=0.9, b=0.2, c=0.2)
    found = decide(load, of.pair, of.limits, Memory(), np.random.default_rng(1)).plan

    status = policy_status(result(plan=found, load=load, namespace="messaging"), {}, in_flight=0)

    balanced = next(c for c in status["conditions"] if c["type"] == "Balanced")
    assert (balanced["status"], balanced["reason"]) == ("False", "BelowMinimum")
    assert (
        "nothing moves: a: thresholdShedder.minThroughput is 100000Mi bytes/s; this broker has" in balanced["message"]
    )
    assert "Mi bytes/s or less would act" in balanced["message"]


def test_a_history_that_cant_be_written_is_a_condition_until_it_is_written_again() -> None:
    full = conditions(result(plan=plan(), unwritten="the history below /h can't be written: No space left"), [])
    (told,) = [c for c in full if c["type"] == "HistoryWritable"]
    assert (told["status"], told["reason"]) == ("False", "NotWritten")
    assert told["message"].startswith(
        "the history below /h can't be written: No space left; averages continue in memory"
    )
    assert ("HistoryWritable", "NotWritten") in [(c["type"], c["reason"]) for c in transitions([], full)]
    refused = conditions(result(refusal=HeldBack("", Reason.PAUSED, "paused")), full)
    assert by_type(refused)["HistoryWritable"] == ("False", "NotWritten")
    again = conditions(result(plan=plan(), unwritten=""), refused)
    assert by_type(again)["HistoryWritable"] == ("True", "Written")
    assert ("HistoryWritable", "Written") in [(c["type"], c["reason"]) for c in transitions(refused, again)]
    assert "HistoryWritable" not in by_type(conditions(result(plan=plan()), []))
