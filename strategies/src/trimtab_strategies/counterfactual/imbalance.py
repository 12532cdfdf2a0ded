"""How unevenly brokers are used, in points: percent of the limit of a broker's busiest resource."""

from __future__ import annotations

import numpy as np

from trimtab_strategies.model import CPU, NETWORK_IN, NETWORK_OUT
from trimtab_strategies.model.cluster_load import Brokers, FloatArray

HOT = 85.0
"""Percent of usage above which Pulsar calls a broker overloaded."""


def busiest(brokers: Brokers) -> FloatArray:
    """(n,) percent of the limit that each broker uses of its busiest resource among CPU and network.

    NaN for a broker that is not ready, not schedulable or not trusted, or whose usage is not known.
    """
    columns = [CPU, NETWORK_IN, NETWORK_OUT]
    limit = brokers.limit[:, columns]
    percent = 100 * brokers.usage[:, columns] / np.where(limit > 0, limit, np.nan)
    percent = np.where((brokers.ready & brokers.schedulable)[:, np.newaxis], percent, np.nan)
    found: FloatArray = np.where(brokers.trusted, np.fmax.reduce(percent, axis=1), np.nan)
    return found


def range_of(usage: FloatArray) -> float:
    """Points between the busiest and the idlest broker; NaN where fewer than two are known."""
    known = usage[np.isfinite(usage)]
    return float(np.ptp(known)) if len(known) > 1 else float("nan")
