"""Brokers of unequal strength, which no setting declares, on a whole cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from small_cluster import API, SmallCluster, until
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.processes import children
from trimtab_testbed.simulated.scenarios import LEARNING_POLICY, ClusterScenario, NamespaceShape, brokers

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.long]

STRONG = "pulsar-broker-2"
POINTS = 10.0
REST = 5
"""Cycles in a row in which nothing may move."""

QUICK = {"type": "WeightedBalancer", "weightedBalancer": {"window": "5s", "stabilization": "6s"}}
"""Learns in a few cycles of two seconds what it otherwise learns in half an hour."""

LEVEL = ClusterScenario(
    name="level-40",
    summary="four brokers alike, all at 55 %",
    brokers=brokers(55, 55, 55, 55),
    namespaces=(NamespaceShape("t", "n", 40),),
    seed=40,
    largest=10.0,
    policy=LEARNING_POLICY,
)


@pytest.fixture
def level(
    kube_binaries: KubeBinaries, prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallCluster]:
    """A cluster of its own: four equal brokers."""
    with SmallCluster(kube_binaries, prometheus_binary, tmp_path_factory.mktemp("mixed"), LEVEL) as stage:
        yield stage


def statuses(stage: SmallCluster) -> dict[str, Mapping[str, float]]:
    return {b["metadata"]["name"]: b.get("status", {}) for b in stage.rest.get(f"{API}/brokers")["items"]}


def weights(stage: SmallCluster) -> dict[str, float]:
    """Target weight in the status of each broker that has one."""
    return {name: s["targetWeight"] for name, s in statuses(stage).items() if s.get("targetWeight") is not None}


def cpu_range(stage: SmallCluster) -> float:
    """Actual percent points between the brokers."""
    return float(np.ptp(list(stage.world.cpu().values())))


def cycles_at_rest(stage: SmallCluster, count: int) -> bool:
    """Whether nothing moves in the next `count` cycles."""
    before = stage.desired_owners()
    stage.wait_cycles(count)
    return stage.desired_owners() == before and stage.settled()


def test_a_machine_twice_as_strong_gets_twice_the_load_and_then_nothing_moves(level: SmallCluster) -> None:
    level.apply_policy(**{**LEVEL.policy, "interval": "2s", "shedder": QUICK})
    level.wait_condition("Ready", "True", within=90)
    assert not children().get(level.operator.pid), "neither a JVM nor Python workers"
    until("all brokers have a weight", lambda: len(weights(level)) == 4)
    first = level.desired_owners()
    level.wait_cycles(REST)
    assert level.desired_owners() == first, "among equals nothing moves"
    assert all(weight == pytest.approx(1, abs=0.1) for weight in weights(level).values())

    level.world.rehouse(STRONG, strength=2)
    assert cpu_range(level) > 20

    until("it is level and at rest", lambda: cycles_at_rest(level, REST) and cpu_range(level) <= POINTS, within=90)
    settled = level.desired_owners()
    level.wait_cycles(REST)
    assert level.desired_owners() == settled, "it stays there without further moves"
    assert cpu_range(level) <= POINTS
    carried = weights(level)
    others = [weight for name, weight in carried.items() if name != STRONG]
    assert 1.6 < carried[STRONG] / np.mean(others) < 2.4, "what it was found to be worth"
    assert all(weight == pytest.approx(np.mean(others), rel=0.15) for weight in others)
    page = level.operator.page("metrics")[1]
    assert f'trimtab_broker_target_weight{{broker="{STRONG}",policy="policy"}}' in page
