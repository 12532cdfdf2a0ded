"""BalancingPolicy: one daemon each, which is the loop."""

from __future__ import annotations

from typing import Any

import kopf

from trimtab_operator.loop.policy_loop import PolicyLoop
from trimtab_operator.pulsar.own_balancer.release import RELEASE_WITHIN, release_balancer
from trimtab_operator.resources.common import GROUP, VERSION
from trimtab_operator.state.cluster import ClusterState

_BACKOFF = 10.0 + RELEASE_WITHIN
"""Seconds after which Kopf cancels a loop that was told to stop."""


def register(registry: kopf.OperatorRegistry) -> None:
    """Add the handlers to `registry`."""
    kopf.daemon(GROUP, VERSION, "balancingpolicies", registry=registry, cancellation_backoff=_BACKOFF)(balance)


async def balance(*, name: str, uid: str, body: kopf.Body, stopped: Any, memo: ClusterState, **_: Any) -> None:
    """Run the policy's loop until Kopf says stop: the policy was deleted, or the operator ends.

    The finalizer of a deleted policy goes when this returns, so what is to be put back for it comes first.
    """
    await PolicyLoop(name, uid, memo, read=lambda: dict(body)).run(stopped)
    if stopped.reason is not None and kopf.DaemonStoppingReason.RESOURCE_DELETED in stopped.reason:
        await release_balancer(memo)
