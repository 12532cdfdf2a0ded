"""Helpers for tests of mode Approve: a person's annotations, and the proposal in the policy's status."""

from __future__ import annotations

from typing import Any

from policy_environment import PolicyEnvironment
from splitting_clusters import large

APPROVE = {"mode": "Approve"}
LARGE = large({0: {"topics": 10, "throughput": 200}}, bundles={"a": [1] * 4, "b": [1]}, a=0.8, b=0.2, c=0.1)
DIVIDING: dict[str, Any] = {
    "shedder": {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}},
    "split": {"type": "BundleSplitterTask"},
}
"""The spec of a policy that splits bundles and moves none."""


def ask(env: PolicyEnvironment, word: str, proposal: str | None = None, *, by: str | None = None) -> None:
    """Annotate the policy, as a person does with kubectl annotate."""
    annotations = {"trimtab.dev/rebalance": word, "trimtab.dev/proposal": proposal, "trimtab.dev/approved-by": by}
    env.rest.patch(env.path("balancingpolicies", "main"), {"metadata": {"annotations": annotations}})


def annotations(env: PolicyEnvironment) -> dict[str, str]:
    found: dict[str, str] = env.policy()["metadata"].get("annotations") or {}
    return found


def proposal(env: PolicyEnvironment) -> dict[str, Any]:
    found: dict[str, Any] = env.status()["proposal"]
    return found


def progress(env: PolicyEnvironment) -> dict[str, Any]:
    found: dict[str, Any] = env.status()["progress"]
    return found


def command(env: PolicyEnvironment) -> tuple[str, str]:
    """Status and message of the condition that answers the last annotation."""
    [found] = [c for c in env.status()["conditions"] if c["type"] == "CommandTaken"]
    return found["status"], found["message"]


async def offered(env: PolicyEnvironment) -> dict[str, Any]:
    """Run one cycle; returns the proposal that it offers."""
    await env.reconcile()
    assert proposal(env)["state"] == "ProposalReady", proposal(env)
    return proposal(env)


async def approved(env: PolicyEnvironment) -> dict[str, Any]:
    """Offer a proposal, approve it, and have its first moves written."""
    found = await offered(env)
    ask(env, "approve", found["id"])
    await env.reconcile(after=2)
    return found


def destinations(found: dict[str, Any]) -> dict[str, str]:
    return {move["bundle"]: move["destination"] for move in found["moves"]}


def moved(env: PolicyEnvironment) -> dict[str, str]:
    """The desired owner of each bundle whose desired owner differs from the start."""
    first = env.load.bundles.owner.tolist()
    home = {
        env.names[full]: env.load.brokers.names[owner]
        for full, owner in zip(env.load.bundles.names, first, strict=True)
    }
    return {name: owner for name, owner in env.desired_owners().items() if owner != home[name]}
