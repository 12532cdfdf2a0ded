"""The policy's rule splits a bundle with too much load, and its children land on different brokers."""

from __future__ import annotations

from typing import Any

import pytest

from ring_check import check_ring
from small_cluster import API, SmallCluster, until

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.spark]

HOT = "t-n-0x80000000-0xa0000000"
"""The busiest of the eight bundles: about 35 MiB/s; the next one has 25."""


def splits(stage: SmallCluster) -> dict[str, Any]:
    return {item["metadata"]["name"]: item for item in stage.rest.get(f"{API}/bundlesplits")["items"]}


def served(stage: SmallCluster) -> list[str]:
    """The bundles that brokers serve, in Pulsar's spelling; one that two serve is there twice."""
    return [bundle for bundles in stage.world.serving().values() for bundle in bundles]


def test_a_hot_bundle_is_split_and_spread(stage: SmallCluster) -> None:
    stage.apply_policy(shedder={"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}})
    stage.wait_condition("Ready", "True")  # from then on there are Broker objects, without which nothing is released
    stage.patch_bundle("t-n-0x20000000-0x40000000", owner="pulsar-broker-2")  # the two idle ones are about equal
    until("it is there", stage.settled)
    owner, before = stage.owners()[HOT], sum(stage.world.cpu().values())
    stage.wait_cycles(4)  # until the rates show its new owner
    stage.wait_condition("DataTrusted", "True")

    rule = {"type": "BundleSplitterTask", "bundleSplitterTask": {"maxThroughput": "30Mi", "maxRate": 1000000}}
    stage.edit_policy(mode="Auto", split=rule)

    until(
        "a split is completed",
        lambda: any(s.get("status", {}).get("phase") == "Completed" for s in splits(stage).values()),
    )
    until("its children have landed", stage.settled)

    [(name, split)] = splits(stage).items()
    assert split["spec"]["request"]["policy"] == "policy"
    assert (split["spec"]["bundle"], split["spec"]["request"]["reason"]) == (HOT, "Bandwidth")
    children = [child["bundle"] for child in split["status"]["children"]]
    owners = [stage.owners()[child] for child in children]
    assert HOT not in stage.owners()
    assert len(set(owners)) == 2
    assert owners != [owner, owner]
    until("brokers serve them", lambda: len(served(stage)) == 9)
    check_ring(served(stage))
    assert sum(stage.world.cpu().values()) == pytest.approx(before, rel=0.1)
    until("the namespace counts them", lambda: stage.rest.get(f"{API}/topicnamespaces/t-n")["status"]["bundles"] == 9)
    assert any(HOT in note for note in stage.events("Bandwidth"))
    assert any(HOT in note for note in stage.events("Completed"))

    stage.wait_cycles(2)
    assert list(splits(stage)) == [name]


def test_a_person_splits_a_bundle_while_no_policy_runs(stage: SmallCluster) -> None:
    body = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "BundleSplit",
        "metadata": {"name": "halve"},
        "spec": {"bundle": HOT, "algorithm": "range_equally_divide", "ttlSecondsAfterFinished": 2},
    }
    stage.rest.create(f"{API}/bundlesplits", body)

    stage.control_plane.kubectl("-n", "messaging", "wait", "bspl/halve", "--for=condition=Complete", "--timeout=20s")

    until("brokers serve the halves", lambda: len(served(stage)) == 9)
    check_ring(served(stage))
    until("it is tidied up", lambda: not splits(stage))
