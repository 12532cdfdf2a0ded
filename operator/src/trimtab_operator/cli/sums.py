"""What the bundles of a namespace, or of a broker, come to together, of a picture of load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab_strategies.model import TRAFFIC, ClusterLoad
from trimtab_strategies.model.load import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Sums:
    """Of g groups of bundles.

    bundles: (g,) how many. unknown: (g,) of how many of them the load is unknown; they are not in the others.
    topics: (g,). traffic: (g, 4) columns `TRAFFIC`, by the short-term averages.
    """

    bundles: IntArray
    unknown: IntArray
    topics: FloatArray
    traffic: FloatArray


def by_namespace(load: ClusterLoad) -> Sums:
    """A group per namespace, rows as in `ClusterLoad.namespaces`."""
    return _sums(load, load.bundles.namespace, len(load.namespaces))


def by_broker(load: ClusterLoad) -> Sums:
    """A group per broker: what it owns, which may be more or less than what it says of itself."""
    return _sums(load, load.bundles.owner, len(load.brokers))


def _sums(load: ClusterLoad, group: IntArray, count: int) -> Sums:
    """group: (m,) of each bundle, -1 in none."""
    rows = np.flatnonzero(group >= 0)
    short, groups = load.bundles.short[rows], group[rows]
    unknown: BoolArray = np.asarray(np.isnan(short).any(axis=1))
    columns = np.where(unknown[:, np.newaxis], 0.0, short).T
    return Sums(
        bundles=np.bincount(groups, minlength=count),
        unknown=np.bincount(groups[unknown], minlength=count),
        topics=np.bincount(groups, np.nan_to_num(load.bundles.topics[rows]), count).astype(np.float64),
        traffic=np.stack([np.bincount(groups, columns[k], count) for k in range(len(TRAFFIC))], axis=1),
    )
