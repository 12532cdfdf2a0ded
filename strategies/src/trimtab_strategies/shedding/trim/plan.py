"""Which bundles Trim moves: the most balance for the fewest disconnected clients.

    price of a bundle  (0.75 + 0.25 x its clients / average clients) x sqrt(publish gap / usual gap)     average: 1
    gain of a move     away_i^2 - away_i'^2 + away_j^2 - away_j'^2        points^2; away' is after the move
    taken if           gain >= price x (price of the bundle) / (bundles per broker)

i is the giver, j the taker. away is the distance of a broker's busiest resource from its target (see `replay`),
minus the model's doubt. Trim considers the moves from the two hottest brokers (givers) to the six coldest (takers). It
takes the move with the best gain / sqrt(price). Then it computes the load after that move, and takes the next one. When
no move is worth its price, a swap of two bundles is tried under the same rule. A taker ends up at or below its target.

Bundles that grow or shrink are planned with the load that they will have in a few minutes (`AHEAD`).

The price is divided by the number of bundles per broker. So one default fits 30 and 600 bundles per broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.protocols import Destinations
from trimtab_strategies.shedding.trim.model import BrokerModel
from trimtab_strategies.shedding.trim.readings import middle
from trimtab_strategies.shedding.trim.replay import Replay, targets, used

GIVERS, TAKERS = 2, 6
"""Numbers of the hottest and of the coldest brokers that are considered for each move."""

FEWEST_CLIENTS, MOST_CLIENTS = 0.1, 20.0
"""The fewest and the most clients that count in the price of a bundle, as multiples of the average."""

AHEAD, MOST_GROWTH = 6.0, 0.5
"""Minutes ahead for which the load is planned, and the largest growth (ratio) that is assumed for a bundle."""

USUAL_GAP = 0.8
"""Median seconds for which a move interrupts publishers on real brokers (docs/side-by-side.md).

The price factor of such an interruption is 1.
"""

LEAST_GAP, MOST_GAP = 0.5, 2.0
"""Bounds of the factor by which a longer or shorter interruption changes the price."""

AGAIN = 4.0
"""Factor on the price of a bundle that has just moved. It falls to 1 within an hour."""

ROUNDING = 1e-4
"""Points by which a taker may end up above its target, because samples are 32-bit floats."""

_SWAPPED = 40  # bundles of each broker that are considered for a swap


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A bundle (row) that moves from `source` to `destination` (rows), and the one that a swap returns (-1: none)."""

    bundle: int
    source: int
    destination: int
    returned: int = -1


def rows_of(moves: Sequence[PlannedMove]) -> list[int]:
    """All bundles (rows) that `moves` move."""
    return [row for move in moves for row in (move.bundle, move.returned) if row >= 0]


def spread_by_load(rows: IntArray, load: FloatArray, most: int) -> IntArray:
    """At most `most` of the bundles `rows`, evenly spaced in the order of their work. load: as in `PlannedLoad`."""
    if len(rows) <= most:
        return rows
    order = np.argsort(load[rows, 0], kind="stable")
    return rows[order[np.linspace(0, len(rows) - 1, most).astype(np.int64)]]


@dataclass(frozen=True)
class PlanBounds:
    """What a plan may do.

    movable: (m,) bundles that may move. receivers: (n,) brokers that may receive. most: maximum number of moves.
    per_broker: maximum number of moves from a broker, and of moves to a broker. price: the move of an average
    bundle must gain at least `price` / (bundles per broker), in points^2. destinations: None if each bundle may go to
    every receiver.
    """

    movable: BoolArray
    receivers: BoolArray
    most: int
    per_broker: int
    price: float
    destinations: Destinations | None = None

    def fit(self, bundles: IntArray, brokers: IntArray) -> BoolArray:
        """Whether (b, k) each of `brokers` (b,) may get each of `bundles` (k,). Both are rows."""
        if self.destinations is None:
            return np.ones((len(brokers), len(bundles)), dtype=bool)
        return self.destinations.fit(bundles, brokers)


def prices(cluster: ClusterLoad, fixed: float) -> FloatArray:
    """Price (m,) of moving each bundle. An average one costs 1. fixed: ratio that does not depend on clients.

    A bundle costs more if it moved within the last hour, or if moves interrupt its namespace for longer than usual.
    """
    clients = np.nan_to_num(np.maximum(cluster.bundles.sessions, 0))
    mean = float(clients.mean()) if len(clients) and clients.any() else 1.0
    share = np.clip(clients / mean, FEWEST_CLIENTS, MOST_CLIENTS) if clients.any() else np.ones(len(clients))
    since = np.clip((cluster.now - cluster.bundles.last_unload) / 3600, 0, 1)
    again = 1 + (AGAIN - 1) * (1 - np.where(np.isnan(since), 1.0, since))
    return (fixed + (1 - fixed) * share) * again * _interruption(cluster)


