"""The cluster as it will be once the moves planned so far have landed.

If each bundle is placed by the same measured load, all go to the broker that was least used. Pulsar's modular manager
does this. Here each placement sees what the earlier ones added.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.usage import MOVING, Weights, measured_percent

OVERLOAD_LINE = 0.85
"""Weighted usage (ratio) up to which moves for a drain or a fixed weight may load a broker.

Above it, Pulsar calls a broker overloaded by default.
"""

_MOVING = np.array(MOVING)


class PredictedLoad:
    """A working copy of the brokers' load. `cluster` shows it to strategies, through read-only views.

    Bundles keep the owner they were measured on. Only the brokers' usage and traffic follow the moves.
    """

    def __init__(self, cluster: ClusterLoad, weights: Weights) -> None:
        """Start from `cluster`; `weights` say which resources count in `pressure`."""
        self._before, self._weights = cluster, weights

    @cached_property  # computed on first use: most decisions move nothing, and do not need it
    def _usage(self) -> FloatArray:
        return self._before.brokers.usage.copy()

    @cached_property
    def _traffic(self) -> FloatArray:
        return self._before.brokers.traffic.copy()

    @cached_property
    def _per_unit(self) -> FloatArray:
        """(3, n) weighted ratio that one unit of each resource in `MOVING` adds to each broker."""
        limit = self._before.brokers.limit
        per_unit: FloatArray = (np.array(self._weights) / np.where(limit > 0, limit, np.inf)).T[_MOVING]
        return per_unit

    @cached_property
    def _ratios(self) -> FloatArray:
        """(3, n) weighted usage of each resource in `MOVING`."""
        # Without a limit `_per_unit` is 0. Infinite usage times 0 is NaN, which means unknown.
        with np.errstate(invalid="ignore"):
            ratios: FloatArray = self._before.brokers.usage.T[_MOVING] * self._per_unit
        return ratios

    @cached_property
    def cluster(self) -> ClusterLoad:
        """The cluster with this load. Only placements use it."""
        brokers = replace(self._before.brokers, usage=self._usage, traffic=self._traffic)
        return replace(self._before, brokers=brokers)

    def percent(self) -> FloatArray:
        """Usage in percent (n, 5), NaN if unknown. Usage below 0, a result of rounding errors, counts as 0."""
        return np.maximum(measured_percent(self._usage, self._before.brokers.limit), 0)

    def pressure(self, brokers: IntArray) -> FloatArray:
        """Weighted usage (ratio, k) of `brokers` (rows, k).

        The most used resource in `MOVING` counts. Memory is not among these, so a full heap does not keep a bundle
        away.
        """
        pressure: FloatArray = np.fmax.reduce(self._ratios[:, brokers], axis=0)
        return pressure

    def better(self, source: int, others: IntArray, load: FloatArray, *, line: float = 0.0) -> IntArray:
        """Those of `others` (rows) that with `load` (5,) stay below the usage of `source` (row), or below `line`.

        line: weighted usage (ratio) up to which a broker may go in any case.
        """
        after = self.with_load(others, load)
        kept: IntArray = others[after < np.fmax(np.fmax.reduce(self._ratios[:, source]), line)]
        return kept

    def with_load(self, brokers: IntArray, load: FloatArray) -> FloatArray:
        """`pressure` of `brokers` (rows, k), each with `load` (5,) added."""
        added = load[_MOVING, np.newaxis] * self._per_unit[:, brokers]
        after: FloatArray = np.fmax.reduce(self._ratios[:, brokers] + added, axis=0)
        return after

    def fitting(self, others: IntArray, load: FloatArray, line: float) -> IntArray:
        """Those of `others` (rows) that with `load` (5,) stay below `line`, weighted usage (ratio).

        A broker without data passes: the bundles must leave, so some broker has to take them.
        """
        kept: IntArray = others[~(self.with_load(others, load) >= line)]
        return kept

    def evens_out(self, source: int, destination: int, load: FloatArray, *, line: float = 0.0) -> bool:
        """Whether, after a shift of `load` (5,) from `source` to `destination`, both use less than `source` does now.

        load: the net load of a swap, which may be negative for some resources. line: as for `better`.
        """
        ends = np.array([destination, source])
        shift = np.stack([load, -load], axis=1)[_MOVING] * self._per_unit[:, ends]
        after = np.fmax.reduce(self._ratios[:, ends] + shift, axis=0)
        return bool((after < np.fmax(np.fmax.reduce(self._ratios[:, source]), line)).all())

    def add(self, broker: int, load: FloatArray, traffic: FloatArray) -> None:
        """Add `load` (5,) and `traffic` (4,) to a broker (row)."""
        self._usage[broker] += load
        self._traffic[broker] += traffic
        self._ratios[:, broker] += load[_MOVING] * self._per_unit[:, broker]

    def move(self, source: int, destination: int, load: FloatArray, traffic: FloatArray) -> None:
        """Shift `load` (5,) and `traffic` (4,) from one broker (row) to another."""
        self.add(destination, load, traffic)
        self.add(source, -load, -traffic)
