"""Checks that the bundles of a namespace form a complete ring."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab_strategies.hash_ring import LAST_HASH, parse_bundle


def check_ring(names: Iterable[str]) -> list[int]:
    """The boundaries of a namespace, from the full names of its bundles in any order.

    Fails for several namespaces, a duplicate, an overlap, a gap, or no bundle.
    """
    bundles = sorted(map(parse_bundle, names))
    assert len({bundle.namespace for bundle in bundles}) == 1, bundles
    begins = [*(bundle.lower for bundle in bundles), LAST_HASH]
    assert begins == [0, *(bundle.upper for bundle in bundles)], bundles
    return begins
