"""Recorded ``extensible.TopKBundles``: the heaviest bundles that a broker reports, run here.

Bundles that weigh the same come out in the order in which Pulsar's partial sort happens to leave them. Our strategies
tell them apart by name instead, so that sort stands here, where its order is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trimtab_strategies.averages import reported_steps
from trimtab_strategies.conformance import world
from trimtab_strategies.conformance.shared import Answer, Input
from trimtab_strategies.selection import SYSTEM_NAMESPACE
from trimtab_strategies.topics import is_monitoring

Weighed = tuple[tuple[int, ...], str]
"""What a bundle weighs, the first number first, and its name."""


def top_k_bundles(given: Input) -> Answer:
    """``extensible.TopKBundles``: what is reported, lightest first, and the bare sort of all bundles."""
    bundles, excluded = given["bundles"], given["conf"].get("loadBalancerSheddingExcludedNamespaces", ())
    reported = {name: entry for name, entry in bundles.items() if _is_reported(name, entry, excluded)}
    return {
        "partition_sort_reversed": _heaviest(bundles, given["k"]),
        "published": _heaviest(reported, given["k"]),
    }


def _is_reported(name: str, entry: Mapping[str, Any], excluded: tuple[str, ...]) -> bool:
    space = name.rpartition("/")[0]
    own = space == SYSTEM_NAMESPACE or is_monitoring(space)
    busy = float(entry.get("msg_throughput_in", 0)) + float(entry.get("msg_throughput_out", 0)) != 0
    return busy and not own and space not in excluded


def _heaviest(bundles: Mapping[str, Mapping[str, Any]], count: int) -> list[str]:
    """Names of the `count` heaviest, lightest first."""
    count = min(count, len(bundles))
    ordered = partition_sort(_weighed(bundles), count) if count > 0 else []
    return [name for _, name in reversed(ordered)]


def _weighed(bundles: Mapping[str, Mapping[str, Any]]) -> list[Weighed]:
    entries = list(bundles.values())
    sessions = [sum(entry.get(what, 0) for what in ("topics", "consumer_count", "producer_count")) for entry in entries]
    cache = [entry.get("cache_size", 0) for entry in entries]
    steps = reported_steps(world.traffic(entries), np.array(sessions, dtype=float), np.array(cache, dtype=float))
    return list(zip(map(tuple, steps.tolist()), bundles, strict=True))


def partition_sort(bundles: list[Weighed], count: int) -> list[Weighed]:
    """The `count` heaviest of `bundles`, heaviest first; equal ones as Pulsar's quick-select leaves them."""
    found, start, end = list(bundles), 0, len(bundles) - 1
    while start < end:
        first, after = _partitioned(found, start, end)
        if first <= count - 1 < after:
            end = first
            break
        start, end = (start, first - 1) if count - 1 < first else (after, end)
    found[:end] = sorted(found[:end], key=lambda bundle: bundle[0], reverse=True)
    return found[:count]


def _partitioned(found: list[Weighed], start: int, end: int) -> tuple[int, int]:
    """Bring what is heavier than the last of a window before it, what is lighter after it; where its equals are."""
    pivot = found[end][0]
    first, here, last = start, start, end
    while here <= last:
        weight = found[here][0]
        if weight > pivot:
            found[first], found[here] = found[here], found[first]
            first, here = first + 1, here + 1
        elif weight < pivot:
            found[here], found[last] = found[last], found[here]
            last -= 1
        else:
            here += 1
    return first, here
