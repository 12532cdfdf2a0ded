"""The minutes that are replayed: what the bundles' clients wanted in each, and what brokers would have carried of it.

Most minutes were measured whole, and most of them are those of the decision before. Their sums are kept from one
decision to the next, so a decision only adds up what is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray, RecentSamples, SmallFloatArray
from trimtab_strategies.shedding.trim.readings import FULL, carried_on, work_of
from trimtab_strategies.shedding.trim.samples import sampled

HIDDEN = 1.08
"""Ratio by which a bundle on a full machine wants more than it gets, at least: the demand itself is not measured."""


class _Minute(NamedTuple):
    """A measured minute (m, 3). whole: it has no gap. sums: see `carried_by`; None: not known."""

    samples: SmallFloatArray
    whole: bool
    sums: FloatArray | None


@dataclass(eq=False)
class KnownMinutes:
    """The minutes of the last decision. owner: (m,) rows. message: bytes that cost as much as one message."""

    owner: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    brokers: int = 0
    message: float = 0.0
    minutes: tuple[_Minute, ...] = ()

    def __reduce__(self) -> tuple[type[KnownMinutes], tuple[()]]:
        return KnownMinutes, ()  # a copy of a strategy finds out again what it needs

    def of(self, recent: RecentSamples, owner: IntArray, brokers: int, message: float) -> tuple[_Minute, ...]:
        """The minutes of `recent`, with the sums of those that are whole."""
        same = (brokers, message) == (self.brokers, self.message) and np.array_equal(owner, self.owner)
        known = {id(minute.samples): minute for minute in self.minutes}  # held, so that no other array has the id
        found = []
        for samples in recent.bundles:
            before = known.get(id(samples))
            if before is None or not same:
                whole = not np.isnan(samples).any() if before is None else before.whole
                sums = carried_by(samples.astype(np.float64), owner, brokers, message) if whole else None
                before = _Minute(samples, whole, sums)
            found.append(before)
        self.owner, self.brokers, self.message, self.minutes = owner, brokers, message, tuple(found)
        return self.minutes


def carried_by(load: FloatArray, owner: IntArray, brokers: int, message: float) -> FloatArray:
    """Sums (n, 3) by owner of `load` (m, 3), columns `SAMPLED`: bytes/s of work, bytes/s in, bytes/s out."""
    return sums_of((work_of(load, message), load[:, 0], load[:, 1]), owner, brokers)


def sums_of(columns: Sequence[FloatArray], owner: IntArray, brokers: int) -> FloatArray:
    """Sums (n, k) of `columns`, k of (m,), by owner (m,); bundles without an owner (-1) are left out."""
    places = owner + 1
    return np.stack([np.bincount(places, weights=c, minlength=brokers + 1)[1:] for c in columns], axis=1)


@dataclass(frozen=True)
class ReplayedMinutes:
    """k minutes of m bundles. recent: as measured. known: what the last decision found out."""

    cluster: ClusterLoad
    recent: RecentSamples
    known: KnownMinutes

    def __len__(self) -> int:
        return len(self.recent)

    @cached_property
    def load(self) -> FloatArray:
        """(k, m, 3) columns `SAMPLED`, without gaps, with the hidden demand."""
        samples = np.stack(self.recent.bundles, dtype=np.float64)
        return self._with_hidden(complete(samples, sampled(self.cluster.bundles.short)))

    @cached_property
    def newest(self) -> FloatArray | SmallFloatArray:
        """(m, 3) the last minute of `load`."""
        newest = self.recent.bundles[-1]
        if self._full.any() or np.isnan(newest).any():
            last: FloatArray = self.load[-1]
            return last
        return newest

    def carried(self, owner: IntArray, message: float) -> FloatArray:
        """(k, n, 3) what each broker would have carried with these owners (m,): as in `carried_by`."""
        n = len(self.cluster.brokers)
        minutes = self.known.of(self.recent, owner, n, message)
        plain = len(minutes) - 2 * bool(self._full.any())  # the hidden demand is in the last two
        found = [
            minute.sums if minute.sums is not None and row < plain else carried_by(self.load[row], owner, n, message)
            for row, minute in enumerate(minutes)
        ]
        return np.stack(found)

    @cached_property
    def _full(self) -> BoolArray:
        """Brokers (n,) that were full in the last two minutes."""
        cores = self.cluster.brokers.limit[:, 0]
        if len(self) < 2:  # noqa: PLR2004
            return np.zeros(len(cores), dtype=bool)
        full: BoolArray = np.logical_and.reduce(self.recent.cpu[-2:] >= FULL * cores, axis=0)
        return full

    def _with_hidden(self, load: FloatArray) -> FloatArray:
        """`load` with the hidden demand of bundles whose broker was full in the last two minutes."""
        if not self._full.any():
            return load
        there = np.flatnonzero(np.append(self._full, False)[self.cluster.bundles.owner])
        wanted = load.copy()
        least = HIDDEN * np.median(load[:, there], axis=0)
        wanted[-2:, there] = np.maximum(wanted[-2:, there], least)
        return wanted


def complete(load: FloatArray, average: FloatArray) -> FloatArray:
    """`load` (k, m, ...) with the gaps of each bundle filled: by the minute before, else the minute after, else the
    average (m, ...); 0 for a bundle that was never measured.
    """
    if not np.isnan(load).any():
        return load
    filled = carried_on(carried_on(load)[::-1])[::-1]
    return np.where(np.isnan(filled), np.nan_to_num(average), filled)
