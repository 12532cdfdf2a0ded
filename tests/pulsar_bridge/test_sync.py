"""The cluster sync on a real API server: objects follow a Pulsar cluster, and a cluster follows what people apply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from faulty_api import until
from manifests import broker, bundle, topic_namespace
from policy_environment import PolicyEnvironment, refit
from pulsar_in_memory import InMemoryPulsar
from strategy_testing.clusters import cluster
from trimtab_operator.aio import ended
from trimtab_operator.app import discover_once
from trimtab_operator.pulsar.bridge.sync.loop import ClusterSync, SyncIntervals
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

X, Y = "pulsar-0.pulsar.messaging.svc:8080", "10.0.0.7:8080"
QUICK = SyncIntervals(brokers=0.1, owners=0.2, namespaces=0.5, again=0.1, stuck=60.0)


@dataclass
class Mirrored:
    """An environment whose objects follow `pulsar`."""

    env: PolicyEnvironment
    pulsar: InMemoryPulsar = field(default_factory=lambda: InMemoryPulsar([X, Y], extensible=True))

    def bundles(self) -> dict[str, tuple[str, str]]:
        """Owner and state of each bundle that is named after a namespace of Pulsar's."""
        found = {name: b.get("status", {}) for name, b in self.env.bundles().items() if name.startswith("t-n-")}
        return {name: (s.get("owner", ""), s.get("state", "")) for name, s in found.items()}

    def spaces(self) -> dict[str, Any]:
        items = self.env.rest.get(self.env.path("topicnamespaces"))["items"]
        return {item["metadata"]["name"]: item for item in items}

    def ready(self, name: str) -> tuple[str, str]:
        conditions = self.spaces().get(name, {}).get("status", {}).get("conditions", [])
        return next(((c["status"], c["reason"]) for c in conditions if c["type"] == "Ready"), ("", ""))

    async def apply(self, manifest: dict[str, Any]) -> None:
        """Create a TopicNamespace, and have it known before the next sync."""
        self.pulsar.away = True
        self.env.rest.create(self.env.path("topicnamespaces"), manifest)
        known = self.env.cluster.stores.topic_namespaces.items
        await self.until("it is known", lambda: manifest["metadata"]["name"] in known)
        self.pulsar.away = False

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        await until(what, holds, within=30)


Scenario = Callable[[Mirrored], Awaitable[None]]
Tell = Callable[[Scenario], None]
NOTHING = cluster(bundles=1, a=0.0)


class Bare(PolicyEnvironment):
    """A policy, and no other object."""

    def build(self) -> None:
        """There is nothing yet."""


@pytest.fixture
def run_sync(trimtab_crds: ControlPlane, kube_namespace: str) -> Tell:
    """Runs a scenario beside a sync that runs all the time."""

    async def told(env: PolicyEnvironment, scenario: Scenario) -> None:
        refit(env.cluster, clock=asyncio.get_running_loop().time)
        env.cluster.link.spec = PulsarSpec(admin_url="http://pulsar.messaging.svc:8080", requests_per_second=1000)
        world = Mirrored(env)
        running = asyncio.create_task(ClusterSync(env.cluster, cast("Admin", world.pulsar), QUICK).run())
        try:
            await scenario(world)
        finally:
            await ended(running)

    async def whole(scenario: Scenario) -> None:
        async with asyncio.timeout(60):
            await Bare(trimtab_crds, kube_namespace, NOTHING).run_policy(lambda env: told(env, scenario), {})

    return lambda scenario: asyncio.run(whole(scenario))


