"""From topic to bundle: the hash ring of a namespace, its boundaries, and the spelling of bundle names.

A namespace's topics are spread over bundles by the CRC-32 of the full topic name. Boundary i begins bundle i; the last
boundary, 0xffffffff, ends the ring. Pulsar searches the boundaries for the hash. So the hash 0xffffffff itself matches
the last boundary, which begins no bundle (an `IndexOutOfBoundsException` in Pulsar). Here such a topic belongs to the
last bundle, as the bundle's range says; `find_bundle(..., last_hash_included=False)` answers as Pulsar does.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab_strategies.model.cluster_load import IntArray

LAST_HASH = 0xFFFFFFFF
"""The largest hash, and the last boundary of every namespace."""

_RANGE = re.compile(r"(0x[0-9a-f]{8})_(0x[0-9a-f]{8})")
_MONITORING = re.compile(r"(pulsar|sla-monitor)(/[^/]+)?/[^/:]+:\d+")  # up to Pulsar 4.1, a cluster precedes the broker


class InvalidBundleNameError(ValueError):
    """A text that is not a bundle name, or boundaries that do not form a ring."""


class BundleName(NamedTuple):
    """The parts of ``tenant/namespace/0xLLLLLLLL_0xUUUUUUUU``: namespace, first hash, first hash after the range.

    If the upper bound is 0xffffffff, that hash belongs to the range, too.
    """

    namespace: str
    lower: int
    upper: int

    def __str__(self) -> str:
        return f"{self.namespace}/{range_text(self.lower, self.upper)}"


def topic_hash(topic: str) -> int:
    """Place of a topic on the ring, 0 to 0xffffffff: CRC-32 of its full name with domain and partition suffix."""
    return zlib.crc32(topic.encode())


def default_boundaries(count: int) -> IntArray:
    """Boundaries (count + 1,) of `count` equal bundles. The last bundle gets the remainder of the division."""
    if not 1 <= count <= LAST_HASH:
        raise InvalidBundleNameError(f"a namespace can't have {count} bundles: use 1 to {LAST_HASH}")
    boundaries = np.arange(count + 1, dtype=np.int64) * (2**32 // count)
    boundaries[-1] = LAST_HASH
    return boundaries


def range_text(lower: int, upper: int) -> str:
    """Pulsar's spelling of a range: ``0x%08x_0x%08x``."""
    return f"0x{lower:08x}_0x{upper:08x}"


def bundle_names(namespace: str, boundaries: IntArray) -> tuple[str, ...]:
    """Full names of the bundles between `boundaries`, ascending."""
    return tuple(str(BundleName(namespace, lower, upper)) for lower, upper in pairwise(boundaries.tolist()))


@lru_cache(maxsize=1024)  # a split needs a bundle's range several times in a row
def parse_bundle(name: str) -> BundleName:
    """The parts of a bundle's full name. Raises `InvalidBundleNameError`."""
    namespace, _, text = name.rpartition("/")
    match = _RANGE.fullmatch(text)
    if match is None or namespace.count("/") not in (1, 2) or "" in namespace.split("/"):
        raise InvalidBundleNameError(f"bundle {name!r} must look like tenant/namespace/0x00000000_0x40000000")
    lower, upper = (int(bound, 16) for bound in match.groups())
    if lower >= upper:
        raise InvalidBundleNameError(f"bundle {name!r} has range {text}: the lower bound must be below the upper")
    return BundleName(namespace, lower, upper)


def find_bundle(
    boundaries: IntArray, hashes: npt.ArrayLike, *, last_hash_included: bool = True
) -> npt.NDArray[np.int64]:
    """The bundle of each hash: row of the boundary at or below it, same shape as `hashes`.

    With `last_hash_included` false the hash 0xffffffff gives the number of bundles, one past the last, as in Pulsar.
    Raises `InvalidBundleNameError` unless the boundaries ascend from 0 to 0xffffffff.
    """
    if len(boundaries) < 2 or boundaries[0] != 0 or boundaries[-1] != LAST_HASH or (np.diff(boundaries) <= 0).any():  # noqa: PLR2004 - a ring has two ends
        raise InvalidBundleNameError("boundaries must ascend from 0x00000000 to 0xffffffff")
    found = np.searchsorted(boundaries, np.asarray(hashes, dtype=np.int64), side="right") - 1
    return np.minimum(found, len(boundaries) - 2) if last_hash_included else found


def is_monitoring(namespace: str) -> bool:
    """Whether a namespace is a broker's own heartbeat or SLA check, which Pulsar never moves."""
    return _MONITORING.fullmatch(namespace) is not None