def _interruption(cluster: ClusterLoad) -> FloatArray:
    """Factor (m,) on the price: the square root of (the namespace's publish gap / the usual gap), within bounds."""
    gaps = np.array([cluster.publish_gaps.get(space, USUAL_GAP) for space in cluster.namespaces])
    factor: FloatArray = np.clip(np.sqrt(gaps / USUAL_GAP), LEAST_GAP, MOST_GAP)[cluster.bundles.namespace]
    return factor


@dataclass
class PlannedLoad:
    """The load of the brokers while a plan is made, from the medians of a window.

    load: (m, 3) work, bytes/s in, bytes/s out of each bundle. usage: (n, 3) percent. target: (n,) percent.
    noise: (n,) points by which the distance from the target may be wrong. unit: (n, 3) percent per unit of `load`.
    """

    model: BrokerModel
    load: FloatArray
    usage: FloatArray
    target: FloatArray
    noise: FloatArray
    unit: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        cpu = 100 * self.model.slope / self.model.cores
        self.unit = np.nan_to_num(np.concatenate([cpu[:, np.newaxis], 100 / self.model.nic], axis=1))

    @classmethod
    def of(cls, replay: Replay, window: int) -> PlannedLoad:
        """The load in the last `window` minutes, with the growth that is expected."""
        model, minutes = replay.model, slice(-window, None)
        sample = middle(replay.load[minutes])
        growth = 1 + np.clip(replay.growth * AHEAD, -MOST_GROWTH, MOST_GROWTH)
        load = np.stack([model.work(sample), sample[:, 0], sample[:, 1]], axis=1) * growth[:, np.newaxis]
        background = middle(model.background[minutes])
        carried = middle(replay.carried[minutes])
        if (growth != 1).any():
            carried = carried + replay.sums(load * (1 - 1 / growth[:, np.newaxis]))
        target = 100 * targets(model, carried[np.newaxis], background[np.newaxis], replay.pools)[0]
        noise = replay.doubt[minutes].min(axis=0)
        usage = middle(replay.usage[minutes]) if (growth == 1).all() else used(model, carried, background)
        return cls(model, load, 100 * usage, target, noise)

    def busiest(self) -> FloatArray:
        """Usage (n,) of the busiest resource, percent."""
        busiest: FloatArray = self.usage.max(axis=1)
        return busiest

    def away(self) -> FloatArray:
        """Distance (n,) from the target, points, minus the noise."""
        return clear(self.busiest() - self.target, self.noise)

    def with_load(self, brokers: IntArray, load: FloatArray) -> FloatArray:
        """Percent (b, k) of the busiest resource of each of `brokers` (b,) with each of `load` (1, k, 3) added."""
        usage, unit = self.usage[brokers][:, np.newaxis], self.unit[brokers][:, np.newaxis]
        busiest = usage[..., 0] + unit[..., 0] * load[..., 0]
        for resource in (1, 2):
            np.maximum(busiest, usage[..., resource] + unit[..., resource] * load[..., resource], out=busiest)
        return busiest

    def shift(self, source: int, destination: int, load: FloatArray) -> None:
        """Move `load` (3,) from one broker to another."""
        self.usage[source] -= load * self.unit[source]
        self.usage[destination] += load * self.unit[destination]


def within_reach(balance: PlannedLoad, owner: IntArray, bounds: PlanBounds) -> PlannedLoad | None:
    """`balance` with higher targets for the hottest broker and those that its stuck bundles may go to, or None.

    A few bundles may link brokers into one pool, with one level, though most of their bundles can't be exchanged. Then
    it can happen that all brokers that may get a zone's bundles are above the level. No move from the hottest of them
    would be possible, although it is far hotter than the others of the zone. A bundle is stuck if no broker that may
    get it is below its own target. The target of the hottest broker, and of all that may get its stuck bundles, becomes
    at least their mean usage. None: there is no such broker besides the hottest.
    """
    if bounds.destinations is None or not len(owner):
        return None
    away, group = balance.away(), bounds.destinations.group
    allowed = bounds.destinations.allowed & bounds.receivers
    hottest = int(np.argmax(away))
    kinds = np.unique(group[bounds.movable & (owner == hottest) & (balance.load[:, 0] > 0)])
    stuck = kinds[~(allowed[kinds] & (away < 0)).any(axis=1)]
    reach: BoolArray = np.asarray(allowed[stuck].any(axis=0))
    reach[hottest] = True
    if reach.sum() < 2:  # noqa: PLR2004 - there is no other broker
        return None
    cores = np.nan_to_num(balance.model.cores, nan=1.0)
    mean = float(np.average(balance.busiest()[reach], weights=cores[reach]))
    target = np.where(reach, np.maximum(balance.target, mean), balance.target)
    return replace(balance, usage=balance.usage.copy(), target=target)


