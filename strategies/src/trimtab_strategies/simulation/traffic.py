"""What bundles carry, round by round: a size each, and noise on it. Chance comes from the generator that is passed in.

Sizes are bytes/s; noise is a factor per round and bundle, (rounds, m), with mean about 1. They are multiplied.
"""

from __future__ import annotations

import numpy as np

from trimtab_strategies.model.load import FloatArray


def skewed_sizes(rng: np.random.Generator, total: FloatArray, per_broker: int, skew: float = 0.8) -> FloatArray:
    """Sizes of each broker's bundles, (n * per_broker,), that sum to `total` (n) bytes/s.

    skew: standard deviation of a size's logarithm. 0 makes all equal; with 0.8 the largest of 60 is some six times the
    average one.
    """
    raw = rng.lognormal(0.0, skew, (len(total), per_broker))
    sizes: FloatArray = (raw / raw.sum(axis=1, keepdims=True) * total[:, np.newaxis]).ravel()
    return sizes


def steady(rounds: int, bundles: int) -> FloatArray:
    """No noise."""
    return np.ones((rounds, bundles))


def jitter(rng: np.random.Generator, rounds: int, bundles: int, spread: float) -> FloatArray:
    """Each round a factor of its own, uniform within `spread` (ratio 0-1) of 1."""
    return rng.uniform(1 - spread, 1 + spread, (rounds, bundles))


def bursts(rng: np.random.Generator, rounds: int, groups: FloatArray, chance: float, factor: float) -> FloatArray:
    """Now and then a whole group carries `factor` times as much, for one round.

    groups: (m,) number of each bundle's group, which bursts together (a tenant's traffic). chance: ratio 0-1 a round.
    """
    bursting = rng.random((rounds, int(groups.max(initial=0)) + 1)) < chance
    factors: FloatArray = np.where(bursting, factor, 1.0)[:, groups.astype(np.int64)]
    return factors
