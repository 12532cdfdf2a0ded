"""A TopicNamespace is cut once into the bundles that Pulsar would begin with, and never takes those of another."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import kopf
import pytest

from faulty_api import until
from manifests import bundle, topic_namespace
from policy_environment import PolicyEnvironment, RunPolicy
from trimtab_operator.handlers import create_bundles
from trimtab_operator.kube.client import ApiUnavailableError
from trimtab_operator.reconcile.namespaces import cut
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.state.cluster import ClusterState
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

LEVEL = cluster(bundles=1, a=0.5, b=0.5)


def ready(env: PolicyEnvironment, name: str) -> tuple[str, str, str]:
    [condition] = env.rest.get(env.path("topicnamespaces", name))["status"]["conditions"]
    return condition["status"], condition["reason"], condition["message"]


async def made(env: PolicyEnvironment, name: str, bundles: int) -> None:
    """A person creates the object, and the operator cuts it."""
    manifest = topic_namespace(name, tenant="t", name="new", bundles=bundles)
    await cut(env.cluster, env.rest.create(env.path("topicnamespaces"), manifest))


def test_the_bundles_cover_the_ring_without_a_gap_and_the_status_says_so(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await made(env, "t-new", bundles=3)

        found = [b for b in env.bundles().values() if b["spec"]["topicNamespace"] == "t-new"]
        ranges = sorted((b["spec"]["range"]["lower"], b["spec"]["range"]["upper"]) for b in found)
        assert (ranges[0][0], ranges[-1][1], len(ranges)) == ("0x00000000", "0xffffffff", 3)
        assert all(before[1] == after[0] for before, after in pairwise(ranges))
        assert ready(env, "t-new") == ("True", "Cut", "cut into 3 bundles")

    run_policy(LEVEL, scenario)


def test_an_interrupted_cut_goes_on_and_a_finished_one_is_never_repeated(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await made(env, "t-new", bundles=4)
        victim = next(name for name, b in env.bundles().items() if b["spec"]["topicNamespace"] == "t-new")
        before = env.versions("bundles")

        env.rest.delete(env.path("bundles", victim))
        await cut(env.cluster, env.rest.get(env.path("topicnamespaces", "t-new")))
        assert victim not in env.bundles()

        env.rest.patch(env.path("topicnamespaces", "t-new", "status"), {"status": {"conditions": None}})
        await cut(env.cluster, env.rest.get(env.path("topicnamespaces", "t-new")))
        after = env.versions("bundles")
        assert after.keys() == before.keys()
        assert {name for name in after if after[name] != before[name]} == {victim}

    run_policy(LEVEL, scenario)


def test_a_second_object_for_the_same_namespace_learns_whose_the_bundles_are(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await made(env, "t-new", bundles=2)
        before = env.versions("bundles")

        await made(env, "again", bundles=2)

        assert ready(env, "again") == (
            "False",
            "AlreadyCut",
            "its bundles belong to the TopicNamespace t-new: delete one of the two",
        )
        assert env.versions("bundles") == before

    run_policy(LEVEL, scenario)


@pytest.mark.parametrize("known", [False, True], ids=["made together", "made later, and the operator has restarted"])
def test_a_second_object_with_another_number_of_bundles_gets_none(run_policy: RunPolicy, *, known: bool) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await made(env, "t-new", bundles=2)
        if known:
            store = env.cluster.stores.topic_namespaces
            await until("the store shows it", lambda: (r := store.items.get("t-new")) is not None and r.has_bundles)
            env.cluster.cut_by.clear()
        before = env.versions("bundles")

        await made(env, "again", bundles=3)

        told = "its bundles belong to the TopicNamespace t-new: delete one of the two"
        assert ready(env, "again") == ("False", "AlreadyCut", told)
        assert env.versions("bundles") == before

        env.rest.delete(env.path("topicnamespaces", "t-new"))
        await cut(env.cluster, env.rest.get(env.path("topicnamespaces", "again")))
        assert ready(env, "again") == ("True", "Cut", "cut into 3 bundles")

    run_policy(LEVEL, scenario)


def test_an_object_that_a_person_created_anew_for_another_namespace_has_no_claim(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await made(env, "t-new", bundles=2)
        env.rest.delete(env.path("topicnamespaces", "t-new"))
        env.rest.create(env.path("topicnamespaces"), topic_namespace("t-new", tenant="t", name="other", bundles=2))

        await made(env, "again", bundles=3)

        assert ready(env, "again") == ("True", "Cut", "cut into 3 bundles")

    run_policy(LEVEL, scenario)


def test_kopf_looks_again_while_another_object_has_the_bundles(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await made(env, "t-new", bundles=2)
        body = env.rest.create(env.path("topicnamespaces"), topic_namespace("again", tenant="t", name="new", bundles=3))

        class Reached:
            async def reach(self, _namespace: str) -> ClusterState:
                return env.cluster

        async def handled() -> None:
            await create_bundles(namespace="messaging", body=cast("Any", body), memo=cast("Any", Reached()))

        with pytest.raises(kopf.TemporaryError, match="another TopicNamespace has its bundles"):
            await handled()
        version = env.versions("topicnamespaces")["again"]
        body = env.rest.get(env.path("topicnamespaces", "again"))
        with pytest.raises(kopf.TemporaryError):
            await handled()
        assert env.versions("topicnamespaces")["again"] == version, "the same status is not written again"

        env.rest.delete(env.path("topicnamespaces", "t-new"))
        await handled()
        assert ready(env, "again") == ("True", "Cut", "cut into 3 bundles")

    run_policy(LEVEL, scenario)


def test_a_bundle_of_a_superfluous_object_gets_no_owner(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await made(env, "t-new", bundles=2)
        await made(env, "again", bundles=2)
        store = env.cluster.stores.topic_namespaces
        await until("the store shows it", lambda: (r := store.items.get("again")) is not None and r.superfluous)

        env.rest.create(env.path("bundles"), bundle("by-hand", topicNamespace="again"))
        await env.reconcile(after=20)

        assert env.desired_owners()["by-hand"] == ""
        assert all(owner for name, owner in env.desired_owners().items() if name != "by-hand")

    run_policy(LEVEL, scenario)


def test_a_namespace_that_pulsar_has_or_will_have_is_not_cut(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        before = env.versions("bundles")
        found = topic_namespace("t-found", tenant="t", name="found", bundles=3)
        found["metadata"]["labels"] = {"trimtab.dev/discovered": "true"}
        await cut(env.cluster, env.rest.create(env.path("topicnamespaces"), found))

        env.cluster.link.spec = PulsarSpec(admin_url="http://pulsar.messaging.svc:8080")
        await made(env, "t-new", bundles=2)

        assert env.versions("bundles") == before

    run_policy(LEVEL, scenario)


def test_a_namespace_is_not_cut_while_the_policy_that_names_pulsar_does_not_run(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        before = env.versions("bundles")
        env.edit(pulsar={"adminUrl": "http://pulsar.messaging.svc:8080"})
        with pytest.raises(ApiUnavailableError, match=r"t-new: a policy with spec\.pulsar does not run yet"):
            await made(env, "t-new", bundles=2)

        await env.loop.reconcile()
        await cut(env.cluster, env.rest.get(env.path("topicnamespaces", "t-new")))

        assert env.versions("bundles") == before, "Pulsar has its bundles"

    run_policy(LEVEL, scenario)
