"""The Role that ships is what the operator needs: a scenario under it, and the API server's audit log as evidence.

Every test with a `SmallCluster` runs the operator as the ServiceAccount of `deploy/rbac.yaml`. Here it does all it can
do, so a missing right is a 403 in the log, and a right that is too much does not appear there.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from shipped_role import asked, granted
from small_cluster import API, NAMESPACE, SmallCluster, until

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.spark]

Right = tuple[str, str, str]
"""API group, resource, verb."""

CANT_BE_SHOWN: dict[Right, str] = {
    ("trimtab.dev", "topicnamespaces", "create"): "takes a Pulsar cluster: tests/e2e/test_sync.py",
    ("trimtab.dev", "topicnamespaces", "patch"): "takes a Pulsar cluster: tests/pulsar_bridge/test_sync_namespaces.py",
    ("trimtab.dev", "topicnamespaces", "delete"): "takes a Pulsar cluster: tests/e2e/test_sync.py",
    ("trimtab.dev", "balancingpolicies", "patch"): "takes a command: tests/proposals/test_proposals.py",
    ("", "configmaps", "delete"): "takes a Pulsar cluster: tests/e2e/test_own_balancer.py",
}
"""Rights that this scenario can't show -> why, and which test does."""


@pytest.fixture(scope="module")
def used(stage: SmallCluster) -> Iterator[dict[Right, set[int]]]:
    """What the operator asked of the API server in a life with everything in it, and how it was answered."""
    release_a_secret(stage)
    stage.apply_policy(mode="Auto", source=source(stage))
    try:
        level(stage)
        repeat_an_event(stage)
        split_by_the_rule(stage)
        cut_a_namespace(stage)
        split_by_hand(stage)
        leave_a_split(stage)
        lose_a_broker(stage)
        forget_a_broker(stage)
        yield asked(stage.control_plane.audit_events(), NAMESPACE)
    finally:
        stage.drop_policy()


def source(stage: SmallCluster) -> dict[str, object]:
    """The stage's Prometheus, with a token from a Secret."""
    token = {"bearerToken": {"secretKeyRef": {"name": "prometheus", "key": "token"}}}
    server = {"url": stage.proxy.url, "window": "4s", "maxAge": "6s", "timeout": "3s"}
    return {"prometheus": {**server, "auth": token}}


def release_a_secret(stage: SmallCluster) -> None:
    meta = {"name": "prometheus", "labels": {"trimtab.dev/credentials": "true"}}
    data = {"token": base64.b64encode(b"t").decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}
    stage.rest.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)


def level(stage: SmallCluster) -> None:
    """Brokers are found, measured, and their bundles moved."""
    stage.wait_condition("Balanced", "False", "Overloaded")
    until("nothing is left to move", lambda: stage.condition("Balanced")[0] == "True", within=150)


def cut_a_namespace(stage: SmallCluster) -> None:
    spec = {"tenant": "t", "name": "fresh", "bundles": 2}
    body = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "TopicNamespace", "metadata": {"name": "fresh"}, "spec": spec}
    stage.rest.create(f"{API}/topicnamespaces", body)
    until("its bundles have owners", lambda: len(fresh(stage)) == 2 and all(fresh(stage).values()))


def fresh(stage: SmallCluster) -> dict[str, str]:
    """Owners of the bundles of the namespace that was cut."""
    return {name: owner for name, owner in stage.owners().items() if name.startswith("t-fresh-")}


def repeat_an_event(stage: SmallCluster) -> None:
    for paused in (True, False, True, False):
        stage.edit_policy(paused=paused)
        stage.wait_condition("Ready", "False" if paused else "True")


def lose_a_broker(stage: SmallCluster) -> None:
    lost = next(iter(fresh(stage).values()))
    stage.world.kill(lost)
    until("its bundles are with others", lambda: lost not in stage.owners().values())
    stage.world.revive(lost)
    until("nothing is left open", stage.settled)


def forget_a_broker(stage: SmallCluster) -> None:
    """As discovery made it for a pod that is gone by now."""
    meta = {"name": "ghost", "labels": {"trimtab.dev/discovered": "true"}}
    body = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "Broker", "metadata": meta, "spec": {"pod": "ghost"}}
    stage.rest.create(f"{API}/brokers", body)
    stage.edit_policy(limits={"forgetAfter": "1s"})

    def names() -> list[str]:
        return [item["metadata"]["name"] for item in stage.rest.get(f"{API}/brokers")["items"]]

    until("its Broker object is gone", lambda: "ghost" not in names())


def split_by_the_rule(stage: SmallCluster) -> None:
    """The busiest bundle is too busy for the policy."""
    before = len(stage.owners())
    stage.edit_policy(split={"type": "BundleSplitterTask", "bundleSplitterTask": {"maxRate": 1}})
    until("a bundle was split", lambda: len(stage.owners()) > before)
    stage.edit_policy(split=None)
    until("the splits are through", lambda: all(split["phase"] in {"Completed", "Failed"} for split in splits(stage)))


def splits(stage: SmallCluster) -> list[dict[str, str]]:
    """Status of each BundleSplit."""
    found = stage.rest.get(f"{API}/bundlesplits")["items"]
    return [item.get("status", {"phase": "Pending"}) for item in found]


def split_by_hand(stage: SmallCluster) -> None:
    """A person asks for it; once it is finished it is forgotten."""
    spec = {"bundle": min(fresh(stage)), "boundaries": ["0x10000000"], "ttlSecondsAfterFinished": 1}
    body = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BundleSplit", "metadata": {"name": "halve"}, "spec": spec}
    before = len(splits(stage))
    stage.rest.create(f"{API}/bundlesplits", body)
    until("the children have owners", lambda: len(fresh(stage)) == 3 and all(fresh(stage).values()))
    until("it is forgotten", lambda: len(splits(stage)) == before)


def leave_a_split(stage: SmallCluster) -> None:
    """A bundle is locked by a split that was deleted in the middle."""
    name = min(fresh(stage))
    stage.patch_bundle(name, status=True, state="Splitting", split="deleted")
    until("the bundle is free again", lambda: stage.world.bundles()[name]["status"]["state"] == "Owned")


def test_the_operator_is_refused_nothing(used: dict[Right, set[int]]) -> None:
    assert not [right for right, statuses in used.items() if 403 in statuses]


@pytest.mark.parametrize("right", sorted(granted()), ids=lambda right: " ".join(filter(None, right)))
def test_every_right_that_ships_is_used(right: Right, used: dict[Right, set[int]]) -> None:
    if right in CANT_BE_SHOWN:
        assert CANT_BE_SHOWN[right]
    else:
        assert used.get(right, set()) - {403}, "it is unused: remove it from resources/rbac.py"


def test_what_cant_be_shown_ships() -> None:
    assert set(CANT_BE_SHOWN) <= granted()
