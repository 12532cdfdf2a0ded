"""A closer look at small plans: the best pair of moves at a time, instead of the best move.

Where brokers have a dozen lumpy bundles, the best first move is often not part of the best plan. A pair may be two
moves of a giver, a swap, or a move that makes room for another one; a single move counts as a pair with itself. The
pair with the largest gain less price is taken, then the next on the load as it will be. In a pair a taker may end above
its target if its distance is then at most `LUMPY` of the largest one before: a large bundle may be best on a broker
that it fills.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.shedding.trim.plan import Balance, Bounds, PlannedMove, clear, least_gain

FEW = 10
"""Moves below which a plan is looked at closely."""

LUMPY = 0.6
"""See the module."""

COARSE = 30
"""Bundles of an average broker up to which plans are looked at closely. With more, moves fit well enough."""

_BROKERS = 4  # of the hottest, and of the coldest brokers
_BUNDLES = 10  # of each of these brokers, evenly spread by load
_MOVES = 80  # single moves that are paired with each other, the best ones


@dataclass
class PairSearch:
    """Makes a plan of at most `FEW` moves on a copy of `balance`. owner: (m,) rows. price: (m,) of each bundle."""

    balance: Balance
    owner: IntArray
    price: FloatArray
    bounds: Bounds

    def __post_init__(self) -> None:
        self.balance = replace(self.balance, usage=self.balance.usage.copy())
        self._least = least_gain(self.bounds, self.owner, len(self.balance.target))
        self._movable = self.bounds.movable & (self.owner >= 0) & (self.balance.load[:, 0] > 0)
        self._sent = np.zeros(len(self.balance.target), dtype=np.int64)
        self._received = self._sent.copy()

    def run(self) -> tuple[list[PlannedMove], float]:
        """The moves, and their gain less their price."""
        moves: list[PlannedMove] = []
        total = 0.0
        while len(moves) < min(FEW, self.bounds.most - 1):
            pair, net = self._best()
            if net <= 0:
                break
            moves += pair
            total += net
            for move in pair:
                self._make(move)
        return moves, total

    def _make(self, move: PlannedMove) -> None:
        self._shift(move.bundle, move.source, move.destination)
        if move.returned >= 0:
            self._shift(move.returned, move.destination, move.source)

    def _shift(self, bundle: int, source: int, destination: int) -> None:
        self.balance.shift(source, destination, self.balance.load[bundle])
        self._movable[bundle] = False
        self._sent[source] += 1
        self._received[destination] += 1

    def _best(self) -> tuple[list[PlannedMove], float]:
        """The best pair on the load as it is now, and its gain less its price (not above 0: none)."""
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
        net = np.where(self._uphill(brokers, giver, taker), -np.inf, self._paired(brokers, bundles, change))
        first, second = divmod(int(np.argmax(net)), len(bundles))
        places = [first] if first == second else [first, second]
        moves = [PlannedMove(int(bundles[p]), int(brokers[giver[p]]), int(brokers[taker[p]])) for p in places]
        if giver[first] == taker[second] and giver[second] == taker[first]:
            busiest = self.balance.busiest()
            down, up = sorted(moves, key=lambda move: busiest[move.destination])
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
        kept = taking[taker] & (brokers[taker] != self.owner[bundle])
        return bundle[kept], taker[kept]

    def _some(self, broker: int) -> IntArray:
        rows = np.flatnonzero(self._movable & (self.owner == broker))
        if len(rows) <= _BUNDLES:
            return rows
        order = np.argsort(self.balance.load[rows, 0], kind="stable")
        return rows[order[np.linspace(0, len(rows) - 1, _BUNDLES).astype(np.int64)]]

    def _change(self, brokers: IntArray, bundles: IntArray, giver: IntArray, taker: IntArray) -> FloatArray:
        """Change of usage (c, b, 3), percent, that each move makes to each of `brokers`."""
        change, each = np.zeros((len(bundles), len(brokers), 3)), np.arange(len(bundles))
        load = self.balance.load[bundles]
        change[each, giver] -= load * self.balance.unit[brokers][giver]
        change[each, taker] += load * self.balance.unit[brokers][taker]
        return change

    def _uphill(self, brokers: IntArray, giver: IntArray, taker: IntArray) -> BoolArray:
        """Pairs (c, c) with a move to a busier broker that is not the other half of a swap."""
        busiest = self.balance.busiest()[brokers]
        up = busiest[taker] >= busiest[giver]
        swap = (giver[:, np.newaxis] == taker) & (taker[:, np.newaxis] == giver)
        uphill: BoolArray = np.where(swap, up[:, np.newaxis] & up, up[:, np.newaxis] | up)
        return uphill

    def _paired(self, brokers: IntArray, bundles: IntArray, change: FloatArray) -> FloatArray:
        """Gain less price (c, c) of each pair; the single moves are on the diagonal. -inf for two moves of a bundle."""
        each = np.arange(len(bundles))
        both = change[:, np.newaxis] + change
        both[each, each] = change
        price = self.price[bundles][:, np.newaxis] + self.price[bundles]
        price[each, each] = self.price[bundles]
        twice = bundles[:, np.newaxis] == bundles
        twice[each, each] = False
        return np.where(twice, -np.inf, self._net(brokers, both, price))

    def _net(self, brokers: IntArray, change: FloatArray, price: FloatArray) -> FloatArray:
        """Gain less `price` (...) of changes (..., b, 3) of usage, percent; -inf where a taker gets too much."""
        balance, away = self.balance, self.balance.away()
        raw = (balance.usage[brokers] + change).max(axis=-1) - balance.target[brokers]
        after = clear(raw, balance.noise[brokers])
        net = (away[brokers] ** 2).sum() - (after**2).sum(axis=-1) - self._least * price
        taker = change.sum(axis=-1) > 0
        too_much: BoolArray = (taker & (raw > max(0.0, LUMPY * float(away.max())))).any(axis=-1)
        return np.where(too_much, -np.inf, net)
