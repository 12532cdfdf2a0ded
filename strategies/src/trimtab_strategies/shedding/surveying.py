"""Who takes part in a cycle of TransferShedder, in which order, how far they are apart, and why it may be left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.load import BoolArray, FloatArray, IntArray
from trimtab_strategies.protocols import Unload, recall, remember
from trimtab_strategies.shedding.picking import carried, reported
from trimtab_strategies.shedding.transferring import Loads, Spread


def current_throughput(cluster: ClusterLoad) -> FloatArray:
    """What brokers carry now, in plus out, bytes/s (n,); where a broker did not say, the sum over its bundles."""
    total = reported(cluster)[1]
    known = np.isfinite(total)
    return total if known.all() else np.where(known, total, carried(cluster)[1])


class Survey:
    """One look at the brokers before a cycle."""

    def __init__(
        self, cluster: ClusterLoad, memory: Mapping[str, Any], *, delay: float, data_ttl: float, corrected: bool
    ) -> None:
        """Look at `cluster` with what is remembered; delay and data_ttl (seconds) as in the parameters.

        Then `skip` says why the cycle is left out, or is None; `order` holds the brokers (rows) from the least to the
        most used one; `rested` those whose delay is over, which `memory` has forgotten.
        """
        self.cluster, self.memory = cluster, memory
        self.delay, self.data_ttl, self.corrected = delay, data_ttl, corrected
        names = cluster.brokers.names
        usage, smoothed = recall(memory, "ema", names), recall(memory, "throughput", names)
        self.loads = Loads(usage, smoothed, current_throughput(cluster), cluster.brokers.schedulable)
        by_name = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
        takes_part = np.isfinite(usage) & (cluster.brokers.ready if corrected else True)
        self._present = by_name[takes_part[by_name]]
        self._fresh = self._present[~_older(cluster.brokers.age[self._present], data_ttl)]
        self._resting = self._find_resting()
        self.skip = self._find_skip()
        self.order, self.spread = self._ordered() if self.skip is None else (by_name[:0], Spread(0, 0, 0, 0))

    def after(self, unloads: tuple[Unload, ...]) -> dict[str, Any]:
        """The memory once these were decided: who gave rests, and who took as well if corrected."""
        unloaded = recall(self.memory, "unloaded", self.cluster.brokers.names)
        for unload in unloads:
            unloaded[unload.broker] = self.cluster.now
            if self.corrected and unload.destination >= 0:
                unloaded[unload.destination] = self.cluster.now
        return remember(self.memory, "unloaded", self.cluster.brokers.names, unloaded)

    def _find_resting(self) -> IntArray:
        """Fresh brokers within the delay; those past it are forgotten, up to the one that stops the cycle."""
        names, rows = self.cluster.brokers.names, self._fresh
        unloaded = recall(self.memory, "unloaded", names)
        # a time far in the future was written by a clock that was wrong: it must not hold the cluster until then
        unloaded[unloaded > self.cluster.now + self.delay] = 0
        elapsed = self.cluster.now - self.cluster.brokers.age[rows] - unloaded[rows]
        resting = np.round(elapsed * 1000) < np.round(self.delay * 1000)
        seen = len(rows) if self.corrected or not resting.any() else int(np.argmax(resting))
        self.rested: IntArray = rows[:seen][~resting[:seen] & np.isfinite(elapsed[:seen])]
        if len(self.rested):
            unloaded[self.rested] = np.nan
            self.memory = remember(self.memory, "unloaded", names, unloaded)
        found: IntArray = rows[resting]
        return found

    def _find_skip(self) -> HeldBack | None:
        """Why the whole cycle is left out, None if it is not."""
        names, java = self.cluster.brokers.names, not self.corrected
        if len(self._resting) and (java or len(self._resting) == len(self._fresh)):
            who = names[self._resting[0]]
            text = f"{who} gave or took bundles less than {self.delay:g} s before its newest data"
            return HeldBack("", Reason.COOL_DOWN, text)
        if not len(self._fresh):
            if not len(self._present):
                return HeldBack("", Reason.NO_BROKERS, "no broker has load data")
            return HeldBack("", Reason.OUT_DATED_DATA, f"every broker's data is older than {self.data_ttl:g} s")
        missing = self.cluster.brokers.ready & ~np.isfinite(self.loads.usage)
        if java and missing.any():
            return HeldBack("", Reason.NO_LOAD_DATA, f"{names[int(np.argmax(missing))]} has no load data")
        return None

    def _ordered(self) -> tuple[IntArray, Spread]:
        """Brokers from the least to the most used, equal ones by name; and the spread over those with fresh data."""
        taking_part = self._fresh[~np.isin(self._fresh, self._resting)] if self.corrected else self._present
        order = taking_part[np.argsort(self.loads.usage[taking_part], kind="stable")]
        return order, Spread.of(self.loads.usage[self._fresh], exact=not self.corrected)


def _older(seconds: FloatArray, bound: float) -> BoolArray:
    """Whether more than `bound` seconds passed, in whole milliseconds as Pulsar counts."""
    passed: BoolArray = np.round(seconds * 1000) > np.round(bound * 1000)
    return passed
