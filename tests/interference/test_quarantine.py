"""Bundles that come back are left alone: when a bundle flaps, and how its quarantine ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest

from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy
from records import ownership_change
from trimtab_operator.interference.controller import InterferenceController, flapping, quarantined
from trimtab_operator.kube.client import ApiUnavailableError
from trimtab_operator.resources.bundle import RELEASE
from trimtab_operator.state.competing_balancer import NO_COMPETITION, Competition
from trimtab_operator.state.ownership_changes import OwnershipChanges
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.status.publisher import StatusPublisher

HOUR = 3600.0


def test_a_bundle_flaps_when_it_comes_back_within_the_cool_down_or_changes_three_times() -> None:
    assert (
        flapping([ownership_change("x", "y", 0), ownership_change("y", "x", 60)], 1800)
        == "came back to x 60 s after it had left"
    )
    assert flapping([ownership_change("x", "y", 0), ownership_change("y", "x", 1801)], 1800) == ""
    three = [ownership_change("x", "y", 0), ownership_change("y", "z", 60), ownership_change("z", "w", 90)]
    assert flapping(three, 1800) == "changed its owner 3 times in 90 s"
    assert flapping(three, 80) == ""
    assert flapping([], 1800) == ""


def test_a_quarantine_ends_by_time_by_release_and_with_the_bundle() -> None:
    before = {"old": 50.0, "kept": 500.0, "released": 500.0}

    assert quarantined(before, {"new": "came back"}, 700.0, 100.0, ["released"]) == {"kept": 500.0, "new": 700.0}


def interference(api: object, publisher: object, bundles: Mapping[str, object]) -> InterferenceController:
    """The controller of a policy whose cluster has only these parts."""
    cluster: Any = SimpleNamespace(
        api=api,
        namespace="messaging",
        stores=SimpleNamespace(bundles=SimpleNamespace(items=bundles)),
        ownership_changes=OwnershipChanges(lambda _: True),
        metrics=Mock(),
        now=lambda: 1000.0,
    )
    return InterferenceController(cluster, "main", cast("StatusPublisher", publisher))


def attended(controller: InterferenceController, state: PolicyState, policy: Mapping[str, Any]) -> PolicyState:
    settings = SimpleNamespace(
        paused=False, quarantine=HOUR, max_undone_moves=10, limits=SimpleNamespace(cool_down=60.0)
    )
    run: Any = SimpleNamespace(state=state, settings=settings)
    return asyncio.run(controller.attend(run, policy))


def test_a_release_counts_even_if_the_round_in_which_it_is_taken_fails() -> None:
    """The annotations are gone by then, so nothing else knows of the release."""
    bundles = {name: SimpleNamespace(released=True) for name in ("a", "b")}
    answers = iter([None, ApiUnavailableError("no answer"), None])

    async def patch(_kind: object, _namespace: str, name: str, _body: object) -> None:
        answer = next(answers)
        if answer is not None:
            raise answer
        bundles[name].released = False

    controller = interference(SimpleNamespace(patch=patch), Mock(), bundles)
    state = PolicyState(quarantine={"a": 2000.0, "b": 2000.0})

    with pytest.raises(ApiUnavailableError):
        attended(controller, state, {"metadata": {}})
    assert attended(controller, state, {"metadata": {}}).quarantine == {}


def test_the_end_of_a_pause_counts_even_if_the_round_in_which_it_is_taken_fails() -> None:
    meta = {"namespace": "messaging", "name": "main", "uid": "u", "resourceVersion": "1"}
    released = {"metadata": {**meta, "annotations": {RELEASE: "true"}}}
    api = SimpleNamespace(get=AsyncMock(return_value=released), patch=AsyncMock())
    publisher = SimpleNamespace(event=AsyncMock(side_effect=[ApiUnavailableError("no answer"), None]))
    controller, pausing = interference(api, publisher, {}), PolicyState(competition=Competition((), 1500.0, 1))

    with pytest.raises(ApiUnavailableError):
        attended(controller, pausing, released)
    assert attended(controller, pausing, {"metadata": meta}).competition == NO_COMPETITION
    assert api.patch.await_count == 1

    attended(controller, PolicyState(), {"metadata": meta})
    assert attended(controller, pausing, {"metadata": meta}) == pausing, "a later pause is not ended by this release"


def serve(env: PolicyEnvironment, name: str, owner: str) -> None:
    """What another balancer does: the owner changes without a desired owner."""
    env.rest.patch(env.path("bundles", name, "status"), {"status": {"owner": owner, "state": "Owned"}})


async def brought_back(env: PolicyEnvironment) -> str:
    """A bundle that the policy moved off broker a, and that another client has just moved back."""
    await env.reconcile()
    moved = min(name for name, desired in env.desired_owners().items() if desired != env.owners()[name])
    await env.land()
    await env.reconcile(after=1)
    serve(env, moved, "a")
    return moved


@pytest.mark.apiserver
def test_a_bundle_that_another_client_brings_back_is_left_alone_until_it_is_released(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        moved = await brought_back(env)
        await env.reconcile(after=5)

        assert env.condition("Flapping") == ("True", "Quarantined")
        assert env.status()["quarantined"]["bundles"][0]["bundle"] == moved
        assert any(reason == "Quarantined" and moved in note for reason, note in env.events())

        await env.land()
        env.restart()
        await env.reconcile(after=2000)  # past the cool-down
        assert env.desired_owners()[moved] == "a"
        assert env.held_back()["Quarantined"] == 1

        env.rest.patch(env.path("bundles", moved), {"metadata": {"annotations": {"trimtab.dev/release": "true"}}})
        await env.reconcile(after=1)
        assert env.condition("Flapping") == ("False", "Settled")
        assert "trimtab.dev/release" not in env.bundles()[moved]["metadata"].get("annotations", {})

    run_policy(HOT, scenario)


@pytest.mark.apiserver
def test_a_condition_of_an_earlier_operator_ends_when_nothing_is_remembered_of_it(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await brought_back(env)
        await env.reconcile(after=5)
        assert env.condition("Flapping") == ("True", "Quarantined")

        env.restart()
        await env.reconcile(after=7 * HOUR)  # no operator ran while the quarantine ended
        assert env.condition("Flapping") == ("False", "Settled")
        assert env.status()["quarantined"] == {"total": 0, "bundles": []}

        env.edit(interval="50s")
        await env.reconcile(after=1)
        conditions = {c["type"]: c["observedGeneration"] for c in env.status()["conditions"]}
        assert conditions["Flapping"] == conditions["CompetingBalancer"] == env.policy()["metadata"]["generation"]

    run_policy(HOT, scenario)


@pytest.mark.apiserver
def test_what_flapped_is_left_alone_even_if_it_could_not_be_reported(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        moved = await brought_back(env)
        await env.seen()
        with monkeypatch.context() as patch:
            patch.setattr(StatusPublisher, "status", refused)
            with pytest.raises(ApiUnavailableError):
                await env.reconcile(after=5)
        await env.reconcile(after=1)

        assert moved in env.memory()["quarantine"]
        assert env.condition("Flapping") == ("True", "Quarantined")

    async def refused(*_: object) -> None:
        raise ApiUnavailableError("no answer")

    run_policy(HOT, scenario)
