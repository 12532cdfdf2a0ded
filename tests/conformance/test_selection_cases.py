"""Candidates and choices of Pulsar's two managers, in hand-made cases that were run on the real classes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import cluster, with_bundles
from trimtab_strategies.filters import ActiveSelection, BrokerSelection, Manager, SelectionParams
from trimtab_strategies.guard import MoveLimits, guard, movable_bundles
from trimtab_strategies.model import RATE_IN, BrokerTraits, ClusterLoad, Isolation, NamespacePolicy, Reason
from trimtab_strategies.model.cluster_load import IntArray
from trimtab_strategies.params import pulsar_keys
from trimtab_strategies.placement.least_message_rate import LeastLongTermMessageRate, LeastLongTermMessageRateParams
from trimtab_strategies.placement.least_resource_usage import (
    ExtensibleLeastResourceUsageWithWeight,
    ExtensibleLeastResourceUsageWithWeightParams,
)
from trimtab_strategies.shedding.transfer.shedder import TransferShedder, TransferShedderParams

CASES: dict[str, dict[str, Any]] = {
    case["id"]: case for case in json.loads((Path(__file__).parent / "selection-cases.json").read_text())
}
SPACE = "t/n"


def world(owned: dict[str, list[str]], cpu: dict[str, float] | None = None) -> ClusterLoad:
    """Brokers with bundles of the given namespaces; the last bundle, of the first namespace, has no owner."""
    spaces = [SPACE, *dict.fromkeys(space for own in owned.values() for space in own if space != SPACE)]
    usage = {name: (cpu or {}).get(name, 10) / 100 for name in owned}
    drawn = cluster(bundles={name: [1.0] * len(own) for name, own in owned.items()}, unowned=1, **usage)
    rows = [spaces.index(space) for own in owned.values() for space in own]
    return replace(drawn, bundles=replace(drawn.bundles, namespace=np.array([*rows, 0])), namespaces=tuple(spaces))


def selecting(case: dict[str, Any], picture: ClusterLoad, manager: Manager, **params: Any) -> ActiveSelection:
    """The pipeline with the case's configuration."""
    keys = pulsar_keys(SelectionParams)
    given = {keys[key].name: keys[key].value(value) for key, value in case.get("conf", {}).items()}
    return BrokerSelection(manager, SelectionParams(**{"distribute_evenly": False, **given, **params})).on(picture)


def rows(picture: ClusterLoad, names: list[str]) -> IntArray:
    return np.array([picture.brokers.index[name] for name in names], dtype=np.int64)


def allowed(under_way: ActiveSelection, names: list[str]) -> list[str]:
    """The brokers that may get the last bundle."""
    picture = under_way.cluster
    verdict = under_way.candidates(len(picture.bundles) - 1, rows(picture, names))
    return [name for name, fine in zip(names, verdict.allowed, strict=True) if fine]


@pytest.mark.parametrize("case", ["mfilter-01", "mfilter-02"])
def test_fewest_bundles_of_the_namespace_stay(case: str) -> None:
    given = CASES[case]
    picture = world({name: [SPACE] * given["namespace_bundle_count"].get(name, 0) for name in given["candidates"]})

    found = allowed(selecting(given, picture, Manager.MODULAR, distribute_evenly=True), given["candidates"])

    assert found == given["expect"]


@pytest.mark.parametrize("case", ["mfilter-03", "mfilter-04"])
def test_topic_limit_counts_what_was_placed_before(case: str) -> None:
    given = CASES[case]
    topics = given["topics"]
    picture = world({name: ["t/a", "t/b"] for name in topics})
    numbers = [number for of in topics.values() for number in (of["local"], of["preallocated"])]
    picture = with_bundles(picture, topics=dict(enumerate(numbers)), owner={2 * k + 1: -1 for k in range(len(topics))})

    under_way = selecting(given, picture, Manager.MODULAR)
    for broker in range(len(topics)):
        under_way.moved(2 * broker + 1, broker)

    assert allowed(under_way, given["candidates"]) == given["expect"]


@pytest.mark.parametrize("case", ["mfilter-05", "mfilter-06"])
@pytest.mark.parametrize("manager", Manager)
def test_secondary_brokers_join_while_too_few_primaries_are_there(case: str, manager: Manager) -> None:
    given = CASES[case]
    policy = given["policy"]
    isolation = Isolation(tuple(policy["primary"]), tuple(policy["secondary"]), policy["min_limit"])
    picture = world({f"broker{k}:8080": [] for k in (1, 2, 3)})
    picture = replace(picture, policies={SPACE: NamespacePolicy(isolation)})

    for step in given["cases"]:
        assert allowed(selecting(given, picture, manager), step["available"]) == step["expect"]


def groups(count: dict[str, int], brokers: list[str]) -> ClusterLoad:
    """Each broker with one bundle of as many namespaces of the group as counted."""
    spaces = [SPACE, "t/g1", "t/g2"]
    picture = world({name: spaces[: count.get(name, 0)] for name in brokers})
    policies = {space: NamespacePolicy(anti_affinity_group=text) for space, text in zip(spaces, "GgG", strict=True)}
    return replace(picture, policies=policies)


@pytest.mark.parametrize("case", ["mfilter-07", "mfilter-08"])
def test_group_goes_where_the_domain_and_then_the_broker_has_least_of_it(case: str) -> None:
    given = CASES[case]
    traits = {name: BrokerTraits(failure_domain=domain) for name, domain in given["domains"].items()}
    picture = replace(groups(given["group_count"], given["candidates"]), traits=traits)

    under_way = selecting(given, picture, Manager.MODULAR, failure_domains=given["failureDomainsEnabled"])

    assert allowed(under_way, given["candidates"]) == given["expect"]


