"""The bundles of a run in progress: who serves them, what they are parts of, and what was measured of them.

A split replaces a bundle by its children, so rows change. Each row is a bundle of the `World`, or a part of one.
`origin` is the row of that bundle in the `World`. `share` is the ratio 0-1 of that bundle's traffic and clients that
the part has, by its topics; 1 for a whole bundle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from trimtab_lab.simulation.world import World
from trimtab_strategies.hash_ring import BundleName
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.splitting.boundaries import children
from trimtab_strategies.usage import LONG_WINDOW, SHORT_WINDOW

_LONG_AGO = 1_000_000


@dataclass
class RunBundles:
    """(m,) each. `newest`, `short` and `long` are bytes/s; `measured` is the number of samples in the averages.

    serving:     row of the broker that serves it, -1 none.
    last_unload: epoch seconds of its last move, NaN never. times: how often it moved for balance.
    since:       rounds since it landed on its broker. gap: seconds of this round in which no broker served it.
    backlog:     bytes that clients still have to send.
    """

    names: list[str]
    namespace: IntArray
    origin: IntArray
    share: FloatArray
    lower: IntArray
    upper: IntArray
    serving: IntArray
    last_unload: FloatArray
    times: IntArray
    newest: FloatArray
    short: FloatArray
    long: FloatArray
    measured: IntArray
    since: IntArray
    gap: FloatArray
    backlog: FloatArray
    index: dict[str, int] = field(default_factory=dict)
    version: int = 0

    @classmethod
    def of(cls, world: World) -> RunBundles:
        """The bundles before the first round."""
        m = len(world.owner)
        ranges = zip(world.namespace.tolist(), world.lower.tolist(), world.upper.tolist(), strict=True)
        state = cls(
            names=[str(BundleName(world.namespaces[space], *hashes)) for space, *hashes in ranges],
            namespace=world.namespace.copy(),
            origin=np.arange(m),
            share=np.ones(m),
            lower=world.lower.copy(),
            upper=world.upper.copy(),
            serving=world.owner.copy(),
            last_unload=np.full(m, np.nan),
            times=np.zeros(m, dtype=np.int64),
            newest=np.zeros(m),
            short=np.zeros(m),
            long=np.zeros(m),
            measured=np.zeros(m, dtype=np.int64),
            since=np.full(m, _LONG_AGO),
            gap=np.zeros(m),
            backlog=np.zeros(m),
        )
        state._number()
        return state

    def __len__(self) -> int:
        return len(self.names)

    def _number(self) -> None:
        self.index = {name: row for row, name in enumerate(self.names)}
        self.version += 1

    def measure(self, served: FloatArray) -> None:
        """Add one sample (m,), bytes/s, to the averages."""
        self.measured += 1
        self.newest = served
        self.short += (served - self.short) / np.minimum(self.measured, SHORT_WINDOW)
        self.long += (served - self.long) / np.minimum(self.measured, LONG_WINDOW)

    def split(self, world: World, row: int, boundaries: Sequence[int]) -> list[str]:
        """Replace a bundle by its children; returns their names, ascending by range. All stay with the owner.

        A child is not measured until the next round. Raises `InvalidBoundaryError` for boundaries outside the range.
        """
        ranges = children(int(self.lower[row]), int(self.upper[row]), boundaries)
        pieces = world.pieces
        first, last = np.searchsorted(pieces.bundle, [self.origin[row], self.origin[row] + 1])
        place, share = pieces.place[first:last], pieces.share[first:last]
        space = world.namespaces[self.namespace[row]]
        names = [str(BundleName(space, *hashes)) for hashes in ranges]
        parts = np.array([share[(place >= lower) & (place < upper)].sum() for lower, upper in ranges])
        whole = self.share[row]
        kept = np.delete(np.arange(len(self)), row)
        rows = np.append(kept, np.full(len(ranges), row))
        for of in fields(self):
            value = getattr(self, of.name)
            if isinstance(value, np.ndarray):
                setattr(self, of.name, value[rows])
        new = slice(len(kept), None)
        self.names = [*(self.names[k] for k in kept.tolist()), *names]
        self.share[new] = parts
        self.lower[new], self.upper[new] = np.transpose(ranges)
        self.measured[new], self.short[new], self.long[new] = 0, 0.0, 0.0
        self.backlog[new] *= parts / whole if whole > 0 else 0.0
        self._number()
        return names
