"""AvgShedder's plan: which broker a bundle is to go to, as Pulsar remembers it and as it was meant.

Up to PR 26246 Pulsar's plan is a hash map whose key is the bundle's *statistics*, an object that goes on changing while
it is in the map. An entry is found when its statistics at the time of the entry are those of the bundle asked for, and
so are the statistics its own bundle has now. Two consequences: an entry is lost with the next report, and bundles
with equal statistics share one. `look_up` and `put` keep to that exactly; from the fix on the key is the bundle's name.

Forms in memory. By statistics: a list of entries [bundle (empty once it is gone), statistics at the time of the entry,
the bundle's statistics last seen, destination]. By name: bundle to destination.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.load import IntArray

MOST = 1000
"""Entries kept by statistics, the newest: Pulsar keeps all for ever, though hardly any is ever found again."""

Entry = Sequence[str]
Plan = Sequence[Entry]


def followed(plan: Plan, cluster: ClusterLoad) -> list[Entry]:
    """The plan once its bundles have moved on to the statistics they have in `cluster`."""
    index = cluster.bundles.index
    rows = np.array([index.get(entry[0], -1) for entry in plan], dtype=np.int64)
    rows[rows >= 0] = np.where(np.isnan(cluster.bundles.short[rows[rows >= 0], 0]), -1, rows[rows >= 0])
    now = iter(statistics(cluster, rows[rows >= 0]))
    return [
        # A bundle of the same name as one that is gone will be another object.
        (bundle, before, next(now), destination) if row >= 0 else ("", before, last_seen, destination)
        for row, (bundle, before, last_seen, destination) in zip(rows.tolist(), plan, strict=True)
    ]


def extended(plan: Plan, cluster: ClusterLoad, goes: Iterable[tuple[int, str]]) -> list[list[str]]:
    """The plan, `followed` until now, with the destinations of more bundles (row, broker), one after the other."""
    entries, goes = [list(entry) for entry in plan], list(goes)
    live: dict[str, list[str]] = {}
    for entry in entries:
        if entry[1] == entry[2]:
            live.setdefault(entry[1], entry)
    for now, (row, destination) in zip(statistics(cluster, np.array([row for row, _ in goes])), goes, strict=True):
        if now in live:
            live[now][3] = destination
        else:
            live[now] = [cluster.bundles.names[row], now, now, destination]
            entries.append(live[now])
    return entries[-MOST:]


def put(plan: Plan, cluster: ClusterLoad, bundle: int, destination: str) -> list[Entry]:
    """The plan with an entry more, or with another destination in the entry that is found for `bundle` (row)."""
    entries = list(plan)
    for place, (name, before, last_seen, _) in _found(plan, cluster, bundle):
        entries[place] = [name, before, last_seen, destination]
        return entries
    (now,) = statistics(cluster, np.array([bundle]))
    return [*entries, [cluster.bundles.names[bundle], now, now, destination]][-MOST:]


def look_up(plan: Plan, cluster: ClusterLoad, bundle: int) -> str | None:
    """The destination that is found for `bundle` (row)."""
    return next((entry[3] for _, entry in _found(plan, cluster, bundle)), None)


def _found(plan: Plan, cluster: ClusterLoad, bundle: int) -> Iterator[tuple[int, Entry]]:
    """The entries found for `bundle`: of which both statistics are the bundle's own now."""
    (now,) = statistics(cluster, np.array([bundle])) if plan else ("",)
    for place, entry in enumerate(plan):
        if entry[1] == now and followed([entry], cluster)[0][2] == now:
            yield place, entry


def statistics(cluster: ClusterLoad, bundles: IntArray) -> list[str]:
    """A fingerprint of what Pulsar's equality of bundle data looks at, of each of `bundles` (rows).

    That is both averages and the number of topics, to the last bit.
    """
    rows = bundles.astype(np.int64)
    known = cluster.bundles
    parts = np.concatenate([known.short[rows], known.long[rows], known.topics[rows, np.newaxis]], axis=1)
    each, together = parts.shape[1] * parts.itemsize, parts.tobytes()
    starts = range(0, len(together), each)
    return [blake2b(together[start : start + each], digest_size=8).hexdigest() for start in starts]
