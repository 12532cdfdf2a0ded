"""Plans of Trim on a `World` with known costs, and the best plans by brute force to compare them with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from strategy_testing.compare import reordered
from trim_world import COST, POINT, World, spread
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.protocols import Destinations
from trimtab_strategies.shedding.trim.model import learned
from trimtab_strategies.shedding.trim.plan import PlanBounds, PlannedLoad, PlannedMove, Planner, least_gain, prices
from trimtab_strategies.shedding.trim.replay import WINDOW, Replay, replayed
from trimtab_strategies.shedding.trim.samples import SampleRing

MINUTES = 4
"""Minutes of the same load before a plan."""


@dataclass
class Drawn:
    """A plan, and its input."""

    world: World
    moves: list[PlannedMove]
    before: PlannedLoad
    after: PlannedLoad
    bounds: PlanBounds
    price: FloatArray
    names: list[tuple[str, str, str, str]] = field(default_factory=list)

    def usage(self) -> FloatArray:
        """The real CPU (n,) of the world after the plan, in percent."""
        owner = owners(self.world.owner, self.moves)
        return replace(self.world, owner=owner).points()

    def trips(self) -> list[tuple[int, int, int]]:
        """Each moved bundle with its source and destination; a swap is two."""
        there = [(move.bundle, move.source, move.destination) for move in self.moves]
        return there + [(move.returned, move.destination, move.source) for move in self.moves if move.returned >= 0]

    def net(self) -> float:
        """Gain less price, points^2."""
        rows = [bundle for bundle, _, _ in self.trips()]
        gain = float((self.before.away() ** 2).sum() - (self.after.away() ** 2).sum())
        price = float(self.price[rows].sum())
        return gain - least_gain(self.bounds, self.world.owner, len(self.world.brokers)) * price


def owners(owner: IntArray, moves: list[PlannedMove]) -> IntArray:
    """Owners (m,) after the moves."""
    after = owner.copy()
    for move in moves:
        after[move.bundle] = move.destination
        if move.returned >= 0:
            after[move.returned] = move.source
    return after


def seen(
    world: World,
    brokers: IntArray | None = None,
    bundles: IntArray | None = None,
    destinations: Destinations | None = None,
) -> tuple[Replay, FloatArray]:
    """The replay of a few minutes of a world, in another order of rows, and the prices of its bundles."""
    ring, now = SampleRing(), world.now
    memory: dict[str, Any] = {}
    for _ in range(MINUTES):
        cluster = ring.add(reordered(world.cluster(), brokers, bundles))
        assert cluster.recent is not None
        model, memory = learned(cluster, cluster.recent.last(WINDOW), memory)
        world.now += 60
    world.now = now
    return replayed(cluster, cluster.recent, model, destinations), prices(cluster, 0.75)


PlanMaker = Callable[[PlannedLoad, IntArray, FloatArray, PlanBounds], tuple[list[PlannedMove], PlannedLoad]]


def greedy(
    balance: PlannedLoad, owner: IntArray, price: FloatArray, bounds: PlanBounds
) -> tuple[list[PlannedMove], PlannedLoad]:
    """The plan without the search by pairs, and the load after it."""
    return Planner(balance, owner, price, bounds).run(), balance


def planned(
    world: World,
    brokers: IntArray | None = None,
    bundles: IntArray | None = None,
    *,
    maker: PlanMaker = greedy,
    **limits: Any,
) -> Drawn:
    """The plan for a world. brokers, bundles: the row in the world of each row that the planner gets."""
    replay, price = seen(world, brokers, bundles)
    n, m = len(world.brokers), len(world.load)
    order = np.arange(n) if brokers is None else brokers
    rows = np.arange(m) if bundles is None else bundles
    free = {"movable": np.ones(m, dtype=bool), "receivers": np.ones(n, dtype=bool), "most": 100, "per_broker": 10}
    bounds = PlanBounds(**{**free, "price": 400.0, **limits})
    before = PlannedLoad.of(replay, MINUTES)
    moves, after = maker(PlannedLoad.of(replay, MINUTES), replay.owner, price, bounds)
    names = [
        (
            world.bundles[rows[move.bundle]],
            world.brokers[order[move.source]],
            world.brokers[order[move.destination]],
            world.bundles[rows[move.returned]] if move.returned >= 0 else "",
        )
        for move in moves
    ]
    return Drawn(world, moves, before, after, bounds, price, names)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Two to six brokers with up to twelve bundles each. Machines, networks, clients, messages and programs differ."""
    n = draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    points = [spread(rng.uniform(5, 95), draw(st.integers(1, 12)), int(rng.integers(2**32))) for _ in range(n)]
    kind = draw(st.sampled_from(["alike", "mixed", "network"]))
    world = World.of(*points)
    m = len(world.load)
    world.clients = np.floor(20 * rng.lognormal(0, 0.9, m))
    if kind == "mixed":
        world.cost = COST * rng.choice([0.5, 1.0, 1.5], n)
        world.background = rng.choice([0.0, 0.0, 2.0], n)
    if kind == "network":
        world.nic = rng.choice([2e8, 5e8, 2e9], (n, 2))
        world.incoming = rng.choice([0.1, 0.3, 0.6], m)
    return world


def small_case(number: int) -> World:
    """Three to five brokers at 45 % on average, the busiest below 90 %, with six to nine unequal bundles."""
    rng = np.random.default_rng(number)
    while True:
        n, m = int(rng.integers(3, 6)), int(rng.integers(6, 10))
        sizes = rng.lognormal(0, 0.8, m)
        owner = np.concatenate([np.arange(n), rng.integers(0, n, m - n)])
        points = sizes / sizes.sum() * n * 45
        world = World.of(*(points[owner == row].tolist() for row in range(n)))
        if 60 <= world.points().max() < 90:
            return world


def least_maximum(world: World, moves: int) -> float:
    """The lowest maximum of usage, in percent, that at most `moves` moves can reach."""
    n, m = len(world.brokers), len(world.load)
    best, load = float(world.points().max()), world.load / POINT
    for count in range(1, moves + 1):
        places = np.array(list(product(range(n), repeat=count)))
        every = np.arange(len(places))
        for rows in combinations(range(m), count):
            usage = np.tile(world.points(), (len(places), 1))
            for row, place in zip(rows, places.T, strict=True):
                usage[:, world.owner[row]] -= load[row]
                usage[every, place] += load[row]
            best = min(best, float(usage.max(axis=1).min()))
    return best


def gaps(cases: int, maker: PlanMaker) -> FloatArray:
    """For each small case, how far the plan's maximum of usage is above the best for as many moves (ratio)."""
    found = []
    for number in range(cases):
        world = small_case(number)
        begin = replace(world, owner=world.owner.copy())
        moves = settled(world, maker)
        found.append(float(world.points().max()) / least_maximum(begin, min(moves, 4)) - 1)
    return np.array(found)


def settled(world: World, maker: PlanMaker) -> int:
    """Plan without caps until no more move is worth its price; returns the number of moves."""
    first = world.owner.copy()
    for _ in range(10):
        moves = planned(world, maker=maker, most=1000, per_broker=1000).moves
        if not moves:
            break
        world.owner = owners(world.owner, moves)
    return int((world.owner != first).sum())
