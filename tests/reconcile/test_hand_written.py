"""A desired owner that a person writes with kubectl: it counts as theirs, and the older reason is removed."""

from __future__ import annotations

import pytest

from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy, eager

pytestmark = pytest.mark.apiserver


def shown(env: PolicyEnvironment, name: str) -> tuple[str, str, str]:
    """What the columns Desired, Reason and Policy of `kubectl get bundles -o wide` show."""
    spec = env.bundles()[name]["spec"]
    return spec["owner"], spec["assignment"]["reason"], spec["assignment"].get("policy", "")


def test_a_hand_written_desired_owner_does_not_keep_the_reason_of_the_previous_one(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        moved = min(name for name, desired in env.desired_owners().items() if desired != env.owners()[name])
        await env.land()
        assert shown(env, moved)[1:] == ("Overloaded", "main")

        env.edit(paused=True)
        env.give(moved, "a")
        await env.reconcile(after=1)
        assert shown(env, moved) == ("a", "Admin", ""), "while it is on its way"
        assert env.owners()[moved] != "a"
        await env.land()
        await env.reconcile(after=1)

        assert shown(env, moved) == ("a", "Admin", "")
        noted = env.bundles()[moved]["metadata"]["generation"]
        await env.reconcile(after=1)
        assert env.bundles()[moved]["metadata"]["generation"] == noted, "it is written once"
        assert not any(reason == "TimedOut" for reason, _ in env.events())

    run_policy(HOT, scenario, **eager())


def test_a_move_by_hand_that_removes_the_assignment_gets_a_reason(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        name = next(name for name, owner in env.owners().items() if owner == "a")
        env.rest.patch(
            env.path("bundles", name), {"spec": {"owner": "b", "assignment": None}}
        )  # as `trimtab move` does

        await env.reconcile(after=1)

        assert shown(env, name) == ("b", "Admin", "")
        assert env.owners()[name] == "a"

    run_policy(HOT, scenario, **eager() | {"mode": "DryRun"})
