"""A balancer that reverts the policy's moves makes it advise only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest
from hypothesis import given, strategies as st

from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy, eager
from records import ownership_change
from restarting_pods import RestartingPods
from trimtab_operator.interference.controller import InterferenceController
from trimtab_operator.kube.client import ApiUnavailableError
from trimtab_operator.resources.policy_status import RELEASE_ANNOTATION
from trimtab_operator.state.competing_balancer import FIRST_RETREAT, LONGEST_RETREAT, NO_COMPETITION, Competition
from trimtab_operator.state.ownership_changes import ChangeKind, OwnershipChanges
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.status.publisher import StatusPublisher

HOUR = 3600.0


def test_no_retreat_outlasts_its_limit_when_the_clock_is_set_back() -> None:
    assert not Competition((), 1e9, 1).retreating(1e9 - LONGEST_RETREAT - 1)
    assert Competition((), 1e9, 1).retreating(1e9 - LONGEST_RETREAT)


def test_each_retreat_is_twice_as_long_as_the_last_until_there_was_a_day_of_peace() -> None:
    competition, now, lengths = Competition(), 1e6, []
    for _ in range(7):
        competition = competition.after([ownership_change("x", "y", now, ChangeKind.REVERTED)] * 5, 5, now)
        lengths.append(competition.until - now)
        now = competition.until + 1
    assert lengths == [min(LONGEST_RETREAT, FIRST_RETREAT * 2**i) for i in range(7)]

    now += 25 * HOUR
    assert (
        competition.after([ownership_change("x", "y", now, ChangeKind.OVERWRITTEN)] * 5, 5, now).until - now
        == FIRST_RETREAT
    )


def test_four_reverted_moves_an_hour_or_external_ones_are_no_fight() -> None:
    reverted = [ownership_change("x", "y", 0, ChangeKind.REVERTED)] * 4

    assert not Competition().after(reverted, 5, 0).retreating(1)
    assert not Competition().after(reverted, 5, 0).after(reverted, 5, 2 * HOUR).retreating(2 * HOUR)
    assert not Competition().after([ownership_change("x", "y", 0, ChangeKind.EXTERNAL)] * 50, 5, 0).retreating(1)


def test_what_was_moved_before_a_retreat_and_is_reverted_during_it_makes_no_second_one() -> None:
    reverted = [ownership_change("x", "y", 0, ChangeKind.REVERTED)] * 5
    competition = Competition().after(reverted, 5, 0).after(reverted, 5, 600).after([], 5, FIRST_RETREAT + 1)

    assert not competition.retreating(FIRST_RETREAT + 2)
    assert competition.retreats == 1


@given(st.lists(st.floats(0, 1e10), max_size=5))
def test_a_fight_survives_a_restart(undone: list[float]) -> None:
    before = PolicyState(competition=Competition(tuple(undone), 5.0, 2))

    assert PolicyState.from_json(before.to_json()) == before


async def overwrite(env: PolicyEnvironment, count: int = 1) -> list[str]:
    """A competing balancer writes broker a over new desired owners of the policy, and again after the next moves."""
    names: list[str] = []
    for again in (False, True):
        wanted = [name for name, desired in env.desired_owners().items() if desired != env.owners()[name]]
        assert set(names) <= set(wanted)
        names = names or sorted(wanted)[:count]
        for name in names:
            env.give(name, "a")
        await env.reconcile(after=1)
        if not again:
            assert env.condition("CompetingBalancer") in {("", ""), ("False", "Alone")}, (
                "one batch of desired owners is not a competition"
            )
            await settled(env)
            await env.cycle()
    return names


async def settled(env: PolicyEnvironment) -> None:
    """What people asked for has landed, and is noted as theirs."""
    await env.land()
    await env.reconcile(after=1)
    await env.land()


def interference(api: object, publisher: object) -> InterferenceController:
    """The controller of a policy whose cluster has only these parts."""
    cluster: Any = SimpleNamespace(
        api=api,
        namespace="messaging",
        stores=SimpleNamespace(bundles=SimpleNamespace(items={})),
        ownership_changes=OwnershipChanges(lambda *_: False),
        metrics=Mock(),
        now=lambda: 1000.0,
    )
    return InterferenceController(cluster, "main", cast("StatusPublisher", publisher))


def attended(controller: InterferenceController, state: PolicyState, policy: Mapping[str, Any]) -> PolicyState:
    settings = SimpleNamespace(paused=False, max_undone_moves=10)
    run: Any = SimpleNamespace(state=state, settings=settings)
    return asyncio.run(controller.attend(run, policy))


def test_the_end_of_a_pause_counts_even_if_the_round_in_which_it_is_taken_fails() -> None:
    meta = {"namespace": "messaging", "name": "main", "uid": "u", "resourceVersion": "1"}
    released = {"metadata": {**meta, "annotations": {RELEASE_ANNOTATION: "true"}}}
    api = SimpleNamespace(get=AsyncMock(return_value=released), patch=AsyncMock())
    publisher = SimpleNamespace(event=AsyncMock(side_effect=[ApiUnavailableError("no answer"), None]))
    controller, pausing = interference(api, publisher), PolicyState(competition=Competition((), 1500.0, 1))

    with pytest.raises(ApiUnavailableError):
        attended(controller, pausing, released)
    assert attended(controller, pausing, {"metadata": meta}).competition == NO_COMPETITION
    assert api.patch.await_count == 1

    attended(controller, PolicyState(), {"metadata": meta})
    assert attended(controller, pausing, {"metadata": meta}) == pausing, "a later pause is not ended by this release"


@pytest.mark.apiserver
def test_a_person_who_moves_bundles_is_not_a_competing_balancer_and_one_batch_makes_no_retreat(
    run_policy: RunPolicy,
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        wanted = [name for name, desired in env.desired_owners().items() if desired != env.owners()[name]]
        assert len(wanted) >= 2
        for name in wanted:
            env.give(name, "a")
        await env.reconcile(after=1)

        assert env.condition("CompetingBalancer") == ("", "")
        assert env.condition("Acting") == ("True", "Acting")

    run_policy(HOT, scenario, **eager(maxUndoneMoves=1))


@pytest.mark.apiserver
def test_what_people_write_while_the_policy_is_paused_is_no_contest(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        name = min(name for name, desired in env.desired_owners().items() if desired != env.owners()[name])
        env.give(name, "a")
        await settled(env)
        await env.cycle()
        assert env.desired_owners()[name] != "a"
        env.edit(paused=True)
        await env.reconcile(after=1)
        env.give(name, "a")
        await env.reconcile(after=1)

        assert env.condition("CompetingBalancer") == ("", "")
        assert env.condition("Acting") == ("False", "Paused")

    run_policy(HOT, scenario, **eager(maxUndoneMoves=1, coolDown="1s"))


@pytest.mark.apiserver
def test_any_client_that_writes_over_its_desired_owners_makes_the_policy_advise_and_is_named(
    run_policy: RunPolicy,
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert len(await overwrite(env, 2)) == 2

        assert env.condition("CompetingBalancer") == ("True", "CompetingBalancer")
        note = next(note for reason, note in env.events() if reason == "CompetingBalancer")
        assert "wrote a over spec.owner of" in note
        await env.land()
        desired_owners = env.desired_owners()
        await env.cycle()
        assert env.held_back()["CompetingBalancer"] > 0
        assert env.desired_owners() == desired_owners

        await env.reconcile(after=1800)
        assert env.condition("CompetingBalancer") == ("False", "Alone")
        assert env.desired_owners() != desired_owners

    run_policy(HOT, scenario, **eager(maxUndoneMoves=2, coolDown="1s"))


@pytest.mark.apiserver
def test_a_person_ends_a_retreat_and_the_next_one_is_as_short_as_the_first(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        policy, undo = (
            env.path("balancingpolicies", "main"),
            {"metadata": {"annotations": {RELEASE_ANNOTATION: "true"}}},
        )

        await env.reconcile()
        names = await overwrite(env)
        assert env.condition("CompetingBalancer") == ("True", "CompetingBalancer")
        await env.land()
        desired_owners = env.desired_owners()
        env.rest.patch(policy, undo)
        await env.reconcile(after=1)
        assert env.condition("CompetingBalancer") == ("False", "Alone")
        assert RELEASE_ANNOTATION not in env.policy()["metadata"].get("annotations", {})
        assert "Released" in {reason for reason, _ in env.events()}
        assert env.memory()["fight"] == [[], 0.0, 0]

        await env.land()
        await env.cycle()
        assert env.desired_owners() != desired_owners
        env.give(*names, "a")
        await env.reconcile(after=1)
        assert env.memory()["fight"] == [[], env.clock + FIRST_RETREAT, 1]

    run_policy(HOT, scenario, **eager(maxUndoneMoves=1, coolDown="1s"))


@pytest.mark.apiserver
def test_only_the_word_true_ends_a_retreat(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        await overwrite(env)
        note = env.message("CompetingBalancer")
        assert f'{RELEASE_ANNOTATION}="true"' in note

        annotations = {RELEASE_ANNOTATION: "false"}
        env.rest.patch(env.path("balancingpolicies", "main"), {"metadata": {"annotations": annotations}})
        await env.reconcile(after=1)

        assert env.condition("CompetingBalancer") == ("True", "CompetingBalancer")
        assert env.policy()["metadata"]["annotations"][RELEASE_ANNOTATION] == "false"

    run_policy(HOT, scenario, **eager(maxUndoneMoves=1, coolDown="1s"))


@pytest.mark.apiserver
def test_a_retreat_that_a_lower_limit_brings_about_is_reported_without_an_example(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        await overwrite(env)
        assert env.condition("CompetingBalancer") == ("", "")

        env.edit(limits={"maxUndoneMoves": 1})
        await env.reconcile(after=1)
        assert env.condition("CompetingBalancer") == ("True", "CompetingBalancer")
        assert any(reason == "CompetingBalancer" for reason, _ in env.events())

    run_policy(HOT, scenario, **eager(maxUndoneMoves=2, coolDown="1s"))


@pytest.mark.apiserver
def test_a_condition_of_an_earlier_operator_ends_when_nothing_is_remembered_of_it(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        await overwrite(env)
        assert env.condition("CompetingBalancer") == ("True", "CompetingBalancer")

        env.restart()
        await env.reconcile(after=7 * HOUR)  # no operator ran while the retreat ended
        assert env.condition("CompetingBalancer") == ("False", "Alone")

        env.edit(interval="50s")
        await env.reconcile(after=1)
        conditions = {c["type"]: c["observedGeneration"] for c in env.status()["conditions"]}
        assert conditions["CompetingBalancer"] == env.policy()["metadata"]["generation"]

    run_policy(HOT, scenario, **eager(maxUndoneMoves=1, coolDown="1s"))


@pytest.mark.apiserver
def test_a_bundle_that_another_client_brings_back_moves_again_after_its_cool_down(run_policy: RunPolicy) -> None:
    """Its cool-down keeps it, and after `maxUndoneMoves` the policy stands down. Nothing else holds the bundle."""

    async def scenario(env: PolicyEnvironment) -> None:
        await RestartingPods(env).all_serve()
        await env.reconcile()
        moved = min(name for name, desired in env.desired_owners().items() if desired != env.owners()[name])
        await env.land()
        await env.reconcile(after=1)
        env.rest.patch(env.path("bundles", moved, "status"), {"status": {"owner": "a", "state": "Owned"}})
        await env.reconcile(after=5)
        await env.land()
        await env.cycle()
        assert env.desired_owners()[moved] == "a"

        await env.reconcile(after=2000)
        assert env.desired_owners()[moved] != "a"

    run_policy(HOT, scenario)
