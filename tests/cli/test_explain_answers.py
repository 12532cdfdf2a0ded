"""What `trimtab explain` and `trimtab why-not` answer: every reason has its sentence, every object its answer."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from explained_decisions import FACTS, LATER, LEVEL_PAIR, largest, of_broker, of_bundle
from plan_clusters import HOT_OF_FOUR
from recorded_decisions import decided
from records import bundle
from strategy_testing.clusters import NOW, with_bundles
from trimtab_operator.cli.cluster import near
from trimtab_operator.cli.why.broker import BrokerExplanation
from trimtab_operator.cli.why.bundle import BundleExplanation
from trimtab_operator.cli.why.wording import SENTENCES
from trimtab_operator.decision_log.outcome import followed
from trimtab_operator.decision_log.record import Held, SplitView
from trimtab_operator.kube.move_costs import NOT_MEASURED, Interruption, MoveCosts
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason


def test_every_reason_has_its_sentence() -> None:
    assert set(SENTENCES) == set(Reason), "a new Reason needs its meaning in cli/why/wording.py"


@pytest.mark.parametrize("reason", Reason)
def test_a_sentence_is_a_clause_and_its_steps_can_be_filled_in(reason: Reason) -> None:
    found = SENTENCES[reason]
    names = dict.fromkeys(("bundle", "broker", "to", "policy", "namespace"), "x")

    assert found.why
    assert not found.why.endswith(".")
    assert all("{b" not in step and "{{" not in step for step in found.steps(**names))
    for step in found.steps(**names):
        if "-p '" in step:
            json.loads(step.split("-p '")[1].rstrip("'"))


@pytest.mark.parametrize("load", [HOT_OF_FOUR, LEVEL_PAIR], ids=["hot", "level"])
def test_no_object_of_a_drawn_cluster_is_without_an_answer(load: ClusterLoad) -> None:
    record = decided(load)
    brokers = [of_broker(record, name) for name in load.brokers.names]
    bundles = [of_bundle(record, found.name, found.broker) for found in record.stays]
    bundles += [of_bundle(record, move.name, move.destination) for move in record.moves]

    for one in (*brokers, *bundles):
        for answer in (one.explain(), one.why_not(), one.why_not("b")):
            assert answer is not None
            assert answer.headline.endswith(".")
            assert answer.headline.count("\n") == 0


def test_without_a_decision_a_pin_is_an_answer_and_nothing_else_is() -> None:
    assert BrokerExplanation("a", FACTS, []).explain() is None
    assert BundleExplanation("x", "a", replace(FACTS, bundle=bundle("x", "a")), []).why_not() is None
    pinned = BundleExplanation("x", "a", replace(FACTS, bundle=bundle("x", "a", pinned=True)), []).why_not()
    assert pinned is not None
    assert pinned.headline == "x stays on a: a person pinned it to its owner."


def test_names_spelt_alike_are_offered() -> None:
    assert near("broker-11", ["broker-1", "broker-2", "zookeeper"]) == "did you mean broker-1, broker-2?"
    assert near("x", ["broker-1"]) == "there are: broker-1"
    assert near("x", []) == "there are none"


def test_a_bundle_that_was_never_measured_says_which_metric_is_missing() -> None:
    load = with_bundles(HOT_OF_FOUR, short={0: [1.0, math.nan, 1.0, 1.0]})
    record = decided(load)
    name = largest(record, "a", Reason.NO_LOAD_DATA)
    answer = of_bundle(record, name, "a").why_not()

    assert answer is not None
    assert answer.headline == f"{name} stays on a: one of its metrics was never measured (no rateOut)."


def test_bundles_of_a_drained_broker_leave_for_that_and_not_for_their_load() -> None:
    record = decided(HOT_OF_FOUR)
    drained = [move.model_copy(update={"reason": Reason.DRAINED}) for move in record.moves]
    answer = of_broker(record.model_copy(update={"moves": tuple(drained)}), "a").explain()

    assert answer is not None
    assert answer.headline == (
        "a gives 2 bundles away, 50.0 points of its CPU: the broker is being drained, so its bundles leave it."
    )


def test_a_bundle_that_could_not_leave_a_drained_broker_says_what_was_in_the_way() -> None:
    record = decided(LEVEL_PAIR)
    stays = [stay.model_copy(update={"reason": Reason.DRAINED}) for stay in record.stays if stay.broker == "a"]
    held = Held(subject="a", reason=Reason.NO_CANDIDATE, detail="2 bundles can't leave yet", count=2)
    drained = record.model_copy(update={"stays": tuple(stays), "held_back": (*record.held_back, held)})
    answer = of_bundle(drained, stays[0].name, "a").why_not()

    assert answer is not None
    assert (answer.reason, "(2 bundles can't leave yet)" in answer.headline) == (Reason.NO_CANDIDATE, True)


def test_what_a_person_approved_later_did_move() -> None:
    record = decided(
        HOT_OF_FOUR, shown=HeldBack("", Reason.NOT_APPROVED), mode="Approve", limits={"maxMovesPerCycle": 1}
    )
    move = record.moves[0]
    waits, done = (
        of_broker(record, "a").explain(),
        followed(record, {move.name: bundle(move.name, move.destination)}, NOW + 99),
    )
    moved = of_broker(done, "a").explain()

    assert waits is not None
    assert moved is not None
    assert waits.headline.endswith("but it is proposed, and not approved yet.")
    assert moved.headline.startswith("a gives 1 bundle away")


@pytest.mark.parametrize(
    ("outcome", "headline"),
    [
        (None, "x is split into 2: it carries more messages a second than a bundle may."),
        (
            Reason.DRY_RUN,
            "x would be split into 2, as it carries more messages a second than a bundle may; but the policy only",
        ),
    ],
    ids=["asked for", "only shown"],
)
def test_a_bundle_that_is_divided_is_told_so(outcome: Reason | None, headline: str) -> None:
    split = SplitView(bundle="t/n/x", name="x", source="a", children=2, reason=Reason.MSG_RATE, outcome=outcome)
    record = decided(LEVEL_PAIR).model_copy(update={"splits": (split,)})
    answer = of_bundle(record, "x", "a").explain()

    assert answer is not None
    assert answer.headline.startswith(headline)


def test_a_history_that_can_t_be_used_is_not_blamed_on_prometheus() -> None:
    trouble = Held(reason=Reason.SOURCE_UNAVAILABLE, detail="the history can't be used: read-only")
    record = decided(LEVEL_PAIR).model_copy(update={"refusal": trouble})
    answer = of_bundle(record, "x", "a").why_not()

    assert answer is not None
    assert "Prometheus" not in answer.headline
    assert "the history can't be used: read-only" in answer.headline
    assert any("--history" in step for step in answer.otherwise)


def test_a_cluster_that_is_too_small_for_the_minimum_says_which_and_what_would_act() -> None:
    shedder = {"type": "ThresholdShedder", "thresholdShedder": {"historyPercent": 0, "minThroughput": "100000Mi"}}
    record = decided(HOT_OF_FOUR, shedder=shedder)
    said = "thresholdShedder.minThroughput is 100000Mi bytes/s; this broker has "
    answers = (
        of_broker(record, "a").explain(),
        of_broker(record, "b").why_not(),
        of_bundle(record, "public-a-0x00000000-0x33333333", "a").why_not(),
    )

    for answer in answers:
        assert answer is not None
        assert said in answer.headline
        assert "or less would act" in answer.headline
        assert answer.otherwise[0].startswith("use Trim, which has no minimum traffic: kubectl edit bpol main")


@pytest.mark.parametrize(
    ("costs", "line"),
    [
        (NOT_MEASURED, "cost of a move: not measured yet in its namespace"),
        (
            MoveCosts((Interruption(0.1, 0.2), Interruption(0.3, 0.4))),
            (
                "cost of a move in its namespace: publishers wait 0.20 s "
                "(median of 2 sampled moves, 0.30 s the longest of these); "
                "all clients reconnect within 0.30 s (median of 2 sampled moves, 0.40 s the longest of these)"
            ),
        ),
    ],
)
def test_a_bundle_is_told_with_what_a_move_of_it_costs(costs: MoveCosts, line: str) -> None:
    record = decided(LEVEL_PAIR)
    answer = of_bundle(record, record.stays[0].name, "a", replace(LATER, costs=costs)).explain()
    assert answer is not None
    assert line in answer.compared
