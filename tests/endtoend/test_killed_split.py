"""The operator is killed (-9) in the middle of a split: the next one finds out how far it was, and ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from ring_check import check_ring
from small_cluster import API, SmallCluster, until
from trimtab_operator.resources.bundle import PARENT
from trimtab_strategies.hash_ring import parse_bundle

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.spark, pytest.mark.long]

PARENT_NAME, SPLIT = "t-n-0x80000000-0xa0000000", "cut"
CHILDREN = {"t-n-0x80000000-0x90000000", "t-n-0x90000000-0xa0000000"}

Event = dict[str, Any]


def served(stage: SmallCluster) -> list[str]:
    """The bundles that brokers serve, in Pulsar's spelling, by range. Checks that no hash is served twice."""
    found = sorted(bundle for bundles in stage.world.serving().values() for bundle in bundles)
    ranges = [parse_bundle(bundle) for bundle in found]
    assert all(before.upper <= after.lower for before, after in pairwise(ranges)), f"served twice: {found}"
    return found


def serves_once(stage: SmallCluster, bundles: int) -> None:
    """Wait until the brokers serve so many bundles, and check that those are the whole ring."""
    until(f"brokers serve {bundles} bundles", lambda: len(served(stage)) == bundles)
    check_ring(served(stage))


def split(stage: SmallCluster) -> dict[str, Any]:
    found: dict[str, Any] = stage.rest.get(f"{API}/bundlesplits/{SPLIT}").get("status", {})
    return found


def kill_when(stage: SmallCluster, happens: Callable[[Event], bool]) -> dict[str, Any]:
    """Split the bundle, and kill the operator at the first event of a Bundle for which `happens`; returns the Bundles
    then.
    """
    version = stage.rest.get(f"{API}/bundles")["metadata"]["resourceVersion"]
    body = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "BundleSplit",
        "metadata": {"name": SPLIT},
        "spec": {"bundle": PARENT_NAME, "algorithm": "range_equally_divide"},
    }
    stage.rest.create(f"{API}/bundlesplits", body)
    done = threading.Event()
    (patience := threading.Timer(30, done.set)).start()
    try:
        for event in stage.rest.follow(f"{API}/bundles", version, done):
            if happens(event):
                stage.operator.kill()
                assert split(stage)["phase"] == "Splitting"
                return stage.world.bundles()
    finally:
        patience.cancel()
    raise AssertionError("within 30 s no such event of a Bundle")


def is_locked(event: Event) -> bool:
    bundle = event["object"]
    return bundle["metadata"]["name"] == PARENT_NAME and bool(bundle.get("status", {}).get("split"))


def has_last_child(event: Event) -> bool:
    return event["type"] == "ADDED" and event["object"]["metadata"]["name"] == max(CHILDREN)


def is_deleted(event: Event) -> bool:
    meta = event["object"]["metadata"]
    return meta["name"] == PARENT_NAME and "deletionTimestamp" in meta


def hold(stage: SmallCluster, finalizers: list[str]) -> None:
    """Keep the parent after its deletion, as long as there are `finalizers`."""
    stage.rest.patch(f"{API}/bundles/{PARENT_NAME}", {"metadata": {"finalizers": finalizers}})


def ends(stage: SmallCluster, phase: str) -> None:
    """Start a new operator, which ends the split so; check that every other bundle is unchanged."""
    stage.operator.start()
    until(f"the split is {phase}", lambda: served(stage) and split(stage)["phase"] == phase, within=60)
    gone, come = ({PARENT_NAME}, CHILDREN) if phase == "Completed" else (set[str](), set[str]())
    until("every bundle has its desired owner", stage.settled)
    bundles = stage.world.bundles()
    assert bundles.keys() == (stage.first_owners.keys() - gone) | come
    assert not any(found["status"].get("split") for found in bundles.values())
    assert not any(PARENT in found["metadata"].get("annotations", {}) for found in bundles.values())
    serves_once(stage, len(bundles))


def test_killed_once_the_parent_is_locked_it_is_split_by_the_next_operator(stage: SmallCluster) -> None:
    owner = stage.owners()[PARENT_NAME]
    stage.world.deafen(
        owner
    )  # it takes no child, so the parent cannot go: this is certainly between the lock and the deletion
    try:
        bundles = kill_when(stage, is_locked)
        assert bundles[PARENT_NAME]["status"]["split"] == SPLIT
        serves_once(stage, 8)
    finally:
        stage.world.undeafen(owner)
    serves_once(stage, 8)

    ends(stage, "Completed")
    assert {stage.owners()[child] for child in CHILDREN} == {owner}


def test_killed_when_the_children_are_made_and_no_one_takes_them_the_next_operator_goes_back(
    stage: SmallCluster,
) -> None:
    stage.apply_policy()
    stage.wait_condition("Ready", "True")
    owner = stage.owners()[PARENT_NAME]
    stage.world.deafen(owner)
    try:
        bundles = kill_when(stage, has_last_child)
        assert bundles[PARENT_NAME]["status"]["split"] == SPLIT
        assert bundles.keys() > CHILDREN

        ends(stage, "Failed")
        assert stage.owners()[PARENT_NAME] == owner
    finally:
        stage.world.undeafen(owner)


def test_killed_while_the_parent_goes_brokers_serve_its_children_and_the_next_operator_releases_them(
    stage: SmallCluster,
) -> None:
    hold(stage, ["tests.trimtab.dev/held"])  # so it is gone only after the operator, which has released no child
    try:
        bundles = kill_when(stage, is_deleted)
        assert all(PARENT in bundles[child]["metadata"]["annotations"] for child in CHILDREN)
        serves_once(stage, 8)
    finally:
        hold(stage, [])
    serves_once(stage, 9)

    ends(stage, "Completed")
