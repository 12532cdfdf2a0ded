"""A better search for small plans: it takes the best pair of moves at a time, instead of the best move.

If brokers have only a dozen bundles of very different size, the best first move is often not part of the best plan. A
pair may be two moves from one giver (see `plan`), a swap, or a move that makes room for another one. A single move
counts as a pair with itself. The pair with the largest gain less price is taken. Then the load after that pair is
computed, and the next pair is taken. In a pair a taker may end up above its target, by at most `LUMPY` times the
largest distance that any broker had from its target before the pair. So a bundle may go to a broker that had less room
below its target than the bundle takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.shedding.trim.plan import (
    ROUNDING,
    PlanBounds,
    PlannedLoad,
    PlannedMove,
    clear,
    least_gain,
    spread_by_load,
)

FEW = 10
"""If the plan of `Planner` has fewer moves than this, `PairSearch` makes a plan, too: of at most `FEW` moves.

In the plan of `PairSearch`, a swap counts as two moves.
"""

LUMPY = 0.6
"""How far a taker may end up above its target: see the module."""

COARSE = 30
"""Pairs are searched if an average broker has at most this many bundles. With more, single moves suffice."""

_BROKERS = 4  # the number of the hottest, and of the coldest brokers that are considered
_BUNDLES = 10  # the number of bundles of each of these brokers, evenly spread by load
_MOVES = 80  # the number of best single moves that are paired with each other


@dataclass
class PairSearch:
    """Makes a plan of at most `FEW` moves on a copy of `balance`. owner: (m,) rows. price: (m,) of each bundle."""

    balance: PlannedLoad
    owner: IntArray
    price: FloatArray
    bounds: PlanBounds

    def __post_init__(self) -> None:
        self.balance = replace(self.balance, usage=self.balance.usage.copy())
        self._first = self.balance.busiest()  # percent, before the plan
        self._most = np.full(len(self._first), np.inf)  # percent that each taker may reach
        self._least = least_gain(self.bounds, self.owner, len(self.balance.target))
        self._movable = self.bounds.movable & (self.owner >= 0) & (self.balance.load[:, 0] > 0)
        self._sent = np.zeros(len(self.balance.target), dtype=np.int64)
        self._received = self._sent.copy()

    def run(self) -> tuple[list[PlannedMove], float]:
        """The moves, and the points^2 by which their gain exceeds their price."""
        moves: list[PlannedMove] = []
        total = 0.0
        while self._room() > 0:
            pair, net = self._best()
            if net <= 0:
                break
            moves += pair
            total += net
            for move in pair:
                self._make(move)
        return moves, total

    def _room(self) -> int:
        return min(FEW, self.bounds.most) - int(self._sent.sum())

    def _make(self, move: PlannedMove) -> None:
        self._shift(move.bundle, move.source, move.destination)
        self._most[move.destination] = min(self._most[move.destination], self._first[move.source])
        if move.returned >= 0:
            self._shift(move.returned, move.destination, move.source)

    def _shift(self, bundle: int, source: int, destination: int) -> None:
        self.balance.shift(source, destination, self.balance.load[bundle])
        self._movable[bundle] = False
        self._sent[source] += 1
        self._received[destination] += 1

    def _best(self) -> tuple[list[PlannedMove], float]:
        """The best pair for the current load, and its gain minus its price. At 0 or less, no pair is worth it."""
        brokers = self._brokers()
        bundles, taker = self._moves(brokers)
        if not len(bundles):
            return [], 0.0
        giver = np.searchsorted(brokers, self.owner[bundles])
        change = self._change(brokers, bundles, giver, taker)
        if len(bundles) > _MOVES:
            alone = self._net(brokers, change, self.price[bundles])
            best = np.argsort(-alone, kind="stable")[:_MOVES]
            bundles, taker, giver, change = bundles[best], taker[best], giver[best], change[best]
        both, price = _paired(change), _paired(self.price[bundles])
        refused = self._uphill(brokers, giver, taker, both) | self._beyond(brokers, bundles, giver, taker)
        net = np.where(refused, -np.inf, self._net(brokers, both, price))
        first, second = divmod(int(np.argmax(net)), len(bundles))
        places = [first] if first == second else [first, second]
        moves = [PlannedMove(int(bundles[p]), int(brokers[giver[p]]), int(brokers[taker[p]])) for p in places]
        if giver[first] == taker[second] and giver[second] == taker[first]:
            down, up = sorted(moves, key=lambda move: self._first[move.destination])
            moves = [replace(down, returned=up.bundle)]
        return moves, float(net[first, second])

    def _brokers(self) -> IntArray:
        """Rows of the brokers that are considered, ascending."""
        order = np.argsort(self.balance.away(), kind="stable")
        return np.unique(np.concatenate([order[:_BROKERS], order[-_BROKERS:]]))

    def _moves(self, brokers: IntArray) -> tuple[IntArray, IntArray]:
        """All single moves: the bundle (row) and the taker (position in `brokers`)."""
        giving = brokers[self._sent[brokers] < self.bounds.per_broker]
        taking = self.bounds.receivers[brokers] & (self._received[brokers] < self.bounds.per_broker)
        rows = np.concatenate([self._some(broker) for broker in giving.tolist()] or [brokers[:0]])
        bundle, taker = np.repeat(rows, len(brokers)), np.tile(np.arange(len(brokers)), len(rows))
        kept = taking[taker] & (brokers[taker] != self.owner[bundle]) & self.bounds.fit(rows, brokers).T.ravel()
        return bundle[kept], taker[kept]

    def _some(self, broker: int) -> IntArray:
        rows = np.flatnonzero(self._movable & (self.owner == broker))
        return spread_by_load(rows, self.balance.load, _BUNDLES)

    def _change(self, brokers: IntArray, bundles: IntArray, giver: IntArray, taker: IntArray) -> FloatArray:
        """Change of usage (c, b, 3), percent, that each move makes to each of `brokers`."""
        change, each = np.zeros((len(bundles), len(brokers), 3)), np.arange(len(bundles))
        load = self.balance.load[bundles]
        change[each, giver] -= load * self.balance.unit[brokers][giver]
        change[each, taker] += load * self.balance.unit[brokers][taker]
        return change

    def _uphill(self, brokers: IntArray, giver: IntArray, taker: IntArray, both: FloatArray) -> BoolArray:
        """Pairs (c, c) with a move uphill: to a broker that is busier, or gets busier than the giver was.

        One half of a swap always goes uphill. A swap counts as uphill unless the busier broker gets less busy.
        """
        now, first, each = self.balance.busiest()[brokers], self._first[brokers], np.arange(len(giver))
        after = (self.balance.usage[brokers] + both).max(axis=3)  # (c, c, b)
        there = after[each[:, np.newaxis], each, taker[:, np.newaxis]]
        left = after[each[:, np.newaxis], each, giver[:, np.newaxis]]
        up = (now[taker] >= now[giver]) | (first[taker] >= first[giver])
        up = up[:, np.newaxis] | (there > first[giver][:, np.newaxis])
        worse = up | (left >= now[giver][:, np.newaxis])
        swap = (giver[:, np.newaxis] == taker) & (taker[:, np.newaxis] == giver)
        uphill: BoolArray = np.where(swap, worse & worse.T, up | up.T)
        return uphill

    def _beyond(self, brokers: IntArray, bundles: IntArray, giver: IntArray, taker: IntArray) -> BoolArray:
        """Pairs (c, c) that move one bundle twice, and those with more moves than the bounds allow."""
        sends = self._sent[brokers][giver] + 2 > self.bounds.per_broker
        receives = self._received[brokers][taker] + 2 > self.bounds.per_broker
        beyond = bundles[:, np.newaxis] == bundles
        beyond |= (giver[:, np.newaxis] == giver) & sends
        beyond |= (taker[:, np.newaxis] == taker) & receives
        beyond |= self._room() < 2  # noqa: PLR2004 - a pair is two
        np.fill_diagonal(beyond, val=False)
        refused: BoolArray = beyond
        return refused

    def _net(self, brokers: IntArray, change: FloatArray, price: FloatArray) -> FloatArray:
        """For each change of usage, in percent: its gain minus its `price`. -inf where a taker gets too much.

        Any leading axes: change (..., b, 3), price and result (...).
        """
        balance, away = self.balance, self.balance.away()
        busiest = (balance.usage[brokers] + change).max(axis=-1)
        raw = busiest - balance.target[brokers]
        after = clear(raw, balance.noise[brokers])
        net = (away[brokers] ** 2).sum() - (after**2).sum(axis=-1) - self._least * price
        busier = busiest > balance.busiest()[brokers]
        too_much = (raw > max(ROUNDING, LUMPY * float(away.max()))) | (busiest > self._most[brokers])
        return np.where((busier & too_much).any(axis=-1), -np.inf, net)


def _paired(values: FloatArray) -> FloatArray:
    """Sums (c, c, ...) of each two of `values` (c, ...). The diagonal has each value alone."""
    both, each = values[:, np.newaxis] + values, np.arange(len(values))
    both[each, each] = values
    return both
