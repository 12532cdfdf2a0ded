"""Draining: a person closes a broker, or cordons its node, and its bundles leave."""

from __future__ import annotations

from typing import Any

import pytest

from faulty_api import until
from manifests import policy
from policy_environment import PolicyEnvironment, RunPolicy
from records import bundle
from strategy_testing.clusters import cluster
from trimtab_operator.kube.broker_records import node_record
from trimtab_operator.kube.store import Store
from trimtab_operator.kube.wire import NODES
from trimtab_operator.observe import departures
from trimtab_operator.observe.departures import Departures
from trimtab_operator.reconcile.brokers import drain_condition
from trimtab_operator.state.settings import Settings
from trimtab_operator.watched_namespaces import following

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


def condition(env: PolicyEnvironment, broker: str) -> tuple[str, str] | None:
    status = env.rest.get(env.path("brokers", broker)).get("status", {})
    found = {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}
    return found.get("Drained")


def close(env: PolicyEnvironment, broker: str, *, schedulable: bool = False) -> None:
    env.rest.patch(env.path("brokers", broker), {"spec": {"schedulable": schedulable}})


def owned(env: PolicyEnvironment, broker: str) -> int:
    return sum(owner == broker for owner in env.owners().values())


@pytest.mark.apiserver
def test_a_closed_broker_is_emptied_at_once_and_says_so_and_its_bundles_stay_away(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert env.condition("Balanced") == ("True", "Balanced")
        stays = next(name for name, owner in env.owners().items() if owner == "b")
        env.rest.patch(env.path("bundles", stays), {"spec": {"pinned": True}})
        close(env, "b")
        await env.reconcile(after=1)  # a cycle is not due
        assert condition(env, "b") == ("False", "Draining")
        await env.land()
        moved = [found for found in env.bundles().values() if found["spec"].get("assignment")]
        assert {found["spec"]["assignment"]["reason"] for found in moved} == {"Drained"}
        assert (owned(env, "b"), len(moved)) == (1, 3)

        await env.reconcile(after=1)
        assert condition(env, "b") == ("False", "Pinned")

        env.rest.patch(env.path("bundles", stays), {"spec": {"pinned": False}})
        await env.land()
        await env.cycle()
        await env.land()
        await env.reconcile(after=1)
        assert (owned(env, "b"), condition(env, "b")) == (0, ("True", "Drained"))
        assert [note for reason, note in env.events() if note.endswith("is drained: it owns nothing")]

        env.rest.patch(env.path("brokers", "b"), {"spec": {"weight": 2}})
        await env.reconcile(after=1)
        found = env.rest.get(env.path("brokers", "b"))
        assert found["status"]["conditions"][0]["observedGeneration"] == found["metadata"]["generation"]

        close(env, "b", schedulable=True)
        await env.reconcile(after=1)
        assert condition(env, "b") is None

    run_policy(LEVEL, scenario)


@pytest.mark.apiserver
def test_a_drained_broker_whose_pod_is_replaced_stays_drained_and_is_reported_once(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        close(env, "b")
        await env.reconcile()
        await env.land()
        await env.reconcile(after=1)
        assert condition(env, "b") == ("True", "Drained")
        with monkeypatch.context() as patch:
            patch.setattr(departures, "departures", lambda *_: Departures(ending=frozenset({"b"})))
            await env.reconcile(after=1)
            assert condition(env, "b") == ("True", "Drained")
        await env.reconcile(after=1)

        assert len([note for _, note in env.events() if "is drained" in note]) == 1

    run_policy(LEVEL, scenario)


@pytest.mark.apiserver
@pytest.mark.parametrize(("mode", "reason"), [("DryRun", "DryRun"), ("Approve", "NotApproved")])
def test_in_other_modes_than_auto_draining_is_shown_or_proposed(run_policy: RunPolicy, mode: str, reason: str) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        before = env.desired_owners()
        close(env, "b")
        await env.reconcile()
        await env.reconcile(after=1)

        assert env.desired_owners() == before
        moves = env.status()["proposal"]["moves"]
        assert {(move["source"], move["reason"]) for move in moves} == {("b", "Drained")}
        assert condition(env, "b") == ("False", reason)

    run_policy(LEVEL, scenario, mode=mode)


@pytest.mark.apiserver
def test_draining_waits_for_no_window_and_balancing_does(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        close(env, "a")
        await env.reconcile()

        assert {found["spec"]["assignment"]["reason"] for found in env.bundles().values() if _chosen(found)} == {
            "Drained"
        }
        assert env.condition("Acting") == ("False", "OutsideWindow")

    hot = cluster(bundles={"a": [1] * 3, "b": [1] * 8, "c": [1]}, a=0.2, b=0.8, c=0.1)
    run_policy(hot, scenario, windows=[{"kind": "Deny", "start": "00:00", "duration": "24h"}])


def _chosen(found: Any) -> bool:
    return bool(found["spec"].get("assignment"))


@pytest.mark.apiserver
def test_a_broker_on_a_cordoned_node_is_drained(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        node = f"node-{env.namespace}"
        env.rest.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
        spec = {"nodeName": node, "containers": [{"name": "broker", "image": "none"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}, "spec": spec}
        env.rest.create(f"/api/v1/namespaces/{env.namespace}/pods", body)
        nodes = env.cluster.stores.nodes = Store(env.cluster.api, NODES, node_record, namespace="")
        async with following(env.cluster):
            await nodes.synced.wait()
            await until("the pod is seen", lambda: "b" in env.cluster.stores.pods.items)
            await env.reconcile()
            assert condition(env, "b") is None

            env.rest.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
            await until("the node is cordoned", lambda: nodes.items[node].cordoned)
            await env.reconcile(after=1)
            await env.land()
            await env.reconcile(after=1)
            assert (owned(env, "b"), condition(env, "b")) == (0, ("True", "Drained"))

    run_policy(LEVEL, scenario)
