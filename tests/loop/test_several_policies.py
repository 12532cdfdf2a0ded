"""Several policies in one Kubernetes namespace: each over its own brokers, none over another's."""

from __future__ import annotations

import pytest

from faulty_api import until
from manifests import topic_namespace
from policy_scene import Play, PolicyScene, eager
from trimtab_operator.state.cluster import ClusterState
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

TWO_PAIRS = cluster(bundles={"a": [1] * 8, "b": [1], "c": [1] * 8, "d": [1]}, a=0.8, b=0.2, c=0.8, d=0.2)
FIRST, SECOND = {"names": ["a", "b"]}, {"names": ["c", "d"]}


async def add_bundle(scene: PolicyScene) -> None:
    """There is a bundle `new-bundle`, the only one of its namespace, that nobody owns yet."""
    scene.rest.create(scene.path("topicnamespaces"), topic_namespace("t-new", tenant="t", name="new"))
    await until("its namespace is known", lambda: "t-new" in scene.context.stores.topic_namespaces.items)
    full = "t/new/0x00000000_0xffffffff"
    scene.names[full] = "new-bundle"
    scene.add_bundle(full, "")


def test_each_policy_moves_bundles_of_its_own_brokers_alone(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        before = scene.owners()
        second = scene.add_policy("second", **eager(), brokers=SECOND)
        await scene.cycle()
        left = {before[name] for name, desired in scene.desired_owners().items() if desired != before[name]}
        assert left == {"a"}

        await second.reconcile()
        await scene.seen()

        moved = {(before[name], desired) for name, desired in scene.desired_owners().items() if desired != before[name]}
        assert moved == {("a", "b"), ("c", "d")}
        assert scene.condition("Ready") == scene.condition("Ready", "second") == ("True", "Cycled")
        policies = {
            scene.bundles()[name]["spec"]["assignment"]["policy"]
            for name in before
            if scene.desired_owners()[name] in {"b", "d"} and before[name] in {"a", "c"}
        }
        assert policies == {"main", "second"}

    play(TWO_PAIRS, story, brokers=FIRST)


def test_a_second_policy_that_shares_a_broker_is_refused_naming_both_until_it_does_not(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        second = scene.add_policy("second", **eager(), brokers={"names": ["b", "c", "d"]})
        await scene.cycle()
        await second.reconcile()

        assert scene.condition("Valid", "second") == ("False", "InvalidPolicy")
        message = next(c["message"] for c in scene.status("second")["conditions"] if c["type"] == "Valid")
        assert "policies main and second would both balance b:" in message
        assert scene.condition("Ready") == ("True", "Cycled")

        scene.rest.patch(scene.path("balancingpolicies", "second"), {"spec": {"brokers": SECOND}})
        await second.reconcile()
        assert scene.condition("Ready", "second") == ("True", "Cycled")

    play(TWO_PAIRS, story, brokers=FIRST)


def test_bundles_of_a_lost_broker_stay_among_the_brokers_of_its_policy(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        second = scene.add_policy("second", **eager(maxLostBrokers=60), brokers=SECOND)
        await scene.reconcile()
        await second.reconcile()
        orphans = [name for name, owner in scene.owners().items() if owner == "c"]
        scene.rest.patch(scene.path("brokers", "c", "status"), {"status": {"ready": False}})
        for _ in range(3):
            await scene.reconcile(after=31)
            await second.reconcile()
            await scene.land()

        assert {scene.owners()[name] for name in orphans} == {"d"}

    play(TWO_PAIRS, story, brokers=FIRST)


def test_a_new_bundle_is_housed_once_by_the_oldest_policy(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        second = scene.add_policy("second", **eager(), brokers=SECOND)
        await add_bundle(scene)
        for _ in range(2):
            await scene.reconcile(after=2)
            await second.reconcile()
            await scene.seen()

        assert scene.desired_owners()["new-bundle"] in {"a", "b"}
        assert scene.bundles()["new-bundle"]["metadata"]["generation"] == 2

    play(TWO_PAIRS, story, brokers=FIRST)


def test_a_look_at_the_brokers_goes_through_no_bundles(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    async def story(scene: PolicyScene) -> None:
        second = scene.add_policy("second", mode="DryRun", brokers=SECOND)
        await second.reconcile()
        await scene.reconcile()
        await scene.reconcile(after=5)
        monkeypatch.setattr(ClusterState, "caretaker", lambda _, record: asked.append(record.name) or "main")
        await scene.reconcile(after=5)

        assert asked == []

    play(TWO_PAIRS, story, brokers=FIRST, mode="DryRun")


NOWHERE = {"windows": [{"start": "22:00", "duration": "1h", "timeZone": "Nowhere/Land"}]}
"""A mistake that the API server can't see."""


def test_a_mistake_in_the_older_policy_does_not_set_a_younger_one_loose(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        second = scene.add_policy("second", **eager())
        scene.edit(**NOWHERE)
        await scene.reconcile()
        await second.reconcile()

        assert scene.condition("Valid") == scene.condition("Valid", "second") == ("False", "InvalidPolicy")
        assert scene.desired_owners() == scene.owners()

    play(TWO_PAIRS, story, brokers=FIRST)


def test_others_give_owners_to_new_bundles_while_the_oldest_policy_cannot_be_run(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        second = scene.add_policy("second", **eager(), brokers=SECOND)
        scene.edit(**NOWHERE)
        await scene.reconcile()
        await add_bundle(scene)
        await scene.seen()
        await second.reconcile()

        assert scene.desired_owners()["new-bundle"] in {"c", "d"}

    play(TWO_PAIRS, story, brokers=FIRST)


def test_a_policy_that_is_edited_wrongly_still_gives_owners_to_its_bundles(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        scene.edit(**NOWHERE)
        await add_bundle(scene)
        await scene.reconcile(after=1)

        assert scene.condition("Valid") == ("False", "InvalidPolicy")
        assert scene.desired_owners()["new-bundle"] in {"a", "b"}

    play(TWO_PAIRS, story, mode="DryRun", brokers=FIRST)


def gauges(scene: PolicyScene) -> list[bytes]:
    """The metrics that say how things are, and not how often something happened."""
    lines = scene.context.metrics.text().splitlines()
    counted = (b"_total", b"_created", b"_bucket", b"_count", b"_sum")
    return [line for line in lines if not any(word in line for word in counted)]


def test_when_a_policy_goes_its_brokers_are_free_for_another(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        second = scene.add_policy("second", **eager())
        await scene.cycle()
        await second.reconcile()
        assert scene.condition("Valid", "second") == ("False", "InvalidPolicy")

        scene.context.leave("main")
        assert b'policy="main"' not in b"".join(gauges(scene))
        await second.reconcile()
        assert scene.condition("Ready", "second") == ("True", "Cycled")

    play(TWO_PAIRS, story, brokers=FIRST)
