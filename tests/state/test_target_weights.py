"""What brokers are told of their target weights: in their statuses and in metrics, and only when it changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policy_environment import PolicyEnvironment, RunPolicy
from static_sources import StaticSource
from strategy_testing.clusters import cluster
from trimtab_operator.kube.broker_records import BrokerRecord, broker_record
from trimtab_operator.state.target_weights import BrokerWeight, broker_weights, changed_weights
from trimtab_strategies.model import CPU, BrokerTraits, ClusterLoad, Memory, Plan

NONE = np.empty((0, 5))


def plan(targets: Mapping[str, float], carried: Mapping[str, float] | None = None) -> Plan:
    return Plan((), (), tuple(targets), NONE, NONE, target_weights=targets, carried=carried or {})


def scored(**scores: float) -> Memory:
    return Memory(shedder={"brokers": {"score": scores}})


def record(name: str = "a", **status: Any) -> BrokerRecord:
    meta = {"name": name, "generation": 1, "resourceVersion": "1"}
    return broker_record({"metadata": meta, "spec": {"pod": name}, "status": status})


def test_weights_are_relative_to_an_average_broker_whatever_the_load() -> None:
    memory = scored(a=0.5, b=0.25, c=0.25)

    found = broker_weights(plan({"a": 200.0, "b": 100.0, "c": 0.0}, {"a": 150.0, "b": 110.0}), memory, {})
    busier = broker_weights(plan({"a": 2e9, "b": 1e9, "c": 0.0}), memory, {})

    assert found["a"] == BrokerWeight(2.0, 0.5, -0.25)
    assert found["b"].error == pytest.approx(0.1)
    assert np.isnan(found["c"].error), "nothing is above a target of nothing by a ratio"
    assert {name: weight.target for name, weight in busier.items()} == {"a": 2.0, "b": 1.0, "c": 0.0}


def test_brokers_without_fixed_weight_make_up_the_unit() -> None:
    fixed = {"a": BrokerTraits(weight=3.0), "b": BrokerTraits(version="4.2")}

    found = broker_weights(plan({"a": 60.0, "b": 30.0, "c": 10.0}), scored(b=0.4, c=0.2), fixed)
    all_fixed = broker_weights(plan({"a": 60.0, "d": 20.0}), Memory(), {**fixed, "d": BrokerTraits(weight=1.0)})

    assert {name: weight.target for name, weight in found.items()} == {"a": 3.0, "b": 1.5, "c": 0.5}
    assert np.isnan(found["a"].score)
    assert {name: weight.target for name, weight in all_fixed.items()} == {"a": 1.5, "d": 0.5}


@pytest.mark.parametrize("targets", [{}, {"a": 0.0, "b": 0.0}])
def test_no_targets_and_no_load_give_no_weights(targets: dict[str, float]) -> None:
    assert broker_weights(plan(targets), Memory(), {}) == {}


def test_scores_of_the_original_are_shown_within_their_bounds() -> None:
    found = broker_weights(plan({"a": 1.0, "b": 1.0}), scored(a=-0.2, b=1.3), {})

    assert [weight.score for weight in found.values()] == [0, 1]


@pytest.mark.parametrize(
    ("target", "score", "written"),
    [
        (1.304, 0.5, {}),  # less than a hundredth of itself
        (1.316, 0.5, {"targetWeight": 1.316, "score": 50.0}),
        (1.3, 0.506, {"targetWeight": 1.3, "score": 50.6}),  # an average broker's is 50 %
        (1.3, 0.504, {}),
        (1.3, float("nan"), {"targetWeight": 1.3, "score": None}),
    ],
)
def test_only_what_changes_by_a_hundredth_is_written(target: float, score: float, written: dict[str, Any]) -> None:
    shown = record(targetWeight=1.3, score=50.0)

    assert changed_weights(shown, {"a": BrokerWeight(target, score, 0.0)}, ["a", "b"]) == written


def test_a_small_weight_is_not_written_for_every_crumb() -> None:
    shown = record(targetWeight=0.1, score=0.1)

    assert changed_weights(shown, {"a": BrokerWeight(0.109, 0.00109, 0.0)}, ["a"] * 100) == {}


def test_a_broker_without_weight_now_keeps_what_it_shows_until_no_one_has_any() -> None:
    shown = record(targetWeight=1.3, score=50.0)

    assert changed_weights(shown, {"b": BrokerWeight(1.0, 0.5, 0.0)}, ["a", "b"]) == {}
    assert changed_weights(shown, {}, ["a", "b"]) == {"targetWeight": None, "score": None}
    assert changed_weights(record(), {}, ["a", "b"]) == {}


# -- the loop --

WEIGHTED: dict[str, Any] = {
    "type": "WeightedBalancer",
    "weightedBalancer": {"networkInWeight": 0, "networkOutWeight": 0, "stabilization": "1m"},
}


def weighted(**params: Any) -> dict[str, Any]:
    return {**WEIGHTED, "weightedBalancer": {**WEIGHTED["weightedBalancer"], **params}}


def weights(env: PolicyEnvironment) -> dict[str, tuple[float | None, float | None]]:
    """targetWeight and score in the status of each broker."""
    found = env.rest.get(env.path("brokers"))["items"]
    return {b["metadata"]["name"]: (b["status"].get("targetWeight"), b["status"].get("score")) for b in found}


def used(load: ClusterLoad, *cpu: float) -> ClusterLoad:
    """The cluster with these ratios of CPU in use, while the bundles carry what they did."""
    usage = load.brokers.usage.copy()
    usage[:, CPU] = np.array(cpu) * load.brokers.limit[:, CPU]
    return replace(load, brokers=replace(load.brokers, usage=usage))


@pytest.mark.apiserver
def test_brokers_show_what_the_controller_learns_and_rest_writes_nothing(run_policy: RunPolicy) -> None:
    load = cluster(a=0.4, b=0.4, bundles=10)

    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        assert weights(env) == {"a": (1, 50), "b": (1, 50)}

        versions = env.versions("brokers")
        await env.cycle()
        assert env.versions("brokers") == versions, "nothing changed"

        env.source = StaticSource(used(load, 0.2, 0.6))
        await env.reconcile(after=300)
        (target, score), (other, _) = weights(env)["a"], weights(env)["b"]
        assert target is not None
        assert target > 1.05
        assert score == pytest.approx(50 * target, abs=1)
        assert other == pytest.approx(2 - target, abs=0.01)
        page = env.cluster.metrics.text().decode()
        assert f'trimtab_broker_target_weight{{broker="a",policy="main"}} {target:.2f}' in page
        assert 'trimtab_broker_score{broker="a",policy="main"}' in page
        assert 'trimtab_broker_weight_error_ratio{broker="a",policy="main"} -' in page

    run_policy(load, scenario, shedder=WEIGHTED)


@pytest.mark.apiserver
def test_weights_go_when_the_shedder_has_none(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        assert weights(env)["a"] == (1, 50)

        env.edit(shedder={"type": "ThresholdShedder", "weightedBalancer": None})
        await env.cycle()

        assert weights(env) == {"a": (None, None), "b": (None, None)}
        assert "trimtab_broker_target_weight{" not in env.cluster.metrics.text().decode()

    run_policy(cluster(a=0.4, b=0.4), scenario, shedder=WEIGHTED)


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        # after 900 s, one window, the error counts with 1 - 1/e; shares are 1/2, T 0.4, e 0.1 either way
        ({}, (0.5 + 0.5 * 0.25 * 0.632)),
        ({"gain": 0.5}, (0.5 + 0.5 * 0.5 * 0.25 * 0.632)),
        ({"compatibility": "Java"}, (0.5 + 0.1 * 0.632)),
        ({"compatibility": "Java", "gain": 0.5}, (0.5 + 0.5 * 0.1 * 0.632)),
    ],
)
def test_normalised_and_exact_gain_work_in_the_loop(
    run_policy: RunPolicy, gain: dict[str, Any], expected: float
) -> None:
    load = cluster(a=0.4, b=0.4, bundles=10)

    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        env.source = StaticSource(used(load, 0.3, 0.5))

        await env.reconcile(after=900)

        target, score = weights(env)["a"]
        assert score == pytest.approx(100 * expected, abs=0.1)
        assert target == pytest.approx(2 * expected, abs=0.002)

    run_policy(load, scenario, shedder=weighted(**gain), mode="DryRun")


@pytest.mark.apiserver
def test_a_fixed_weight_is_kept_and_reached_while_usage_is_even(run_policy: RunPolicy) -> None:
    """Three brokers with ten equal bundles each; a is to carry half of all, though nothing tells it from the others."""
    load = cluster(a=0.3, b=0.3, c=0.3, bundles=dict.fromkeys("abc", [1] * 10))

    async def scenario(env: PolicyEnvironment) -> None:
        env.rest.patch(env.path("brokers", "a"), {"spec": {"weight": 2}})
        await env.cycle()
        await env.land()

        assert weights(env) == {"a": (2, None), "b": (1, 50), "c": (1, 50)}
        owners = list(env.owners().values())
        assert [owners.count(name) for name in "abc"] == [14, 8, 8], "half a bundle is not worth a move"

    run_policy(load, scenario, shedder=weighted(spreadPercent=50), limits={"maxMovesPerBroker": 100, "coolDown": "1s"})