def clear(away: FloatArray, noise: FloatArray) -> FloatArray:
    """The part of a distance `away` that exceeds `noise`."""
    beyond: FloatArray = away - away.clip(-noise, noise)
    return beyond


def least_gain(bounds: PlanBounds, owner: IntArray, brokers: int) -> float:
    """Gain (points^2) that the move of an average bundle must bring."""
    return bounds.price * brokers / max(1, int((owner >= 0).sum()))


@dataclass
class Planner:
    """Makes one plan. `balance` is updated with each move. owner: (m,) rows. price: (m,) of each bundle."""

    balance: PlannedLoad
    owner: IntArray
    price: FloatArray
    bounds: PlanBounds
    moves: list[PlannedMove] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = len(self.balance.target)
        self._sent, self._received = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self._spent = np.zeros(n, dtype=bool)  # givers without a move that is worth its price
        self._gave = np.zeros(n, dtype=bool)
        rows = np.flatnonzero(self.bounds.movable & (self.owner >= 0) & (self.balance.load[:, 0] > 0))
        rows = rows[np.argsort(self.owner[rows], kind="stable")]
        edges = np.searchsorted(self.owner[rows], np.arange(n + 1))
        self._rows = [rows[edges[i] : edges[i + 1]] for i in range(n)]
        self._away = self.balance.away()
        self._least = least_gain(self.bounds, self.owner, n)
        self._now: tuple[FloatArray, FloatArray] | None = None
        self._sampled: dict[int, IntArray] = {}
        self._swaps: dict[tuple[int, int], tuple[float, PlannedMove] | None] = {}

    def run(self) -> list[PlannedMove]:
        """Take the best move again and again, until none is worth its price."""
        while self.room() > 0:
            givers = self._givers()
            if not len(givers):
                break
            takers = {i: self._takers(i) for i in givers.tolist()}
            found = self._best(self._single(i, to) for i, to in takers.items())
            if found is None and self.room() > 1:
                found = self._best(self._swap(i, to) for i, to in takers.items())
            if found is None:
                self._spent[givers] = True
            else:
                self._take(found)
        return self.moves

    def net(self) -> float:
        """Gain of the moves so far minus their price, points^2."""
        gain = float((self._away**2).sum() - (self.balance.away() ** 2).sum())
        return gain - self._least * float(self.price[rows_of(self.moves)].sum())

    def _distances(self) -> tuple[FloatArray, FloatArray]:
        """`away` and `busiest` (n,) of the balance, computed anew after each move."""
        if self._now is None:
            self._now = self.balance.away(), self.balance.busiest()
        return self._now

    def room(self) -> int:
        """The number of moves that are still allowed."""
        return self.bounds.most - int(self._sent.sum())

    def _givers(self) -> IntArray:
        away = np.where(self._spent | (self._sent >= self.bounds.per_broker), -np.inf, self._distances()[0])
        hottest = np.argsort(-away, kind="stable")[:GIVERS]
        return hottest[away[hottest] > 0]

    def _takers(self, giver: int) -> IntArray:
        """The coldest brokers that may get bundles of `giver`."""
        full = self._gave | (self._received >= self.bounds.per_broker) | ~self.bounds.receivers
        if self.bounds.destinations is not None:
            groups = np.unique(self.bounds.destinations.group[self._rows[giver]])
            full |= ~self.bounds.destinations.allowed[groups].any(axis=0)
        away = np.where(full, np.inf, self._distances()[0])
        coldest = np.argsort(away, kind="stable")[:TAKERS]
        return coldest[away[coldest] < 0]

    @staticmethod
    def _best(found: Iterator[tuple[float, PlannedMove] | None]) -> PlannedMove | None:
        some = [one for one in found if one is not None]
        return max(some, key=lambda one: one[0])[1] if some else None

    def _single(self, giver: int, takers: IntArray) -> tuple[float, PlannedMove] | None:
        """The best move from `giver`, with its score."""
        rows = self._rows[giver]
        if not len(rows) or not len(takers):
            return None
        gain = self._gain(giver, takers, self.balance.load[rows][np.newaxis])
        gain = np.where(self.bounds.fit(rows, takers), gain, -np.inf)
        score = self._score(gain, self.price[rows][np.newaxis])
        best = int(np.argmax(score))
        if score.flat[best] <= 0:
            return None
        taker, place = divmod(best, len(rows))
        return float(score.flat[best]), PlannedMove(int(rows[place]), giver, int(takers[taker]))

    def _swap(self, giver: int, takers: IntArray) -> tuple[float, PlannedMove] | None:
        """The best swap of a bundle of `giver` with one of a taker, with its score; None if `giver` may not receive."""
        if not self.bounds.receivers[giver]:
            return None
        free = (taker for taker in takers.tolist() if self._sent[taker] < self.bounds.per_broker)
        found = (self._swap_with(giver, taker) for taker in free)
        return max((one for one in found if one is not None), key=lambda one: one[0], default=None)

    def _swap_with(self, giver: int, taker: int) -> tuple[float, PlannedMove] | None:
        """The best swap between two brokers, with its score. The result is kept until a move involves one of them."""
        if (giver, taker) not in self._swaps:
            self._swaps[giver, taker] = self._best_swap(giver, taker)
        return self._swaps[giver, taker]

    def _best_swap(self, giver: int, taker: int) -> tuple[float, PlannedMove] | None:
        leaving, back = self._some(giver), self._some(taker)
        if not len(leaving) or not len(back):
            return None
        net = self.balance.load[leaving][:, np.newaxis] - self.balance.load[back][np.newaxis]
        there, here = (self.bounds.fit(some, np.array([to]))[0] for some, to in ((leaving, taker), (back, giver)))
        gain = self._gain(giver, np.array([taker]), net.reshape(1, -1, 3))
        gain = np.where((there[:, np.newaxis] & here).reshape(1, -1), gain, -np.inf)
        score = self._score(gain, (self.price[leaving][:, np.newaxis] + self.price[back]).reshape(1, -1))
        best = int(np.argmax(score))
        if not score.flat[best] > 0:
            return None
        out, come = divmod(best, len(back))
        return float(score.flat[best]), PlannedMove(int(leaving[out]), giver, taker, int(back[come]))

    def _some(self, broker: int) -> IntArray:
        """Bundles of a broker that are considered for a swap."""
        if broker not in self._sampled:
            self._sampled[broker] = spread_by_load(self._rows[broker], self.balance.load, _SWAPPED)
        return self._sampled[broker]

    def _gain(self, giver: int, takers: IntArray, load: FloatArray) -> FloatArray:
        """Gain (t, k) of shifting `load` (1, k, 3) to each of `takers` (t,); -inf where that is not allowed."""
        balance, giver_row = self.balance, np.array([giver])
        now, busiest = self._distances()
        without = balance.with_load(giver_row, -load)  # (1, k)
        left = clear(without - balance.target[giver], balance.noise[giver])
        raw = balance.with_load(takers, load) - balance.target[takers][:, np.newaxis]  # (t, k)
        there = clear(raw, balance.noise[takers][:, np.newaxis])
        gain = (now[giver] ** 2 + now[takers] ** 2)[:, np.newaxis] - left**2 - there**2
        allowed = (raw <= ROUNDING) & (without < busiest[giver]) & (busiest[takers] < busiest[giver])[:, np.newaxis]
        return np.where(allowed, gain, -np.inf)

    def _score(self, gain: FloatArray, price: FloatArray) -> FloatArray:
        """Gain / sqrt(price) where the gain is worth the price, else -inf."""
        return np.where(gain >= self._least * price, gain / np.sqrt(price), -np.inf)

    def _take(self, move: PlannedMove) -> None:
        self.moves.append(move)
        self._now, ends = None, {move.source, move.destination}
        self._swaps = {pair: found for pair, found in self._swaps.items() if ends.isdisjoint(pair)}
        self.balance.shift(move.source, move.destination, self.balance.load[move.bundle])
        self._leave(move.bundle, move.source, move.destination)
        self._gave[move.source] = True
        if move.returned >= 0:
            self.balance.shift(move.destination, move.source, self.balance.load[move.returned])
            self._leave(move.returned, move.destination, move.source)

    def _leave(self, bundle: int, source: int, destination: int) -> None:
        self._rows[source] = self._rows[source][self._rows[source] != bundle]
        self._sampled.pop(source, None)
        self._sent[source] += 1
        self._received[destination] += 1
