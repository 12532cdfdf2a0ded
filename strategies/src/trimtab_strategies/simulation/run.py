"""The loop, closed: picture, decision, moves that land after a delay, next picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab_strategies.model.load import FloatArray, IntArray
from trimtab_strategies.simulation.deciding import Decider, Wish
from trimtab_strategies.simulation.picture import MINUTE, START, Camera, Measured
from trimtab_strategies.simulation.world import World

WARM_UP = 10
"""Samples of every bundle before the first picture, as a cluster that has been running for a while has."""


UPHILL = 0.01
"""Ratio by which a destination must be more used than the source for a move to count as wrong."""


@dataclass(frozen=True)
class Record:
    """What happened.

    imbalance: (rounds + 1,) percent points, see `World.imbalance`; the first before anything moved.
    pressure:  (rounds + 1, n) usage as ratio that serving everything would need, noise left out; NaN where absent.
    moves:     (rounds,) bundles that were asked to move for balance.
    times:     (m,) how often each bundle moved for balance.
    backward:  how many of the moves went to a broker that was more used, by `UPHILL` or more, than the one they left.
    """

    imbalance: FloatArray
    pressure: FloatArray
    moves: IntArray
    times: IntArray
    backward: int


def run(world: World, decider: Decider, rng: np.random.Generator) -> Record:
    """Let `decider` balance `world` from its first round to its last."""
    loop = _Loop(world)
    moves = [loop.turn(turn, decider, rng) for turn in range(world.rounds)]
    return Record(
        imbalance=np.array(loop.imbalance),
        pressure=np.array(loop.pressure),
        moves=np.array(moves, dtype=np.int64),
        times=loop.times,
        backward=loop.backward,
    )


class _Loop:
    """One run under way. `serving` (m,) has each bundle, `landing` are the open moves and the round they land in."""

    def __init__(self, world: World) -> None:
        self.world, self.camera = world, Camera(world)
        self.serving = world.owner.copy()
        self.last_unload = np.full(len(world.owner), np.nan)
        self.times = np.zeros(len(world.owner), dtype=np.int64)
        self.landing: list[tuple[int, int, int]] = []
        self.backward = 0
        self.measured = Measured(np.zeros(len(world.size)), np.zeros(len(world.size)))
        for _ in range(WARM_UP):
            self.measured.see(world.served(0, self.serving))
        self.imbalance: list[float] = []
        self.pressure: list[FloatArray] = []
        self._score(0)

    def turn(self, turn: int, decider: Decider, rng: np.random.Generator) -> int:
        """One round: the number of moves for balance that were decided in it."""
        self.serving = np.where(self._gone(turn), -1, self.serving)
        self.measured.see(self.world.served(turn, self.serving))
        open_ones = {bundle: broker for bundle, broker, _ in self.landing}
        owner, moving_from = self.serving.copy(), np.full(len(self.serving), -1)
        for bundle, broker in open_ones.items():
            owner[bundle], moving_from[bundle] = broker, self.serving[bundle]
        cluster = self.camera.picture(turn, owner, moving_from, self.last_unload.copy(), self.measured)
        wishes = [wish for wish in decider.wishes(cluster, rng) if wish[0] not in open_ones]
        moved = self._begin(turn, wishes)
        self.land(turn + 1)
        self._score(turn)
        return moved

    def land(self, turn: int) -> None:
        """Carry out the moves that are due by round `turn`."""
        for bundle, broker, due in self.landing:
            if due <= turn:
                self.serving[bundle] = broker
        self.landing = [wish for wish in self.landing if wish[2] > turn]

    def _begin(self, turn: int, wishes: list[Wish]) -> int:
        pressure = self.world.pressure(turn, self.serving)
        moved = 0
        for bundle, broker in wishes:
            source = self.serving[bundle]
            self.landing.append((bundle, broker, turn + self.world.delay))
            if source >= 0:
                moved += 1
                self.times[bundle] += 1
                self.backward += int(pressure[broker] - pressure[source] >= UPHILL)
                self.last_unload[bundle] = START + MINUTE * turn
        return moved

    def _gone(self, turn: int) -> IntArray:
        gone: IntArray = (self.serving >= 0) & ~self.world.present[turn][self.serving]
        return gone

    def _score(self, turn: int) -> None:
        self.imbalance.append(self.world.imbalance(turn, self.serving))
        pressure = self.world.pressure(turn, self.serving)
        self.pressure.append(np.where(self.world.present[turn], pressure, np.nan))
