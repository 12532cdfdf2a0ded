"""Who leads, on a real API server: one at a time, whatever happens to the leader and to the Lease."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from faulty_api import until
from leader_replicas import DEADLINE, DURATION, RETRY, Replicas, RunReplicas
from trimtab_operator.kube.client import ApiUnavailableError
from trimtab_operator.kube.leader_election import Candidacy, own_identity

pytestmark = pytest.mark.apiserver


def test_the_first_who_comes_leads_and_the_lease_says_so(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a = await env.replica("a")

        await a.lead()

        lease = env.lease()
        assert (lease["holderIdentity"], lease["leaseTransitions"], a.elector.epoch) == ("a", 1, 1)
        assert lease["leaseDurationSeconds"] == 1
        assert 0 < a.fence.left <= DEADLINE
        assert a.elector.reference["metadata"]["name"] == "trimtab"

    run_replicas(scenario)


def test_a_standby_waits_for_as_long_as_the_leader_renews(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a, b = await env.replica("a"), await env.replica("b")
        await a.lead()
        campaign = asyncio.create_task(b.elector.campaign())

        await asyncio.sleep(2 * DURATION)

        assert not campaign.done()
        assert b.elector.leader == "a"
        assert a.fence.left
        assert not b.fence.left
        assert env.lease()["renewTime"] > env.lease()["acquireTime"]
        campaign.cancel()

    run_replicas(scenario)


def test_a_leader_that_dies_is_followed_after_the_lease_and_not_before(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a, b = await env.replica("a"), await env.replica("b")
        await a.lead()
        campaign = asyncio.create_task(b.lead())
        await until("the standby has seen the leader", lambda: b.elector.leader == "a")
        await a.leave()
        died = time.monotonic()

        await campaign

        waited = time.monotonic() - died
        assert DURATION - RETRY - 0.05 <= waited <= DURATION + 1.0
        assert b.elector.epoch == a.elector.epoch + 1
        assert env.lease()["holderIdentity"] == "b"

    run_replicas(scenario)


def test_a_lease_given_back_is_taken_at_once_with_the_next_epoch(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a, b = await env.replica("a", duration=20, deadline=10), await env.replica("b")
        await a.lead()
        campaign = asyncio.create_task(b.lead())
        await until("the standby has seen the leader", lambda: b.elector.leader == "a")
        await a.leave()

        await a.elector.release()

        assert not a.fence.left
        await asyncio.wait_for(campaign, 1.0)
        assert b.elector.epoch == 2

    run_replicas(scenario)


def test_of_many_who_reach_for_it_at_once_one_gets_it(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        replicas = [await env.replica(f"r{k}") for k in range(5)]
        campaigns = [asyncio.create_task(replica.lead()) for replica in replicas]

        await asyncio.wait(campaigns, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(DURATION)

        leading = [replica for replica in replicas if replica.fence.left]
        assert [replica.elector.candidacy.identity for replica in leading] == [env.lease()["holderIdentity"]]
        for campaign in campaigns:
            campaign.cancel()
        await asyncio.gather(*campaigns, return_exceptions=True)

    run_replicas(scenario)


def test_a_leader_robbed_of_the_lease_gives_up_at_its_next_renewal(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a = await env.replica("a", duration=30, deadline=20)
        await a.lead()

        env.plane.rest.patch(env.path, {"spec": {"holderIdentity": "thief"}})

        assert "thief" in await a.lost(within=2)
        assert not a.fence.left

    run_replicas(scenario)


def test_a_namesake_does_not_take_the_lease_for_its_own(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a, namesake = await env.replica("same"), await env.replica("same")
        await a.lead()
        campaign = asyncio.create_task(namesake.elector.campaign())

        await asyncio.sleep(1.5 * DURATION)

        assert not campaign.done()
        assert a.fence.left
        campaign.cancel()

    run_replicas(scenario)


def test_a_deleted_lease_is_put_back_with_its_epoch_and_no_one_slips_in(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a, b = await env.replica("a"), await env.replica("b")
        await a.lead()
        assert await a.elector.claim(7) == 7
        campaign = asyncio.create_task(b.elector.campaign())
        await until("the standby has seen the leader", lambda: b.elector.leader == "a")

        env.plane.rest.delete(env.path)
        await asyncio.sleep(0.5)

        assert (env.lease()["holderIdentity"], env.lease()["leaseTransitions"]) == ("a", 7)
        assert a.fence.left
        assert not campaign.done()
        campaign.cancel()

    run_replicas(scenario)


def test_who_begins_while_a_lease_is_deleted_does_not_lead_beside_its_holder(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a, b = await env.replica("a"), await env.replica("b")
        await a.lead()
        env.plane.rest.delete(env.path)

        campaign = asyncio.create_task(b.elector.campaign(led_before=True))
        await asyncio.sleep(0.5)

        assert env.lease()["holderIdentity"] == "a"
        assert a.fence.left
        assert not b.fence.left
        campaign.cancel()

    run_replicas(scenario)


def test_a_lease_that_is_missing_for_long_is_created_again(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        b = await env.replica("b")

        async with asyncio.timeout(30):
            await b.elector.campaign(led_before=True)

        assert env.lease()["holderIdentity"] == "b"

    run_replicas(scenario)


def test_a_lease_without_a_duration_is_not_taken_from_its_holder_at_once(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a, b = await env.replica("a", duration=30, deadline=20), await env.replica("b", duration=30, deadline=20)
        assert await a.elector.attempt()
        env.plane.rest.patch(env.path, {"spec": {"leaseDurationSeconds": None}})

        assert not await b.elector.attempt()
        assert env.lease()["holderIdentity"] == "a"

    run_replicas(scenario)


def test_an_acquisition_whose_answer_got_lost_still_counts(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a = await env.replica("a", duration=30, deadline=20)
        create = a.elector.api.create

        async def answer_lost(*request: Any) -> Any:
            await create(*request)
            raise ApiUnavailableError("the connection broke")

        a.elector.api.create = answer_lost  # type: ignore[method-assign]

        await a.lead(within=2)

        assert env.lease()["holderIdentity"] == "a"

    run_replicas(scenario)


def test_an_epoch_is_claimed_in_the_lease_and_the_next_leader_goes_on_from_it(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a, b = await env.replica("a"), await env.replica("b")
        await a.lead()

        assert await a.elector.claim(41) == 41
        assert await a.elector.claim(12) == 41
        assert env.lease()["leaseTransitions"] == 41
        await a.leave()
        await a.elector.release()
        await b.lead()

        assert b.elector.epoch == 42

    run_replicas(scenario)


def test_a_renewal_that_was_stored_without_an_answer_is_followed_by_another_in_the_next_attempt(
    run_replicas: RunReplicas,
) -> None:
    async def scenario(env: Replicas) -> None:
        a = await env.replica("a", duration=30, deadline=20)
        assert await a.elector.attempt()
        patch = a.elector.api.patch

        async def answer_lost(*request: Any) -> Any:
            await patch(*request)
            raise ApiUnavailableError("the connection broke")

        a.elector.api.patch = answer_lost  # type: ignore[method-assign]
        await a.elector.renew()
        a.elector.api.patch = patch  # type: ignore[method-assign]
        left = a.fence.left

        await a.elector.renew()

        assert a.fence.left > left

    run_replicas(scenario)


def test_an_epoch_that_was_stored_without_an_answer_is_claimed_in_the_next_attempt(run_replicas: RunReplicas) -> None:
    async def scenario(env: Replicas) -> None:
        a = await env.replica("a", duration=30, deadline=20)
        assert await a.elector.attempt()
        patch, failures = a.elector.api.patch, [1]

        async def first_answer_lost(*request: Any) -> Any:
            answer = await patch(*request)
            if failures:
                failures.pop()
                raise ApiUnavailableError("the connection broke")
            return answer

        a.elector.api.patch = first_answer_lost  # type: ignore[method-assign]

        async with asyncio.timeout(5):
            assert await a.elector.claim(9) == 9

        assert env.lease()["leaseTransitions"] == 9

    run_replicas(scenario)


@pytest.mark.parametrize(
    ("times", "complaint"),
    [
        ({"duration": 10.0}, "must decrease"),
        ({"deadline": 2.0}, "must decrease"),
        ({"retry": 0.0}, "must decrease"),
        ({"duration": 0.9, "deadline": 0.5, "retry": 0.1}, "1 to 3600 s"),
        ({"duration": 1e9}, "1 to 3600 s"),
        ({"identity": ""}, "--identity"),
        ({"name": ""}, "--lease-name '' is not an object name"),
        ({"name": "My_Lease"}, "--lease-name 'My_Lease' is not an object name"),
    ],
)
def test_rules_by_which_two_could_lead_are_refused(times: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Candidacy(**times)


def test_a_process_that_starts_again_is_another_one() -> None:
    assert own_identity() != own_identity()
