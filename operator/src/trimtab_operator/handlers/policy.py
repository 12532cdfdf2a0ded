"""BalancingPolicy: one daemon each, which is the loop."""

from __future__ import annotations

from typing import Any

import kopf

from trimtab_operator.control.context import Context
from trimtab_operator.control.loop import PolicyLoop
from trimtab_operator.resources.common import GROUP, VERSION


def register(registry: kopf.OperatorRegistry) -> None:
    """Add the handlers to `registry`."""
    kopf.daemon(GROUP, VERSION, "balancingpolicies", registry=registry, cancellation_backoff=10.0)(balance)


async def balance(*, name: str, uid: str, body: kopf.Body, stopped: Any, memo: Context, **_: Any) -> None:
    """Run the policy's loop until Kopf says stop: the policy was deleted, or the operator ends."""
    await PolicyLoop(name, uid, memo, read=lambda: dict(body)).run(stopped)
