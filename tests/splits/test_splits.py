"""Splits on a real API server: ordered by a person, carried out step by step, whatever comes in between.

After every single write each hash of the ring is served by exactly one bundle (`declarative_splits.check_served`).
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from declarative_splits import DiedError, SplitOperator, condition, half, halves, leftovers, order, split_status, splits
from policy_scene import Play, PolicyScene
from trimtab_operator.kube.client import ApiUnavailableError
from trimtab_operator.kube.records import SplitRecord
from trimtab_operator.splits import controller
from trimtab_operator.splits.controller import SPLIT_WITHIN, WAIT_FOR
from trimtab_operator.splits.steps import SplitOrder
from trimtab_operator.splits.validation import order_of
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

LOAD = cluster(bundles={"a": [1] * 32, "b": [1]}, a=0.5, b=0.5, c=0.1)


def bundle(scene: PolicyScene, row: int = 0) -> str:
    return scene.names[scene.load.bundles.names[row]]


def halve(scene: PolicyScene, row: int = 0, name: str = "halve", **spec: Any) -> str:
    """A person orders a bundle to be halved; the bundle."""
    order(scene, name, **{"bundle": bundle(scene, row), "boundaries": [half(bundle(scene, row))], **spec})
    return bundle(scene, row)


def failed(scene: PolicyScene, name: str = "halve") -> tuple[str, str]:
    """Which condition says why a split failed, in one word."""
    status = split_status(scene, name)
    assert status["phase"] == "Failed", status
    accepted, complete = condition(status, "Accepted"), condition(status, "Complete")
    assert status["reason"] == (accepted if accepted[0] == "False" else complete)[1]
    return ("Accepted", accepted[1]) if accepted[0] == "False" else ("Complete", complete[1])


def test_a_bundle_is_split_as_a_person_asks(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene), SplitOperator(scene)

        await operator.round()
        parent, first = scene.bundles()[whole], scene.bundles()[halves(whole)[0]]
        assert (parent["status"]["state"], parent["status"]["split"]) == ("Splitting", "halve")
        assert split_status(scene, "halve")["reason"] == "Admin"
        assert (first["spec"]["owner"], first["spec"]["assignment"]["reason"]) == ("a", "Splitting")
        assert first["metadata"]["ownerReferences"][0]["kind"] == "TopicNamespace"

        status = await operator.finish("halve")

        assert status["phase"] == "Completed"
        assert condition(status, "Accepted") == ("True", "Accepted")
        assert condition(status, "Complete") == ("True", "Completed")
        assert status["reason"] == "Admin"
        assert [child["bundle"] for child in status["children"]] == halves(whole)
        assert whole not in scene.bundles()
        assert {name: scene.owners()[name] for name in halves(whole)} == dict.fromkeys(halves(whole), "a")
        assert not leftovers(scene)
        assert splits(scene)["halve"]["metadata"]["ownerReferences"][0]["name"] == "public-a"
        assert [reason for reason, _ in scene.events()] == ["Completed"]

    play(LOAD, story)


def test_children_go_where_a_person_sends_them_once_the_parent_is_gone(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene, destinations=["", "c"]), SplitOperator(scene)
        await operator.round()
        assert {scene.desired_owners()[name] for name in halves(whole)} == {"a"}

        await operator.finish("halve")

        low, high = (scene.bundles()[name] for name in halves(whole))
        assert (low["status"]["owner"], high["status"]["owner"]) == ("a", "c")
        assert high["spec"]["assignment"]["reason"] == "Admin"

    play(LOAD, story)


def test_a_split_goes_on_wherever_the_operator_died(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        for writes in itertools.count():
            name, row = f"split-{writes}", writes
            whole = halve(scene, row, name, destinations=["", "c"])
            mortal = SplitOperator(scene, dies_after=writes)
            try:
                status = await mortal.finish(name)
            except DiedError:
                status = await SplitOperator(scene).finish(name)
            else:
                break
            assert status["phase"] == "Completed", writes
            assert whole not in scene.bundles()
            owners = [scene.owners()[child] for child in halves(whole)]
            assert owners == ["a", "c"], writes
            assert not leftovers(scene)
        assert writes > 8

    play(LOAD, story)


def test_a_split_goes_back_wherever_the_operator_died(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        for writes in itertools.count():
            name = f"split-{writes}"
            whole = halve(scene, writes, name)
            before = SplitOperator(scene)
            await before.round()  # the children are there, and nobody takes them
            mortal = SplitOperator(scene, dies_after=writes)
            try:
                await mortal.round()
                await mortal.round(after=SPLIT_WITHIN + 1)
            except DiedError:
                after = SplitOperator(scene)
                await after.round()
                await after.round(after=SPLIT_WITHIN + 1)
            assert failed(scene, name) == ("Complete", "TimedOut"), writes
            assert not set(halves(whole)) & set(scene.bundles())
            assert scene.bundles()[whole]["status"]["state"] == "Owned"
            assert not leftovers(scene)
            if mortal.life.alive:
                break
        assert writes > 3

    play(LOAD, story)


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a bundle that is not there": ({"bundle": "nobody"}, "UnknownBundle", "there is no Bundle nobody"),
    "a boundary outside": ({"boundaries": ["0xf0000000"]}, "InvalidSplit", "0xf0000000 is not strictly inside"),
    "a boundary at its end": ({"boundaries": ["0x00000000"]}, "InvalidSplit", "is not strictly inside"),
    "a broker that is not there": ({"destinations": ["", "z"]}, "UnknownBroker", "no Broker object is called z"),
    "topics that nobody has seen": (
        {"boundaries": None, "algorithm": "topic_count_equally_divide"},
        "NoLoadData",
        "name boundaries, or use range_equally_divide",
    ),
    "three owners for two halves": (
        {"boundaries": None, "algorithm": "range_equally_divide", "destinations": ["", "b", "c"]},
        "InvalidSplit",
        "3 destinations for 2 children",
    ),
}


def test_a_child_whose_new_broker_is_gone_stays_with_the_old_one(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene, destinations=["b", "c"]), SplitOperator(scene)
        await operator.round()
        scene.rest.patch(scene.path("brokers", "c", "status"), {"status": {"ready": False}})

        await operator.finish("halve")

        assert [scene.owners()[name] for name in halves(whole)] == ["b", "a"]

    play(LOAD, story)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_split_is_refused_in_words(case: str, play: Play) -> None:
    spec, reason, text = REFUSED[case]

    async def story(scene: PolicyScene) -> None:
        whole = halve(scene, **spec)

        await SplitOperator(scene).round()

        assert failed(scene) == ("Accepted", reason)
        assert text in split_status(scene, "halve")["message"]
        assert scene.owners()[whole] == "a"
        assert not leftovers(scene)
        assert [word for word, _ in scene.events()] == [reason]

    play(LOAD, story)


def test_a_pinned_bundle_is_split_for_a_person_and_its_children_are_pinned(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.rest.patch(scene.path("bundles", bundle(scene)), {"spec": {"pinned": True}})
        await scene.land()
        whole = halve(scene)

        await SplitOperator(scene).finish("halve")

        assert all(scene.bundles()[name]["spec"]["pinned"] for name in halves(whole))

    play(LOAD, story)


def test_a_person_may_name_an_algorithm(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole = halve(scene, boundaries=None, algorithm="range_equally_divide")

        await SplitOperator(scene).finish("halve")

        assert set(halves(whole)) <= set(scene.bundles())

    play(LOAD, story)


def test_a_defect_that_one_split_meets_does_not_hold_up_the_others(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(split: SplitRecord, *rest: Any) -> SplitOrder:
        if split.name == "broken":
            raise KeyError(split.name)
        return order_of(split, *rest)

    async def story(scene: PolicyScene) -> None:
        halve(scene, 0, "broken")
        whole = halve(scene, 1)
        monkeypatch.setattr(controller, "order_of", judged)

        await SplitOperator(scene).finish("halve")

        assert set(halves(whole)) <= set(scene.bundles())
        assert split_status(scene, "broken") == {}

    play(LOAD, story)


def test_a_split_waits_for_a_bundle_that_moves(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene), SplitOperator(scene)
        scene.give(whole, "b")

        await operator.round()
        assert split_status(scene, "halve")["phase"] == "Pending"
        assert "pending owner" in split_status(scene, "halve")["message"]
        await scene.land()
        await operator.finish("halve")

        assert {scene.owners()[name] for name in halves(whole)} == {"b"}

    play(LOAD, story)


def test_a_split_does_not_wait_for_ever(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        operator = SplitOperator(scene)
        created = scene.rest.get(scene.path("bundlesplits"))
        assert created["items"] == []
        scene.give(halve(scene), "b")
        await operator.round()

        await scene.seen()
        scene.clock = scene.context.stores.splits.items["halve"].created
        await operator.round(after=WAIT_FOR + 1)

        assert failed(scene) == ("Accepted", "InFlight")

    play(LOAD, story)


def test_of_two_splits_of_a_bundle_the_first_is_done_and_the_other_refused(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene), SplitOperator(scene)
        await operator.round()
        halve(scene, name="rival")

        await operator.round()

        assert failed(scene, "rival") == ("Accepted", "Splitting")
        assert (await operator.finish("halve"))["phase"] == "Completed"
        assert set(halves(whole)) <= set(scene.bundles())

    play(LOAD, story)


def test_two_splits_of_one_bundle_at_the_same_moment_end_with_one_division(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene), SplitOperator(scene)
        halve(scene, name="rival")

        await operator.finish("halve")
        await operator.finish("rival")

        phases = sorted(split_status(scene, name)["phase"] for name in ("halve", "rival"))
        assert phases == ["Completed", "Failed"]
        assert whole not in scene.bundles()
        assert not leftovers(scene)

    play(LOAD, story)


def test_who_moves_the_parent_in_the_middle_gets_it_whole(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene), SplitOperator(scene)
        await operator.round()
        scene.give(whole, "b")

        await operator.round()

        assert failed(scene) == ("Complete", "Superseded")
        assert f"{whole} is to move to b" in split_status(scene, "halve")["message"]
        await scene.land()
        assert scene.owners()[whole] == "b"
        assert not leftovers(scene)

    play(LOAD, story)


def test_a_parent_that_is_deleted_in_the_middle_leaves_its_children(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene), SplitOperator(scene)
        await operator.round()
        await scene.land()
        scene.rest.delete(scene.path("bundles", whole))

        assert (await operator.finish("halve"))["phase"] == "Completed"

        assert {scene.owners()[name] for name in halves(whole)} == {"a"}
        assert not leftovers(scene)

    play(LOAD, story)


def test_a_split_that_is_deleted_in_the_middle_leaves_its_bundle_whole(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene), SplitOperator(scene)
        await operator.round()
        scene.rest.delete(scene.path("bundlesplits", "halve"))

        await operator.round()

        assert scene.owners()[whole] == "a"
        assert scene.bundles()[whole]["status"]["state"] == "Owned"
        assert not leftovers(scene)
        assert not set(halves(whole)) & set(scene.bundles())

    play(LOAD, story)


def test_a_split_that_is_deleted_after_its_bundle_leaves_the_children_as_others(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene), SplitOperator(scene)
        await operator.round()
        await scene.land()
        for plural, name in (("bundles", whole), ("bundlesplits", "halve")):
            scene.rest.delete(scene.path(plural, name))

        await operator.round()

        assert {scene.owners()[name] for name in halves(whole)} == {"a"}
        assert not leftovers(scene)

    play(LOAD, story)


def test_the_owner_of_a_parent_is_lost_in_the_middle_and_another_gets_it_whole(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene), SplitOperator(scene)
        await scene.reconcile()
        await operator.round()
        scene.rest.patch(scene.path("brokers", "a", "status"), {"status": {"ready": False}})
        await scene.reconcile()

        await scene.reconcile(after=31)
        await scene.reconcile()
        await operator.round(lost="a")
        await scene.land()
        await operator.round()

        assert failed(scene)[0] == "Complete"
        assert scene.owners()[whole] in {"b", "c"}
        assert not set(halves(whole)) & set(scene.bundles())
        assert not leftovers(scene)

    play(LOAD, story, mode="DryRun", limits={"lostAfter": "30s", "maxLostBrokers": 100})


def test_an_api_server_that_is_away_costs_time_alone(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene), SplitOperator(scene)
        for _ in range(12):
            operator.life.error = ApiUnavailableError("away")
            operator.life.writes = 1
            await operator.round()
            operator.life.writes = None
            await scene.land()

        assert split_status(scene, "halve")["phase"] == "Completed"
        assert set(halves(whole)) <= set(scene.bundles())
        assert not leftovers(scene)

    play(LOAD, story)


def test_a_finished_split_is_kept_for_as_long_as_it_says(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        halve(scene, ttlSecondsAfterFinished=100)
        operator = SplitOperator(scene)
        await operator.finish("halve")

        await operator.round(after=99)
        assert "halve" in splits(scene)
        await operator.round(after=2)

        assert splits(scene) == {}

    play(LOAD, story)


def test_a_topic_namespace_counts_its_bundles(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "Cut", "lastTransitionTime": "2026-01-31T12:00:00Z"}
        path = scene.path("topicnamespaces", "public-a")
        scene.rest.patch(f"{path}/status", {"status": {"bundles": 32, "conditions": [ready]}})
        halve(scene)
        operator = SplitOperator(scene)

        await operator.finish("halve")
        await operator.round()

        assert scene.rest.get(path)["status"]["bundles"] == 33

    play(LOAD, story)
