"""Helpers for tests of mode Approve: a person's annotations, and the proposal in the policy's status."""

from __future__ import annotations

from typing import Any

from policy_scene import PolicyScene
from splitting_clusters import large

APPROVE = {"mode": "Approve"}
LARGE = large({0: {"topics": 10, "throughput": 200}}, bundles={"a": [1] * 4, "b": [1]}, a=0.8, b=0.2, c=0.1)
DIVIDING: dict[str, Any] = {
    "shedder": {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}},
    "split": {"type": "BundleSplitterTask"},
}
"""A policy that splits bundles and moves none by itself."""


def ask(scene: PolicyScene, word: str, proposal: str | None = None) -> None:
    """Annotate the policy, as a person does with kubectl annotate."""
    annotations = {"trimtab.dev/rebalance": word, "trimtab.dev/proposal": proposal}
    scene.rest.patch(scene.path("balancingpolicies", "main"), {"metadata": {"annotations": annotations}})


def annotations(scene: PolicyScene) -> dict[str, str]:
    found: dict[str, str] = scene.policy()["metadata"].get("annotations") or {}
    return found


def proposal(scene: PolicyScene) -> dict[str, Any]:
    found: dict[str, Any] = scene.status()["proposal"]
    return found


def progress(scene: PolicyScene) -> dict[str, Any]:
    found: dict[str, Any] = scene.status()["progress"]
    return found


def command(scene: PolicyScene) -> tuple[str, str]:
    """Status and message of the last annotation's result."""
    [found] = [c for c in scene.status()["conditions"] if c["type"] == "CommandTaken"]
    return found["status"], found["message"]


async def offered(scene: PolicyScene) -> dict[str, Any]:
    """Run one cycle; returns the proposal that it offers."""
    await scene.reconcile()
    assert proposal(scene)["state"] == "ProposalReady", proposal(scene)
    return proposal(scene)


async def approved(scene: PolicyScene) -> dict[str, Any]:
    """Offer a proposal, approve it, and have its first moves written."""
    found = await offered(scene)
    ask(scene, "approve", found["id"])
    await scene.reconcile(after=2)
    return found


def destinations(found: dict[str, Any]) -> dict[str, str]:
    return {move["bundle"]: move["destination"] for move in found["moves"]}


def moved(scene: PolicyScene) -> dict[str, str]:
    """Desired owner by bundle, of those that differ from the start."""
    first = scene.load.bundles.owner.tolist()
    home = {
        scene.names[full]: scene.load.brokers.names[owner]
        for full, owner in zip(scene.load.bundles.names, first, strict=True)
    }
    return {name: owner for name, owner in scene.desired_owners().items() if owner != home[name]}
