"""Splits on a real API server as a person orders them: carried out, waited for, or refused.

After every single write each hash of the ring is served by exactly one bundle (`declarative_splits.check_served`).
"""

from __future__ import annotations

from typing import Any

import pytest

from declarative_splits import (
    SPLIT_LOAD,
    SplitOperator,
    bundle_of,
    condition,
    failed,
    halve,
    halves,
    leftovers,
    split_status,
    splits,
)
from policy_environment import PolicyEnvironment, RunPolicy
from trimtab_operator.kube.records import SplitRecord
from trimtab_operator.splits import controller
from trimtab_operator.splits.controller import WAIT_FOR
from trimtab_operator.splits.steps import SplitOrder
from trimtab_operator.splits.validation import split_order

pytestmark = pytest.mark.apiserver


def test_a_bundle_is_split_as_a_person_asks(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = halve(env), SplitOperator(env)

        await operator.round()
        parent, first = env.bundles()[whole], env.bundles()[halves(whole)[0]]
        assert (parent["status"]["state"], parent["status"]["split"]) == ("Splitting", "halve")
        assert split_status(env, "halve")["reason"] == "Admin"
        assert (first["spec"]["owner"], first["spec"]["assignment"]["reason"]) == ("a", "Splitting")
        assert first["metadata"]["ownerReferences"][0]["kind"] == "TopicNamespace"

        status = await operator.finish("halve")

        assert status["phase"] == "Completed"
        assert condition(status, "Accepted") == ("True", "Accepted")
        assert condition(status, "Complete") == ("True", "Completed")
        assert status["reason"] == "Admin"
        assert [child["bundle"] for child in status["children"]] == halves(whole)
        assert whole not in env.bundles()
        assert {name: env.owners()[name] for name in halves(whole)} == dict.fromkeys(halves(whole), "a")
        assert not leftovers(env)
        assert splits(env)["halve"]["metadata"]["ownerReferences"][0]["name"] == "public-a"
        assert [reason for reason, _ in env.events()] == ["Completed"]

    run_policy(SPLIT_LOAD, scenario)


def test_children_go_where_a_person_sends_them_once_the_parent_is_gone(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = halve(env, destinations=["", "c"]), SplitOperator(env)
        await operator.round()
        assert {env.desired_owners()[name] for name in halves(whole)} == {"a"}

        await operator.finish("halve")

        low, high = (env.bundles()[name] for name in halves(whole))
        assert (low["status"]["owner"], high["status"]["owner"]) == ("a", "c")
        assert high["spec"]["assignment"]["reason"] == "Admin"

    run_policy(SPLIT_LOAD, scenario)


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a bundle that is not there": ({"bundle": "nobody"}, "UnknownBundle", "there is no Bundle nobody"),
    "a boundary outside": ({"boundaries": ["0xf0000000"]}, "InvalidSplit", "0xf0000000 is not strictly inside"),
    "a boundary at its end": ({"boundaries": ["0x00000000"]}, "InvalidSplit", "is not strictly inside"),
    "a broker that is not there": ({"destinations": ["", "z"]}, "UnknownBroker", "no Broker object is called z"),
    "topics that were never measured": (
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


def test_a_child_whose_new_broker_is_gone_stays_with_the_old_one(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = halve(env, destinations=["b", "c"]), SplitOperator(env)
        await operator.round()
        env.rest.patch(env.path("brokers", "c", "status"), {"status": {"ready": False}})

        await operator.finish("halve")

        assert [env.owners()[name] for name in halves(whole)] == ["b", "a"]

    run_policy(SPLIT_LOAD, scenario)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_split_is_refused_in_words(case: str, run_policy: RunPolicy) -> None:
    spec, reason, text = REFUSED[case]

    async def scenario(env: PolicyEnvironment) -> None:
        whole = halve(env, **spec)

        await SplitOperator(env).round()

        assert failed(env) == ("Accepted", reason)
        assert text in split_status(env, "halve")["message"]
        assert env.owners()[whole] == "a"
        assert not leftovers(env)
        assert [word for word, _ in env.events()] == [reason]

    run_policy(SPLIT_LOAD, scenario)


def test_a_pinned_bundle_is_split_for_a_person_and_its_children_are_pinned(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.rest.patch(env.path("bundles", bundle_of(env)), {"spec": {"pinned": True}})
        await env.land()
        whole = halve(env)

        await SplitOperator(env).finish("halve")

        assert all(env.bundles()[name]["spec"]["pinned"] for name in halves(whole))

    run_policy(SPLIT_LOAD, scenario)


def test_a_person_may_name_an_algorithm(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole = halve(env, boundaries=None, algorithm="range_equally_divide")

        await SplitOperator(env).finish("halve")

        assert set(halves(whole)) <= set(env.bundles())

    run_policy(SPLIT_LOAD, scenario)


def test_a_defect_that_one_split_meets_does_not_hold_up_the_others(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(split: SplitRecord, *rest: Any) -> SplitOrder:
        if split.name == "broken":
            raise KeyError(split.name)
        return split_order(split, *rest)

    async def scenario(env: PolicyEnvironment) -> None:
        halve(env, 0, "broken")
        whole = halve(env, 1)
        monkeypatch.setattr(controller, "split_order", judged)

        await SplitOperator(env).finish("halve")

        assert set(halves(whole)) <= set(env.bundles())
        assert split_status(env, "broken") == {}

    run_policy(SPLIT_LOAD, scenario)


def test_a_split_waits_for_a_bundle_that_moves(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = halve(env), SplitOperator(env)
        env.give(whole, "b")

        await operator.round()
        assert split_status(env, "halve")["phase"] == "Pending"
        assert "pending owner" in split_status(env, "halve")["message"]
        await env.land()
        await operator.finish("halve")

        assert {env.owners()[name] for name in halves(whole)} == {"b"}

    run_policy(SPLIT_LOAD, scenario)


def test_a_split_does_not_wait_for_ever(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        operator = SplitOperator(env)
        created = env.rest.get(env.path("bundlesplits"))
        assert created["items"] == []
        env.give(halve(env), "b")
        await operator.round()

        await env.seen()
        env.clock = env.cluster.stores.splits.items["halve"].created
        await operator.round(after=WAIT_FOR + 1)

        assert failed(env) == ("Accepted", "InFlight")

    run_policy(SPLIT_LOAD, scenario)


def test_of_two_splits_of_a_bundle_the_first_is_done_and_the_other_refused(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = halve(env), SplitOperator(env)
        await operator.round()
        halve(env, name="rival")

        await operator.round()

        assert failed(env, "rival") == ("Accepted", "Splitting")
        assert (await operator.finish("halve"))["phase"] == "Completed"
        assert set(halves(whole)) <= set(env.bundles())

    run_policy(SPLIT_LOAD, scenario)


def test_two_splits_of_one_bundle_at_the_same_moment_end_with_one_division(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = halve(env), SplitOperator(env)
        halve(env, name="rival")

        await operator.finish("halve")
        await operator.finish("rival")

        phases = sorted(split_status(env, name)["phase"] for name in ("halve", "rival"))
        assert phases == ["Completed", "Failed"]
        assert whole not in env.bundles()
        assert not leftovers(env)

    run_policy(SPLIT_LOAD, scenario)


def test_a_finished_split_is_kept_for_as_long_as_it_says(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        halve(env, ttlSecondsAfterFinished=100)
        operator = SplitOperator(env)
        await operator.finish("halve")

        await operator.round(after=99)
        assert "halve" in splits(env)
        await operator.round(after=2)

        assert splits(env) == {}

    run_policy(SPLIT_LOAD, scenario)


def test_a_topic_namespace_counts_its_bundles(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "Cut", "lastTransitionTime": "2026-01-31T12:00:00Z"}
        path = env.path("topicnamespaces", "public-a")
        env.rest.patch(f"{path}/status", {"status": {"bundles": 32, "conditions": [ready]}})
        halve(env)
        operator = SplitOperator(env)

        await operator.finish("halve")
        await operator.round()

        assert env.rest.get(path)["status"]["bundles"] == 33

    run_policy(SPLIT_LOAD, scenario)
