"""A small world: brokers on machines of some size, bundles with traffic, and what else happens on the machines.

Usage follows from ownership. A broker needs CPU in proportion to the traffic of its bundles; what other programs on its
machine take comes on top. When the machine is full, traffic is served in part: what is measured of a saturated broker
is 100 % CPU and less traffic than its clients want, as it is in life.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab_strategies.model.load import BoolArray, FloatArray, IntArray

CORE = 64 * 2.0**20
"""Bytes/s that one ordinary core serves."""


@dataclass(frozen=True)
class World:
    """What is given. n brokers, m bundles, over `rounds` rounds of a minute.

    cores:    (n,) of each machine.
    speed:    (n,) bytes/s that one of its cores serves.
    foreign:  (rounds, n) cores that other programs on it take.
    present:  (rounds, n) whether the broker is there.
    size:     (m,) bytes/s that a bundle's clients want on average.
    noise:    (rounds, m) factor on that.
    message:  (m,) bytes a message.
    owner:    (m,) row of the broker that has it at the start.
    delay:    rounds from a decision until its moves have landed; 1: by the next picture.
    """

    cores: FloatArray
    speed: FloatArray
    foreign: FloatArray
    present: BoolArray
    size: FloatArray
    noise: FloatArray
    message: FloatArray
    owner: IntArray
    delay: int = 1

    @property
    def rounds(self) -> int:
        """How long it lasts."""
        return len(self.present)

    @property
    def brokers(self) -> tuple[str, ...]:
        """Names of the brokers."""
        return tuple(f"broker-{row:02d}" for row in range(len(self.cores)))

    def wanted(self, turn: int) -> FloatArray:
        """Bytes/s (m,) that the bundles' clients want in a round."""
        load: FloatArray = self.size * self.noise[turn]
        return load

    def needed(self, owner: IntArray, load: FloatArray) -> FloatArray:
        """Cores (n,) that the brokers need for the bundles they have, each carrying `load` (m,) bytes/s."""
        carried = np.bincount(owner + 1, weights=load, minlength=len(self.cores) + 1)[1:]
        cores: FloatArray = carried / self.speed
        return cores

    def served(self, turn: int, owner: IntArray) -> FloatArray:
        """Bytes/s (m,) that go through: less than wanted on a full machine, 0 without an owner."""
        load = self.wanted(turn)
        need = self.needed(owner, load)
        free = np.maximum(self.cores - self.foreign[turn], 0)
        part = np.minimum(1.0, np.divide(free, need, out=np.ones_like(need), where=need > 0))
        return np.where(owner >= 0, load * part[owner], 0.0)

    def pressure(self, turn: int, owner: IntArray) -> FloatArray:
        """Usage (n,) as ratio that would be needed to serve everything without noise; above 1 on a full machine."""
        usage: FloatArray = (self.needed(owner, self.size) + self.foreign[turn]) / self.cores
        return usage

    def level(self, turn: int) -> FloatArray:
        """`pressure` (n,) if load could be divided at will so that the busiest broker is as idle as can be.

        Water filling: all present brokers stand at one level, except those that other programs alone keep above it.
        """
        there = self.present[turn]
        cores, speed, foreign = self.cores[there], self.speed[there], self.foreign[turn][there]
        floor = foreign / cores
        order = np.argsort(floor, kind="stable")
        room = np.cumsum((cores * speed)[order])
        filled = (float(self.size.sum()) + np.cumsum((foreign * speed)[order])) / room
        covered = np.append(floor[order][1:], np.inf) >= filled
        level = float(filled[np.argmax(covered)])
        usage: FloatArray = np.maximum(self.foreign[turn] / self.cores, level)
        return usage

    def imbalance(self, turn: int, owner: IntArray) -> float:
        """Percent points from the broker that is least used, for what it should be, to the most used; noise left out.

        Among alike machines with nothing else on them: the range of their usage.
        """
        away = (self.pressure(turn, owner) - self.level(turn))[self.present[turn]]
        return float(away.max() - away.min()) * 100 if len(away) else 0.0
