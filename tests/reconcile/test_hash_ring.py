"""A hash ring that is not whole is told on its TopicNamespace, and a Bundle that overlaps others gets no owner."""

from __future__ import annotations

from typing import Any

import pytest

from faulty_api import until
from manifests import bundle, topic_namespace
from policy_environment import PolicyEnvironment, RunPolicy
from strategy_testing.clusters import cluster
from trimtab_operator.kube.records import topic_namespace_record
from trimtab_operator.reconcile.hash_ring import SETTLES, RingStatus
from trimtab_operator.reconcile.namespaces import cut
from trimtab_operator.resources.bundle import PARENT
from trimtab_operator.resources.pulsar import PulsarSpec

pytestmark = pytest.mark.apiserver

LEVEL = cluster(bundles=1, a=0.5, b=0.5)
QUARTERS = ("0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff")
CUT = ("True", "Cut")


class Watched:
    """An environment with the TopicNamespace `t-new`, cut into four bundles, and what is told of it."""

    def __init__(self, env: PolicyEnvironment) -> None:
        self.env, self.status = env, RingStatus(env.cluster)

    async def begin(self) -> Watched:
        manifest = topic_namespace("t-new", tenant="t", name="new", bundles=4)
        made = self.env.rest.create(self.env.path("topicnamespaces"), manifest)
        await cut(self.env.cluster, topic_namespace_record(made))
        await self.assigned()
        return self

    async def assigned(self) -> None:
        """Reconciliation gives owners to bundles that have none, and the brokers take them."""
        await self.env.reconcile(after=20)
        await self.env.land()

    def add(self, name: str, lower: str, upper: str, parent: str = "", space: str = "t-new", **spec: Any) -> None:
        """What a person does with kubectl."""
        manifest = bundle(name, lower, upper, topicNamespace=space, **spec)
        if parent:
            manifest["metadata"]["annotations"] = {PARENT: parent}
        self.env.rest.create(self.env.path("bundles"), manifest)

    def delete(self, quarter: int) -> str:
        name = f"t-new-{QUARTERS[quarter]}-{QUARTERS[quarter + 1]}"
        self.env.rest.delete(self.env.path("bundles", name))
        return name

    async def look(self, *, after: float = 0.0) -> tuple[str, str]:
        """Status and reason of `Ready` after one look."""
        await self._seen()
        self.env.clock += after
        await self.status.check()
        return self.ready()[:2]

    async def settled(self) -> tuple[str, str]:
        """The same after a fault has lasted."""
        await self.look()
        return await self.look(after=SETTLES)

    async def _seen(self) -> None:
        await self.env.seen()
        versions = self.env.versions("topicnamespaces")
        items = self.env.cluster.stores.topic_namespaces.items
        await until("the store shows it", lambda: {n: r.resource_version for n, r in items.items()} == versions)

    def ready(self) -> tuple[str, str, str]:
        found = self.env.rest.get(self.env.path("topicnamespaces", "t-new"))["status"]["conditions"]
        [ready] = [condition for condition in found if condition["type"] == "Ready"]
        return ready["status"], ready["reason"], ready["message"]

    def faults(self) -> dict[str, float]:
        [metric] = self.env.cluster.metrics.ring_faults.collect()
        return {sample.labels["kind"]: sample.value for sample in metric.samples}


