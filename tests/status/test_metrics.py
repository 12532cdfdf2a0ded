"""What metrics say of a policy after each cycle, and what they stop saying."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from plan_clusters import HOT_NONE_EMPTY
from policy_environment import PolicyEnvironment
from trimtab_operator.decision_log.record import DecisionRecord, MeasuredOutcome
from trimtab_operator.resources.policy_status import ProposalState
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.status.metrics import PolicyMetrics, hit_counts
from trimtab_strategies.model import DataQuality, Doubt, Memory, Plan, Reason
from trimtab_strategies.protocols import Predictions

RunPolicy = Callable[..., None]


def shown(env: PolicyEnvironment, name: str) -> dict[tuple[str, ...], float]:
    """Values of a metric by its labels, without the policy's."""
    found = dict[tuple[str, ...], float]()
    for family in env.cluster.metrics.registry.collect():
        for sample in family.samples:
            if sample.name == f"trimtab_{name}":
                labels: Mapping[str, Any] = {key: value for key, value in sample.labels.items() if key != "policy"}
                found[tuple(labels.values())] = sample.value
    return found


@pytest.mark.apiserver
def test_a_cycle_says_how_things_stand(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()

        assert shown(env, "policy_state") == {("Acting",): 1}
        assert shown(env, "balanced") == {(): 0}
        assert shown(env, "last_cycle_timestamp_seconds") == {(): env.clock}
        assert shown(env, "cycle_interval_seconds") == {(): 60}
        assert shown(env, "brokers") == {("Trusted",): 3}
        assert shown(env, "cpu_range_ratio") == {(): pytest.approx(0.6)}
        assert shown(env, "broker_usage_ratio")["a", "cpu"] == pytest.approx(0.8)
        assert set(shown(env, "broker_message_rate")) == {(name, way) for name in "abc" for way in ("in", "out")}
        assert shown(env, "moves_total")["", "TimedOut"] == 0, "so that the first one is seen to increase it"

    run_policy(HOT_NONE_EMPTY, scenario)


@pytest.mark.apiserver
def test_a_paused_policy_shows_why_and_no_load_of_the_past(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        env.edit(paused=True)
        await env.cycle()

        assert shown(env, "policy_state") == {("Paused",): 1}
        for gone in ("balanced", "cpu_range_ratio", "broker_usage_ratio", "broker_message_rate", "brokers"):
            assert shown(env, gone) == {}, gone

        env.cluster.leave("main")
        assert shown(env, "policy_state") == {}

    run_policy(HOT_NONE_EMPTY, scenario)


@pytest.mark.apiserver
def test_brokers_are_counted_by_what_their_data_is(run_policy: RunPolicy) -> None:
    doubts = {"b": Doubt(Reason.OUT_DATED_DATA, "its newest sample is 300 s old")}
    brokers = replace(HOT_NONE_EMPTY.brokers, trusted=np.array([True, False, True]), age=np.array([2.0, 300.0, np.inf]))
    load = replace(HOT_NONE_EMPTY, brokers=brokers, quality=DataQuality(doubts=doubts, dropped={"OutDated": 4}))

    async def scenario(env: PolicyEnvironment) -> None:
        PolicyMetrics(env.cluster, "main").cycle(CycleResult(env.clock, {}, 1, load=load))

        assert shown(env, "brokers") == {("Trusted",): 2, ("OutDatedData",): 1}
        assert shown(env, "sample_age_seconds") == {(): 300}
        assert shown(env, "dropped_samples_total")["OutDated",] == 4

    run_policy(HOT_NONE_EMPTY, scenario)


@pytest.mark.apiserver
def test_whether_the_history_is_written_is_shown_until_a_cycle_says_otherwise(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        meter = PolicyMetrics(env.cluster, "main")
        for unwritten, expected in ((None, {}), ("no space", {(): 0}), (None, {(): 0}), ("", {(): 1})):
            meter.cycle(CycleResult(env.clock, {}, 1, load=HOT_NONE_EMPTY, unwritten=unwritten))
            assert shown(env, "history_writable") == expected

    run_policy(HOT_NONE_EMPTY, scenario)


@pytest.mark.apiserver
def test_of_a_broker_that_is_not_trusted_no_load_is_shown(run_policy: RunPolicy) -> None:
    load = replace(HOT_NONE_EMPTY, brokers=replace(HOT_NONE_EMPTY.brokers, trusted=np.array([True, True, False])))
    usage = np.array([[80.0] * 5, [30.0] * 5, [0.0] * 5])

    async def scenario(env: PolicyEnvironment) -> None:
        plan = Plan((), (), load.brokers.names, usage, usage)
        meter = PolicyMetrics(env.cluster, "main")
        meter.cycle(CycleResult(env.clock, {}, 1, load=load, plan=plan))
        meter.usage(plan.brokers, usage, load)

        assert shown(env, "cpu_range_ratio") == {(): pytest.approx(0.5)}
        assert {name for name, _ in shown(env, "broker_usage_ratio")} == {"a", "b"}
        assert {name for name, _ in shown(env, "broker_message_rate")} == {"a", "b"}

    run_policy(HOT_NONE_EMPTY, scenario)


@pytest.mark.apiserver
def test_a_proposal_is_shown_until_none_waits(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        meter = PolicyMetrics(env.cluster, "main")
        meter.proposal(ProposalState.PROPOSAL_READY, 1000.0)
        meter.became("Offered")
        assert shown(env, "proposal_state") == {("ProposalReady",): 1}
        assert shown(env, "proposal_expires_timestamp_seconds") == {(): 1000}

        meter.proposal(ProposalState.PENDING_PROPOSAL, None)
        meter.became("Expired")
        assert shown(env, "proposal_state") == {("PendingProposal",): 1}
        assert shown(env, "proposal_expires_timestamp_seconds") == {}
        assert shown(env, "proposals_total")["Expired",] == shown(env, "proposals_total")["Offered",] == 1

    run_policy(HOT_NONE_EMPTY, scenario)


@pytest.mark.apiserver
def test_how_good_predictions_are_is_shown_while_the_shedder_makes_them(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        meter, plan = (
            PolicyMetrics(env.cluster, "main"),
            Plan((), (), HOT_NONE_EMPTY.brokers.names, *[np.zeros((3, 5))] * 2),
        )
        unknown = Predictions(judged=0, right=np.nan, off=np.nan, within=3, step=1)
        wrong = Predictions(judged=12, right=0.5, off=3.5, within=3, step=0.5)
        for found, right, off, step in (
            (unknown, {}, {}, {(): 1}),
            (wrong, {(): 0.5}, {(): 0.035}, {(): 0.5}),
            (None, {}, {}, {}),
        ):
            meter.cycle(CycleResult(env.clock, {}, 1, load=HOT_NONE_EMPTY, plan=plan, predictions=found))
            assert shown(env, "predictions_right_ratio") == right
            assert shown(env, "predictions_off_ratio") == off
            assert shown(env, "plan_step_ratio") == step

    run_policy(HOT_NONE_EMPTY, scenario)


@pytest.mark.apiserver
def test_a_policy_with_trim_shows_its_predictions_and_another_shedder_none(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        assert "predictions" not in env.policy()["status"]

        env.edit(shedder={"type": "Trim", "thresholdShedder": None})
        await env.cycle()
        assert env.policy()["status"]["predictions"] == {"judged": 0, "within": 3.0, "step": 100.0}
        assert shown(env, "plan_step_ratio") == {(): 1}

        env.edit(shedder={"type": "OverloadShedder", "trim": None})
        await env.cycle()
        assert "predictions" not in env.policy()["status"]

    run_policy(HOT_NONE_EMPTY, scenario)


@pytest.mark.apiserver
def test_predictions_of_brokers_that_moved_again_are_left_out(run_policy: RunPolicy) -> None:
    results = (
        MeasuredOutcome(broker="a", expected=40, measured=43, error=3),
        MeasuredOutcome(broker="b", expected=40, measured=80, error=40, disturbed=True),
    )

    async def scenario(env: PolicyEnvironment) -> None:
        record = DecisionRecord.model_construct(results=results)
        PolicyMetrics(env.cluster, "main").predicted(r.error for r in record.results if not r.disturbed)
        assert shown(env, "prediction_error_ratio_sum") == {(): pytest.approx(0.03)}

    run_policy(HOT_NONE_EMPTY, scenario)


def test_hit_counts_are_the_largest_of_each_kind() -> None:
    avg = Memory(shedder={"brokers": {"hitHigh": {"a": 2.0, "b": 1.0}, "hitLow": {}}})
    assert hit_counts(avg) == {"high": 2, "low": 0}
    assert hit_counts(Memory(shedder={"hits": 3}, splitter={"hits": {"x": 1, "y": 2}})) == {"cause": 3, "split": 2}
    assert hit_counts(Memory()) == {}


def test_a_list_that_a_shedder_remembers_is_no_hit_count() -> None:
    assert hit_counts(Memory(shedder={"hits": [1, 0]})) == {}
