"""Mode Approve on a real API server that fails writes or loses answers: what was decided is still carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from approve_mode import APPROVE, approved, ask, moved, progress, proposal
from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy, eager
from trimtab_operator.kube.client import Api, ApiError, ConflictError

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
