"""Mode Approve on a real API server: a BundleSplit that exists already when an approved split is requested."""

from __future__ import annotations

from typing import Any

import pytest

from approve_mode import APPROVE, DIVIDING, LARGE, ask, offered, progress, proposal
from declarative_splits import splits
from policy_environment import PolicyEnvironment, RunPolicy
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.naming import split_name

pytestmark = pytest.mark.apiserver


def existing(env: PolicyEnvironment, shown: dict[str, Any], after: float, **status: Any) -> str:
    """Create the BundleSplit of a proposed split, as a policy does `after` seconds from now; returns its name."""
    name = split_name(shown["bundle"], tuple(int(boundary, 16) for boundary in shown["boundaries"]))
    request = {"policy": "main", "epoch": 1, "reason": "Topics", "time": timestamp(env.clock + after), "source": "a"}
    spec = {"bundle": shown["bundle"], "boundaries": shown["boundaries"], "request": request}
    manifest = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BundleSplit", "metadata": {"name": name}, "spec": spec}
    env.rest.create(env.path("bundlesplits"), manifest)
    if status:
        env.rest.patch(env.path("bundlesplits", name, "status"), {"status": status})
    return name


async def approved_with(env: PolicyEnvironment, after: float, **status: Any) -> str:
    """Offer a split, create its BundleSplit, and approve the proposal; returns the name of the BundleSplit."""
    found = await offered(env)
    name = existing(env, found["splits"][0], after, **status)
    ask(env, "approve", found["id"])
    await env.reconcile(after=2)
    assert list(splits(env)) == [name]
    return name


@pytest.mark.parametrize("after", [-1800.0, 2.0], ids=["earlier", "of this execution"])
def test_a_split_that_failed_is_not_reported_as_made(after: float, run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        name = await approved_with(env, after, phase="Failed", message="broker a did not answer")

        assert (progress(env)["landed"], proposal(env)["state"]) == (0, "NotReady")
        [failure] = progress(env)["failures"]
        assert failure["reason"] == "Conflict"
        assert failure["detail"] == f"BundleSplit {name} failed: broker a did not answer"

    run_policy(LARGE, scenario, **APPROVE, **DIVIDING)


def test_a_split_that_was_requested_before_the_approval_is_not_counted_as_made(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        name = await approved_with(env, -1800.0)

        [failure] = progress(env)["failures"]
        assert failure["detail"] == f"an earlier BundleSplit {name} still exists: it is Pending"

    run_policy(LARGE, scenario, **APPROVE, **DIVIDING)


def test_a_split_whose_request_got_no_answer_counts_as_made(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await approved_with(env, 2.0)

        assert (progress(env)["landed"], proposal(env)["state"]) == (1, "Ready")

    run_policy(LARGE, scenario, **APPROVE, **DIVIDING)
