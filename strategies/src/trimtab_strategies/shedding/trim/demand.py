"""Hidden demand: the traffic that the clients of a full machine want, but that it does not serve.

A full machine serves less than the clients of its bundles want. So the load of a bundle that has outgrown its broker is
measured too low, and its next owner would get more load than predicted. Bundles whose clients want as much as usual
show which part is served:

    served = weighted median, over the machine's bundles, of traffic / usual traffic
    wanted = measured / served

The usual traffic is the median of the earlier minutes. Bundles without usual traffic are left out. The weight is the
square root of the usual traffic, so that neither one large bundle decides, nor many tiny ones.

Source. Trimtab's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray, SmallFloatArray, somewhere
from trimtab_strategies.shedding.trim.readings import median

_Float = TypeVar("_Float", bound=np.floating[Any])

FEWEST = 5
"""The least number of bundles with usual traffic that show what a machine serves."""

LEAST = 0.4
"""The least ratio that `served` may be. A lower one is raised to this ratio."""

ALL = 0.9
"""From this ratio on, all traffic counts as served: the difference from 1 is noise."""


def served(
    load: npt.NDArray[np.floating[Any]], earlier: Sequence[SmallFloatArray], owner: IntArray, full: BoolArray
) -> FloatArray:
    """Ratio (n,), `LEAST` to 1, of the wanted traffic that each broker serves.

    1 for a broker that is not `full`, or whose ratio is unknown.
    load: (m, 3) columns `SAMPLED`. earlier: (k, m, 3) the same of k minutes; NaN where a bundle was not measured.
    owner: (m,) rows.
    """
    ratio = np.ones(len(full))
    for broker in np.flatnonzero(full).tolist() if len(earlier) else ():
        rows = np.flatnonzero(owner == broker)
        ratio[broker] = _ratio(_traffic(load[rows]), median(np.stack([_traffic(minute[rows]) for minute in earlier])))
    return np.where(ratio < ALL, ratio, 1.0)


def wanted(load: npt.NDArray[_Float], ratio: FloatArray, owner: IntArray) -> npt.NDArray[_Float]:
    """`load` (m, x) of bundles divided by the `served` ratio (n,) of their `owner`; `load` itself if all is served."""
    if not somewhere(ratio < 1):
        return load
    found: npt.NDArray[_Float] = (load / np.append(ratio, 1.0)[owner][:, np.newaxis]).astype(load.dtype)
    return found


def _ratio(now: FloatArray, usual: FloatArray) -> float:
    """The `served` ratio of a full machine, by the traffic (b,) of its bundles; 1 if too few bundles show it."""
    shows = (usual > 0) & np.isfinite(now)
    if shows.sum() < FEWEST:
        return 1.0
    ratio, weight = now[shows] / usual[shows], np.sqrt(usual[shows])
    order = np.argsort(ratio, kind="stable")
    middle = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
    return float(np.clip(ratio[order[middle]], LEAST, 1.0))


def _traffic(load: npt.NDArray[np.floating[Any]]) -> FloatArray:
    """Bytes/s in and out (b,) of `load` (b, 3)."""
    traffic: FloatArray = load[:, 0].astype(np.float64) + load[:, 1]
    return traffic
