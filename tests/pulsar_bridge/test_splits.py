"""Splits that Pulsar carries out, whatever comes in between: on a real API server, and a cluster in memory.

After every write the objects that count cover the whole ring, so no bundle is ever lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from declarative_splits import DiedError, condition, half, halves, leftovers, order, split_status
from policy_environment import PolicyEnvironment
from pulsar_in_memory import InMemoryPulsar
from pulsar_splits import PulsarSplitOperator, ask, at, parent
from trimtab_operator.kube.naming import parse_pulsar_bundle
from trimtab_operator.splits import pulsar
from trimtab_operator.splits.controller import SplitController
from trimtab_operator.splits.declarative import DeclarativeSplitExecutor
from trimtab_operator.splits.pulsar import ChosenSplitExecutor

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("extensible", [False, True])
def test_pulsar_splits_where_it_was_ordered_and_the_children_go_where_they_should(
    divide: Callable[..., None],
    extensible: bool,  # noqa: FBT001  a column
) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        whole = parent(env)
        order(env, "split", bundle=whole, boundaries=[half(whole)], destinations=["", "c"])

        status = await operator.finish()

        assert (status["phase"], condition(status, "Complete")) == ("Completed", ("True", "Completed"))
        assert whole not in env.bundles()
        assert operator.mirrored() == operator.truth()
        assert {env.desired_owners()[name] for name in halves(whole)[:1]} == {"a"}
        assert env.desired_owners()[halves(whole)[1]] == "c"  # the unload controller moves it
        moved = env.bundles()[halves(whole)[1]]
        assert moved["metadata"]["generation"] > moved["status"]["observedGeneration"]
        assert not leftovers(env)

    divide(scenario, extensible=extensible)


@pytest.mark.parametrize("extensible", [False, True])
def test_several_positions_are_cut_at_once_or_one_after_the_other(
    divide: Callable[..., None],
    extensible: bool,  # noqa: FBT001  a column
) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.25, 0.5, 0.75)
        status = await operator.finish()
        assert status["phase"] == "Completed"
        assert operator.mirrored() == operator.truth()
        assert len(operator.truth()) == 7
        accepted = [asked for asked in operator.pulsar.written if asked.startswith("split")]
        assert len(accepted) == (5 if extensible else 1)  # three at once, two at once, and each alone

    divide(scenario, extensible=extensible)


@pytest.mark.parametrize("topics", [(), (0.5,)])
def test_fewer_than_two_topics_are_refused_before_pulsar_is_asked(
    divide: Callable[..., None], topics: tuple[float, ...]
) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.5)
        status = await operator.finish()
        assert condition(status, "Complete") == ("False", "TooFewTopics")
        assert f"{len(topics)} loaded topic" in status["message"]
        assert operator.pulsar.written == []
        assert not leftovers(env)
        assert env.bundles()[parent(env)]["status"]["state"] == "Owned"

    divide(scenario, topics=topics)


@pytest.mark.parametrize("extensible", [False, True])
def test_what_pulsar_refuses_leaves_the_bundle_as_it_was(
    divide: Callable[..., None],
    extensible: bool,  # noqa: FBT001  a column
) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.5)
        asked = operator.pulsar.topic_positions

        async def both(bundle: str) -> Any:
            return {**await asked(bundle), "t0": 1, "t9": 2}

        operator.admin.inner = _Two(operator.pulsar, both)
        status = await operator.finish()
        assert condition(status, "Complete") == ("False", "InvalidSplit"), status
        assert not leftovers(env)
        assert operator.mirrored() == operator.truth()

    divide(scenario, extensible=extensible, topics=(0.1,))


class _Two:
    """A cluster that tells of topics which it does not have when it divides."""

    def __init__(self, inner: InMemoryPulsar, positions: Any) -> None:
        self._inner, self.topic_positions = inner, positions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_part_that_pulsar_will_not_cut_leaves_the_others_as_pulsar_has_them(divide: Callable[..., None]) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.3, 0.5)  # nothing between 0.3 and 0.5, so whichever is cut first, one topic is left to the other
        status = await operator.finish()
        assert condition(status, "Complete") == ("False", "TooFewTopics")
        assert "not as ordered" in status["message"]
        assert operator.mirrored() == operator.truth()
        assert len(operator.truth()) == 5
        assert not leftovers(env)

    divide(scenario, extensible=True, topics=(0.2, 0.9))


@pytest.mark.parametrize("extensible", [False, True])
def test_an_operator_that_dies_at_any_write_leaves_what_the_next_one_ends(
    divide: Callable[..., None],
    extensible: bool,  # noqa: FBT001  a column
) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.25, 0.5, destinations=["b", "", "c"])
        deaths = 0
        for writes in range(1, 40):
            operator.begin(dies_after=1)
            try:
                await operator.round()
            except DiedError:
                deaths += 1
                await env.seen()
            if split_status(env, "split").get("phase") in {"Completed", "Failed"}:
                break
            assert writes < 39
        assert split_status(env, "split")["phase"] == "Completed"
        assert deaths >= 10
        assert operator.mirrored() == operator.truth()
        assert not leftovers(env)
        assert {"b", "c"} <= set(env.desired_owners().values())

    divide(scenario, extensible=extensible)


def test_a_desired_owner_for_where_it_is_that_comes_after_the_lock_holds_nothing_up(
    divide: Callable[..., None],
) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.5)
        for _ in range(20):
            if env.bundles()[parent(env)]["status"].get("split"):
                break
            operator.begin(dies_after=1)
            with suppress(DiedError):
                await operator.round()
            await env.seen()
        desired = {"owner": "a", "assignment": {"owner": "a", "reason": "Adopted", "time": "2026-01-01T00:00:00Z"}}
        env.rest.patch(env.path("bundles", parent(env)), {"spec": desired})
        operator.begin()

        assert (await operator.finish())["phase"] == "Completed"
        assert operator.mirrored() == operator.truth()

    divide(scenario)


def test_old_boundaries_are_read_again(divide: Callable[..., None]) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        operator.pulsar.stale = 2
        ask(env, 0.5)
        assert (await operator.finish())["phase"] == "Completed"
        assert len(operator.pulsar.written) == 1

    divide(scenario)


async def until_the_parent_is_gone(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
    """An operator dies right after it deleted the parent."""
    while parent(env) in env.bundles():
        operator.begin(dies_after=1)
        with suppress(DiedError):
            await operator.round()
        await env.seen()
    operator.begin()


def test_old_boundaries_after_the_parent_is_gone_end_no_split(divide: Callable[..., None]) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        whole = parent(env)
        order(env, "split", bundle=whole, boundaries=[half(whole)], destinations=["", "c"])
        await until_the_parent_is_gone(env, operator)
        operator.pulsar.stale = 1

        assert (await operator.finish())["phase"] == "Completed"

        assert [env.desired_owners()[name] for name in halves(whole)] == ["a", "c"]
        assert not leftovers(env)

    divide(scenario)


def test_a_cluster_that_never_hears_of_its_own_split_is_waited_for_no_longer_than_others(
    divide: Callable[..., None],
) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.5)
        await until_the_parent_is_gone(env, operator)
        operator.pulsar.stale = 1000

        await operator.round()
        await operator.round(after=10)
        assert "older than its children" in split_status(env, "split")["message"]
        await operator.round(after=100)

        assert condition(split_status(env, "split"), "Complete") == ("False", "TimedOut")

    divide(scenario)


def test_a_404_that_is_not_pulsars_ends_no_split(divide: Callable[..., None]) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.5)
        await until_the_parent_is_gone(env, operator)
        operator.pulsar.astray = {"boundaries"}
        await operator.round()
        assert operator.pulsar.asked["boundaries"]
        operator.pulsar.astray.clear()

        assert (await operator.finish())["phase"] == "Completed"

    divide(scenario)


def test_a_split_in_a_namespace_that_is_gone_ends(divide: Callable[..., None]) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.5)
        await until_the_parent_is_gone(env, operator)
        del operator.pulsar.spaces["public/a"]

        assert condition(await operator.finish(), "Complete") == ("False", "Superseded")

    divide(scenario)


def test_a_split_by_another_client_is_taken_over_as_it_is(divide: Callable[..., None]) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.5)
        operator.life.writes = 3  # owner reference, acceptance, lock
        with pytest.raises(DiedError):
            await operator.round()
        assert env.bundles()[parent(env)]["status"]["split"] == "split"
        operator.life.writes = None
        await operator.pulsar.split(operator.whole, [int(at(env, 0.3)[0], 16)])

        operator.begin()
        status = await operator.finish()

        assert condition(status, "Complete") == ("False", "Superseded")
        assert at(env, 0.3)[0] in status["message"]
        assert operator.mirrored() == operator.truth()
        assert not leftovers(env)

    divide(scenario)


def test_who_mirrors_the_children_first_takes_nothing_from_the_split(divide: Callable[..., None]) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        whole = parent(env)
        order(env, "split", bundle=whole, boundaries=[half(whole)], destinations=["b", "c"])
        operator.life.writes = 4  # Pulsar has divided, and the operator dies
        with pytest.raises(DiedError):
            await operator.round()
        operator.life.writes = None
        tenant, space, *_ = parse_pulsar_bundle(operator.whole)
        for name in halves(whole):
            edges = name.split("-")[-2:]
            full = f"{tenant}/{space}/{edges[0]}_{edges[1]}"
            env.names[full] = name
            env.add_bundle(full, "a")
        env.rest.delete(env.path("bundles", whole))

        operator.begin()
        assert (await operator.finish())["phase"] == "Completed"

        assert [env.desired_owners()[name] for name in halves(whole)] == ["b", "c"]
        assert operator.mirrored() == operator.truth()

    divide(scenario)


def test_a_bundle_that_went_elsewhere_is_not_split(divide: Callable[..., None]) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.5)
        operator.life.writes = 2
        with pytest.raises(DiedError):
            await operator.round()
        operator.life.writes = None
        env.rest.patch(env.path("bundles", parent(env), "status"), {"status": {"owner": "b"}})
        operator.begin()
        status = await operator.finish()
        assert condition(status, "Complete") == ("False", "Superseded")
        assert operator.pulsar.written == []

    divide(scenario)


def test_a_split_that_pulsar_does_not_answer_goes_back_in_time(divide: Callable[..., None]) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.5)
        operator.life.writes = 3
        with pytest.raises(DiedError):
            await operator.round()
        operator.begin()
        operator.admin.inner = _Deaf(operator.pulsar)
        await operator.round()
        assert split_status(env, "split")["phase"] == "Splitting"
        await operator.round(after=10)
        assert "no broker answers" in split_status(env, "split")["message"]
        await operator.round(after=100)
        assert condition(split_status(env, "split"), "Complete") == ("False", "TimedOut")
        assert not leftovers(env)
        assert env.bundles()[parent(env)]["status"]["owner"] == "a"

    divide(scenario)


class _Deaf:
    """A cluster that does not divide, as no broker answers."""

    def __init__(self, inner: InMemoryPulsar) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def split(self, *_: Any, **__: Any) -> None:
        raise pulsar.PulsarError("no broker answers")


def test_a_split_whose_order_was_deleted_after_pulsar_split_is_seen_through(divide: Callable[..., None]) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        ask(env, 0.25, 0.5)
        operator.life.writes = 5  # one child is made
        with pytest.raises(DiedError):
            await operator.round()
        operator.life.writes = None
        env.rest.delete(env.path("bundlesplits", "split"))
        operator.begin()
        for _ in range(3):
            await operator.round()
        assert operator.mirrored() == operator.truth()
        assert not leftovers(env)

    divide(scenario)


def test_without_a_link_the_brokers_divide_and_without_a_client_it_waits(divide: Callable[..., None]) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        declarative = DeclarativeSplitExecutor(env.cluster.api, env.namespace, env.cluster.now)
        operator.splits = SplitController(env.cluster, ChosenSplitExecutor(env.cluster, lambda: None, declarative))
        ask(env, 0.5)
        await operator.round()
        await operator.round(after=10)
        assert "Pulsar can't be asked" in split_status(env, "split")["message"]

        env.cluster.link.spec = None
        await operator.round()
        assert set(halves(parent(env))) <= set(env.bundles())

    divide(scenario)