def test_a_hole_is_reported_with_its_range_and_its_end_is_reported_too(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        watched = await Watched(env).begin()
        assert await watched.settled() == CUT

        watched.delete(1)
        assert await watched.look() == CUT
        assert await watched.look(after=SETTLES) == ("False", "Gap")
        hole = "no bundle has the hashes 0x40000000 to 0x80000000, whose topics have no owner"
        assert watched.ready()[2] == f"{hole}: create a Bundle for each range"
        assert watched.faults() == {"Gap": 1, "Overlap": 0, "Unknown": 0}
        before = env.versions("topicnamespaces")
        await watched.settled()
        assert env.versions("topicnamespaces") == before

        watched.add("mended", "0x40000000", "0x80000000")
        await watched.assigned()
        assert await watched.look() == CUT
        assert env.owners()["mended"] in {"a", "b"}
        assert watched.faults() == {"Gap": 0, "Overlap": 0, "Unknown": 0}
        assert sorted(reason for reason, _ in env.events() if reason in {"Gap", "Cut"}) == ["Cut", "Gap"]

    run_policy(LEVEL, scenario, mode="DryRun")


def test_all_bundles_gone_is_a_hole_also_for_an_operator_that_never_saw_them(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        watched = await Watched(env).begin()
        for quarter in range(4):
            watched.delete(quarter)
        watched.status = RingStatus(env.cluster)

        assert await watched.settled() == ("False", "Gap")
        assert "0x00000000 to 0xffffffff" in watched.ready()[2]

    run_policy(LEVEL, scenario, mode="DryRun")


def test_a_newcomer_that_overlaps_gets_no_owner_and_those_in_place_keep_theirs(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        watched = await Watched(env).begin()
        before = env.owners()

        watched.add("a-newcomer", "0x20000000", "0x50000000")
        await watched.assigned()
        assert await watched.settled() == ("False", "Overlap")
        await watched.assigned()

        assert env.owners() == {**before, "a-newcomer": ""}
        assert env.desired_owners()["a-newcomer"] == ""
        text = "a-newcomer overlaps t-new-0x40000000-0x80000000: delete the first bundle of each pair, it gets no owner"
        assert watched.ready()[2] == text
        assert watched.faults() == {"Gap": 0, "Overlap": 1, "Unknown": 0}

        env.rest.delete(env.path("bundles", "a-newcomer"))
        assert await watched.look() == CUT

    run_policy(LEVEL, scenario, mode="DryRun")


def test_a_bundle_with_the_range_of_another_one_ends_no_decisions(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        watched = await Watched(env).begin()

        watched.add("twin", "0x40000000", "0x80000000")
        await watched.settled()
        await env.whole_turn(after=60)

        assert env.condition("Ready") == ("True", "Cycled"), env.message("Ready")
        assert env.owners()["twin"] == ""

    run_policy(LEVEL, scenario, mode="DryRun")


def test_an_owner_that_a_person_writes_for_a_bundle_that_overlaps_is_withdrawn(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        watched = await Watched(env).begin()
        before = env.owners()

        watched.add("a-newcomer", "0x20000000", "0x50000000", owner="a")
        await env.reconcile(after=20)

        assert env.desired_owners()["a-newcomer"] == ""
        await watched.assigned()
        assert env.owners() == {**before, "a-newcomer": ""}
        told = [text for reason, text in env.events() if reason == "Overlap"]
        assert any("a-newcomer" in text for text in told)

    run_policy(LEVEL, scenario, mode="DryRun")


def test_a_bundle_that_overlaps_and_is_served_all_the_same_is_told_first(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        watched = await Watched(env).begin()
        watched.add("a-newcomer", "0x20000000", "0x50000000")
        watched.add("z-served", "0x80000000", "0xa0000000")
        env.rest.patch(env.path("bundles", "z-served", "status"), {"status": {"owner": "a", "state": "Owned"}})

        assert await watched.settled() == ("False", "Overlap")

        text = watched.ready()[2]
        assert text.startswith("z-served overlaps t-new-0x80000000-0xc0000000 (brokers serve both), a-newcomer")

    run_policy(LEVEL, scenario, mode="DryRun")


def test_a_newcomer_gets_an_owner_once_those_in_place_are_gone(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        watched = await Watched(env).begin()
        watched.add("a-newcomer", "0x00000000", "0x80000000")
        await watched.assigned()
        assert env.owners()["a-newcomer"] == ""

        watched.delete(0)
        await watched.assigned()
        assert env.owners()["a-newcomer"] == ""
        watched.delete(1)
        await watched.assigned()

        assert env.owners()["a-newcomer"] in {"a", "b"}
        assert await watched.settled() == CUT

    run_policy(LEVEL, scenario, mode="DryRun")


def test_a_split_in_progress_is_no_overlap_and_its_end_no_hole(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        watched = await Watched(env).begin()
        parent = f"t-new-{QUARTERS[0]}-{QUARTERS[1]}"
        watched.add("low", "0x00000000", "0x20000000", parent, owner="a")
        watched.add("high", "0x20000000", "0x40000000", parent, owner="a")
        assert await watched.settled() == CUT

        watched.delete(0)
        assert await watched.settled() == CUT
        for child in ("low", "high"):
            env.rest.patch(env.path("bundles", child), {"metadata": {"annotations": {PARENT: None}}})
        assert await watched.settled() == CUT

    run_policy(LEVEL, scenario, mode="DryRun")


def test_neither_a_namespace_that_is_not_cut_yet_nor_one_that_is_deleted_has_a_hole(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        watched = await Watched(env).begin()
        half_cut = topic_namespace("t-half", tenant="t", name="half")
        env.rest.create(env.path("topicnamespaces"), half_cut)
        watched.add("first", "0x00000000", "0x40000000", space="t-half")
        keep = {"metadata": {"finalizers": ["example.com/keep"]}}
        env.rest.patch(env.path("topicnamespaces", "t-new"), keep)
        env.rest.delete(env.path("topicnamespaces", "t-new"))
        watched.delete(2)

        assert await watched.settled() == CUT
        assert "conditions" not in env.rest.get(env.path("topicnamespaces", "t-half")).get("status", {})
        assert watched.faults() == {"Gap": 0, "Overlap": 0, "Unknown": 0}

    run_policy(LEVEL, scenario, mode="DryRun")


def test_a_ring_with_a_hole_is_not_cut_again_when_the_operator_restarts(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        watched = await Watched(env).begin()
        victim = watched.delete(3)
        assert await watched.settled() == ("False", "Gap")

        await cut(env.cluster, topic_namespace_record(env.rest.get(env.path("topicnamespaces", "t-new"))))

        assert victim not in env.bundles()
        assert watched.ready()[1] == "Gap"

    run_policy(LEVEL, scenario, mode="DryRun")


def test_bundles_of_a_topic_namespace_that_does_not_exist_are_reported_once(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        watched = await Watched(env).begin()
        for number in range(4):
            watched.add(f"stray-{number}", QUARTERS[number], QUARTERS[number + 1], space="t-tpyo")
        await watched.settled()
        await watched.settled()

        [note] = [note for reason, note in env.events() if reason == "UnknownTopicNamespace"]
        stray = "4 bundles (stray-0, stray-1, stray-2 and 1 more) get no owner from Trimtab"
        assert note == f"spec.topicNamespace t-tpyo names no TopicNamespace: {stray}. Create it, or delete them"
        assert watched.faults() == {"Gap": 0, "Overlap": 0, "Unknown": 4}
        assert watched.ready()[:2] == CUT

    run_policy(LEVEL, scenario, mode="DryRun")


def test_a_linked_pulsar_cluster_has_the_ring_itself(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        watched = await Watched(env).begin()
        watched.delete(1)
        env.cluster.link.spec = PulsarSpec(admin_url="http://pulsar.messaging.svc:8080")

        assert await watched.settled() == CUT
        assert watched.faults() == {"Gap": 0, "Overlap": 0, "Unknown": 0}

    run_policy(LEVEL, scenario, mode="DryRun")
