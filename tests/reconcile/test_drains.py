"""Draining: a person closes a broker, or cordons its node, and its bundles leave."""

from __future__ import annotations

from typing import Any

import pytest

from faulty_api import until
from manifests import policy
from policy_scene import Play, PolicyScene
from records import bundle
from trimtab_operator.app import following
from trimtab_operator.kube.broker_records import node_record
from trimtab_operator.kube.store import Store
from trimtab_operator.kube.wire import NODES
from trimtab_operator.reconcile.brokers import drain_condition
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.departures import Departures
from trimtab_operator.state.settings import Settings
from trimtab_strategies.testing import cluster

LEVEL = cluster(a=0.3, b=0.3, c=0.3)


def settings(**spec: Any) -> Settings:
    made = policy(**spec)
    return Settings.of({**made, "metadata": {**made["metadata"], "namespace": "messaging"}})


def test_a_drained_broker_that_owns_nothing_is_drained() -> None:
    assert drain_condition([], set(), settings(mode="Auto")) == ("True", "Drained", "it owns nothing")


def test_what_is_left_is_counted_and_pinned_bundles_are_named() -> None:
    own = [bundle("b1"), bundle("b2", pinned=True)]

    assert drain_condition(own, set(), settings(mode="Auto")) == (
        "False",
        "Draining",
        "2 bundles left; b2 stay: pinned",
    )


@pytest.mark.parametrize(
    ("changes", "excluded", "reason"),
    [({"pinned": True}, set(), "Pinned"), ({"topic_namespace": "left-out"}, {"left-out"}, "Excluded")],
)
def test_where_all_that_is_left_stays_the_reason_says_why(
    changes: dict[str, Any], excluded: set[str], reason: str
) -> None:
    assert drain_condition([bundle("b", **changes)], excluded, settings(mode="Auto"))[:2] == ("False", reason)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({}, "DryRun"), ({"mode": "Approve"}, "NotApproved"), ({"mode": "Auto", "paused": True}, "Paused")],
)
def test_a_policy_that_does_not_act_by_itself_is_named(spec: dict[str, Any], reason: str) -> None:
    status, found, message = drain_condition([bundle("b")], set(), settings(**spec))

    assert (status, found) == ("False", reason)
    assert "policy main is" in message


def condition(scene: PolicyScene, broker: str) -> tuple[str, str] | None:
    status = scene.rest.get(scene.path("brokers", broker)).get("status", {})
    found = {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}
    return found.get("Drained")


def close(scene: PolicyScene, broker: str, *, schedulable: bool = False) -> None:
    scene.rest.patch(scene.path("brokers", broker), {"spec": {"schedulable": schedulable}})


def owned(scene: PolicyScene, broker: str) -> int:
    return sum(owner == broker for owner in scene.owners().values())


@pytest.mark.apiserver
def test_a_closed_broker_is_emptied_at_once_and_says_so_and_its_bundles_stay_away(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        assert scene.condition("Balanced") == ("True", "Balanced")
        stays = next(name for name, owner in scene.owners().items() if owner == "b")
        scene.rest.patch(scene.path("bundles", stays), {"spec": {"pinned": True}})
        close(scene, "b")
        await scene.reconcile(after=1)  # a cycle is not due
        assert condition(scene, "b") == ("False", "Draining")
        await scene.land()
        moved = [found for found in scene.bundles().values() if found["spec"].get("assignment")]
        assert {found["spec"]["assignment"]["reason"] for found in moved} == {"Drained"}
        assert (owned(scene, "b"), len(moved)) == (1, 3)

        await scene.reconcile(after=1)
        assert condition(scene, "b") == ("False", "Pinned")

        scene.rest.patch(scene.path("bundles", stays), {"spec": {"pinned": False}})
        await scene.land()
        await scene.cycle()
        await scene.land()
        await scene.reconcile(after=1)
        assert (owned(scene, "b"), condition(scene, "b")) == (0, ("True", "Drained"))
        assert [note for reason, note in scene.events() if note.endswith("is drained: it owns nothing")]

        scene.rest.patch(scene.path("brokers", "b"), {"spec": {"weight": 2}})
        await scene.reconcile(after=1)
        found = scene.rest.get(scene.path("brokers", "b"))
        assert found["status"]["conditions"][0]["observedGeneration"] == found["metadata"]["generation"]

        close(scene, "b", schedulable=True)
        await scene.reconcile(after=1)
        assert condition(scene, "b") is None

    play(LEVEL, story)


@pytest.mark.apiserver
def test_a_drained_broker_whose_pod_is_replaced_stays_drained_and_is_reported_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(scene: PolicyScene) -> None:
        close(scene, "b")
        await scene.reconcile()
        await scene.land()
        await scene.reconcile(after=1)
        assert condition(scene, "b") == ("True", "Drained")
        with monkeypatch.context() as patch:
            patch.setattr(ClusterState, "departures", lambda *_: Departures(ending=frozenset({"b"})))
            await scene.reconcile(after=1)
            assert condition(scene, "b") == ("True", "Drained")
        await scene.reconcile(after=1)

        assert len([note for _, note in scene.events() if "is drained" in note]) == 1

    play(LEVEL, story)


@pytest.mark.apiserver
@pytest.mark.parametrize(("mode", "reason"), [("DryRun", "DryRun"), ("Approve", "NotApproved")])
def test_in_other_modes_than_auto_draining_is_shown_or_proposed(play: Play, mode: str, reason: str) -> None:
    async def story(scene: PolicyScene) -> None:
        before = scene.desired_owners()
        close(scene, "b")
        await scene.reconcile()
        await scene.reconcile(after=1)

        assert scene.desired_owners() == before
        moves = scene.status()["proposal"]["moves"]
        assert {(move["source"], move["reason"]) for move in moves} == {("b", "Drained")}
        assert condition(scene, "b") == ("False", reason)

    play(LEVEL, story, mode=mode)


@pytest.mark.apiserver
def test_draining_waits_for_no_window_and_balancing_does(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        close(scene, "a")
        await scene.reconcile()

        assert {found["spec"]["assignment"]["reason"] for found in scene.bundles().values() if _chosen(found)} == {
            "Drained"
        }
        assert scene.condition("Acting") == ("False", "OutsideWindow")

    hot = cluster(bundles={"a": [1] * 3, "b": [1] * 8, "c": [1]}, a=0.2, b=0.8, c=0.1)
    play(hot, story, windows=[{"kind": "Deny", "start": "00:00", "duration": "24h"}])


def _chosen(found: Any) -> bool:
    return bool(found["spec"].get("assignment"))


@pytest.mark.apiserver
def test_a_broker_on_a_cordoned_node_is_drained(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        node = f"node-{scene.namespace}"
        scene.rest.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
        spec = {"nodeName": node, "containers": [{"name": "broker", "image": "none"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}, "spec": spec}
        scene.rest.create(f"/api/v1/namespaces/{scene.namespace}/pods", body)
        nodes = scene.context.stores.nodes = Store(scene.context.api, NODES, node_record, namespace="")
        async with following(scene.context):
            await nodes.synced.wait()
            await until("the pod is seen", lambda: "b" in scene.context.stores.pods.items)
            await scene.reconcile()
            assert condition(scene, "b") is None

            scene.rest.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
            await until("the node is cordoned", lambda: nodes.items[node].cordoned)
            await scene.reconcile(after=1)
            await scene.land()
            await scene.reconcile(after=1)
            assert (owned(scene, "b"), condition(scene, "b")) == (0, ("True", "Drained"))

    play(LEVEL, story)
