"""What a replica may write: only while it leads, whatever happens to its connection and its clock."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from faulty_api import status, until
from leader_replicas import DEADLINE, Replicas, RunReplicas
from trimtab_operator.kube.client import CONFIG_MAPS, FencedError, NotFoundError

pytestmark = pytest.mark.apiserver


class Clock:
    """A clock that jumps forward, as one does for a suspended process: by hand, or after so many readings."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.readings_left = sys.maxsize

    def __call__(self) -> float:
        self.readings_left -= 1
        if self.readings_left < 0:
            self.ahead = DEADLINE
        return time.monotonic() + self.ahead


@pytest.mark.parametrize("cut", ["refusing", "answering 503"])
def test_a_leader_cut_off_stops_writing_before_another_may_lead(run_replicas: RunReplicas, cut: str) -> None:
    async def scenario(env: Replicas) -> None:
        a, b = await env.replica("a"), await env.replica("b")
        await a.lead()
        campaign = asyncio.create_task(b.lead())
        await until("the standby has seen the leader", lambda: b.elector.leader == "a")
        begun = time.monotonic()
        a.proxy.refusing = cut == "refusing"
        a.proxy.faults["request"] = [status(503)] * 1000

        why = await a.lost()

        assert "could not be renewed" in why
        assert time.monotonic() - begun <= DEADLINE + 0.3
        assert not campaign.done()
        assert not b.fence.left
        await campaign

    run_replicas(scenario)


def test_a_leader_whose_renewals_are_never_answered_stops_by_its_deadline(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a = await env.replica("a")
        await a.lead()
        begun = time.monotonic()
        a.proxy.hanging = True

        await a.lost()

        assert time.monotonic() - begun <= DEADLINE + 0.8
        assert not a.fence.left

    run_replicas(scenario)


def test_one_who_was_paused_past_the_lease_sends_no_write_before_any_task_noticed(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        clock = Clock()
        a = await env.replica("a", clock)
        await a.lead()
        await env.write(a, "while-leading")
        seen = len(a.proxy.seen)

        clock.ahead += DEADLINE  # and no task has had a turn since
        with pytest.raises(FencedError, match="does not lead"):
            await env.write(a, "after-the-pause")

        assert not [method for method, _ in a.proxy.seen[seen:] if method == "POST"]
        assert env.written() == ["while-leading"]
        await a.lost()

    run_replicas(scenario)


def test_a_write_is_held_back_even_when_its_connection_has_it_already(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        clock = Clock()
        a = await env.replica("a", clock)
        await a.elector.campaign()
        await env.write(a, "while-leading")
        clock.readings_left = 1  # the first look lets it pass, and then the process is paused

        with pytest.raises(FencedError):
            await env.write(a, "late")

        assert clock.readings_left < 0
        assert env.written() == ["while-leading"]

    run_replicas(scenario)


def test_a_standby_reads_and_may_not_write(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        b = await env.replica("b")

        with pytest.raises(NotFoundError):
            await b.api.get(CONFIG_MAPS, env.namespace, "absent")
        for write in (
            env.write(b, "x"),
            b.api.patch(CONFIG_MAPS, env.namespace, "x", {}),
            b.api.delete(CONFIG_MAPS, env.namespace, "x"),
        ):
            with pytest.raises(FencedError):
                await write

        assert {method for method, _ in b.proxy.seen} == {"GET"}

    run_replicas(scenario)
