"""A policy's split rule: what it asks for, within which limits, and what it leaves alone while a bundle is divided."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from declarative_splits import SplitOperator, bundle_of, half, halves, leftovers, order, split_status, splits
from policy_environment import PolicyEnvironment, RunPolicy
from splitting_clusters import large, with_topics
from static_sources import StaticSource
from trimtab_operator.cli.commands.plan_table import as_data, print_tables
from trimtab_operator.kube.naming import split_name
from trimtab_operator.loop.preview import preview
from trimtab_operator.observe.topology import cluster_records
from trimtab_operator.state.settings import Settings

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


def test_a_large_bundle_is_split_and_its_children_placed_in_the_same_plan(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole = bundle_of(env)
        await env.reconcile()

        [(name, asked)] = splits(env).items()
        assert name == split_name(whole, (int(half(whole), 16),))
        assert asked["spec"]["request"] == {
            "policy": "main",
            "epoch": env.memory()["epoch"],
            "reason": "Bandwidth",
            "time": asked["spec"]["request"]["time"],
            "source": "a",
        }
        leaving = [owner for owner in asked["spec"]["destinations"] if owner != "a"]
        assert leaving
        assert env.status()["lastCycle"]["split"] == 1
        assert env.condition("Balanced") == ("False", "Bandwidth")
        assert sum(count for _, count in env.memory()["moves"]) == len(leaving)
        assert [reason for reason, _ in env.events()] == ["Bandwidth"]

        status = await SplitOperator(env).finish(name)

        assert status["phase"] == "Completed"
        assert [env.owners()[child] for child in halves(whole)] == asked["spec"]["destinations"]
        moved = next(child for child in halves(whole) if env.owners()[child] != "a")
        assert env.bundles()[moved]["spec"]["assignment"]["reason"] == "Bandwidth"
        assert env.bundles()[moved]["spec"]["assignment"]["policy"] == "main"

    run_policy(HOT, scenario, **rule())


def test_dry_run_shows_the_split_and_spends_nothing_on_it(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for _ in range(4):
            await env.cycle()

        assert splits(env) == {}
        shown = env.status()["proposal"]
        assert shown["totalSplits"] == 2
        assert {split["bundle"] for split in shown["splits"]} == {bundle_of(env, 0), bundle_of(env, 1)}
        assert len(shown["splits"][0]["destinations"]) == len(shown["splits"][0]["boundaries"]) + 1
        assert env.held_back()["DryRun"] == 2
        assert "SplitBudget" not in env.held_back()

        env.edit(mode="Auto")
        await env.cycle()
        assert len(splits(env)) == 2

    run_policy(INSIDE, scenario, mode="DryRun", **rule("WeightedSplitter", hitCount=2, budget=2))


def test_a_split_that_waits_for_approval_is_held_back_for_that_reason(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        assert env.held_back()["NotApproved"] == env.status()["proposal"]["totalSplits"] == 1

    run_policy(HOT, scenario, mode="Approve", **rule())


def test_what_one_policy_saw_of_topics_is_not_forgotten_when_another_one_looks(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        second = env.add_policy("second", brokers={"names": ["b"]}, shedder=CALM)
        await env.reconcile()
        env.source = StaticSource(large({}, **DRAWING))  # the second one's brokers have no topics to tell of
        await second.reconcile()
        whole = bundle_of(env)
        order(env, "by-topics", bundle=whole, boundaries=None, algorithm="topic_count_equally_divide")
        await SplitOperator(env).finish("by-topics")

        assert split_status(env, "by-topics")["phase"] == "Completed"

    run_policy(INSIDE, scenario, brokers={"names": ["a", "c"]}, mode="DryRun", **rule("WeightedSplitter", hitCount=9))


def test_no_policy_rule_no_split(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        assert splits(env) == {}

    run_policy(HOT, scenario, shedder=CALM)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({**rule(), "limits": {"maxSplitsPerCycle": 1}}, "SplitCap"),
        (rule(maxBundles=5), "MaxBundles"),
    ],
    ids=["splits per cycle", "bundles of a namespace"],
)
def test_a_limit_ends_the_splits_and_is_reported(spec: dict[str, Any], reason: str, run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        assert len(splits(env)) == 1
        assert env.held_back()[reason] == 1

    run_policy(TWO_HOT, scenario, **spec)


def test_a_namespace_has_a_budget_of_splits_that_outlives_a_restart(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert len(splits(env)) == 1
        assert env.held_back()["SplitBudget"] == 1

        env.restart()
        await env.cycle()

        assert len(splits(env)) == 1
        assert env.held_back()["SplitBudget"] == 2

    run_policy(INSIDE, scenario, **rule("WeightedSplitter", hitCount=1, budget=1))


def test_the_limit_of_bundles_holds_for_people_too(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        order(env, "mine", bundle=bundle_of(env), boundaries=[half(bundle_of(env))])

        await SplitOperator(env).round()

        status = split_status(env, "mine")
        assert status["phase"] == "Failed"
        assert status["message"].startswith("public/a would have 5 bundles, and may have 4")

    run_policy(HOT, scenario, **rule(maxBundles=4))


def test_a_bundle_in_the_middle_of_a_split_is_neither_moved_nor_counted_twice(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = bundle_of(env), SplitOperator(env)
        order(env, "halve", bundle=whole, boundaries=[half(whole)])
        await operator.round()
        await env.land()
        before = env.bundles()
        assert set(halves(whole)) <= set(before)

        env.edit(shedder={"type": "ThresholdShedder", "overloadShedder": None})
        await env.reconcile()
        await env.cycle()

        records = cluster_records(env.cluster, Settings.of(env.policy()))
        assert {record.name for record in records.bundles} == set(env.names.values())
        now = env.bundles()
        for name in (whole, *halves(whole)):
            assert now[name]["metadata"]["resourceVersion"] == before[name]["metadata"]["resourceVersion"]
        assert env.held_back()["InFlight"] >= 1
        assert (await operator.finish("halve"))["phase"] == "Completed"
        assert not leftovers(env)

    run_policy(HOT, scenario, shedder=CALM)


def test_a_bundle_that_a_person_pins_before_its_split_begins_stays_whole(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        [name] = splits(env)
        env.rest.patch(env.path("bundles", bundle_of(env)), {"spec": {"pinned": True}})

        await SplitOperator(env).round()

        assert [c["reason"] for c in split_status(env, name)["conditions"]] == ["Pinned", "Pinned"]
        assert env.owners()[bundle_of(env)] == "a"

    run_policy(HOT, scenario, **rule())


def test_a_bundle_that_moved_before_its_split_begins_stays_whole(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        [name] = splits(env)
        env.give(bundle_of(env), "b")
        await env.land()

        await SplitOperator(env).round()

        assert split_status(env, name)["message"].endswith("went from a to b since the split was planned")
        assert env.owners()[bundle_of(env)] == "b"

    run_policy(HOT, scenario, **rule())


def test_a_split_that_failed_is_not_asked_for_again_before_it_is_gone(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        [name] = splits(env)
        operator = SplitOperator(env)
        await operator.round()
        await operator.round(after=61)
        assert split_status(env, name)["phase"] == "Failed"

        await env.cycle()

        assert env.held_back()["Conflict"] == 1
        assert list(splits(env)) == [name]
        await operator.round(after=3600)
        await env.cycle()
        assert split_status(env, name).get("phase", "Pending") == "Pending"

    run_policy(HOT, scenario, **rule())


def test_topics_that_a_cycle_has_seen_can_be_split_by_number(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        whole = bundle_of(env)
        order(env, "by-topics", bundle=whole, boundaries=None, algorithm="topic_count_equally_divide")

        status = await SplitOperator(env).finish("by-topics")

        assert status["phase"] == "Completed"
        lower, upper = (int(text, 16) for text in whole.split("-")[-2:])
        places = [lower + k / 8 * (upper - lower) for k in range(8)]
        cut = int(status["children"][0]["upper"], 16)
        assert sum(place < cut for place in places) == 4

    run_policy(INSIDE, scenario, shedder=CALM)


def test_a_plan_shows_its_splits(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        foreseen = await preview(env.cluster, "main")
        screen = Console(file=StringIO(), width=200)
        print_tables(screen, "main", foreseen)
        shown = screen.file.getvalue()  # type: ignore[attr-defined]

        [split] = as_data("main", foreseen)["splits"]
        assert (split["name"], split["reason"]) == (bundle_of(env), "Bandwidth")
        assert split["boundaries"] == [half(bundle_of(env))]
        assert "main makes 0 moves and 1 split" in shown
        assert "Owners" in shown
        assert splits(env) == {}

    run_policy(HOT, scenario, **rule())
