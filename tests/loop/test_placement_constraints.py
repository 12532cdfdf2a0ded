"""What namespaces, brokers and policies ask for decides where bundles may go; on a real API server."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from faulty_api import until
from policy_scene import Play, PolicyScene
from trimtab_operator import app
from trimtab_operator.kube.client import RefusedError
from trimtab_operator.reconcile.namespaces import Examiner
from trimtab_strategies.testing import cluster, with_bundles

pytestmark = pytest.mark.apiserver

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.0)
NEW = cluster(bundles=1, unowned=4, a=0.6, b=0.5, c=0.0)
PAIR = with_bundles(
    cluster(bundles={"a": [1], "b": [1]}, a=0.9, b=0.8, c=0.0, d=0.9), owner=dict.fromkeys(range(2), -1)
)


async def ask(scene: PolicyScene, space: str, **spec: Any) -> None:
    """A person edits the TopicNamespace, and the operator has seen it."""
    found = scene.rest.patch(scene.path("topicnamespaces", space), {"spec": spec})
    await shown(scene.context.stores.topic_namespaces.items, space, found)


async def describe(scene: PolicyScene, name: str, **spec: Any) -> None:
    """A person says what a broker is, and the operator has seen it."""
    found = scene.rest.patch(scene.path("brokers", name), {"spec": spec})
    await shown(scene.context.stores.brokers.items, name, found)


async def shown(items: Any, name: str, found: Any) -> None:
    version = found["metadata"]["resourceVersion"]
    await until(f"the store shows {name}", lambda: items[name].resource_version == version)


async def examine(scene: PolicyScene) -> None:
    """The operator looks at what is asked; what it writes has been seen."""
    await Examiner(scene.context).examine()
    versions = scene.versions("topicnamespaces")
    items = scene.context.stores.topic_namespaces.items
    await until("the store shows them", lambda: {n: r.resource_version for n, r in items.items()} == versions)


def where(scene: PolicyScene, space: str) -> Counter[str]:
    """Who is wished to have how many bundles of a namespace."""
    found = scene.bundles().values()
    return Counter(b["spec"].get("owner", "") for b in found if b["spec"]["topicNamespace"] == space)


def held_back(scene: PolicyScene) -> dict[str, int]:
    found: dict[str, int] = scene.status()["lastCycle"]["heldBack"]
    return found


def valid(scene: PolicyScene, space: str) -> tuple[str, str, str]:
    conditions = scene.rest.get(scene.path("topicnamespaces", space)).get("status", {}).get("conditions", [])
    return next(((c["status"], c["reason"], c["message"]) for c in conditions if c["type"] == "Valid"), ("", "", ""))


def test_a_namespace_isolated_to_two_brokers_is_never_moved_elsewhere(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await ask(scene, "public-a", isolation={"primary": ["a", "b.*"]})

        for _ in range(3):
            await scene.cycle()
            await scene.land()

        assert set(where(scene, "public-a")) == {"a", "b"}

    play(HOT, story, limits={"coolDown": "1s"})


def test_without_isolation_the_same_bundles_go_to_the_least_used_broker(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        assert where(scene, "public-a")["c"] > 0

    play(HOT, story)


def test_a_namespace_without_isolation_keeps_off_the_brokers_of_others(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await ask(scene, "public-c", isolation={"primary": ["c"]})

        await scene.reconcile()

        assert set(where(scene, "public-a")) == {"a", "b"}

    play(HOT, story)


def test_an_unowned_bundle_goes_to_a_broker_its_namespace_names(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await ask(scene, "public-new", isolation={"primary": ["a|b"]})

        await scene.reconcile()

        assert set(where(scene, "public-new")) == {"a", "b"}

    play(NEW, story)


def test_an_unowned_bundle_that_no_broker_may_have_waits_with_a_reason(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await ask(scene, "public-new", isolation={"primary": ["nobody"]})

        await scene.reconcile()

        assert set(where(scene, "public-new")) == {""}
        told = dict(scene.events())
        assert "no broker may have it" in told["Isolation"]
        assert told["InvalidPolicy"] == "public/new: isolation matches no broker with 'nobody': name hosts that exist"

    play(NEW, story)


def test_secondary_brokers_serve_while_too_few_primary_ones_can(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await ask(scene, "public-new", isolation={"primary": ["a"], "secondary": ["b"]})
        scene.rest.patch(scene.path("brokers", "a", "status"), {"status": {"ready": False}})

        await scene.reconcile()

        assert set(where(scene, "public-new")) == {"b"}

    play(NEW, story)


def test_namespaces_of_a_group_are_kept_on_different_brokers(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        for space in ("public-a", "public-b"):
            await ask(scene, space, antiAffinityGroup="shop")

        await scene.reconcile()

        assert len({*where(scene, "public-a"), *where(scene, "public-b")} - {""}) == 2

    play(PAIR, story)


def test_without_a_group_both_go_to_the_least_used_broker(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        assert {*where(scene, "public-a"), *where(scene, "public-b")} == {"c"}

    play(PAIR, story)


def test_a_group_is_spread_over_failure_domains_first(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        for space in ("public-a", "public-b"):
            await ask(scene, space, antiAffinityGroup="shop")
        for name, zone in {"a": "north", "b": "south", "c": "south", "d": "south"}.items():
            await describe(scene, name, failureDomain=zone)

        await scene.reconcile()

        owners = {*where(scene, "public-a"), *where(scene, "public-b")}
        assert "a" in owners, "the most used broker, as it is the only one of its zone"
        assert len(owners) == 2

    play(PAIR, story, selection={"type": "Extensible", "extensible": {"failureDomains": True}})


def test_a_namespace_that_is_not_balanced_stays_where_it_is(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await ask(scene, "public-a", balanced=False)

        await scene.reconcile()

        assert where(scene, "public-a") == {"a": 8}
        assert held_back(scene)["Excluded"] == 8

    play(HOT, story)


def test_a_namespace_that_is_not_balanced_still_gets_owners(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await ask(scene, "public-new", balanced=False)

        await scene.reconcile()

        assert "" not in where(scene, "public-new")

    play(NEW, story)


def test_the_extensible_selection_counts_topics(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        assert where(scene, "public-a") == {"a": 7, "c": 1}
        assert held_back(scene)["TopicLimit"] > 0

    play(HOT, story, selection={"type": "Extensible", "extensible": {"maxTopics": 1}})


def test_the_modular_selection_distributes_a_namespace_evenly(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        owners = where(scene, "public-a")
        assert owners["b"] > 0
        assert abs(owners["b"] - owners["c"]) <= 1

    play(HOT, story, selection={"type": "Modular"})


def test_a_selection_that_prefers_later_versions_leaves_out_the_older_broker(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        for name, version in {"a": "4.2.4", "b": "4.2.4", "c": "4.0.8"}.items():
            await describe(scene, name, version=version)

        await scene.reconcile()

        assert set(where(scene, "public-a")) == {"a", "b"}

    play(HOT, story, selection={"type": "Extensible", "extensible": {"preferLaterVersions": True}})


def test_a_broker_that_does_not_name_its_load_manager_passes_and_another_one_does_not(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await describe(scene, "b", failureDomain="north")
        await describe(scene, "c", loadManager="Theirs")

        await scene.reconcile()

        assert set(where(scene, "public-a")) == {"a", "b"}

    play(HOT, story, selection={"type": "Extensible", "extensible": {"loadManager": "Ours"}})


def test_a_broker_that_is_primary_and_secondary_is_reported_until_that_is_mended(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await ask(scene, "public-a", isolation={"primary": ["a", "b"], "secondary": ["[bc]"]})
        await examine(scene)
        await scene.reconcile()
        problem = "host 'b' is primary and secondary of the isolation policy: let only one pattern match it"
        assert valid(scene, "public-a") == ("False", "InvalidPolicy", problem)
        assert held_back(scene)["InvalidPolicy"] == 1

        await ask(scene, "public-a", isolation={"secondary": ["c"]})
        await examine(scene)
        await scene.cycle()
        assert valid(scene, "public-a")[:2] == ("True", "Valid")
        assert "InvalidPolicy" not in held_back(scene)

    play(HOT, story)


@pytest.mark.parametrize(
    ("primary", "words"),
    [
        ("a(", ["'a('", "is not a regular expression", "correct it"]),
        ("a-[0-9]", ["matches no broker", "'a-[0-9]'", "name hosts that exist"]),
    ],
    ids=["malformed", "nobody"],
)
def test_a_pattern_that_nothing_can_match_is_reported_naming_it(primary: str, words: list[str], play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await ask(scene, "public-a", isolation={"primary": [primary]})

        await examine(scene)

        status, reason, message = valid(scene, "public-a")
        assert (status, reason) == ("False", "InvalidPolicy")
        assert [word for word in words if word not in message] == []

    play(HOT, story)


def test_what_was_reported_is_not_written_again_and_what_is_fine_is_not_reported(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await ask(scene, "public-a", isolation={"primary": ["nobody"]})
        await ask(scene, "public-b", isolation={"primary": ["b"]})
        await examine(scene)
        before = scene.versions("topicnamespaces")

        await examine(scene)

        assert scene.versions("topicnamespaces") == before
        assert valid(scene, "public-b") == ("", "", "")

    play(HOT, story)


def test_a_missing_broker_that_appears_mends_the_isolation(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await ask(scene, "public-a", isolation={"primary": ["late"]})
        await examine(scene)
        assert valid(scene, "public-a")[0] == "False"

        made = scene.rest.create(
            scene.path("brokers"),
            {
                "apiVersion": "trimtab.dev/v1alpha1",
                "kind": "Broker",
                "metadata": {"name": "late"},
                "spec": {"pod": "late"},
            },
        )
        items = scene.context.stores.brokers.items
        await until("the broker is seen", lambda: made["metadata"]["name"] in items)
        await examine(scene)

        assert valid(scene, "public-a")[0] == "True"

    play(HOT, story)


def test_the_running_operator_tells_without_any_policy_and_one_refusal_is_not_the_others_trouble(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.rest.delete(scene.path("balancingpolicies", "main"))
        for space in ("public-a", "public-b"):
            await ask(scene, space, isolation={"primary": ["nobody"]})
        patch = scene.context.api.patch

        async def refusing(ref, namespace, name, body, **how):  # noqa: ANN001, ANN003, ANN202  the client's own
            if name == "public-a":
                raise RefusedError("403 a webhook says no", status=403)
            return await patch(ref, namespace, name, body, **how)

        scene.context.api.patch = refusing  # type: ignore[method-assign]
        running = asyncio.create_task(app.examine_topic_namespaces(scene.context))
        await until("the problem is told", lambda: valid(scene, "public-b")[0] == "False")
        running.cancel()
        await asyncio.wait({running})

        assert valid(scene, "public-a") == ("", "", "")

    play(HOT, story)


def test_a_condition_of_another_kind_is_kept(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        cut = {
            "type": "Ready",
            "status": "True",
            "reason": "Cut",
            "message": "",
            "lastTransitionTime": "2026-01-31T12:00:00Z",
        }
        scene.rest.patch(scene.path("topicnamespaces", "public-a", "status"), {"status": {"conditions": [cut]}})
        await ask(scene, "public-a", isolation={"primary": ["nobody"]})

        await examine(scene)

        found = scene.rest.get(scene.path("topicnamespaces", "public-a"))["status"]["conditions"]
        assert [(c["type"], c["status"]) for c in found] == [("Ready", "True"), ("Valid", "False")]

    play(HOT, story)
