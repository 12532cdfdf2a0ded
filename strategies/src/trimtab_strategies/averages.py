"""Pulsar's averages of a bundle's traffic, which count samples rather than time, and its two orders of bundles.

A bundle has a short window of 10 samples and a long one of 1000. A window that is not full yet weighs all its samples
alike; a full one moves by a tenth, or a thousandth, towards each new sample. How long that takes depends on how often
samples come.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab_strategies.model import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT
from trimtab_strategies.model.load import FloatArray, IntArray

SHORT_WINDOW = 10
"""Samples of the short-term average."""

LONG_WINDOW = 1000
"""Samples of the long-term average."""

UNSEEN = np.array([50.0, 50.0, 50_000.0, 50_000.0])
"""Columns `TRAFFIC` that count as the first sample of a bundle that was never seen before."""

BYTES = 1e5
"""Bytes/s that make a step in the order of bundles."""

MESSAGES = 100
"""Messages/s that make a step."""

SESSIONS = 500
"""Topics, producers and consumers that make a step."""

CACHE = 100_000
"""Bytes of cache that make a step."""


def with_sample(average: FloatArray, count: int, sample: FloatArray, window: int) -> tuple[FloatArray, int]:
    """The average (any shape) and its number of samples after one more `sample`, in a window of `window` samples."""
    count = min(count + 1, window)
    return ((count - 1) * average + sample) / count, count


def averaged_steps(traffic: FloatArray) -> IntArray:
    """What averaged bundles (k, 4) are ordered by, (k, 3), the first column first: bytes in, bytes out, messages.

    Cut to whole steps, so inbound traffic outranks any outbound one, and many bundles tie.
    """
    return np.trunc(_in_steps(traffic)).astype(np.int64)


def reported_steps(traffic: FloatArray, sessions: FloatArray, cache: FloatArray) -> IntArray:
    """What bundles are ordered by in a broker's report, (k, 5): as `averaged_steps`, but rounded half up.

    Then sessions: (k,) topics, producers and consumers; and cache: (k,) bytes; both cut to whole steps.
    """
    rounded = np.floor(_in_steps(traffic) + 0.5)
    rest = np.stack([np.trunc(sessions / SESSIONS), np.trunc(cache / CACHE)], axis=1)
    return np.concatenate([rounded, rest], axis=1).astype(np.int64)


def _in_steps(traffic: FloatArray) -> FloatArray:
    messages = (traffic[:, RATE_IN] + traffic[:, RATE_OUT]) / MESSAGES
    return np.stack([traffic[:, THROUGHPUT_IN] / BYTES, traffic[:, THROUGHPUT_OUT] / BYTES, messages], axis=1)


def compared(left: Sequence[int], right: Sequence[int]) -> int:
    """-1, 0 or 1: the order of two bundles by their steps."""
    return (tuple(left) > tuple(right)) - (tuple(left) < tuple(right))
