"""AvgShedder's plan: which broker a bundle is to go to, as Pulsar remembers it and as it was meant.

Up to PR 26246 Pulsar's plan is a hash map whose key is the bundle's *statistics*, an object that goes on changing while
it is in the map. An entry is found when its statistics at the time of the entry are those of the bundle asked for, and
so are the statistics its own bundle has now. Two consequences: an entry is lost with the next report, and bundles
with equal statistics share one. `Statistics` keeps to that exactly; from the fix on the key is the bundle's name.

Forms in memory. By statistics: a list of entries [bundle (empty once it is gone), statistics at the time of the entry,
the bundle's statistics last seen, destination]. By name: bundle to destination.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from trimtab_strategies.model import ClusterLoad

MOST = 1000
"""Entries kept by statistics, the newest: Pulsar keeps all for ever, though hardly any is ever found again."""

Plan = Sequence[Sequence[str]]


def followed(plan: Plan, cluster: ClusterLoad) -> list[list[str]]:
    """The plan once its bundles have moved on to the statistics they have in `cluster`."""
    return [_followed(entry, cluster) for entry in plan]


def _followed(entry: Sequence[str], cluster: ClusterLoad) -> list[str]:
    bundle, before, last_seen, destination = entry
    row = cluster.bundles.index.get(bundle, -1) if bundle else -1
    if row < 0 or np.isnan(cluster.bundles.short[row, 0]):
        return ["", before, last_seen, destination]  # one of the same name will be another object
    return [bundle, before, statistics(cluster, row), destination]


def put(plan: Plan, cluster: ClusterLoad, bundle: int, destination: str) -> list[list[str]]:
    """The plan with an entry more, or with another destination in the entry found for `bundle` (row)."""
    entries = [list(entry) for entry in plan]
    for place, _ in _found(plan, cluster, bundle):
        entries[place][3] = destination
        return entries
    now = statistics(cluster, bundle)
    return [*entries, [cluster.bundles.names[bundle], now, now, destination]][-MOST:]


def look_up(plan: Plan, cluster: ClusterLoad, bundle: int) -> str | None:
    """The destination that is found for `bundle` (row)."""
    return next((destination for _, destination in _found(plan, cluster, bundle)), None)


def _found(plan: Plan, cluster: ClusterLoad, bundle: int) -> Iterator[tuple[int, str]]:
    now = statistics(cluster, bundle) if plan else ""
    for place, entry in enumerate(plan):
        if entry[1] == now and _followed(entry, cluster)[2] == now:
            yield place, entry[3]


def statistics(cluster: ClusterLoad, bundle: int) -> str:
    """A fingerprint of what Pulsar's equality of bundle data looks at: both averages and the number of topics."""
    bundles: Any = cluster.bundles
    parts = (bundles.short[bundle], bundles.long[bundle], bundles.topics[bundle])
    return blake2b(b"".join(np.ascontiguousarray(part).tobytes() for part in parts), digest_size=8).hexdigest()
