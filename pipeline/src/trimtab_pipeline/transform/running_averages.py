"""The running averages of bundles while cycles are replayed, by the rules of `averages`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trimtab_pipeline.columns import TRAFFIC
from trimtab_pipeline.transform.averages import Before, by_samples, by_time, counted
from trimtab_pipeline.transform.relations import Cycle
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.usage import LONG_WINDOW


@dataclass
class RunningAverages:
    """The running averages of bundles. seen: epoch s of the last cycle in which each bundle was measured."""

    names: tuple[str, ...] = ()
    before: Before = field(default_factory=lambda: _unknown(0))
    seen: FloatArray = field(default_factory=lambda: np.empty(0))

    def add(self, names: tuple[str, ...], sample: FloatArray, time: FloatArray, cycle: Cycle) -> Before:
        """The averages of `names` with a cycle's samples added.

        sample, time: (n, 4) and (n,), NaN where a bundle was not measured. Such a bundle keeps its averages for
        `cycle.horizon` seconds.
        """
        if names is not self.names:
            self._bring(names)
        there = np.isfinite(time)
        good = np.isfinite(sample[:, 0] + sample[:, 1] + sample[:, 2] + sample[:, 3]) & there
        old = self.before
        short, long = by_samples(old, sample) if cycle.by_samples else by_time(old, sample, time, cycle)
        if not good.all():
            some = good[:, np.newaxis]
            short, long = np.where(some, short, old.short), np.where(some, long, old.long)
        count = np.where(good, counted(old.count, LONG_WINDOW), old.count)
        self.before = Before(short, long, np.where(good, np.fmax(time, old.time), old.time), count)
        self.seen = np.where(there, cycle.at, self.seen)
        if (gone := self.seen < cycle.at - cycle.horizon).any():
            self.before = _only(self.before, np.where(gone, -1, np.arange(len(names))))
            self.seen = np.where(gone, np.nan, self.seen)
        return self.before

    def _bring(self, names: tuple[str, ...]) -> None:
        """Bring all rows into the order of `names`."""
        known = {name: row for row, name in enumerate(self.names)}
        rows = np.array([known.get(name, -1) for name in names], dtype=np.int64)
        self.before, self.names = _only(self.before, rows), names
        self.seen = np.append(self.seen, np.nan)[rows]


def _unknown(count: int) -> Before:
    wide, one = np.full((count, len(TRAFFIC)), np.nan, order="F"), np.full(count, np.nan)
    return Before(wide, wide, one, one)


def _only(before: Before, rows: IntArray) -> Before:
    """The given `rows` of `before`. Row -1 has unknown averages."""
    none = _unknown(1)
    return Before(
        np.asfortranarray(np.concatenate([before.short, none.short])[rows]),  # column after column, as in `block`
        np.asfortranarray(np.concatenate([before.long, none.long])[rows]),
        np.append(before.time, np.nan)[rows],
        np.append(before.count, np.nan)[rows],
    )