def test_brokers_namespaces_and_bundles_appear_with_their_owners(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        world.pulsar.add("t/n", 3, X, Y)
        del world.pulsar.owners["t/n/0xaaaaaaaa_0xffffffff"]

        await world.until("it is mirrored", lambda: world.ready("t-n") == ("True", "Found"))

        assert world.bundles() == {
            "t-n-0x00000000-0x55555555": (y_x(X), "Owned"),
            "t-n-0x55555555-0xaaaaaaaa": (y_x(Y), "Owned"),
            "t-n-0xaaaaaaaa-0xffffffff": ("", "Free"),
        }
        made = world.spaces()["t-n"]
        assert made["metadata"]["labels"] == {"trimtab.dev/discovered": "true"}
        assert (made["spec"]["bundles"], made["status"]["bundles"]) == (3, 3)
        assert {b.address for b in world.env.cluster.stores.brokers.items.values()} == {X, Y}
        assert world.env.cluster.link.ids == {y_x(X): X, y_x(Y): Y}

    run_sync(scenario)


def y_x(broker_id: str) -> str:
    """Name of the object of a broker that is known by its address alone."""
    return broker_id.replace(":", "-")


def test_a_second_look_writes_nothing(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        world.pulsar.add("t/n", 8, X, Y)
        await world.until("it is mirrored", lambda: world.ready("t-n") == ("True", "Found"))
        await asyncio.sleep(0.3)
        world.env.requests.clear()
        world.pulsar.asked.clear()

        await world.until("all was looked at", lambda: min(world.pulsar.asked[c] for c in ("owned", "policies")) > 5)

        assert not {"create", "patch", "delete"} & world.env.requests.keys()

    run_sync(scenario)


def test_a_broker_is_found_by_address_then_by_its_pods_name(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        env = world.env
        env.rest.create(env.path("brokers"), broker("pulsar-0"))
        env.rest.create(env.path("brokers"), broker("mine", address=Y))

        await world.until("both are known", lambda: env.cluster.link.ids == {"pulsar-0": X, "mine": Y})

        await discover_once(env.cluster)
        found = {n: env.rest.get(env.path("brokers", n))["status"] for n in ("pulsar-0", "mine")}
        assert (found["mine"]["id"], found["mine"]["ready"]) == (Y, True)
        assert found["pulsar-0"]["id"] == X

    run_sync(scenario)


def test_a_lost_broker_is_not_ready_and_its_bundles_go_with_their_new_owner(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        world.pulsar.add("t/n", 2, X, Y)
        await world.until("it is mirrored", lambda: world.ready("t-n") == ("True", "Found"))

        world.pulsar.inactive.add(Y)
        world.pulsar.serve("t/n", X)

        await world.until("bundles are x's", lambda: {owner for owner, _ in world.bundles().values()} == {y_x(X)})

        await world.until("it is not active any more", lambda: y_x(Y) not in (world.env.cluster.link.ids or {}))
        await discover_once(world.env.cluster)
        assert not world.env.rest.get(world.env.path("brokers", y_x(Y))).get("status", {}).get("ready")

    run_sync(scenario)


def test_a_silent_broker_keeps_its_bundles(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        world.pulsar.add("t/n", 2, X, Y)
        await world.until("it is mirrored", lambda: world.ready("t-n") == ("True", "Found"))
        before = world.bundles()

        world.pulsar.deaf.add(Y)
        world.pulsar.asked.clear()
        await world.until("it was asked", lambda: world.pulsar.asked["owned"] > 8)

        assert world.bundles() == before

    run_sync(scenario)


def test_a_split_made_elsewhere_appears_and_never_leaves_a_hash_without_a_bundle(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        whole, *_ = world.pulsar.add("t/n", 1, X)
        await world.until("it is mirrored", lambda: world.ready("t-n") == ("True", "Found"))
        order: list[str] = []
        world.env.cluster.stores.bundles.subscribe(
            lambda old, new: order.append("deleted" if new is None else "made") if not (old and new) else None
        )

        world.pulsar.divide(whole)

        await world.until("its halves are there", lambda: len(world.bundles()) == 2)
        await world.until("the parent is gone", lambda: order[-1:] == ["deleted"])
        assert order == ["made", "made", "deleted"]
        await world.until("they are x's", lambda: set(world.bundles().values()) == {(y_x(X), "Owned")})

    run_sync(scenario)


def test_boundaries_of_before_a_split_do_not_bring_the_parent_back(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        whole, *_ = world.pulsar.add("t/n", 1, X)
        await world.until("it is mirrored", lambda: world.ready("t-n") == ("True", "Found"))
        world.pulsar.divide(whole)
        await world.until("its halves are there", lambda: list(world.bundles().values()) == [(y_x(X), "Owned")] * 2)
        versions = world.env.versions("bundles")

        world.pulsar.stale = 1
        await world.until("it was told", lambda: not world.pulsar.stale)
        await asyncio.sleep(0.3)

        assert world.env.versions("bundles") == versions

    run_sync(scenario)


def test_a_namespace_that_a_person_applies_is_created_with_its_tenant_and_bundles(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        manifest = topic_namespace("t-n", tenant="t", name="n", bundles=5, antiAffinityGroup="far")
        world.env.rest.create(world.env.path("topicnamespaces"), manifest)

        await world.until("it is ready", lambda: world.ready("t-n") == ("True", "Created"))
        await world.until("and grouped", lambda: world.pulsar.groups == {"t/n": "far"})
        await world.until("and mirrored", lambda: len(world.bundles()) == 5)

        assert world.pulsar.written[:2] == ["tenant t of fake", "namespace t/n of 5"]

    run_sync(scenario)


def test_a_namespace_that_pulsar_cut_otherwise_stays_as_it_is_and_the_object_says_so(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        world.pulsar.away = True
        world.pulsar.add("t/n", 3)
        await world.apply(topic_namespace("mine", tenant="t", name="n", bundles=5))

        await world.until("it is told", lambda: world.ready("mine")[1] == "OtherBundles")

        assert len(world.bundles()) == 3
        assert not [w for w in world.pulsar.written if w.startswith("namespace")]

    run_sync(scenario)


def test_what_was_deleted_in_pulsar_goes_and_a_persons_object_stays_and_creates_nothing_again(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        world.pulsar.away = True
        world.pulsar.add("t/n", 2)
        world.pulsar.add("t/mine", 2)
        await world.apply(topic_namespace("own", tenant="t", name="mine", bundles=2))
        await world.until("both are there", lambda: {world.ready(n) for n in ("t-n", "own")} == {("True", "Found")})

        world.pulsar.drop("t/n")
        world.pulsar.drop("t/mine")

        await world.until("it is told", lambda: world.ready("own") == ("False", "Gone"))
        await world.until("the other is gone", lambda: "t-n" not in world.spaces())
        await world.until("bundles go", lambda: not [b for b in world.env.bundles() if b.startswith("t-")])
        assert world.pulsar.written == []

    run_sync(scenario)


@pytest.mark.parametrize("astray", [{"policies"}, {"policies", "namespaces"}, {"policies", "namespaces", "tenants"}])
def test_a_404_that_is_not_pulsars_deletes_nothing(run_sync: Tell, astray: set[str]) -> None:
    async def scenario(world: Mirrored) -> None:
        world.pulsar.add("t/n", 2)
        await world.until("it is mirrored", lambda: world.ready("t-n") == ("True", "Found"))
        kept = {uid_of(b) for b in world.env.bundles().values()} | {uid_of(world.spaces()["t-n"])}

        world.pulsar.astray = astray
        world.pulsar.asked.clear()
        world.env.cluster.link.suspects.add("t/n")
        await world.until("it was looked at often", lambda: world.pulsar.asked["policies"] > 3)
        world.pulsar.astray = set()

        assert {uid_of(b) for b in world.env.bundles().values()} | {uid_of(world.spaces()["t-n"])} == kept

    run_sync(scenario)


def uid_of(raw: dict[str, Any]) -> str:
    return str(raw["metadata"]["uid"])


def test_the_namespaces_of_a_tenant_that_is_gone_go(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        world.pulsar.add("t/n", 2)
        await world.until("it is mirrored", lambda: world.ready("t-n") == ("True", "Found"))

        world.pulsar.drop("t/n")
        world.pulsar.known_tenants.remove("t")

        await world.until("it is gone", lambda: not world.spaces() and not world.bundles())

    run_sync(scenario)


def test_an_object_that_is_deleted_comes_back_and_nothing_is_deleted_in_pulsar(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        world.pulsar.add("t/n", 2, X)
        await world.until("it is mirrored", lambda: world.ready("t-n") == ("True", "Found"))
        uid = world.spaces()["t-n"]["metadata"]["uid"]

        world.env.rest.delete(world.env.path("topicnamespaces", "t-n"))
        world.env.rest.delete(world.env.path("bundles", "t-n-0x00000000-0x80000000"))

        await world.until("it is back", lambda: world.ready("t-n") == ("True", "Found"))
        assert world.spaces()["t-n"]["metadata"]["uid"] != uid
        assert (list(world.pulsar.spaces), world.pulsar.written) == (["t/n"], [])

    run_sync(scenario)


def test_isolation_and_groups_of_a_discovered_namespace_follow_pulsar(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        world.pulsar.add("t/n", 1)
        await world.until("it is mirrored", lambda: world.ready("t-n") == ("True", "Found"))

        world.pulsar.groups["t/n"] = "apart"
        world.pulsar.isolations["p"] = {
            "namespaces": ["t/.*"],
            "primary": [r"10\.0\..*"],
            "secondary": ["pulsar-0.*"],
            "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "2"}},
        }

        asked = {"primary": [r"10\.0\.0\.7-8080"], "secondary": [r"pulsar-0\.pulsar\.messaging\.svc-8080"]}
        await world.until("it follows", lambda: world.spaces()["t-n"]["spec"].get("antiAffinityGroup") == "apart")
        await world.until(
            "isolated", lambda: world.spaces()["t-n"]["spec"].get("isolation") == {**asked, "minAvailable": 2}
        )
        world.pulsar.isolations.clear()
        await world.until("isolation goes", lambda: "isolation" not in world.spaces()["t-n"]["spec"])

    run_sync(scenario)


def test_namespaces_that_are_refused_again_and_again_do_not_hold_up_the_others(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        world.pulsar.add("t/n", 1)
        await world.until("it is mirrored", lambda: world.ready("t-n") == ("True", "Found"))
        for k in range(200):
            world.pulsar.add(f"closed/{k}", 1)
        world.pulsar.forbidden = {name for name in world.pulsar.spaces if name.startswith("closed/")}
        world.env.cluster.link.suspects |= world.pulsar.forbidden
        await world.until("they are many", lambda: world.pulsar.asked["policies"] > 300)

        world.pulsar.groups["t/n"] = "apart"

        await world.until("it follows", lambda: world.spaces()["t-n"]["spec"].get("antiAffinityGroup") == "apart")

    run_sync(scenario)


def test_bundles_that_people_made_are_never_deleted(run_sync: Tell) -> None:
    async def scenario(world: Mirrored) -> None:
        world.pulsar.add("t/n", 2)
        await world.until("it is mirrored", lambda: world.ready("t-n") == ("True", "Found"))
        odd = bundle("odd", "0x01000000", "0x02000000", topicNamespace="t-n")
        world.env.rest.create(world.env.path("bundles"), odd)

        world.pulsar.asked.clear()
        await world.until("all was looked at", lambda: world.pulsar.asked["policies"] > 4)

        assert "odd" in world.env.bundles()
        assert len(world.bundles()) == 2

    run_sync(scenario)
