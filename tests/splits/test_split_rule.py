"""A policy's split rule: what it asks for, within which limits, and what it leaves alone while a bundle is divided."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from declarative_splits import SplitOperator, half, halves, leftovers, order, split_status, splits
from policy_scene import Play, PolicyScene
from splitting_clusters import large, with_topics
from trimtab_operator.cli.commands.plan_table import as_data, print_tables
from trimtab_operator.kube.naming import split_name
from trimtab_operator.loop.preview import preview
from trimtab_operator.observe.topology import cluster_records
from trimtab_operator.state.settings import Settings
from trimtab_pipeline.testing import StaticSource

pytestmark = pytest.mark.apiserver

DRAWING: dict[str, Any] = {"bundles": {"a": [1] * 4, "b": [1]}, "a": 0.8, "b": 0.2, "c": 0.1}
HOT = large({0: {"topics": 10, "throughput": 200}}, **DRAWING)
TWO_HOT = large({row: {"topics": 10, "throughput": 200} for row in (0, 1)}, **DRAWING)
INSIDE = with_topics(large({}, **DRAWING), {row: [(k / 8, 20) for k in range(8)] for row in (0, 1)})
CALM = {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}}


def rule(kind: str = "BundleSplitterTask", **params: Any) -> dict[str, Any]:
    """A policy that moves nothing by itself, with that split rule."""
    split = {"type": kind, **({f"{kind[0].lower()}{kind[1:]}": params} if params else {})}
    return {"shedder": CALM, "split": split}


def bundle(scene: PolicyScene, row: int = 0) -> str:
    return scene.names[scene.load.bundles.names[row]]


def held_back(scene: PolicyScene) -> dict[str, int]:
    found: dict[str, int] = scene.status()["lastCycle"]["heldBack"]
    return found


def test_a_large_bundle_is_split_and_its_children_placed_in_the_same_plan(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole = bundle(scene)
        await scene.reconcile()

        [(name, asked)] = splits(scene).items()
        assert name == split_name(whole, (int(half(whole), 16),))
        assert asked["spec"]["request"] == {
            "policy": "main",
            "epoch": scene.memory()["epoch"],
            "reason": "Bandwidth",
            "time": asked["spec"]["request"]["time"],
            "source": "a",
        }
        leaving = [owner for owner in asked["spec"]["destinations"] if owner != "a"]
        assert leaving
        assert scene.status()["lastCycle"]["split"] == 1
        assert scene.condition("Balanced") == ("False", "Bandwidth")
        assert sum(count for _, count in scene.memory()["moves"]) == len(leaving)
        assert [reason for reason, _ in scene.events()] == ["Bandwidth"]

        status = await SplitOperator(scene).finish(name)

        assert status["phase"] == "Completed"
        assert [scene.owners()[child] for child in halves(whole)] == asked["spec"]["destinations"]
        moved = next(child for child in halves(whole) if scene.owners()[child] != "a")
        assert scene.bundles()[moved]["spec"]["assignment"]["reason"] == "Bandwidth"
        assert scene.bundles()[moved]["spec"]["assignment"]["policy"] == "main"

    play(HOT, story, **rule())


def test_dry_run_shows_the_split_and_spends_nothing_on_it(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        for _ in range(4):
            await scene.cycle()

        assert splits(scene) == {}
        shown = scene.status()["proposal"]
        assert shown["totalSplits"] == 2
        assert {split["bundle"] for split in shown["splits"]} == {bundle(scene, 0), bundle(scene, 1)}
        assert len(shown["splits"][0]["destinations"]) == len(shown["splits"][0]["boundaries"]) + 1
        assert held_back(scene)["DryRun"] == 2
        assert "SplitBudget" not in held_back(scene)

        scene.edit(mode="Auto")
        await scene.cycle()
        assert len(splits(scene)) == 2

    play(INSIDE, story, mode="DryRun", **rule("WeightedSplitter", hitCount=2, budget=2))


def test_a_split_that_waits_for_approval_is_held_back_for_that_reason(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        assert held_back(scene)["NotApproved"] == scene.status()["proposal"]["totalSplits"] == 1

    play(HOT, story, mode="Approve", **rule())


def test_what_one_policy_saw_of_topics_is_not_forgotten_when_another_one_looks(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        second = scene.add_policy("second", brokers={"names": ["b"]}, shedder=CALM)
        await scene.reconcile()
        scene.source = StaticSource(large({}, **DRAWING))  # the second one's brokers have no topics to tell of
        await second.reconcile()
        whole = bundle(scene)
        order(scene, "by-topics", bundle=whole, boundaries=None, algorithm="topic_count_equally_divide")
        await SplitOperator(scene).finish("by-topics")

        assert split_status(scene, "by-topics")["phase"] == "Completed"

    play(INSIDE, story, brokers={"names": ["a", "c"]}, mode="DryRun", **rule("WeightedSplitter", hitCount=9))


def test_no_policy_rule_no_split(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        assert splits(scene) == {}

    play(HOT, story, shedder=CALM)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({**rule(), "limits": {"maxSplitsPerCycle": 1}}, "SplitCap"),
        (rule(maxBundles=5), "MaxBundles"),
    ],
    ids=["splits per cycle", "bundles of a namespace"],
)
def test_a_limit_ends_the_splits_and_is_reported(spec: dict[str, Any], reason: str, play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        assert len(splits(scene)) == 1
        assert held_back(scene)[reason] == 1

    play(TWO_HOT, story, **spec)


def test_a_namespace_has_a_budget_of_splits_that_outlives_a_restart(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        assert len(splits(scene)) == 1
        assert held_back(scene)["SplitBudget"] == 1

        scene.restart()
        await scene.cycle()

        assert len(splits(scene)) == 1
        assert held_back(scene)["SplitBudget"] == 2

    play(INSIDE, story, **rule("WeightedSplitter", hitCount=1, budget=1))


def test_the_limit_of_bundles_holds_for_people_too(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        order(scene, "mine", bundle=bundle(scene), boundaries=[half(bundle(scene))])

        await SplitOperator(scene).round()

        status = split_status(scene, "mine")
        assert status["phase"] == "Failed"
        assert status["message"].startswith("public/a would have 5 bundles, and may have 4")

    play(HOT, story, **rule(maxBundles=4))


def test_a_bundle_in_the_middle_of_a_split_is_neither_moved_nor_counted_twice(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = bundle(scene), SplitOperator(scene)
        order(scene, "halve", bundle=whole, boundaries=[half(whole)])
        await operator.round()
        await scene.land()
        before = scene.bundles()
        assert set(halves(whole)) <= set(before)

        scene.edit(shedder={"type": "ThresholdShedder", "overloadShedder": None})
        await scene.reconcile()
        await scene.cycle()

        records = cluster_records(scene.context, Settings.of(scene.policy()))
        assert {record.name for record in records.bundles} == set(scene.names.values())
        now = scene.bundles()
        for name in (whole, *halves(whole)):
            assert now[name]["metadata"]["resourceVersion"] == before[name]["metadata"]["resourceVersion"]
        assert held_back(scene)["InFlight"] >= 1
        assert (await operator.finish("halve"))["phase"] == "Completed"
        assert not leftovers(scene)

    play(HOT, story, shedder=CALM)


def test_a_bundle_that_a_person_pins_before_its_split_begins_stays_whole(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        [name] = splits(scene)
        scene.rest.patch(scene.path("bundles", bundle(scene)), {"spec": {"pinned": True}})

        await SplitOperator(scene).round()

        assert [c["reason"] for c in split_status(scene, name)["conditions"]] == ["Pinned", "Pinned"]
        assert scene.owners()[bundle(scene)] == "a"

    play(HOT, story, **rule())


def test_a_bundle_that_moved_before_its_split_begins_stays_whole(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        [name] = splits(scene)
        scene.give(bundle(scene), "b")
        await scene.land()

        await SplitOperator(scene).round()

        assert split_status(scene, name)["message"].endswith("went from a to b since that was decided")
        assert scene.owners()[bundle(scene)] == "b"

    play(HOT, story, **rule())


def test_a_split_that_failed_is_not_asked_for_again_before_it_is_gone(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        [name] = splits(scene)
        operator = SplitOperator(scene)
        await operator.round()
        await operator.round(after=61)
        assert split_status(scene, name)["phase"] == "Failed"

        await scene.cycle()

        assert held_back(scene)["Conflict"] == 1
        assert list(splits(scene)) == [name]
        await operator.round(after=3600)
        await scene.cycle()
        assert split_status(scene, name).get("phase", "Pending") == "Pending"

    play(HOT, story, **rule())


def test_topics_that_a_cycle_has_seen_can_be_split_by_number(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        whole = bundle(scene)
        order(scene, "by-topics", bundle=whole, boundaries=None, algorithm="topic_count_equally_divide")

        status = await SplitOperator(scene).finish("by-topics")

        assert status["phase"] == "Completed"
        lower, upper = (int(text, 16) for text in whole.split("-")[-2:])
        places = [lower + k / 8 * (upper - lower) for k in range(8)]
        cut = int(status["children"][0]["upper"], 16)
        assert sum(place < cut for place in places) == 4

    play(INSIDE, story, shedder=CALM)


def test_a_plan_shows_its_splits(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        foreseen = await preview(scene.context, "main")
        screen = Console(file=StringIO(), width=200)
        print_tables(screen, "main", foreseen)
        shown = screen.file.getvalue()  # type: ignore[attr-defined]

        [split] = as_data("main", foreseen)["splits"]
        assert (split["name"], split["reason"]) == (bundle(scene), "Bandwidth")
        assert split["boundaries"] == [half(bundle(scene))]
        assert "main makes 0 moves and 1 split" in shown
        assert "Owners" in shown
        assert splits(scene) == {}

    play(HOT, story, **rule())
