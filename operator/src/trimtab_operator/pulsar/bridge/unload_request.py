"""Unload requests, with which Trimtab makes Pulsar move a bundle, and their results."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from trimtab_operator.kube.records import BundleRecord

_LAST = 0xFFFFFFFF

MOST_NAMES = 50_000
"""Maximum number of names tried to find a topic of a bundle. They take about 40 ms, and suffice for narrow bundles in
namespaces with thousands of bundles."""


class UnloadResult(StrEnum):
    """Result of an attempt to move a bundle to its desired owner; a label of `trimtab_pulsar_unloads_total`."""

    LANDED = "Landed"
    """The destination serves the bundle."""
    ELSEWHERE = "Elsewhere"
    """Another broker took the bundle after each unload."""
    UNASSIGNED = "Unassigned"
    """The bundle was released, and no broker took it in time."""
    RETURNED = "Returned"
    """The old owner became the owner again before it had released the bundle. Trimtab moved it to another broker."""
    STALE = "Stale"
    """Pulsar no longer has a bundle with these boundaries."""
    INACTIVE = "Inactive"
    """The destination is not among the active brokers."""
    FAILED = "Failed"
    """Pulsar did not answer, or refused."""


@dataclass(frozen=True, slots=True)
class UnloadRequest:
    """A bundle to move to its desired owner. record: the Bundle as last read; full_name: the name that Pulsar uses.

    destination, source: broker ids. The source is empty for an unowned bundle.
    """

    record: BundleRecord
    full_name: str
    source: str
    destination: str

    @property
    def namespace(self) -> str:
        """``tenant/name``."""
        return self.full_name.rpartition("/")[0]

    def topic(self) -> str:
        """Find the name of an unused topic of the bundle; empty if the bundle is too narrow to find one.

        A lookup of this name creates no topic.
        """
        lower, upper = int(self.record.lower, 16), int(self.record.upper, 16)
        names = (f"non-persistent://{self.namespace}/trimtab-looks-{number}" for number in range(MOST_NAMES))
        return next((name for name in names if _inside(zlib.crc32(name.encode()), lower, upper)), "")


@dataclass(frozen=True, slots=True)
class Landing:
    """A completed move: the destination serves the bundle.

    bundle, namespace:   object names; full_name: the name of the bundle that Pulsar uses.
    source, destination: names of Broker objects.
    asked, released, owned: epoch seconds of the unload request, of its answer, and when the new owner was first seen.
    unloads:             number of unload requests.
    """

    bundle: str
    namespace: str
    full_name: str
    source: str
    destination: str
    asked: float
    released: float
    owned: float
    unloads: int = 1


def _inside(place: int, lower: int, upper: int) -> bool:
    return lower <= place < upper or place == upper == _LAST


def broker_name(broker: str, ids: Mapping[str, str]) -> str:
    """The name of the Broker object for a broker id; empty if there is none. ids: id by object name."""
    return next((name for name, known in ids.items() if known == broker), "")


AfterLanding = Callable[[Landing], None]
"""Called after each completed move. It must return quickly."""
