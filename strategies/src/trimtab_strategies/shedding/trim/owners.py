"""Which bundles each broker owns: their number, and a checksum of their names."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from zlib import crc32

import numpy as np

from trimtab_strategies.model.cluster_load import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Owned:
    """Which bundles each of `brokers` brokers owns. names: names of m bundles. owner: (m,) rows, -1 if none."""

    names: tuple[str, ...] = ()
    owner: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    brokers: int = 0

    def after(self, names: tuple[str, ...], owner: IntArray, brokers: int) -> Owned:
        """The owners of the next decision. If nothing has changed, this is the same object, with its cached results."""
        same = brokers == self.brokers and (names is self.names or names == self.names)
        same = same and (owner is self.owner or np.array_equal(owner, self.owner))
        return self if same else Owned(names, owner, brokers)

    @cached_property
    def fingerprints(self) -> IntArray:
        """(n,) checksums, see the function `fingerprints`."""
        return fingerprints(self.names, self.owner, self.brokers)

    @cached_property
    def count(self) -> IntArray:
        """(n,) number of bundles."""
        return np.bincount(self.owner + 1, minlength=self.brokers + 1)[1:]


def fingerprints(names: tuple[str, ...], owner: IntArray, brokers: int) -> IntArray:
    """For each broker, a checksum (n,) of its bundles' names; their order does not matter. owner: (m,) rows."""
    found: IntArray = np.bincount(owner + 1, weights=_checksums(names), minlength=brokers + 1)[1:].astype(np.int64)
    return found % 2**32


@lru_cache(maxsize=2)
def _checksums(names: tuple[str, ...]) -> FloatArray:
    """CRC-32 (m,) of each name. Cached, because names rarely change between decisions."""
    return np.array([crc32(name.encode()) for name in names], dtype=np.float64)
