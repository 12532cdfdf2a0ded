"""Keeps `TopicNamespace.status.bundles` at the number of Bundle objects there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from trimtab_operator.cluster.api import TOPIC_NAMESPACES, NotFoundError
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.cluster.topic_namespaces import TopicNamespaceRecord
from trimtab_operator.control.context import Context


@dataclass(slots=True)
class BundleCounts:
    """Counts along, so that a change costs the same whether a cluster has ten bundles or 60,000."""

    context: Context
    _counts: Counter[str] = field(init=False)
    _news: set[str] = field(init=False)

    def __post_init__(self) -> None:
        bundles = self.context.stores.bundles
        self._counts = Counter(bundle.topic_namespace for bundle in bundles.items.values())
        self._news = set(self._counts)
        bundles.subscribe(self._changed)

    def _changed(self, old: BundleRecord | None, new: BundleRecord | None) -> None:
        if old is not None and new is None:
            self._count(old.topic_namespace, -1)
        elif old is None and new is not None:
            self._count(new.topic_namespace, 1)

    def _count(self, space: str, change: int) -> None:
        self._counts[space] += change
        self._news.add(space)

    async def tell(self) -> None:
        """Write the numbers that are others by now. One that is being cut for the first time says so itself.

        Raises `ApiError`.
        """
        spaces, context = self.context.stores.topic_namespaces.items, self.context
        for name in [name for name in self._news if name not in spaces or _cut(spaces[name])]:
            self._news.discard(name)
            if name in spaces and spaces[name].bundles != self._counts[name]:
                body = {"status": {"bundles": self._counts[name]}}
                try:
                    await context.api.patch(TOPIC_NAMESPACES, context.namespace, name, body, subresource="status")
                except NotFoundError:
                    continue


def _cut(space: TopicNamespaceRecord) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in space.conditions)
