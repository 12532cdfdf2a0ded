"""Hypothesis strategies for Pulsar's state and for objects, and the objects after changes were written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

import records
from trimtab_operator.kube.records import BundleRecord, TopicNamespaceRecord, bundle_record
from trimtab_operator.pulsar.bridge.sync.diff import Birth, Owned, Ranges, Space

SPACE = "t/n"
LAST = 0xFFFFFFFF
BROKERS = ("a", "b", "c")

INNER = tuple(range(0x10000000, LAST, 0x10000000))


@st.composite
def boundaries(draw: st.DrawFn, within: tuple[int, ...] = INNER) -> tuple[int, ...]:
    """Edges of one to six bundles."""
    return (0, *sorted(draw(st.sets(st.sampled_from(within), max_size=5))), LAST)


def ranges(edges: tuple[int, ...]) -> list[tuple[str, str]]:
    """The ranges between edges, as in objects."""
    return [(f"0x{a:08x}", f"0x{b:08x}") for a, b in pairwise(edges)]


def full(found: BundleRecord) -> str:
    """Pulsar's spelling of a bundle."""
    return f"{SPACE}/{found.lower}_{found.upper}"


def existing(lower: str, upper: str, owner: str = "", **changes: Any) -> BundleRecord:
    """A Bundle object as the sync creates it."""
    base = {"lower": lower, "upper": upper, "made": True, "state": "Owned" if owner else "Free"}
    return records.bundle(f"t-n-{lower}-{upper}", owner, **{**base, **changes})


@dataclass
class BundleObjects:
    """The Bundle objects of one namespace, with changes applied as by the API server."""

    space: TopicNamespaceRecord
    bundles: dict[str, BundleRecord] = field(default_factory=dict)

    def apply(self, found: Ranges) -> None:
        """Apply creations, then deletions."""
        for birth in found.create:
            assert birth.name not in self.bundles
            self.bundles[birth.name] = born(birth)
        for old in found.delete:
            del self.bundles[old.name]

    def patch(self, changes: Iterable[tuple[BundleRecord, dict[str, Any]]]) -> None:
        """Apply status patches."""
        for record, status in changes:
            new = {"status_owner": status["owner"], "state": status["state"]}
            observed = status.get("observedGeneration", record.observed_generation)
            self.bundles[record.name] = replace(record, **new, observed_generation=observed)


def born(birth: Birth) -> BundleRecord:
    """The record of a new Bundle object."""
    meta = {**birth.manifest["metadata"], "generation": 1, "resourceVersion": "1"}
    return bundle_record({**birth.manifest, "metadata": meta, "status": birth.status})


def seen(edges: tuple[int, ...], owners: dict[str, str], **changes: Any) -> tuple[Space, Owned]:
    """The namespace in Pulsar, and the owners of its bundles (Pulsar's spelling)."""
    return Space(SPACE, edges), Owned(by_bundle=owners, **{"complete": True, **changes})
