"""Events: posted once, then counted; and never the reason why something fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from faulty_api import FaultyApi
from manifests import policy
from trimtab_operator.kube.client import EVENTS, POLICIES, Api
from trimtab_operator.kube.events import LONGEST_NOTE, MOST_QUEUED, EventPoster
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver


class Environment:
    """A poster whose clock is `now`, and a policy to post about."""

    def __init__(self, api: Api, proxy: FaultyApi, involved: dict[str, Any]) -> None:
        self.now = 1_700_000_000.0
        self.api, self.proxy, self.involved = api, proxy, involved
        self.poster = EventPoster(api, instance="trimtab-0", now=lambda: self.now)

    async def post(self, message: str, reason: str = "Overloaded") -> None:
        await self.poster.post(self.involved, "Normal", reason, message, action="Balance")
        await self.poster.flush()

    async def posted(self) -> list[dict[str, Any]]:
        namespace = self.involved["metadata"]["namespace"]
        return [event async for page in self.api.list(EVENTS, namespace) for event in page.items]


@pytest.fixture
def run_scenario(
    trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path
) -> Callable[[Callable[[Environment], Awaitable[None]]], None]:
    """Runs a scenario with an environment."""

    async def whole(scenario: Callable[[Environment], Awaitable[None]]) -> None:
        async with FaultyApi(trimtab_crds, tmp_path) as proxy, Api.connect(str(proxy.kubeconfig), patience=0.3) as api:
            await scenario(Environment(api, proxy, await api.create(POLICIES, kube_namespace, policy())))

    return lambda scenario: asyncio.run(whole(scenario))


RunScenario = Callable[[Callable[[Environment], Awaitable[None]]], None]


def test_an_event_says_what_happened_to_which_object(run_scenario: RunScenario, trimtab_crds: ControlPlane) -> None:
    shown: list[str] = []

    async def scenario(env: Environment) -> None:
        await env.post("moves 3 bundles")
        [event] = await env.posted()
        assert event["regarding"]["uid"] == env.involved["metadata"]["uid"]
        assert (event["type"], event["reason"], event["action"]) == ("Normal", "Overloaded", "Balance")
        assert (event["note"], event["reportingInstance"]) == ("moves 3 bundles", "trimtab-0")
        shown.append(env.involved["metadata"]["namespace"])

    run_scenario(scenario)
    described = trimtab_crds.kubectl("describe", "bpol", "main", "-n", shown[0])
    assert "moves 3 bundles" in described


def test_a_server_that_does_not_answer_delays_nothing_and_gets_the_events_later(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        env.proxy.told = lambda _method, _path: arrived.set()
        env.proxy.hanging, arrived = True, asyncio.Event()
        await env.poster.post(env.involved, "Normal", "Overloaded", "first")
        await env.poster.post(env.involved, "Normal", "Overloaded", "second")
        assert not arrived.is_set(), "nothing was sent yet, so nothing was waited for"
        await arrived.wait()
        env.proxy.hanging = False
        await env.poster.flush()
        assert "second" in [event["note"] for event in await env.posted()]

    run_scenario(scenario)


def test_events_beyond_the_queue_are_only_logged(run_scenario: RunScenario, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(env: Environment) -> None:
        for number in range(MOST_QUEUED + 1):
            await env.poster.post(env.involved, "Normal", "Overloaded", f"moves {number} bundles")

    run_scenario(scenario)
    assert caplog.text.count("others wait for the API server") == 1


def test_a_repetition_is_counted_and_not_posted_again(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        for _ in range(3):
            await env.post("moves 3 bundles")
            env.now += 60
        [event] = await env.posted()
        assert event["series"]["count"] == 3

    run_scenario(scenario)


def test_another_message_or_reason_is_another_event(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        await env.post("moves 3 bundles")
        await env.post("moves 4 bundles")
        await env.post("moves 4 bundles", reason="Underloaded")
        assert len(await env.posted()) == 3

    run_scenario(scenario)


def test_the_same_message_much_later_is_another_event(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        await env.post("moves 3 bundles")
        env.now += 601
        await env.post("moves 3 bundles")
        assert len(await env.posted()) == 2

    run_scenario(scenario)


def test_a_repetition_of_an_event_that_is_gone_is_posted(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        await env.post("moves 3 bundles")
        [event] = await env.posted()
        await env.api.delete(EVENTS, event["metadata"]["namespace"], event["metadata"]["name"])
        await env.post("moves 3 bundles")
        [again] = await env.posted()
        assert again["metadata"]["name"] != event["metadata"]["name"]

    run_scenario(scenario)


def test_a_message_that_is_too_long_is_cut(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        await env.post("é" * 5000)
        [event] = await env.posted()
        assert LONGEST_NOTE - 4 < len(event["note"].encode()) <= LONGEST_NOTE

    run_scenario(scenario)


def test_an_event_that_cannot_be_posted_is_logged(run_scenario: RunScenario, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(env: Environment) -> None:
        env.proxy.refusing = True
        with caplog.at_level(logging.WARNING, "trimtab_operator.kube.events"):
            await env.post("moves 3 bundles")

    run_scenario(scenario)
    assert "Event Overloaded about BalancingPolicy main" in caplog.text
