"""Hypothesis strategies for Pulsar's state and for objects, and a model that applies changes to the objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

import records
from trimtab_operator.kube.records import BundleRecord, TopicNamespaceRecord, bundle_record
from trimtab_operator.pulsar.bridge.sync.diff import BundleChanges, NewBundle, ObservedOwners, PulsarNamespace

SPACE = "t/n"
LAST = 0xFFFFFFFF
BROKERS = ("a", "b", "c")

INNER = tuple(range(0x10000000, LAST, 0x10000000))


@st.composite
def boundaries(draw: st.DrawFn) -> tuple[int, ...]:
    """Edges of one to six bundles."""
    return (0, *sorted(draw(st.sets(st.sampled_from(INNER), max_size=5))), LAST)


def ranges(edges: tuple[int, ...]) -> list[tuple[str, str]]:
    """The ranges between edges, as in objects."""
    return [(f"0x{a:08x}", f"0x{b:08x}") for a, b in pairwise(edges)]


def full(found: BundleRecord) -> str:
    """Pulsar's spelling of a bundle."""
    return f"{SPACE}/{found.lower}_{found.upper}"


def existing(lower: str, upper: str, owner: str = "", **changes: Any) -> BundleRecord:
    """A Bundle object as the sync creates it."""
    base = {"lower": lower, "upper": upper, "controller": "uid", "state": "Owned" if owner else "Free"}
    return records.bundle(f"t-n-{lower}-{upper}", owner, **{**base, **changes})


@dataclass
class BundleObjects:
    """The Bundle objects of one namespace, with changes applied as by the API server."""

    space: TopicNamespaceRecord
    bundles: dict[str, BundleRecord] = field(default_factory=dict)

    def apply(self, found: BundleChanges) -> None:
        """Apply creations, then deletions."""
        for new in found.create:
            assert new.name not in self.bundles
            self.bundles[new.name] = created(new)
        for old in found.delete:
            del self.bundles[old.name]

    def patch(self, changes: Iterable[tuple[BundleRecord, dict[str, Any]]]) -> None:
        """Apply status patches."""
        for record, status in changes:
            new = {"status_owner": status["owner"], "state": status["state"]}
            observed = status.get("observedGeneration", record.observed_generation)
            self.bundles[record.name] = replace(record, **new, observed_generation=observed)


def created(new: NewBundle) -> BundleRecord:
    """The record of a new Bundle object."""
    meta = {**new.manifest["metadata"], "generation": 1, "resourceVersion": "1"}
    return bundle_record({**new.manifest, "metadata": meta, "status": new.status})


def seen(edges: tuple[int, ...], owners: dict[str, str], **changes: Any) -> tuple[PulsarNamespace, ObservedOwners]:
    """The namespace in Pulsar, and the owners of its bundles (Pulsar's spelling)."""
    return PulsarNamespace(SPACE, edges), ObservedOwners(by_bundle=owners, **{"complete": True, **changes})
