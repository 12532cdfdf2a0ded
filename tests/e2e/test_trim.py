"""A policy of four lines levels three real brokers that serve a few hundred messages a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import pytest

from pulsar_costs import costs, keep, table
from pulsar_witness import Witness
from real_pulsar.clients import ClientTraffic, Flow, topics_of
from real_pulsar.exporter import PodLimits
from real_pulsar.settings import LoadManagerKind
from real_pulsar_cluster import RealPulsarCluster
from small_cluster import API, until

BUNDLES = 24
RATE = 300.0
"""Messages per second of the whole cluster."""

CORES = 0.5
"""CPU cores that count as 100 % of a broker: at first the busiest one uses about half of them."""

SCRAPE = 5.0
"""Seconds between two scrapes, which is more than a page takes on a busy machine."""

PROMPT = 120.0
"""Seconds of lasting load within which the first bundle moves."""

LEVEL = 0.75
"""Range of the brokers' messages/s, as a ratio of their mean: 3 at first. Below `floor` a policy levels no further."""


@pytest.fixture
def default_stage(own_stage: Callable[..., AbstractContextManager[RealPulsarCluster]]) -> Iterator[RealPulsarCluster]:
    """The brokers, with an operator of their own and no policy."""
    with own_stage(limits=PodLimits(cores=CORES), scrape_interval=SCRAPE) as stage:
        yield stage


def _apply_four_lines(stage: RealPulsarCluster) -> None:
    """Mode and two addresses: shedder, placement, interval and limits are the defaults."""
    spec = {
        "mode": "Auto",
        "pulsar": {"adminUrl": stage.admin.url},
        "source": {"prometheus": {"url": stage.prometheus.url}},
    }
    kind = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BalancingPolicy"}
    stage.rest.create(f"{API}/balancingpolicies", {**kind, "metadata": {"name": "policy"}, "spec": spec})


def _uneven(stage: RealPulsarCluster, witness: Witness, bundles: Sequence[str]) -> float:
    """Ratio of the range of the brokers' messages/s to their mean, by the actual owners."""
    owners = [witness.owner(bundle) for bundle in bundles]
    counts = [owners.count(name) for name in stage.names]
    return (max(counts) - min(counts)) * len(stage.names) / len(bundles)


def _said(stage: RealPulsarCluster) -> str:
    """What the policy's conditions say, for the message of a failure."""
    found = stage.status().get("conditions", [])
    return "\n".join(f"{c['type']}={c['status']} {c['reason']}: {c['message']}" for c in found)


def _wait(stage: RealPulsarCluster, what: str, probe: Callable[[], bool], within: float) -> None:
    """Wait until `probe` holds; after `within` seconds fail with what the policy says."""
    try:
        until(what, probe, within, every=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{_said(stage)}") from None


@pytest.mark.parametrize("load_manager", [LoadManagerKind.MODULAR], indirect=True, ids=str)
def test_four_lines_level_three_brokers_of_300_messages_a_second(
    default_stage: RealPulsarCluster, record_figures: Callable[[list[str]], None]
) -> None:
    stage = default_stage
    namespace = stage.new_namespace(BUNDLES, "trim")
    bundles = stage.admin.bundles(namespace)
    for bundle in bundles:
        stage.put(bundle, stage.names[0])
    _apply_four_lines(stage)
    stage.wait_condition("Linked", "True", within=120)

    flows = [Flow(topics_of(bundle, 1)[0], RATE / BUNDLES) for bundle in bundles]
    with stage.witness(namespace) as witness, stage.traffic(flows) as traffic:
        begun = time.time()
        _wait(stage, "a bundle gets another owner", lambda: bool(witness.moves()), PROMPT)
        prompt = witness.moves()[0].asked - begun
        _wait(stage, "the brokers are level", lambda: _uneven(stage, witness, bundles) <= LEVEL, within=240)
        level = time.time() - begun
        _wait(stage, "every move has landed", stage.settled, within=60)
        _check_clients(traffic)
        found = costs(witness, traffic)

    record_figures([f"trim: first move after {prompt:.0f} s, level after {level:.0f} s", *table("trim", found)])
    keep("trim", found, first=prompt, level=level)
    assert len({cost.bundle for cost in found}) == len(found), "a bundle moved twice"


def _check_clients(traffic: ClientTraffic) -> None:
    """Check that each message was acknowledged and received."""
    counts = traffic.drain()
    assert counts.errors == 0, traffic.errors()
    assert counts.acked == counts.sent
    assert counts.received >= counts.acked
