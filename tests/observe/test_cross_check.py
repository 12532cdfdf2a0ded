"""A Prometheus that shows another cluster, or what was long ago, stops moves; one that is a moment behind does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from plan_clusters import HOT_OF_FOUR
from policy_environment import PolicyEnvironment, RunPolicy
from static_sources import StaticSource
from trimtab_operator.state.pulsar_link import (
    FACTOR,
    FRESH,
    LASTING,
    ROUNDS,
    Compared,
    CrossCheck,
    OwnBalancerState,
    distrust,
)
from trimtab_strategies.model import ClusterLoad, Reason

NAMES = HOT_OF_FOUR.brokers.names


def showing(load: ClusterLoad, **rates: float) -> ClusterLoad:
    """`load` whose brokers have so many msg/s in, and as many out."""
    traffic = np.array([[rate, rate, 0.0, 0.0] for rate in rates.values()])
    return replace(load, brokers=replace(load.brokers, traffic=traffic))


def checked(shown: dict[str, float], told: dict[str, float], times: int = ROUNDS) -> CrossCheck:
    """What is found after so many comparisons. shown, told: msg/s in."""
    check = CrossCheck()
    for k in range(times):
        check.update(showing(HOT_OF_FOUR, **shown), 100.0 * k)
        for name, rate in told.items():
            check.compare(name, 2 * rate, 100.0 * k)
    return check


def untrusted(check: CrossCheck) -> set[str]:
    load = distrust(HOT_OF_FOUR, check)
    assert load.quality.doubts.keys() == {n for n, ok in zip(NAMES, load.brokers.trusted, strict=True) if not ok}
    assert all(doubt.reason is Reason.UNTRUSTED for doubt in load.quality.doubts.values())
    return set(load.quality.doubts)


SAME = {"a": 500.0, "b": 100.0, "c": 100.0, "d": 200.0}


def test_who_agrees_is_trusted() -> None:
    assert untrusted(checked(SAME, {name: 1.5 * rate for name, rate in SAME.items()})) == set()


def test_one_broker_that_differs_for_long_is_not_trusted_and_the_others_are() -> None:
    assert untrusted(checked(SAME, SAME | {"b": 900.0})) == {"b"}
    assert untrusted(checked(SAME, SAME | {"b": 900.0}, times=ROUNDS - 1)) == set()


def test_when_most_differ_no_broker_is_trusted_not_even_who_was_not_compared_yet() -> None:
    assert untrusted(checked(SAME, {"a": 10.0, "b": 900.0, "c": 0.0})) == set(NAMES)


def test_one_that_agrees_again_is_trusted_at_once() -> None:
    check = checked(SAME, SAME | {"b": 900.0})
    check.compare("b", 2 * SAME["b"], 400.0)
    assert untrusted(check) == set()


@pytest.mark.parametrize(("shown", "told"), [(0.0, 0.0), (0.0, 30.0), (30.0, 0.0), (1.0, 8.0)])
def test_brokers_that_do_next_to_nothing_do_not_differ(shown: float, told: float) -> None:
    assert not Compared(shown, told).differs


@pytest.mark.parametrize(("shown", "told"), [(0.0, 300.0), (300.0, 0.0), (1000.0, 4000.0)])
def test_what_differs_by_a_large_factor_is_odd_either_way(shown: float, told: float) -> None:
    assert Compared(shown, told).differs
    assert CrossCheck(compared={"a": Compared(shown, told)}).worst > FACTOR


def test_a_broker_of_which_prometheus_shows_nothing_is_not_compared() -> None:
    check = CrossCheck()
    check.update(showing(HOT_OF_FOUR, **(SAME | {"b": float("nan")})), 0.0)
    assert check.compare("b", 900.0, 1.0) is None
    assert check.compare("gone", 900.0, 1.0) is None
    check.compare("a", 900.0, 1.0)
    check.forget({"b": ""})
    assert (check.shown, check.compared) == ({}, {})


def test_what_was_shown_once_counts_once_and_not_for_ever() -> None:
    check = CrossCheck()
    check.update(showing(HOT_OF_FOUR, **SAME), 0.0)
    for k in range(50):
        check.compare("a", 0.0, float(k))
    assert check.compared["a"].odd == 1
    assert check.fresh(FRESH)
    assert not check.fresh(FRESH + 1)


def test_a_broker_that_was_just_emptied_is_not_doubted() -> None:
    check = CrossCheck()
    for k in range(2 * ROUNDS):  # Prometheus is a scrape behind for 40 s
        check.update(showing(HOT_OF_FOUR, **SAME), 5.0 * k)
        check.compare("a", 0.0, 5.0 * k)
    assert untrusted(check) == set()


@pytest.mark.apiserver
def test_a_prometheus_that_shows_another_cluster_stops_moves_and_says_so(run_policy: RunPolicy) -> None:
    told = {"a": 5.0, "b": 900.0, "c": 2000.0, "d": 0.0}

    async def scenario(env: PolicyEnvironment) -> None:
        link = env.cluster.link
        env.source = StaticSource(showing(HOT_OF_FOUR, **SAME))
        env.cluster.relink()
        await env.reconcile()
        link.ids, link.problem, link.own_balancer = (
            dict.fromkeys(NAMES, "id"),
            "",
            OwnBalancerState(disabled=True, text=""),
        )
        for _ in range(ROUNDS):
            link.cross_check.update(showing(HOT_OF_FOUR, **SAME), env.clock)
            for name, rate in told.items():
                link.cross_check.compare(name, 2 * rate, env.clock)
            env.clock += LASTING / (ROUNDS - 1)
        await env.reconcile(after=61)
        status = env.policy()["status"]
        condition = next(c for c in status["conditions"] if c["type"] == "DataTrusted")
        assert (condition["status"], condition["reason"]) == ("False", "Untrusted")
        assert "Prometheus shows 1000 msg/s in and out, and the broker reports 10" in condition["message"]
        assert status["lastCycle"]["moved"] == 0

        for name, rate in SAME.items():
            link.cross_check.compare(name, 2 * rate, env.clock)
        await env.reconcile(after=61)
        assert env.policy()["status"]["lastCycle"]["moved"] > 0

    run_policy(HOT_OF_FOUR, scenario, pulsar={"adminUrl": "http://pulsar:8080"})
