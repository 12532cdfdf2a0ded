"""A TopicNamespace is cut once into the bundles that Pulsar would begin with, and never takes those of another."""

from __future__ import annotations

from itertools import pairwise

import pytest

from faulty_api import until
from manifests import bundle, topic_namespace
from policy_environment import PolicyEnvironment, RunPolicy
from strategy_testing.clusters import cluster
from trimtab_operator.kube.client import ApiUnavailableError
from trimtab_operator.kube.records import topic_namespace_record
from trimtab_operator.reconcile.hash_ring import SETTLES, RingStatus
from trimtab_operator.reconcile.namespaces import LOOK_AGAIN, TRY_AGAIN, Cutter, cut
from trimtab_operator.resources.pulsar import PulsarSpec

pytestmark = pytest.mark.apiserver

LEVEL = cluster(bundles=1, a=0.5, b=0.5)


def ready(env: PolicyEnvironment, name: str) -> tuple[str, str, str]:
    [condition] = env.rest.get(env.path("topicnamespaces", name))["status"]["conditions"]
    return condition["status"], condition["reason"], condition["message"]


async def made(env: PolicyEnvironment, name: str, bundles: int) -> None:
    """A person creates the object, and the operator cuts it."""
    created(env, name, bundles)
    await cut_again(env, name)


def created(env: PolicyEnvironment, name: str, bundles: int) -> None:
    env.rest.create(env.path("topicnamespaces"), topic_namespace(name, tenant="t", name="new", bundles=bundles))


async def cut_again(env: PolicyEnvironment, name: str) -> None:
    await cut(env.cluster, topic_namespace_record(env.rest.get(env.path("topicnamespaces", name))))


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
        await cut_again(env, "t-new")
        assert victim not in env.bundles()

        env.rest.patch(env.path("topicnamespaces", "t-new", "status"), {"status": {"conditions": None}})
        await cut_again(env, "t-new")
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
        await cut_again(env, "again")
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


def test_the_operator_looks_again_while_another_object_has_the_bundles(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        cutter = Cutter(env.cluster)
        await made(env, "t-new", bundles=2)
        created(env, "again", bundles=3)
        await seen(env)
        await cutter.cut()
        assert ready(env, "again")[1] == "AlreadyCut"

        version = env.versions("topicnamespaces")["again"]
        env.rest.delete(env.path("topicnamespaces", "t-new"))
        await seen(env)
        await cutter.cut()
        assert env.versions("topicnamespaces")["again"] == version, "it is too early to ask again"

        env.clock += LOOK_AGAIN
        await cutter.cut()
        assert ready(env, "again") == ("True", "Cut", "cut into 3 bundles")

    run_policy(LEVEL, scenario)


async def seen(env: PolicyEnvironment) -> None:
    """Wait until the stores show the bundles and the TopicNamespaces of the API server."""
    await env.seen()
    versions, store = env.versions("topicnamespaces"), env.cluster.stores.topic_namespaces
    await until("the store shows it", lambda: {n: r.resource_version for n, r in store.items.items()} == versions)


def controllers(env: PolicyEnvironment, space: str) -> set[str]:
    """The uids of the TopicNamespaces that control the bundles of `space`."""
    own = [b["metadata"] for b in env.bundles().values() if b["spec"]["topicNamespace"] == space]
    return {owner["uid"] for meta in own for owner in meta["ownerReferences"]}


@pytest.mark.parametrize("known", [True, False], ids=["the store shows the old ones", "it does not show them yet"])
def test_a_namespace_created_anew_waits_for_the_end_of_the_old_bundles(run_policy: RunPolicy, *, known: bool) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await made(env, "t-new", bundles=2)
        old = {name for name, b in env.bundles().items() if b["spec"]["topicNamespace"] == "t-new"}
        if known:
            await env.seen()
        else:
            env.cluster.rings._members.clear()
        before = env.versions("bundles")
        env.rest.delete(env.path("topicnamespaces", "t-new"))
        await made(env, "t-new", bundles=2)

        told = "t-new-0x00000000-0x80000000, t-new-0x80000000-0xffffffff belong to a TopicNamespace of this name"
        waits = f"{told} that was deleted: waits until Kubernetes has removed them"
        assert ready(env, "t-new") == ("False", "OldBundles", waits)
        assert env.versions("bundles") == before

        for name in old:  # as Kubernetes does
            env.rest.delete(env.path("bundles", name))
        await seen(env)
        await cut_again(env, "t-new")
        assert ready(env, "t-new") == ("True", "Cut", "cut into 2 bundles")
        uid = env.rest.get(env.path("topicnamespaces", "t-new"))["metadata"]["uid"]
        assert controllers(env, "t-new") == {uid}

    run_policy(LEVEL, scenario)


def test_bundles_that_outlived_their_namespace_on_purpose_stay(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await made(env, "t-new", bundles=2)
        low, middle, high = "0x00000000", "0x40000000", "0x80000000"
        env.rest.delete(env.path("bundles", f"t-new-{low}-{high}"))  # it was split
        for lower, upper in ((low, middle), (middle, high)):
            env.rest.create(env.path("bundles"), bundle(f"t-new-{lower}-{upper}", lower, upper, topicNamespace="t-new"))
        for name, found in env.bundles().items():  # as `kubectl delete --cascade=orphan` does
            if found["spec"]["topicNamespace"] == "t-new":
                env.rest.patch(env.path("bundles", name), {"metadata": {"ownerReferences": None}})
        before = env.versions("bundles")
        await env.seen()
        env.rest.delete(env.path("topicnamespaces", "t-new"))
        await made(env, "t-new", bundles=2)

        assert ready(env, "t-new")[:2] == ("True", "Cut")
        assert env.versions("bundles") == before

    run_policy(LEVEL, scenario)


def test_a_namespace_that_lost_all_its_bundles_is_cut_again(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        cutter, rings = Cutter(env.cluster), RingStatus(env.cluster)
        await made(env, "t-new", bundles=2)
        first = {name for name, b in env.bundles().items() if b["spec"]["topicNamespace"] == "t-new"}
        for name in first:
            env.rest.delete(env.path("bundles", name))
        for _ in range(2):
            await seen(env)
            await rings.check()
            env.clock += SETTLES
        assert ready(env, "t-new")[:2] == ("False", "Gap")

        await seen(env)
        env.clock += TRY_AGAIN
        await cutter.cut()

        assert ready(env, "t-new") == ("True", "Cut", "cut into 2 bundles")
        assert first <= env.bundles().keys()

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
        env.rest.create(env.path("topicnamespaces"), found)
        await cut_again(env, "t-found")

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
        await cut_again(env, "t-new")

        assert env.versions("bundles") == before, "Pulsar has its bundles"

    run_policy(LEVEL, scenario)
