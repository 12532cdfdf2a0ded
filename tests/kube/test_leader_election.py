"""Who leads, on a real API server: one at a time, whatever happens to clocks, connections and the Lease itself."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from faulty_api import FaultyApi, status, until
from trimtab_operator.kube.client import CONFIG_MAPS, Api, ApiUnavailableError, FencedError, NotFoundError
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.leader_election import (
    LAST_EPOCH,
    Candidacy,
    Elector,
    EpochsUsedUpError,
    LeaseLostError,
    own_identity,
)
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

DURATION, DEADLINE, RETRY = 1.0, 0.6, 0.1


class Clock:
    """A clock that jumps forward, as one does for a process that was paused: by hand, or after so many readings."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.readings_left = sys.maxsize

    def __call__(self) -> float:
        self.readings_left -= 1
        if self.readings_left < 0:
            self.ahead = DEADLINE
        return time.monotonic() + self.ahead


class Replica:
    """One process: its fence, its elector, and a client behind the fence. `proxy` is its way to the API server."""

    def __init__(self, proxy: FaultyApi, fenced: Api, elector: Elector) -> None:
        self.proxy, self.api, self.elector, self.fence = proxy, fenced, elector, elector.fence
        self.keeping: asyncio.Task[None] | None = None

    async def lead(self, within: float = 5.0) -> None:
        """Campaign, win, and renew from then on."""
        async with asyncio.timeout(within):
            await self.elector.campaign()
        self.keeping = asyncio.create_task(self.elector.keep())

    async def lost(self, within: float = 5.0) -> str:
        """Wait until leading ends; why it did."""
        assert self.keeping is not None
        with pytest.raises(LeaseLostError) as caught:
            await asyncio.wait_for(asyncio.shield(self.keeping), within)
        return str(caught.value)

    async def leave(self) -> None:
        """End as a crash does: no farewell."""
        if self.keeping is not None:
            self.keeping.cancel()
            await asyncio.gather(self.keeping, return_exceptions=True)


