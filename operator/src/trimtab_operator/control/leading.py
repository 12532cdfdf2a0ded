"""What a process does when it begins to lead: it finds an epoch that nobody used, and says who it is.

The epoch is one for all policies, as a bundle may pass from one policy to another. It must be above whatever the
bundles carry, or the API server would refuse our writes; the policies' memories are asked as well, because a leader may
have had an epoch and written no bundle with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from trimtab_operator.cluster.api import POLICIES
from trimtab_operator.cluster.status import Condition, set_condition
from trimtab_operator.control.context import Context
from trimtab_operator.control.memory import ForeignMemoryError, MemoryStore

log = logging.getLogger(__name__)


async def unused_epoch(context: Context) -> int:
    """The smallest epoch above all that bundles and policies know of. Raises `ApiError`."""
    bundles = context.stores.bundles.items.values()
    highest = max((bundle.assigned_epoch for bundle in bundles), default=0)
    async for page in context.api.list(POLICIES, context.namespace):
        for policy in page.items:
            highest = max(highest, await _remembered_epoch(context, policy["metadata"]))
    return highest + 1


async def _remembered_epoch(context: Context, policy: Mapping[str, Any]) -> int:
    store = MemoryStore(context.api, context.namespace, policy["name"], policy["uid"])
    try:
        return (await store.load()).epoch
    except ForeignMemoryError as error:
        log.warning("policy %s: %s", policy["name"], error)  # its loop will tell the people, too
        return 0


async def announce(context: Context, lease: Mapping[str, Any]) -> None:
    """Tell everybody that we lead: log, metric and an Event on the Lease. Conditions follow with the first cycles."""
    context.metrics.leader.set(1)
    context.metrics.epoch.set(context.epoch)
    text = f"{context.leader} leads, epoch {context.epoch}"
    log.info("%s", text)
    await context.events.post(lease, "Normal", "LeaderElected", text, action="Elect")


async def take_leave(context: Context, lease: Mapping[str, Any]) -> None:
    """Tell that we end leading in good order."""
    context.metrics.leader.set(0)
    await context.events.post(lease, "Normal", "LeaderResigned", f"{context.leader} ends leading", action="Elect")


def led(context: Context, conditions: Iterable[Mapping[str, Any]], generation: int) -> list[Condition]:
    """`conditions` of a policy at `generation`, with the one that says who leads, if anybody is elected."""
    if not context.leader:
        return [dict(condition) for condition in conditions]
    text = f"{context.leader} leads, epoch {context.epoch}"
    return set_condition(conditions, "Led", "True", "Elected", text, generation, context.now())
