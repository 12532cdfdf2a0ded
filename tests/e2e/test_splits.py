"""Splits on real brokers: at the ordered positions, verified, placed, and resumed when the operator dies in between."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from real_pulsar.clients import Flow, topics_of
from real_pulsar.settings import LoadManagerKind
from real_pulsar_cluster import RealPulsarCluster
from small_cluster import API, until
from trimtab_operator.kube.naming import bundle_name
from trimtab_strategies.hash_ring import topic_hash

OVER = {"Completed", "Failed"}


def name_of(bundle: str) -> str:
    """Name of the Bundle object of a bundle in Pulsar's spelling."""
    space, _, edges = bundle.rpartition("/")
    tenant, name = space.split("/")
    return bundle_name(tenant, name, *edges.split("_"))


def edges(stage: RealPulsarCluster, namespace: str) -> list[str]:
    return [bundle.rpartition("/")[2] for bundle in stage.admin.bundles(namespace)]


def between(bundle: str, ratio: float) -> str:
    lower, upper = (int(edge, 16) for edge in bundle.rpartition("/")[2].split("_"))
    return f"0x{int(lower + ratio * (upper - lower)):08x}"


def parts(bundle: str, *positions: str) -> list[str]:
    """Its children, in Pulsar's spelling."""
    space, _, ends = bundle.rpartition("/")
    lower, upper = ends.split("_")
    whole = [lower, *positions, upper]
    return [f"{space}/{left}_{right}" for left, right in pairwise(whole)]


def order(stage: RealPulsarCluster, bundle: str, positions: list[str], **spec: Any) -> None:
    body = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "BundleSplit",
        "metadata": {"name": "cut"},
        "spec": {"bundle": name_of(bundle), "boundaries": positions, **spec},
    }
    stage.rest.create(f"{API}/bundlesplits", body)


def status(stage: RealPulsarCluster) -> dict[str, Any]:
    found: dict[str, Any] = stage.rest.get(f"{API}/bundlesplits/cut").get("status", {})
    return found


def over(stage: RealPulsarCluster) -> dict[str, Any]:
    until("the split is over", lambda: status(stage).get("phase") in OVER, within=90)
    return status(stage)


def mirrored(stage: RealPulsarCluster, namespace: str) -> bool:
    """Whether the objects agree with Pulsar: each bundle, and its owner."""
    truth = {name_of(bundle): owner for bundle, owner in stage.truth(f"{namespace}/").items()}
    objects = {name: owner for name, owner in stage.owners().items() if owner}
    ours = {name_of(bundle) for bundle in stage.admin.bundles(namespace)}
    return {name: owner for name, owner in objects.items() if name in ours} == truth and ours <= set(stage.owners())


def spread(bundle: str, count: int) -> list[str]:
    """Topics of a bundle, with at least one in each eighth of its range."""
    eighths = [between(bundle, k / 8) for k in range(1, 8)]
    return [topic for part in parts(bundle, *eighths) for topic in topics_of(part, count)]


def known(stage: RealPulsarCluster, bundle: str) -> None:
    until("the bundle's object", lambda: stage.owners().get(name_of(bundle)))


def test_a_hot_bundle_is_split_where_it_was_ordered_and_its_parts_are_placed(stage: RealPulsarCluster) -> None:
    namespace = stage.new_namespace(2)
    bundle = stage.admin.bundles(namespace)[0]
    positions = [between(bundle, 0.25), between(bundle, 0.5)]
    stage.put(bundle, "pulsar-broker-0")
    with stage.traffic([Flow(topic, 10) for topic in spread(bundle, 1)]) as traffic:
        stage.apply_policy(mode="DryRun")
        known(stage, bundle)
        order(stage, bundle, positions, destinations=["", "pulsar-broker-1", "pulsar-broker-2"])

        assert over(stage)["phase"] == "Completed", status(stage)
        wanted = dict(zip(parts(bundle, *positions), stage.names, strict=True))
        until("each part is where it should be", lambda: wanted.items() <= stage.truth(namespace).items())
        until("the objects say so", lambda: mirrored(stage, namespace) and stage.settled())
        counts = traffic.drain()
    assert name_of(bundle) not in stage.bundles()
    assert counts.errors == 0
    assert counts.acked <= counts.received


def without_system_topics(stage: RealPulsarCluster, namespace: str) -> str:
    """The one of two bundles without the topic of the namespace's own policies, which would count as any other."""
    place = topic_hash(f"persistent://{namespace}/__change_events")
    lower, upper = stage.admin.bundles(namespace)
    return upper if place < int(lower.rpartition("_")[2], 16) else lower


def test_a_single_topic_is_refused_before_pulsar_is_asked(stage: RealPulsarCluster) -> None:
    namespace = stage.new_namespace(2)
    bundle = without_system_topics(stage, namespace)
    stage.put(bundle, "pulsar-broker-0")
    with stage.traffic([Flow(topics_of(bundle, 1)[0], 10)]):
        stage.apply_policy(mode="DryRun")
        known(stage, bundle)
        before = edges(stage, namespace)
        order(stage, bundle, [between(bundle, 0.5)])
        found = over(stage)
    assert (found["phase"], found["conditions"][-1]["reason"]) == ("Failed", "TooFewTopics")
    assert "add partitions" in found["message"]
    assert edges(stage, namespace) == before
    assert stage.bundles()[name_of(bundle)]["status"]["state"] == "Owned"


@pytest.mark.parametrize(
    ("load_manager", "moment"),
    [
        (LoadManagerKind.MODULAR, "locked"),
        (LoadManagerKind.MODULAR, "divided"),
        (LoadManagerKind.EXTENSIBLE, "divided"),
    ],
    indirect=["load_manager"],
    ids=["modular-locked", "modular-divided", "extensible-divided"],
    scope="session",
)
def test_an_operator_that_dies_in_the_middle_is_taken_over_from(stage: RealPulsarCluster, moment: str) -> None:
    namespace = stage.new_namespace(2)
    bundle = stage.admin.bundles(namespace)[0]
    positions = [between(bundle, 0.5), between(bundle, 0.75)]
    stage.put(bundle, "pulsar-broker-0")
    before = edges(stage, namespace)

    def reached() -> bool:
        if moment == "divided":
            return edges(stage, namespace) != before
        return bool(stage.bundles().get(name_of(bundle), {"status": {"split": "x"}})["status"].get("split"))

    with stage.traffic([Flow(topic, 5) for topic in spread(bundle, 1)]) as traffic:
        stage.apply_policy(mode="DryRun")
        known(stage, bundle)
        order(stage, bundle, positions, destinations=["", "", "pulsar-broker-2"])
        until(moment, reached, every=0.005)
        stage.operator.kill()
        stage.operator.start()

        assert over(stage)["phase"] == "Completed", status(stage)
        until("Pulsar and the objects agree", lambda: mirrored(stage, namespace) and stage.settled())
        counts = traffic.drain()
    assert set(parts(bundle, *positions)) <= set(stage.admin.bundles(namespace))
    assert not any(found.get("status", {}).get("split") for found in stage.bundles().values())
    assert counts.errors == 0
