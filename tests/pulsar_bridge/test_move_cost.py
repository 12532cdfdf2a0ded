"""What a move costs is read from when clients connected to the new owner, remembered, and shown before the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st

from faulty_api import until
from policy_environment import PolicyEnvironment
from strategy_testing.clusters import NOW, cluster
from trimtab_operator.kube.move_costs import KEPT, NOT_MEASURED, Interruption, MoveCosts, in_seconds
from trimtab_operator.proposals.model import cost
from trimtab_operator.pulsar.bridge import move_cost as measuring
from trimtab_operator.pulsar.bridge.move_cost import (
    WAITING,
    MoveCostController,
    ReconnectTimes,
    interruption,
    reconnect_times,
    sample_topics,
)
from trimtab_operator.pulsar.bridge.unload_request import Landing
from trimtab_operator.pulsar.client.errors import PulsarUnavailableError
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_testbed.servers.kube import ControlPlane

LOAD = cluster(bundles={"a": [1] * 2, "b": [1]}, a=0.5, b=0.5)


def since(epoch: float) -> dict[str, Any]:
    """A client as Pulsar tells of it, to the nanosecond."""
    return {"connectedSince": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "123Z"}


def topic(publishers: list[float], consumers: list[float]) -> dict[str, Any]:
    """Statistics of a topic whose clients connected so many seconds after `NOW`."""
    return {
        "publishers": [since(NOW + after) for after in publishers],
        "subscriptions": {"s": {"consumers": [since(NOW + after) for after in consumers]}},
    }


def test_the_last_client_that_came_back_counts() -> None:
    found = reconnect_times(topic([0.2, 0.13], [0.3]), NOW)
    assert found is not None
    assert found.publishers == pytest.approx(0.2, abs=1e-5)
    assert found.clients == pytest.approx(0.3, abs=1e-5)


def test_a_topic_without_clients_interrupts_no_client() -> None:
    assert reconnect_times(topic([], []), NOW) == ReconnectTimes(None, None)
    assert interruption([ReconnectTimes(None, None)]) is None


def test_a_client_that_was_there_before_shows_that_nothing_can_be_said() -> None:
    assert reconnect_times(topic([0.2, -5.0], [0.3]), NOW) is None


@pytest.mark.parametrize("odd", [None, "", "soon", 12])
def test_who_does_not_say_since_when_is_passed_over(odd: Any) -> None:
    stats = topic([0.2], [])
    stats["publishers"].append({"connectedSince": odd})
    assert reconnect_times(stats, NOW) is not None


def test_clients_that_began_long_after_did_not_come_back() -> None:
    assert interruption([ReconnectTimes(0.1, 90.0)]) is None


def test_the_slowest_of_a_bundles_topics_counts() -> None:
    found = interruption([ReconnectTimes(0.1, 0.4), ReconnectTimes(None, 0.2), ReconnectTimes(0.3, 0.3)])
    assert found == Interruption(publish_gap=0.3, reconnect=0.4)


def test_topics_are_taken_from_all_over_and_the_systems_own_are_left_out() -> None:
    names = [f"persistent://t/n/{k:02d}" for k in range(30)]
    assert sample_topics([*names, "persistent://t/n/__change_events"]) == [names[0], names[10], names[20]]
    assert sample_topics(["persistent://t/n/__change_events"]) == []


@given(st.lists(st.tuples(st.none() | st.floats(0, 60), st.floats(0, 60)), max_size=30))
def test_the_latest_are_remembered_and_survive_a_restart(moves: list[tuple[float | None, float]]) -> None:
    costs = NOT_MEASURED
    for gap, back in moves:
        costs = costs.after(Interruption(None if gap is None else round(gap, 3), round(back, 3)))
    assert len(costs.latest) == min(len(moves), KEPT)
    assert MoveCosts.of({"moveCost": costs.to_status(NOW)}) == costs
    if (found := costs.reconnect) is not None:
        assert min(cost.reconnect for cost in costs.latest) <= found.median <= found.longest
        assert found.moves == len(costs.latest)


@pytest.mark.parametrize(("seconds", "words"), [(0.1234, "0.12 s"), (0.0, "0 s"), (2.51, "2.5 s"), (12.4, "12 s")])
def test_durations_are_reported_with_two_digits_that_count(seconds: float, words: str) -> None:
    assert in_seconds(seconds) == words


def test_a_plan_is_priced_by_the_latest_moves_of_its_namespaces_and_never_guessed() -> None:
    bundles = LOAD.bundles.names
    known = MoveCosts((Interruption(0.1, 0.1), Interruption(0.3, 0.3), Interruption(0.2, 0.5)))
    everywhere = dict.fromkeys(LOAD.namespaces, known)
    assert str(cost(bundles, LOAD, {})).endswith("; for how long is not measured yet")
    assert str(cost(bundles, LOAD, everywhere)).endswith("; publishers for about 0.20 s, 0.30 s the longest sampled")
    assert cost(bundles, LOAD, None).unmeasured is None
    elsewhere = cost([*bundles, "other/n/0x00000000_0xffffffff"], LOAD, everywhere)
    assert (elsewhere.seconds, elsewhere.worst, elsewhere.unmeasured) == (0.2, 0.3, 1)


class Brokers:
    """The part of `Admin` that costs are read from. stats: by topic; asked: what was."""

    def __init__(self, stats: Mapping[str, Any]) -> None:
        self.stats, self.asked = dict(stats), list[str]()

    async def topic_positions(self, bundle: str) -> Mapping[str, int]:
        self.asked.append(bundle)
        if not self.stats:
            raise PulsarUnavailableError("no broker answers")
        return dict.fromkeys(self.stats, 1)

    async def topic_stats(self, name: str) -> Mapping[str, Any]:
        return self.stats[name]


def landing(env: PolicyEnvironment) -> Landing:
    full = env.load.bundles.names[0]
    space = full.rpartition("/")[0].replace("/", "-")
    return Landing(env.names[full], space, full, "a", "b", NOW, NOW + 0.1, NOW + 0.2)


def kept(env: PolicyEnvironment, space: str) -> list[Any]:
    """The moves that a TopicNamespace remembers."""
    found: list[Any] = (env.rest.get(space).get("status") or {}).get("moveCost", {}).get("latest", [])
    return found


@pytest.mark.apiserver
def test_what_a_move_cost_is_written_to_its_namespace_and_offered_with_the_next_plan(
    trimtab_crds: ControlPlane, kube_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "READ_AFTER", (0.0, 0.0))
    brokers: Any = Brokers({"persistent://t/n/x": topic([0.125], [0.25])})

    async def scenario(env: PolicyEnvironment) -> None:
        costs, found = MoveCostController(env.cluster, brokers), landing(env)
        running = asyncio.create_task(costs.run())
        space = env.path("topicnamespaces", found.namespace)
        for count in (1, 2):
            costs.landed(found)
            await until("the status", lambda n=count: len(kept(env, space)) == n)
        brokers.stats = {}
        costs.landed(found)  # no broker answers, which does not stop the controller
        await until("a third look", lambda: len(brokers.asked) == 3)
        assert not running.done()
        running.cancel()
        known = {"median": 0.125, "longest": 0.125, "moves": 2}
        assert env.rest.get(space)["status"]["moveCost"]["publishGap"] == known
        assert b"trimtab_move_interruption_seconds_count 2.0" in env.cluster.metrics.text()

        assert env.cluster.move_costs() is None
        env.cluster.link.spec = PulsarSpec(admin_url="http://pulsar:8080")
        await env.seen()
        told = env.cluster.move_costs()
        assert told is not None
        assert str(cost([found.full_name], env.load, told)).endswith(
            "publishers for about 0.12 s, 0.12 s the longest sampled"
        )

    asyncio.run(asyncio.wait_for(PolicyEnvironment(trimtab_crds, kube_namespace, LOAD).run_policy(scenario, {}), 60))


def test_of_many_landings_only_some_are_measured() -> None:
    context: Any = None
    admin: Any = None
    costs = MoveCostController(context, admin)
    for number in range(10):
        costs.landed(Landing(f"b{number}", "n", "t/n/b", "a", "b", NOW, NOW, NOW))
    assert costs._landings.qsize() == WAITING
