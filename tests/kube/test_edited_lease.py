"""A Lease that a person edited: whoever leads repairs it, and some process always leads again; on a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from faulty_api import Answer, until
from leader_replicas import Replicas, RunReplicas
from trimtab_operator.kube.leader_election import LAST_EPOCH, LONGEST_DURATION, START_AGAIN

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("count", [LAST_EPOCH, LAST_EPOCH - 1, START_AGAIN])
def test_a_count_of_leaders_that_was_edited_by_hand_starts_again(run_replicas: RunReplicas, count: int) -> None:
    async def scenario(env: Replicas) -> None:
        a, b = await env.replica("a"), await env.replica("b")
        await a.lead()
        await a.leave()
        env.plane.rest.patch(env.path, {"spec": {"leaseTransitions": count}})

        await b.lead()

        assert (b.elector.epoch, env.lease()["leaseTransitions"]) == (1, 1)
        assert await b.elector.claim(8) == 8  # as its Bundles require

    run_replicas(scenario)


def test_a_standby_forgets_the_count_of_a_lease_that_was_deleted(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a, b = await env.replica("a", duration=20, deadline=10), await env.replica("b")
        await a.lead()
        await a.leave()
        env.plane.rest.patch(env.path, {"spec": {"leaseTransitions": START_AGAIN - 1}})
        campaign = asyncio.create_task(b.lead())
        await until("the standby has seen the leader", lambda: b.elector.leader == "a")

        env.plane.rest.delete(env.path)
        await campaign

        assert b.elector.epoch == 1

    run_replicas(scenario)


@pytest.mark.parametrize(
    "edit",
    [
        {"leaseTransitions": LAST_EPOCH},
        {"leaseTransitions": 0},
        {"leaseTransitions": None},
        {"leaseDurationSeconds": LAST_EPOCH},
        {"leaseDurationSeconds": None},
        {"renewTime": "2999-01-01T00:00:00.000000Z"},
        {"renewTime": None},
    ],
    ids=str,
)
def test_a_leader_repairs_what_a_person_edited_and_leads_on(run_replicas: RunReplicas, edit: Any) -> None:
    async def scenario(env: Replicas) -> None:
        a = await env.replica("a", duration=30, deadline=20)
        await a.lead()
        assert await a.elector.claim(7) == 7
        before = env.lease()

        env.plane.rest.patch(env.path, {"spec": edit})
        await until("the next renewal", lambda: env.lease().get("leaseTransitions") == 7, within=2)
        await a.elector.renew()

        assert {**env.lease(), "renewTime": ""} == {**before, "renewTime": ""}
        assert env.lease()["renewTime"] < "2900"
        assert (a.elector.epoch, a.fence.left > 0) == (7, True)

    run_replicas(scenario)


@pytest.mark.parametrize(
    "edit", [{"acquireTime": None}, {"holderIdentity": None}, {"holderIdentity": "x y/z \u00e9"}], ids=str
)
def test_a_leader_that_a_person_edited_out_is_followed_by_the_next(run_replicas: RunReplicas, edit: Any) -> None:
    async def scenario(env: Replicas) -> None:
        a, b = await env.replica("a"), await env.replica("b")
        await a.lead()

        env.plane.rest.patch(env.path, {"spec": edit})

        assert "held by" in await a.lost()
        await b.lead()
        assert env.lease()["holderIdentity"] == "b"

    run_replicas(scenario)


def test_a_duration_edited_by_hand_holds_a_standby_back_for_an_hour_at_most(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        seconds = [1000.0]
        a, b = await env.replica("a"), await env.replica("b", clock=lambda: seconds[0])
        await a.lead()
        await a.leave()
        env.plane.rest.patch(env.path, {"spec": {"leaseDurationSeconds": LAST_EPOCH}})

        assert not await b.elector.attempt()
        seconds[0] += LONGEST_DURATION

        assert await b.elector.attempt()

    run_replicas(scenario)


def test_a_duration_shortened_by_hand_lets_no_standby_lead_beside_the_holder(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        seconds = [1000.0]
        a = await env.replica("a", duration=30, deadline=20)
        b = await env.replica("b", clock=lambda: seconds[0], duration=30, deadline=20)
        assert await a.elector.attempt()
        env.plane.rest.patch(env.path, {"spec": {"leaseDurationSeconds": 1}})

        assert not await b.elector.attempt()
        seconds[0] += 29.0

        assert not await b.elector.attempt()

    run_replicas(scenario)


def test_a_refusal_whose_text_differs_each_time_is_one_warning(
    run_replicas: RunReplicas, caplog: pytest.LogCaptureFixture
) -> None:
    def refusal(number: int) -> Answer:
        body = {"kind": "Status", "code": 422, "reason": "Invalid", "message": f"invalid: renewTime {number}"}
        return lambda _request: web.json_response(body, status=422)

    async def scenario(env: Replicas) -> None:
        a = await env.replica("a", duration=30, deadline=20)
        assert await a.elector.attempt()
        a.proxy.faults["request"] = [refusal(number) for number in range(4)]

        for _ in range(4):
            await a.elector.renew()
        warned = [record for record in caplog.records if record.levelname == "WARNING"]
        assert len(warned) == 1
        await a.elector.renew()
        a.proxy.faults["request"] = [refusal(5)]
        await a.elector.renew()

        assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 2

    run_replicas(scenario)