@pytest.mark.parametrize("step", CASES["mfilter-09"]["cases"], ids=str)
def test_group_stays_when_it_could_not_be_spread_better(step: dict[str, Any]) -> None:
    brokers = list(dict.fromkeys([step["current"], *step["candidates"]]))
    picture = groups(step["group_count"], brokers)
    under_way = BrokerSelection(Manager.MODULAR).on(picture)

    may = under_way.group_may_leave(len(picture.bundles) - 1, rows(picture, step["candidates"]))

    assert may is step["expect"]


@pytest.mark.parametrize("case", ["mfilter-10", "mfilter-11"])
@pytest.mark.parametrize("manager", Manager)
def test_latest_version_is_preferred_where_all_can_be_compared(case: str, manager: Manager) -> None:
    given = CASES[case]
    picture = world({name: [] for name in given["versions"]})
    picture = replace(picture, traits={name: BrokerTraits(version) for name, version in given["versions"].items()})

    found = allowed(selecting(given, picture, manager), list(given["versions"]))

    assert found == given.get("expect", given.get(f"expect_{manager}_candidates"))


@pytest.mark.parametrize("case", ["mselect-01", "mselect-02", "mselect-03", "mselect-04"])
def test_modular_manager_chooses_as_pulsar_s_does(case: str) -> None:
    given = CASES[case]
    space = given.get("bundle_namespace", SPACE)
    picture = world(
        {name: ["o/o", *[SPACE] * count] for name, count in given["namespace_bundle_count"].items()},
        given["cpu_percent"],
    )
    picture = replace(picture, namespaces=(space, "o/o"))
    long = np.zeros_like(picture.bundles.long)
    long[[picture.bundles.owned_by(row)[0] for row in range(3)], RATE_IN] = list(given["long_term_rate"].values())
    picture = replace(picture, bundles=replace(picture.bundles, long=long))
    placement = LeastLongTermMessageRate(LeastLongTermMessageRateParams())

    under_way = selecting(given, picture, Manager.MODULAR)
    choice = under_way.choose(len(picture.bundles) - 1, np.arange(3), placement, {})

    assert [picture.brokers.names[row] for row in choice.brokers] == given["expect_one_of"]


@pytest.mark.parametrize("case", ["eselect-01", "eselect-02", "eselect-03"])
def test_extensible_manager_chooses_as_pulsar_s_does(case: str) -> None:
    given = CASES[case]
    usage = given["weightedMaxEMA"]
    picture = world({name: ["o/o"] for name in usage}, {name: ratio * 100 for name, ratio in usage.items()})
    picture = with_bundles(picture, topics=dict(enumerate(given.get("topics", {}).values())))
    classes = given.get("load_manager_class", {})
    picture = replace(picture, traits={name: BrokerTraits(load_manager=found) for name, found in classes.items()})
    placement = ExtensibleLeastResourceUsageWithWeight(ExtensibleLeastResourceUsageWithWeightParams())

    under_way = selecting(given, picture, Manager.EXTENSIBLE, load_manager=next(iter(classes.values()), ""))
    choice = under_way.choose(len(picture.bundles) - 1, np.arange(len(usage)), placement, {})

    assert [picture.brokers.names[row] for row in choice.brokers] == given["expect_one_of"]


def test_bundles_rest_until_the_grace_period_is_over_to_the_millisecond() -> None:
    given = CASES["unloadsched-01"]
    picture = replace(cluster(bundles=3, a=0.5), now=given["now"] / 1000)
    times = [at / 1000 for at in given["recentlyUnloadedBundles"].values()]
    picture = with_bundles(picture, last_unload=dict(enumerate(times)))

    verdict = movable_bundles(
        picture, MoveLimits(cool_down=given["conf"]["loadBalancerSheddingGracePeriodMinutes"] * 60)
    )

    resting = [name for row, name in enumerate("xyz") if verdict.reason(row) is Reason.COOL_DOWN]
    assert resting == given["expect_kept"]


@pytest.mark.parametrize("gate", [gate for gate in CASES["unloadsched-02"]["gates"] if "available_brokers" in gate])
def test_cycle_runs_only_with_two_brokers(gate: dict[str, Any]) -> None:
    """The other gates of Pulsar's scheduler belong to the operator: whether it leads, and the policy's mode."""
    brokers = dict.fromkeys("ab"[: gate["available_brokers"]], 0.5)

    refusal = guard(cluster(**brokers), MoveLimits(), moved_last_hour=0).refusal

    assert (refusal is None) is gate["expect_run"]


def test_only_the_broker_that_gave_rests() -> None:
    given = CASES["unloadsched-03"]
    picture = cluster(a=0.9, b=0.1, bundles={"a": [1, 1, 1, 1], "b": [1, 1]})

    shedding = TransferShedder(TransferShedderParams(hit_count=1)).shed(picture, np.ones(6, dtype=bool), {})

    assert {(unload.broker, unload.destination) for unload in shedding.unloads} == {(0, 1)}
    assert len(shedding.memory["brokers"]["unloaded"]) == given["expect"]["unload_broker_count_increment"]
    assert list(shedding.memory["brokers"]["unloaded"]) == ["a"]
