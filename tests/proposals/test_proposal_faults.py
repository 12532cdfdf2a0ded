"""Mode Approve on a real API server that fails writes or loses answers: what was decided is still carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from approve_mode import APPROVE, approved, ask, moved, offered, progress, proposal
from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy, eager
from trimtab_operator.kube.client import Api, ApiError, ConflictError
from trimtab_operator.state.settings import Settings

pytestmark = pytest.mark.apiserver


@dataclass
class Faults:
    """Fails the next patches of objects of one kind.

    plural: the kind; empty for none. name: what the names of the objects begin with. lost: whether the API server makes
    the changes, and only its answers are lost.
    """

    plural: str = ""
    name: str = ""
    lost: bool = False

    def stop(self) -> None:
        self.plural = ""


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    found, real = Faults(), Api.patch

    async def patch(api: Api, ref: Any, namespace: str, name: str, *others: Any, **options: Any) -> Any:
        hit = ref.plural == found.plural and name.startswith(found.name)
        if hit and not found.lost:
            raise ApiError("injected: not written")
        answer = await real(api, ref, namespace, name, *others, **options)
        if hit:
            raise ApiError("injected: the answer is lost")
        return answer

    monkeypatch.setattr(Api, "patch", patch)
    return found


def of_proposals(faults: Faults, *, lost: bool) -> None:
    """Fail the writes of the ConfigMap of proposals."""
    faults.plural, faults.name, faults.lost = "configmaps", "trimtab-proposal-", lost


def touch(env: PolicyEnvironment) -> None:
    """Change the ConfigMap of proposals, as another client does: the next write of it is a conflict."""
    path = f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-proposal-main"
    env.rest.patch(path, {"metadata": {"labels": {"changed-by": "another-client"}}})


# -- another mode --


def test_leaving_the_mode_ends_what_was_approved_although_the_first_write_conflicts(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        assert len(moved(env)) == 1 < found["total"]
        touch(env)
        env.edit(mode="DryRun")
        await env.land()

        with pytest.raises(ConflictError):
            await env.reconcile(after=2)
        for _ in range(3):
            await env.reconcile(after=2)
            await env.land()

        assert len(moved(env)) == 1
        assert progress(env)["finishedAt"]
        assert "state" not in proposal(env)

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_leaving_the_mode_is_tried_again_after_an_outage(run_policy: RunPolicy, faults: Faults) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await approved(env)
        env.edit(mode="DryRun")
        await env.land()

        of_proposals(faults, lost=False)
        with pytest.raises(ApiError):
            await env.reconcile(after=2)
        faults.stop()
        await env.reconcile(after=2)
        env.restart()
        await env.reconcile(after=2)

        assert len(moved(env)) == 1
        assert progress(env)["finishedAt"]
        assert "state" not in proposal(env)

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


# -- the end --


@pytest.mark.parametrize(("word", "state"), [("", "Ready"), ("stop", "Stopped")])
def test_an_execution_whose_end_could_not_be_stored_ends_in_a_later_round(
    word: str, state: str, run_policy: RunPolicy, faults: Faults
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await approved(env)
        if word:
            ask(env, word)
            await env.reconcile(after=2)
        await env.land()

        of_proposals(faults, lost=False)
        for _ in range(2):
            with pytest.raises(ApiError):
                await env.reconcile(after=2)
        assert progress(env).get("finishedAt") is None
        faults.stop()
        await env.reconcile(after=2)

        assert proposal(env)["state"] == state
        assert progress(env)["finishedAt"]
        assert env.condition("Rebalancing") == ("False", state)

    run_policy(HOT, scenario, **APPROVE)


# -- reports --


def of_status(faults: Faults) -> None:
    """Fail the writes of the policy's status."""
    faults.plural, faults.name, faults.lost = "balancingpolicies", "main", False


def ended(env: PolicyEnvironment, found: dict[str, Any]) -> None:
    """Check that the end of the execution is reported."""
    assert proposal(env)["state"] == "Ready"
    assert env.condition("Rebalancing") == ("False", "Ready")
    assert progress(env)["finishedAt"]
    assert [found["id"] in note for reason, note in env.events() if reason == "Ready"] == [True]


def test_an_end_that_was_stored_without_an_answer_is_reported(run_policy: RunPolicy, faults: Faults) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        await env.land()

        of_proposals(faults, lost=True)
        with pytest.raises(ApiError):
            await env.reconcile(after=2)
        faults.stop()
        with pytest.raises(ConflictError):
            await env.reconcile(after=2)
        await env.reconcile(after=2)

        ended(env, found)

    run_policy(HOT, scenario, **APPROVE)


def test_an_end_whose_report_failed_is_reported_in_the_next_round(run_policy: RunPolicy, faults: Faults) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        await env.land()
        await stored_and_not_reported(env, faults)
        await env.reconcile(after=2)

        ended(env, found)

    run_policy(HOT, scenario, **APPROVE)


async def stored_and_not_reported(env: PolicyEnvironment, faults: Faults) -> None:
    """Run the approver's part of a round, whose state is stored and whose status is not."""
    of_status(faults)
    run = await env.loop._run(Settings.of(env.policy()), afresh=False)
    env.clock += 2
    with pytest.raises(ApiError):
        await env.loop.confirmation.approver.attend(run, env.policy())
    faults.stop()


def test_a_proposal_that_another_client_held_up_is_shown_in_the_next_round(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await offered(env)
        ask(env, "refresh")
        await env.reconcile(after=2)
        touch(env)

        with pytest.raises(ConflictError):
            await env.reconcile(after=2)
        await env.cycle()

        assert proposal(env)["state"] == "ProposalReady"
        assert proposal(env)["id"] != first["id"]
        assert [reason for reason, _ in env.events()].count("ProposalReady") == 2

    run_policy(HOT, scenario, **APPROVE)


def test_a_proposal_that_was_stored_without_an_answer_is_shown(run_policy: RunPolicy, faults: Faults) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await offered(env)
        ask(env, "refresh")
        await env.reconcile(after=2)

        of_proposals(faults, lost=True)
        with pytest.raises(ApiError):
            await env.reconcile(after=2)
        faults.stop()
        with pytest.raises(ConflictError):
            await env.cycle()
        await env.reconcile(after=2)

        assert proposal(env)["state"] == "ProposalReady"
        assert proposal(env)["id"] != first["id"]

    run_policy(HOT, scenario, **APPROVE)
