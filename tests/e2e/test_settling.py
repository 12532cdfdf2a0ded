"""Under real, uneven load a cluster becomes level: every move lands as planned, and no client loses a message."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from pulsar_costs import costs, keep, table
from pulsar_witness import Witness
from real_pulsar.clients import ClientTraffic, Flow, topics_of
from real_pulsar.settings import LoadManagerKind
from real_pulsar_cluster import BY_RATE, SMALL_BROKERS, RealPulsarCluster
from small_cluster import until
from trimtab_operator.cli.common import EMBEDDED

RATES = (60, 50, 40, 30, 25, 20, 15, 10, 10, 5, 5, 5)
"""Messages per second of each of a namespace's bundles, each from two topics: 275 in all."""

QUIET = 8.0
"""Seconds without a move (four cycles) after which the cluster counts as settled."""

BY_CPU = {
    "shedder": {
        "type": "ThresholdShedder",
        "thresholdShedder": {"threshold": 15, "historyPercent": 0, "minThroughput": 0},
    },
    "placement": {
        "type": "LeastResourceUsageWithWeight",
        "leastResourceUsageWithWeight": {"averageDifference": 5, "historyPercent": 0},
    },
}


def _uneven(stage: RealPulsarCluster, namespace: str) -> list[Flow]:
    """Put all bundles but the smallest on the first broker; the last broker serves none. Returns what is to be sent to
    them.
    """
    flows = []
    for bundle, rate, n in zip(stage.admin.bundles(namespace), RATES, range(len(RATES)), strict=True):
        stage.put(bundle, stage.names[0] if n < len(RATES) - 1 else stage.names[1])
        flows += [Flow(topic, rate / 2) for topic in topics_of(bundle, 2)]
    return flows


def _rates(stage: RealPulsarCluster, namespace: str) -> Mapping[str, float]:
    """Messages per second to each broker, by the actual owners."""
    sums = dict.fromkeys(stage.names, 0.0)
    rate_of = dict(zip(stage.admin.bundles(namespace), RATES, strict=True))
    for bundle, broker in stage.truth(namespace).items():
        sums[broker] += rate_of[bundle]
    return sums


def _spread(stage: RealPulsarCluster, namespace: str) -> float:
    rates = _rates(stage, namespace).values()
    return max(rates) - min(rates)


def _settle(stage: RealPulsarCluster, witness: Witness, level: Callable[[], bool]) -> None:
    """Wait until the cluster is level, no desired owner is open, and nothing has moved for a while."""

    def settled() -> bool:
        return level() and stage.settled() and time.time() - witness.quiet_since() > QUIET

    until("the cluster is level and quiet", settled, within=120, every=0.5)


def _check(witness: Witness, traffic: ClientTraffic, strays: int) -> None:
    """Check that every move landed, with a limited number of detours, and that all acknowledged messages were
    received.
    """
    lost = [move for move in witness.moves() if move.landed is None]
    assert not lost
    assert len(witness.strays()) <= strays, witness.strays()
    counts = traffic.drain()
    assert counts.errors == 0, traffic.errors()
    assert counts.acked == counts.sent
    assert counts.received >= counts.acked


@pytest.fixture
def measuring_stage(
    request: pytest.FixtureRequest,
    own_stage: Callable[..., AbstractContextManager[RealPulsarCluster]],
    load_manager: LoadManagerKind,
    name: str,
) -> Iterator[RealPulsarCluster]:
    """The shared cluster, whose operator measures in its own process; once an operator that measures on Spark."""
    if load_manager is not LoadManagerKind.EXTENSIBLE or name != "rate":
        yield request.getfixturevalue("stage")
        return
    with own_stage(limits=SMALL_BROKERS, spark=EMBEDDED) as stage:
        yield stage


@pytest.mark.parametrize(("name", "strategy"), [("rate", BY_RATE), ("cpu", BY_CPU)], ids=["rate", "cpu"])
def test_uneven_load_comes_level_and_every_move_lands(
    measuring_stage: RealPulsarCluster,
    load_manager: LoadManagerKind,
    record_figures: Callable[[list[str]], None],
    name: str,
    strategy: Any,
) -> None:
    stage = measuring_stage
    namespace = stage.new_namespace(len(RATES), "settling")
    flows = _uneven(stage, namespace)
    before = _spread(stage, namespace)

    with stage.witness(namespace) as witness, stage.traffic(flows) as traffic:
        stage.apply_policy(mode="Auto", limits={"coolDown": "5m"}, **strategy)
        _settle(stage, witness, lambda: _spread(stage, namespace) < before / 2)
        # modular brokers sometimes forget the destination, and it is moved once more
        _check(witness, traffic, len(witness.moves()) // 3 if load_manager is LoadManagerKind.MODULAR else 0)
        found, title = costs(witness, traffic), f"{load_manager}, by {name}"

    record_figures(table(title, found))
    keep(f"settling-{load_manager}-{name}", found, rates=_rates(stage, namespace), before=before)
    assert found, "nothing moved"
    assert len({cost.bundle for cost in found}) == len(found), "a bundle moved twice"
