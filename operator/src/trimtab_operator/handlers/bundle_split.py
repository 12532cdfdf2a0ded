"""BundleSplit: answered, not yet carried out."""

from __future__ import annotations

from typing import Any

import kopf

from trimtab_operator.cluster.api import BUNDLE_SPLITS
from trimtab_operator.cluster.status import set_condition
from trimtab_operator.control.context import Context
from trimtab_operator.resources.common import GROUP, VERSION

_MESSAGE = "this version of Trimtab does not split bundles: the bundle was left as it is"


def register(registry: kopf.OperatorRegistry) -> None:
    """Add the handlers to `registry`."""
    for on in (kopf.on.create, kopf.on.resume):
        on(GROUP, VERSION, "bundlesplits", registry=registry, backoff=5.0)(refuse)


async def refuse(*, name: str, meta: kopf.Meta, memo: Context, **_: Any) -> None:
    """Say so in a condition, so that nobody waits for it."""
    generation = int(meta["generation"])
    conditions = set_condition([], "Accepted", "False", "NotSupported", _MESSAGE, generation, memo.now())
    status = {"observedGeneration": generation, "conditions": conditions}
    await memo.api.patch(BUNDLE_SPLITS, memo.namespace, name, {"status": status}, subresource="status")