class Environment:
    """Replicas that want to lead one namespace."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, stack: AsyncExitStack) -> None:
        self.plane, self.namespace, self._folder, self._stack = plane, namespace, folder, stack
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/trimtab"

    async def replica(self, identity: str, clock: Callable[[], float] = time.monotonic, **times: float) -> Replica:
        return await self._stack.enter_async_context(self._replica(identity, clock, times))

    @asynccontextmanager
    async def _replica(self, identity: str, clock: Callable[[], float], times: Any) -> AsyncIterator[Replica]:
        folder = self._folder / f"{identity}-{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        candidacy = Candidacy(
            "trimtab", identity, **{"duration": DURATION, "deadline": DEADLINE, "retry": RETRY, **times}
        )
        fence = Fence(clock)
        async with (
            FaultyApi(self.plane, folder) as proxy,
            Api.connect(str(proxy.kubeconfig), patience=0) as api,
            Api.connect(str(proxy.kubeconfig), patience=0, fence=fence) as fenced,
        ):
            replica = Replica(proxy, fenced, Elector(api, self.namespace, candidacy, fence))
            yield replica
            await replica.leave()

    def lease(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.plane.rest.get(self.path)["spec"]
        return spec

    def written(self) -> list[str]:
        """Names of the ConfigMaps that were written."""
        items = self.plane.rest.get(f"/api/v1/namespaces/{self.namespace}/configmaps")["items"]
        return [item["metadata"]["name"] for item in items if item["metadata"]["name"] != "kube-root-ca.crt"]

    async def write(self, replica: Replica, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        await replica.api.create(CONFIG_MAPS, self.namespace, body)


Scenario = Callable[[Environment], Awaitable[None]]
RunScenario = Callable[[Scenario], None]


@pytest.fixture
def run_scenario(control_plane: ControlPlane, kube_namespace: str, tmp_path: Path) -> RunScenario:
    """Runs a scenario with a namespace of its own."""

    async def whole(scenario: Scenario) -> None:
        async with asyncio.timeout(30), AsyncExitStack() as stack:
            await scenario(Environment(control_plane, kube_namespace, tmp_path, stack))

    return lambda scenario: asyncio.run(whole(scenario))


def test_the_first_who_comes_leads_and_the_lease_says_so(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        a = await env.replica("a")

        await a.lead()

        lease = env.lease()
        assert (lease["holderIdentity"], lease["leaseTransitions"], a.elector.epoch) == ("a", 1, 1)
        assert lease["leaseDurationSeconds"] == 1
        assert 0 < a.fence.left <= DEADLINE
        assert a.elector.reference["metadata"]["name"] == "trimtab"

    run_scenario(scenario)


def test_a_standby_waits_for_as_long_as_the_leader_renews(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
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

    run_scenario(scenario)


def test_a_leader_that_dies_is_followed_after_the_lease_and_not_before(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
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

    run_scenario(scenario)


def test_a_lease_given_back_is_taken_at_once_with_the_next_epoch(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        a, b = await env.replica("a", duration=20, deadline=10), await env.replica("b")
        await a.lead()
        campaign = asyncio.create_task(b.lead())
        await until("the standby has seen the leader", lambda: b.elector.leader == "a")
        await a.leave()

        await a.elector.release()

        assert not a.fence.left
        await asyncio.wait_for(campaign, 1.0)
        assert b.elector.epoch == 2

    run_scenario(scenario)


def test_of_many_who_reach_for_it_at_once_one_gets_it(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        replicas = [await env.replica(f"r{k}") for k in range(5)]
        campaigns = [asyncio.create_task(replica.lead()) for replica in replicas]

        await asyncio.wait(campaigns, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(DURATION)

        leading = [replica for replica in replicas if replica.fence.left]
        assert [replica.elector.candidacy.identity for replica in leading] == [env.lease()["holderIdentity"]]
        for campaign in campaigns:
            campaign.cancel()
        await asyncio.gather(*campaigns, return_exceptions=True)

    run_scenario(scenario)


@pytest.mark.parametrize("cut", ["refusing", "answering 503"])
def test_a_leader_cut_off_stops_writing_before_another_may_lead(run_scenario: RunScenario, cut: str) -> None:
    async def scenario(env: Environment) -> None:
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

    run_scenario(scenario)


def test_a_leader_whose_renewals_are_never_answered_stops_by_its_deadline(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        a = await env.replica("a")
        await a.lead()
        begun = time.monotonic()
        a.proxy.hanging = True

        await a.lost()

        assert time.monotonic() - begun <= DEADLINE + 0.8
        assert not a.fence.left

    run_scenario(scenario)


def test_one_who_was_paused_past_the_lease_sends_no_write_before_any_task_noticed(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
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

    run_scenario(scenario)


def test_a_write_is_held_back_even_when_its_connection_has_it_already(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        clock = Clock()
        a = await env.replica("a", clock)
        await a.elector.campaign()
        await env.write(a, "while-leading")
        clock.readings_left = 1  # the first look lets it pass, and then the process is paused

        with pytest.raises(FencedError):
            await env.write(a, "late")

        assert clock.readings_left < 0
        assert env.written() == ["while-leading"]

    run_scenario(scenario)


def test_a_standby_reads_and_may_not_write(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
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

    run_scenario(scenario)


def test_a_leader_robbed_of_the_lease_gives_up_at_its_next_renewal(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        a = await env.replica("a", duration=30, deadline=20)
        await a.lead()

        env.plane.rest.patch(env.path, {"spec": {"holderIdentity": "thief"}})

        assert "thief" in await a.lost(within=2)
        assert not a.fence.left

    run_scenario(scenario)


def test_a_namesake_does_not_take_the_lease_for_its_own(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        a, namesake = await env.replica("same"), await env.replica("same")
        await a.lead()
        campaign = asyncio.create_task(namesake.elector.campaign())

        await asyncio.sleep(1.5 * DURATION)

        assert not campaign.done()
        assert a.fence.left
        campaign.cancel()

    run_scenario(scenario)


def test_a_deleted_lease_is_put_back_with_its_epoch_and_no_one_slips_in(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
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

    run_scenario(scenario)


def test_who_begins_while_a_lease_is_deleted_does_not_lead_beside_its_holder(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        a, b = await env.replica("a"), await env.replica("b")
        await a.lead()
        env.plane.rest.delete(env.path)

        campaign = asyncio.create_task(b.elector.campaign(led_before=True))
        await asyncio.sleep(0.5)

        assert env.lease()["holderIdentity"] == "a"
        assert a.fence.left
        assert not b.fence.left
        campaign.cancel()

    run_scenario(scenario)


def test_a_lease_that_is_missing_for_long_is_created_again(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        b = await env.replica("b")

        async with asyncio.timeout(30):
            await b.elector.campaign(led_before=True)

        assert env.lease()["holderIdentity"] == "b"

    run_scenario(scenario)


def test_an_acquisition_whose_answer_got_lost_still_counts(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        a = await env.replica("a", duration=30, deadline=20)
        create = a.elector.api.create

        async def answer_lost(*request: Any) -> Any:
            await create(*request)
            raise ApiUnavailableError("the connection broke")

        a.elector.api.create = answer_lost  # type: ignore[method-assign]

        await a.lead(within=2)

        assert env.lease()["holderIdentity"] == "a"

    run_scenario(scenario)


def test_an_epoch_is_claimed_in_the_lease_and_the_next_leader_goes_on_from_it(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        a, b = await env.replica("a"), await env.replica("b")
        await a.lead()

        assert await a.elector.claim(41) == 41
        assert await a.elector.claim(12) == 41
        assert env.lease()["leaseTransitions"] == 41
        await a.leave()
        await a.elector.release()
        await b.lead()

        assert b.elector.epoch == 42

    run_scenario(scenario)


def test_an_epoch_past_the_last_is_refused_saying_what_to_do(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        a = await env.replica("a")
        await a.lead()

        with pytest.raises(EpochsUsedUpError, match=r"remove spec\.assignment"):
            await a.elector.claim(LAST_EPOCH + 1)

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("times", "complaint"),
    [
        ({"duration": 10.0}, "must fall"),
        ({"deadline": 2.0}, "must fall"),
        ({"retry": 0.0}, "must fall"),
        ({"duration": 0.9, "deadline": 0.5, "retry": 0.1}, "1 to 3600 s"),
        ({"duration": 1e9}, "1 to 3600 s"),
        ({"identity": ""}, "--identity"),
    ],
)
def test_rules_by_which_two_could_lead_are_refused(times: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Candidacy(**times)


def test_a_process_that_starts_again_is_another_one() -> None:
    assert own_identity() != own_identity()
