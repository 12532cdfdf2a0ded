"""Advice on the cluster's size: too small or too large for its load, or neither."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from policy_environment import PolicyEnvironment, RunPolicy
from strategy_testing.clusters import cluster
from trimtab_operator.status.size_advice import sized
from trimtab_strategies.model import MEMORY, NETWORK_OUT, ClusterLoad, Reason
from trimtab_strategies.sizing import UNASKED, Sizing, SizingTarget, most_used

AIM = SizingTarget(usage=0.6, patience=3)
EVERYBODY = np.ones(4, dtype=bool)


def used(*cpu: float, **changes: Any) -> ClusterLoad:
    return cluster(bundles=1, **changes, **{f"b{i}": usage for i, usage in enumerate(cpu)})


def after(*loads: ClusterLoad, aim: SizingTarget = AIM) -> Sizing:
    sizing = Sizing()
    for load in loads:
        sizing = sizing.after(load, aim)
    return sizing


@pytest.mark.parametrize(
    ("usage", "said", "advised"),
    [
        (0.9, Reason.TOO_SMALL, 6),  # 4 * 90 / 60
        (0.67, Reason.TOO_SMALL, 5),
        (0.65, None, 4),
        (0.45, None, 4),  # three would be at 60 %
        (0.40, Reason.TOO_LARGE, 3),
        (0.05, Reason.TOO_LARGE, 3),  # one must be able to fail, and one to restart
    ],
)
def test_the_number_advised_brings_the_usage_to_what_is_aimed_at(usage: float, said: Reason, advised: int) -> None:
    found = after(*[used(*[usage] * 4)] * 3)

    assert (found.said, found.advised) == (said, advised)


def test_it_is_said_only_once_so_many_decisions_agree() -> None:
    hot = used(0.9, 0.9, 0.9)

    assert not after(hot, hot).sure
    assert after(hot, hot, hot).said is Reason.TOO_SMALL


def test_a_spike_is_not_said() -> None:
    calm, spike = used(0.55, 0.55, 0.55, 0.55), used(0.9, 0.9, 0.9, 0.9)

    assert after(*[calm] * 5, spike, spike, *[calm] * 3).said is None


def test_strong_brokers_count_for_more() -> None:
    load = used(0.9, 0.3)
    limit = load.brokers.limit.copy()
    usage = load.brokers.usage.copy()
    limit[1], usage[1] = limit[1] * 9, usage[1] * 9  # the idle one is nine times as strong
    strong = replace(load, brokers=replace(load.brokers, limit=limit, usage=usage))

    ratio, resource = most_used(strong, np.ones(2, dtype=bool))

    assert (ratio, resource) == (pytest.approx(0.36), "cpu")


def test_the_most_used_resource_that_follows_the_load_decides() -> None:
    load = used(0.2, 0.2, 0.2, 0.2)
    usage = load.brokers.usage.copy()
    usage[:, NETWORK_OUT] = load.brokers.limit[:, NETWORK_OUT] * 0.7
    usage[:, MEMORY] = load.brokers.limit[:, MEMORY] * 0.95  # a heap is as full as it is allowed to be

    ratio, resource = most_used(replace(load, brokers=replace(load.brokers, usage=usage)), EVERYBODY)

    assert (ratio, resource) == (pytest.approx(0.7), "networkOut")


def test_with_half_of_the_brokers_unmeasured_nothing_is_learnt() -> None:
    blind = used(0.9, 0.9, 0.9, 0.9, untrusted=["b0", "b1", "b2"])

    assert repr(after(blind, blind, blind)) == repr(Sizing()), "its NaN is unequal to itself"


def test_drained_brokers_do_not_count() -> None:
    assert after(used(0.6, 0.6, 0.6, 0.0, unschedulable=["b3"])).brokers == 3


def test_an_autoscaler_is_told_once_it_is_sure() -> None:
    hot = used(0.9, 0.9, 0.9, 0.9)

    assert [after(*[hot] * times).wanted for times in (1, 2, 3)] == [0, 0, 6]
    assert after(*[used(0.6, 0.6)] * 3).wanted == 2


def test_an_autoscaler_keeps_its_number_while_a_broker_restarts_or_is_not_measured() -> None:
    calm = after(*[used(0.6, 0.6, 0.6, 0.6)] * 3)

    for change in ("lost", "untrusted", "unschedulable"):
        assert calm.after(used(0.6, 0.6, 0.6, 0.6, **{change: ["b3"]}), AIM).wanted == 4


def test_an_autoscaler_is_told_of_too_few_brokers_also_when_one_is_lost() -> None:
    calm = after(*[used(0.6, 0.6, 0.6, 0.6)] * 3)

    for _ in range(20):
        calm = calm.after(used(0.9, 0.9, 0.9, 0.9, lost=["b3"]), AIM)

    assert calm.wanted == 5  # 3 * 90 / 60, rounded up from the average


def test_an_autoscaler_is_not_told_of_a_spike() -> None:
    calm, spike = used(0.6, 0.6, 0.6, 0.6), used(1.0, 1.0, 1.0, 1.0)

    assert after(*[calm] * 3, spike).wanted == 4


def test_until_it_is_sure_what_was_said_stays() -> None:
    before: list[dict[str, Any]] = [{"type": "RightSized", "status": "False", "reason": "TooSmall", "message": "m"}]

    assert sized(before, after(used(0.6, 0.6)), 1, 0) == before
    assert sized(before, UNASKED, 1, 0) == []


def test_the_message_changes_with_the_advice_and_not_with_the_usage() -> None:
    first = sized([], after(*[used(*[0.9] * 4)] * 3), 1, 0)
    same = sized(first, after(*[used(*[0.89] * 4)] * 3), 1, 60)
    more = sized(first, after(*[used(*[0.99] * 4)] * 3), 1, 60)

    assert first == same
    assert "6 brokers would be about right" in first[0]["message"]
    assert "7 brokers would be about right" in more[0]["message"]


@given(st.lists(st.floats(0, 2), min_size=1, max_size=12), st.floats(0.1, 1))
def test_advice_followed_is_not_answered_by_its_opposite(usage: list[float], aim: float) -> None:
    said = after(*[used(*usage)] * 2, aim=SizingTarget(aim, 2))
    followed = after(*[used(*[sum(usage) / said.advised] * said.advised)] * 2, aim=SizingTarget(aim, 2))

    opposite = {Reason.TOO_SMALL: Reason.TOO_LARGE, Reason.TOO_LARGE: Reason.TOO_SMALL}
    if said.said is not None:
        assert followed.said is not opposite[said.said]


@pytest.mark.apiserver
def test_a_cluster_that_is_too_small_is_reported_once_by_condition_and_event(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        assert env.condition("RightSized") == ("", "")
        for _ in range(3):
            await env.cycle()

        assert env.condition("RightSized") == ("False", "TooSmall")
        told = [note for reason, note in env.events() if reason == "TooSmall"]
        assert told == [
            "RightSized: average cpu usage of all 3 brokers is 80%: 4 brokers would be about right (spec.advice)"
        ]

        env.edit(advice={"enabled": False})
        await env.cycle()
        assert env.condition("RightSized") == ("", "")

    run_policy(used(0.8, 0.8, 0.8), scenario, advice={"targetUsagePercent": 60, "patience": 2})
