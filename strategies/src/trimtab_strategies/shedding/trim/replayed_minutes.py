"""The minutes that are replayed: each bundle's load, and what each broker would have carried with other owners.

The load includes an estimate of what clients wanted and a full machine did not serve (see `demand`).

Most minutes have no gaps, and most of them were already part of the previous decision. Their sums by broker are kept.
So a decision only adds up new minutes, unless owners have changed, or the number of bytes that cost as much CPU as one
message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import (
    BoolArray,
    FloatArray,
    IntArray,
    RecentSamples,
    SmallFloatArray,
    everywhere,
    somewhere,
)
from trimtab_strategies.shedding.trim.owners import Owned
from trimtab_strategies.shedding.trim.readings import carried_on, work_of
from trimtab_strategies.shedding.trim.samples import sampled


@dataclass(frozen=True, eq=False)
class Minute:
    """A measured minute (m, 3), and values from it that do not depend on owners."""

    samples: SmallFloatArray | FloatArray

    @cached_property
    def whole(self) -> bool:
        """Whether it has no gap."""
        return not somewhere(np.isnan(self.samples))

    @cached_property
    def load(self) -> FloatArray:
        """(m, 3) the samples in 64 bits, in column order, which makes sums faster."""
        return self.samples.astype(np.float64, order="F")

    @cached_property
    def used(self) -> BoolArray:
        """(m,) whether a bundle had any traffic."""
        inward, outward, rate = self.samples.T > 0  # by column, which is faster than `any` over the rows
        any_: BoolArray = inward | outward | rate
        return any_

    @cached_property
    def all_used(self) -> bool:
        """Whether each bundle had traffic."""
        return everywhere(self.used)


_NEWEST: deque[Minute] = deque(maxlen=2)
"""The minutes that were used last. They are kept, because all policies of a backtest replay the same ones."""


def minute_of(samples: SmallFloatArray) -> Minute:
    """The minute of `samples`, which are read-only."""
    found = next((minute for minute in tuple(_NEWEST) if minute.samples is samples), None)
    if found is None:
        found = Minute(samples)
        _NEWEST.append(found)
    return found


class _SummedMinute(NamedTuple):
    """A minute. sums: its sums by owner (`carried_by`); None if it has gaps."""

    samples: SmallFloatArray
    sums: FloatArray | None


@dataclass(eq=False)
class KnownMinutes:
    """The minutes of the last decision. owned: its owners. message: bytes that cost as much as one message."""

    owned: Owned = field(default_factory=Owned)
    message: float = 0.0
    minutes: tuple[_SummedMinute, ...] = ()

    def __reduce__(self) -> tuple[type[KnownMinutes], tuple[()]]:
        return KnownMinutes, ()  # a copy of a strategy starts without these minutes

    def of(self, recent: RecentSamples, owned: Owned, message: float) -> tuple[_SummedMinute, ...]:
        """The minutes of `recent`, with the sums of those without gaps. owned: the result of `Owned.after`."""
        same = message == self.message and owned is self.owned
        known = {id(minute.samples): minute for minute in self.minutes}  # kept alive, so ids are unique
        found = []
        for samples in recent.bundles:
            before = known.get(id(samples))
            if before is None or (before.sums is not None and not same):
                minute = minute_of(samples)
                sums = carried_by(minute.load, owned.owner, owned.brokers, message) if minute.whole else None
                before = _SummedMinute(samples, sums)
            found.append(before)
        self.owned, self.message, self.minutes = owned, message, tuple(found)
        return self.minutes


def carried_by(load: FloatArray, owner: IntArray, brokers: int, message: float) -> FloatArray:
    """Sums (n, 3) by owner: bytes/s of work, bytes/s in, bytes/s out. load: (m, 3) columns `SAMPLED`."""
    return sums_of((work_of(load, message), load[:, 0], load[:, 1]), owner, brokers)


def sums_of(columns: Sequence[FloatArray], owner: IntArray, brokers: int) -> FloatArray:
    """Sums (n, k) by owner (m,) of `columns` (k arrays, m); bundles without an owner (-1) are left out."""
    places = owner + 1
    found = np.empty((brokers, len(columns)))
    for column, weights in enumerate(columns):
        found[:, column] = np.bincount(places, weights=weights, minlength=brokers + 1)[1:]
    return found


@dataclass(frozen=True)
class ReplayedMinutes:
    """k minutes of m bundles. recent: the samples. known: sums from the last decision."""

    cluster: ClusterLoad
    recent: RecentSamples
    known: KnownMinutes

    def __len__(self) -> int:
        return len(self.recent)

    @cached_property
    def owned(self) -> Owned:
        """The bundles with their owners in `cluster`."""
        bundles = self.cluster.bundles
        return self.known.owned.after(bundles.names, bundles.owner, len(self.cluster.brokers))

    @cached_property
    def load(self) -> FloatArray:
        """(k, m, 3) columns `SAMPLED`, without gaps."""
        samples = np.stack(self.recent.bundles, dtype=np.float64)
        return complete(samples, sampled(self.cluster.bundles.short))

    @cached_property
    def newest(self) -> FloatArray | SmallFloatArray:
        """(m, 3) the last minute of `load`."""
        newest = self.recent.bundles[-1]
        if np.isnan(newest).any():
            last: FloatArray = self.load[-1]
            return last
        return newest

    @property
    def used(self) -> BoolArray | None:
        """(m,) whether each bundle had any traffic in the last minute; None if all had."""
        minute = minute_of(self.recent.bundles[-1])
        if minute.whole:
            return None if minute.all_used else minute.used
        return Minute(self.newest).used

    def carried(self, owner: IntArray, message: float) -> FloatArray:
        """(k, n, 3) what each broker would have carried with these owners (m,), as `carried_by` computes it."""
        n = len(self.cluster.brokers)
        minutes = self.known.of(self.recent, self.owned.after(self.owned.names, owner, n), message)
        found = [
            minute.sums if minute.sums is not None else carried_by(self.load[row], owner, n, message)
            for row, minute in enumerate(minutes)
        ]
        return np.array(found)


def complete(load: FloatArray, average: FloatArray) -> FloatArray:
    """`load` (k, m, ...) with gaps filled from the minute before, or else the minute after, or else `average` (m, ...).

    0 for a bundle that was never measured.
    """
    if not np.isnan(load).any():
        return load
    filled = carried_on(carried_on(load)[::-1])[::-1]
    return np.where(np.isnan(filled), np.nan_to_num(average), filled)
