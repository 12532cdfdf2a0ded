"""The Kopf handlers: each reads the object and calls one function of `loop` or `reconcile`.

Bundles, Brokers and BundleSplits have no handlers: Kopf would write to each of 60,000 objects, and it misses deletions
that happen before it lists the objects again. Our own stores follow those kinds.

Kopf copies its memo for each object. The memo is the frozen `Clusters`, so a copy refers to the same clusters.
"""

from __future__ import annotations

from typing import Any

import kopf

from trimtab_operator.loop.policy_loop import PolicyLoop
from trimtab_operator.pulsar.own_balancer.restore import RELEASE_WITHIN, release_balancer
from trimtab_operator.resources.common import GROUP, VERSION
from trimtab_operator.state.clusters import Clusters

_BACKOFF = 10.0 + RELEASE_WITHIN
"""Seconds after which Kopf cancels a loop that was asked to stop."""


def registry() -> kopf.OperatorRegistry:
    """A new registry with all handlers; Kopf's global registry stays empty."""
    handlers = kopf.OperatorRegistry()
    kopf.daemon(GROUP, VERSION, "balancingpolicies", registry=handlers, cancellation_backoff=_BACKOFF)(balance)
    return handlers


async def balance(
    *, name: str, namespace: str | None, uid: str, body: kopf.Body, stopped: Any, memo: Clusters, **_: Any
) -> None:
    """Run the loop of a BalancingPolicy until Kopf stops it, because the policy was deleted or the operator stops.

    Kopf removes the finalizer of a deleted policy when this returns, so Pulsar's own balancer is restored before that.
    """
    cluster = await memo.reach(namespace or "")
    await PolicyLoop(name, uid, cluster, read=lambda: dict(body)).run(stopped)
    if stopped.reason is not None and kopf.DaemonStoppingReason.RESOURCE_DELETED in stopped.reason:
        await release_balancer(cluster)


def operator_settings() -> kopf.OperatorSettings:
    """Kopf's settings: our group in everything it writes, time limits on watches, and no Events by Kopf."""
    settings = kopf.OperatorSettings()
    settings.persistence.finalizer = f"{GROUP}/finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    settings.posting.enabled = False
    settings.scanning.disabled = True
    # Kopf checks after this time whether a stopped loop has exited. If it has not, Kopf checks again only after the
    # whole back-off. A loop needs this time to end its reconcile.
    settings.background.instant_exit_timeout = 3.0
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 30
    return settings
