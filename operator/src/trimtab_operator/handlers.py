"""The Kopf handler: it keeps the policies of `Clusters`, which `loop.policy_tasks` runs, as they are now.

It is called for each policy at a listing, and for each change and deletion. For such a handler Kopf writes nothing to
the objects: a daemon would give each policy a finalizer, and its deletion would wait for the operator.

Bundles, Brokers and BundleSplits have no handlers: Kopf would call them for each of 60,000 objects, and it misses
deletions that happen before it lists the objects again. Our own stores follow those kinds.

Kopf copies its memo for each object. The memo is the frozen `Clusters`, so a copy refers to the same clusters.
"""

from __future__ import annotations

from typing import Any

import kopf

from trimtab_operator.resources.common import GROUP, VERSION
from trimtab_operator.state.clusters import Clusters


def registry() -> kopf.OperatorRegistry:
    """A new registry with all handlers; Kopf's global registry stays empty."""
    handlers = kopf.OperatorRegistry()
    kopf.on.event(GROUP, VERSION, "balancingpolicies", registry=handlers)(policy_seen)
    return handlers


async def policy_seen(*, namespace: str | None, uid: str, event: kopf.RawEvent, memo: Clusters, **_: Any) -> None:
    """Keep a BalancingPolicy as it is now, or forget it."""
    policies = memo.policies[namespace or ""]
    if event["type"] == "DELETED":
        policies.pop(uid, None)
    else:
        policies[uid] = event["object"]


def operator_settings() -> kopf.OperatorSettings:
    """Kopf's settings: time limits on watches, and no Events by Kopf."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 30
    return settings
