"""Samples of the last cycles, which a restarted operator reads back from the history.

The table ``demand`` has the rates of the bundles that a cycle measured, rounded to 0.05 %. The table ``brokers`` has
the brokers as the strategies got them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.columns import TRAFFIC
from trimtab_pipeline.history.dataset import BROKERS, DEMAND
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.history.reader import HistoryReader, NoHistoryError
from trimtab_pipeline.history.snapshot_tables import brokers_of
from trimtab_pipeline.transform.arrays import block, floats, positions
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.shedding.trim.samples import CycleSamples

_LOGGER = logging.getLogger(__name__)


def recalled_samples(root: Place, policy: str, begin: float, end: float) -> Iterator[CycleSamples]:
    """See `RecallsSamples.recall_samples`; the history is below `root`."""
    try:
        past = HistoryReader(root, policy)
    except NoHistoryError:
        return
    damaged = past.damaged(begin, end)
    for time in past.times(begin, end):
        if time == end:
            break
        try:
            demand, brokers = past.cycle(DEMAND.name, time), past.cycle(BROKERS.name, time)
        except (ForeignFileError, FileNotFoundError) as error:
            damaged.append(str(error))
        else:
            cycle, names = brokers.filter(pc.equal(brokers["kind"], "cycle")), tuple(demand["bundle"].to_pylist())
            yield CycleSamples.of(time, brokers_of(cycle), names, _newest(time, demand, cycle))
    if damaged:
        more = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        _LOGGER.warning("policy %s: recent samples are left out, they can't be read: %s%s", policy, damaged[0], more)


def _newest(at: float, demand: pa.Table, brokers: pa.Table) -> FloatArray:
    """(m, 4) rates, NaN if too old. A bundle's sample is as old as its pod's, because both come from one scrape."""
    pods = np.append(floats(brokers, "traffic_time"), np.nan)
    old = at - pods[positions(demand["pod"], brokers["pod"])] > floats(brokers, "max_age").min(initial=np.inf)
    return np.where(old[:, np.newaxis], np.nan, block(demand, TRAFFIC))
