"""TopicNamespace: cut into bundles once."""

from __future__ import annotations

from typing import Any

import kopf

from trimtab_operator.reconcile.namespaces import cut
from trimtab_operator.resources.common import GROUP, VERSION
from trimtab_operator.state.cluster import ClusterState


def register(registry: kopf.OperatorRegistry) -> None:
    """Add the handlers to `registry`."""
    for on in (kopf.on.create, kopf.on.resume):
        on(GROUP, VERSION, "topicnamespaces", registry=registry, backoff=5.0)(create_bundles)


async def create_bundles(*, body: kopf.Body, memo: ClusterState, **_: Any) -> None:
    """Create the bundles it begins with, unless that was done before."""
    await cut(memo, dict(body))
