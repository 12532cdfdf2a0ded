"""Unload requests: what was asked of Pulsar to move a bundle, and what came of it."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from trimtab_operator.kube.records import BundleRecord

_LAST = 0xFFFFFFFF

MOST_NAMES = 50_000
"""Names tried for a topic of a bundle: some 40 ms, which find one where a namespace has thousands of bundles."""


class UnloadResult(StrEnum):
    """How an attempt to carry a wish out ended; a label of `trimtab_pulsar_unloads_total`."""

    LANDED = "Landed"
    """The destination serves it."""
    ELSEWHERE = "Elsewhere"
    """Another broker took it, each time."""
    NOBODY = "Nobody"
    """It was released, and nobody was seen to take it in time."""
    RETURNED = "Returned"
    """Its old owner got it back before it had let it go: another one was given it."""
    STALE = "Stale"
    """Pulsar has no bundle of these boundaries any more."""
    INACTIVE = "Inactive"
    """The destination is not among the active brokers."""
    FAILED = "Failed"
    """Pulsar did not answer, or refused."""


@dataclass(frozen=True, slots=True)
class UnloadRequest:
    """A wish to be carried out. record: the Bundle as it was last read; full_name: Pulsar's spelling of it.

    destination, source: Pulsar's ids of the brokers; the source is empty where nobody was known to serve it.
    """

    record: BundleRecord
    full_name: str
    source: str
    destination: str

    @property
    def namespace(self) -> str:
        """``tenant/name``."""
        return self.full_name.rpartition("/")[0]

    def at(self, record: BundleRecord) -> UnloadRequest:
        """The same, with the Bundle as it is now."""
        return replace(self, record=record)

    def topic(self) -> str:
        """A topic of the bundle that nobody is likely to use; empty where none was found, the bundle is so narrow.

        Looking it up creates none.
        """
        lower, upper = int(self.record.lower, 16), int(self.record.upper, 16)
        names = (f"non-persistent://{self.namespace}/trimtab-looks-{number}" for number in range(MOST_NAMES))
        return next((name for name in names if _inside(zlib.crc32(name.encode()), lower, upper)), "")


@dataclass(frozen=True, slots=True)
class Landing:
    """A move that was carried out and read back.

    bundle, namespace:   names of the objects; full_name: Pulsar's spelling of the bundle.
    source, destination: names of Brokers.
    asked, released, owned: epoch seconds at which the unload was sent and answered, and the new owner first seen.
    unloads:             how many it took.
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


def named(broker: str, ids: Mapping[str, str]) -> str:
    """The Broker object that stands for the broker of this id; empty none."""
    return next((name for name, known in ids.items() if known == broker), "")


Landed = Callable[[Landing], None]
"""Told of each move that was carried out. Must be quick."""

Leaving = Callable[[UnloadRequest], Awaitable[None]]
"""Awaited before a bundle is unloaded, for a moment at most (`unloading.HELD_UP`)."""
