"""Trim as a whole: sound answers on every cluster, memory that survives, and words that say why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from strategy_testing.compare import reordered
from trim_world import COST, Play, World, skewed, spread, unmeasured
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import ClusterLoad, Memory, Reason
from trimtab_strategies.model.cluster_load import BoolArray
from trimtab_strategies.planner.decide import Pair, decide
from trimtab_strategies.protocols import Shedding
from trimtab_strategies.shedding.trim.place import TrimPlacement, TrimPlacementParams
from trimtab_strategies.shedding.trim.shedder import Trim, TrimParams

Change = Callable[[ClusterLoad], ClusterLoad]


def played(world: World, change: Change = lambda cluster: cluster, minutes: int = 12) -> Play:
    """A play on what `change` makes of each snapshot; what may never happen is checked in every minute."""
    play = Play(world)
    for _ in range(minutes):
        owner = world.owner.copy()
        cluster = play.ring.add(change(world.cluster()))
        check(cluster, play.decided(cluster), np.ones(len(world.load), dtype=bool), owner)
    return play


def check(cluster: ClusterLoad, shedding: Shedding, sheddable: BoolArray, owner: Any) -> None:
    """A valid answer: bundles of their owner, once, to another broker that may receive; or a reason."""
    assert shedding.unloads or shedding.held_back
    assert all(held.detail for held in shedding.held_back)
    rows: list[int] = []
    for unload in shedding.unloads:
        assert unload.judged
        assert unload.destination not in {-1, unload.broker}
        assert cluster.brokers.schedulable[unload.destination]
        assert (owner[unload.bundles] == unload.broker).all()
        assert (owner[unload.returned] == unload.destination).all()
        rows += [*unload.bundles.tolist(), *unload.returned.tolist()]
    assert len(rows) == len(set(rows))
    assert sheddable[rows].all()
    json.dumps(shedding.memory, allow_nan=False)


def test_memory_survives_a_restart_at_any_minute() -> None:
    """Every minute from JSON, or never: the same moves."""
    kept, restored = Play(skewed()), Play(skewed())
    for _ in range(12):
        world = kept.world
        cluster = kept.seen()
        kept.last = Trim(kept.params).shed(cluster, np.ones(len(world.load), dtype=bool), kept.memory)
        kept.memory = kept.last.memory
        kept.moves.append(world.land(kept.last))
        world.now += 60
        restored.minute()

        assert json.loads(json.dumps(kept.memory)) == restored.memory
    assert kept.moves == restored.moves
    assert sum(kept.moves) > 0


def test_neither_the_cluster_nor_the_memory_is_changed() -> None:
    play = Play(skewed())
    play.minutes(2)
    cluster, text = play.seen(), json.dumps(play.memory)
    movable = np.ones(len(play.world.load), dtype=bool)
    first = Trim(play.params).shed(cluster, movable, play.memory)
    second = Trim(play.params).shed(cluster, movable, play.memory)

    assert json.dumps(play.memory) == text
    assert [(u.broker, u.destination, u.bundles.tolist()) for u in first.unloads] == [
        (u.broker, u.destination, u.bundles.tolist()) for u in second.unloads
    ]
    assert first.memory == second.memory


def distrusted(cluster: ClusterLoad) -> ClusterLoad:
    none = np.zeros(len(cluster.brokers), dtype=bool)
    return replace(cluster, brokers=replace(cluster.brokers, trusted=none))


def without_bundle_rates(cluster: ClusterLoad) -> ClusterLoad:
    nothing = np.full_like(cluster.bundles.newest, np.nan)
    return replace(cluster, bundles=replace(cluster.bundles, newest=nothing, short=nothing, long=nothing))


def all_unmeasured(cluster: ClusterLoad) -> ClusterLoad:
    return unmeasured(cluster, *range(len(cluster.brokers)))


def same(cluster: ClusterLoad) -> ClusterLoad:
    return cluster


@pytest.mark.parametrize(
    ("world", "change", "reason"),
    [
        pytest.param(World.of(), same, Reason.NO_CANDIDATE, id="no brokers"),
        pytest.param(World.of([60, 30]), same, Reason.NO_CANDIDATE, id="one broker"),
        pytest.param(World.of([], [], []), same, Reason.BELOW_MINIMUM, id="no bundles"),
        pytest.param(World.of([0, 0], [0], [0]), same, Reason.BELOW_MINIMUM, id="no load"),
        pytest.param(skewed(), all_unmeasured, Reason.NO_LOAD_DATA, id="all CPU is NaN"),
        pytest.param(skewed(), distrusted, Reason.NO_LOAD_DATA, id="no broker is trusted"),
        pytest.param(skewed(), without_bundle_rates, Reason.NO_LOAD_DATA, id="all rates are NaN"),
    ],
)
def test_where_nothing_can_be_done_nothing_moves_and_the_reason_says_so(
    world: World, change: Change, reason: Reason
) -> None:
    play = played(replace(world), change)

    assert sum(play.moves) == 0
    assert play.reasons == [reason]


def test_without_a_ring_nothing_moves() -> None:
    cluster = skewed().cluster()
    shedding = Trim(TrimParams()).shed(cluster, np.ones(100, dtype=bool), {"mine": 1})

    assert [held.reason for held in shedding.held_back] == [Reason.NO_LOAD_DATA]
    assert shedding.memory == {"mine": 1}


def test_one_broker_is_told_that_it_takes_two() -> None:
    assert played(World.of([60, 30])).text == "1 broker: balancing takes two"


@pytest.mark.parametrize("broken", [0, 4])
def test_a_broker_without_measurements_receives_nothing(broken: int) -> None:
    world = World.of(*(spread(40, 20, seed) for seed in range(4)), [])
    before = int((world.owner == broken).sum())
    play = played(world, lambda cluster: unmeasured(cluster, broken))

    assert int((play.world.owner == broken).sum()) <= before


def test_a_broker_without_a_limit_of_cpu_receives_nothing() -> None:
    world = World.of(*(spread(40, 20, seed) for seed in range(4)), [], cores=np.array([10.0, 10, 10, 10, 0]))

    assert sum(played(world).moves) == 0


def test_a_cluster_whose_cpu_is_not_measured_is_balanced_by_its_network() -> None:
    world = skewed()
    world.cores, world.nic = np.zeros(5), np.full((5, 2), 1e9)
    out = world.carried(world.load) * 2 / 3 / 1e9
    play = played(world)

    assert np.ptp(out) > 0.25
    assert sum(play.moves) > 0
    assert np.ptp(world.carried(world.load) * 2 / 3 / 1e9) < 0.1


def test_an_unschedulable_broker_receives_nothing_but_may_give() -> None:
    def closed(cluster: ClusterLoad) -> ClusterLoad:
        return replace(cluster, brokers=replace(cluster.brokers, schedulable=np.arange(5) != 4))

    empty = World.of(*(spread(50, 20, seed) for seed in range(4)), [])
    full = skewed()

    assert sum(played(empty, closed).moves) == 0
    assert sum(played(full, closed).moves) > 0


def test_bundles_that_may_not_move_stay() -> None:
    play = Play(skewed(), sheddable=np.arange(100) < 90)
    owner = play.world.owner.copy()
    play.minutes(15)

    assert sum(play.moves) > 0
    assert (play.world.owner[90:] == owner[90:]).all()


@pytest.mark.parametrize(("cost", "again"), [([1, 1, 1, 1, 1], 0), ([1, 0.5, 2, 1, 1], 1)])
def test_a_skewed_cluster_becomes_level_and_stays_so(cost: list[float], again: int) -> None:
    """No move is uphill, a level cluster is left alone, and no bundle moves twice.

    On machines of undeclared speed the first plan is an experiment, so one bundle may.
    """
    world = World.of(*(spread(30, 40, seed) for seed in range(4)), spread(75, 40, 9), cost=COST * np.array(cost))
    play = Play(world)
    moved: Counter[int] = Counter()
    for _ in range(30):
        owner, before = world.owner.copy(), world.points()
        shedding = play.minute()
        moved.update(np.flatnonzero(world.owner != owner).tolist())
        for unload in shedding.unloads:
            assert before[unload.destination] < before[unload.broker]
            assert world.points()[unload.destination] <= before[unload.broker]

    assert np.ptp(world.points()) < 9
    assert moved.total() - len(moved) <= again
    assert sum(play.moves[15:]) == 0


@pytest.mark.parametrize("n", [2, 3, 5])
def test_all_load_on_one_broker_is_spread_though_the_others_have_a_heartbeat(n: int) -> None:
    """As Pulsar leaves it: everything on one broker, and a bundle of a kilobyte a second on each other one."""
    world = World.of(spread(80, 64, 1), *([0.0] for _ in range(n - 1)), background=np.full(n, 0.3))
    world.load[-(n - 1) :] = 1e3
    world.long = world.load.copy()
    play = Play(world)
    play.minutes(20)

    assert np.ptp(world.points()) < 16


def test_a_plan_has_at_most_twenty_moves_or_two_for_each_broker() -> None:
    play = Play(World.of(*(spread(80, 200, seed) for seed in range(4)), *([] for _ in range(4))))
    play.minutes(12)

    assert max(play.moves) == 20


def test_a_plan_moves_so_many_bundles_of_each_broker_at_most() -> None:
    play = Play(skewed(85, 100), TrimParams(moves_per_broker=3))
    play.minutes(20)

    assert max(play.moves) == 3


def test_the_order_of_rows_and_names_does_not_matter() -> None:
    """No two brokers are equal here: of equal ones either may take a bundle."""
    unequal = [spread(points, 20, seed) for seed, points in enumerate((41.0, 38.0, 44.0, 36.0, 85.0))]
    first, other = Play(World.of(*unequal)), Play(World.of(*unequal))
    rng = np.random.default_rng(4)
    m = len(first.world.load)
    for _ in range(12):
        before = other.world.owner.copy()
        first.minute()
        brokers, bundles = rng.permutation(5), rng.permutation(m)
        cluster = other.ring.add(reordered(other.world.cluster(), brokers, bundles))
        shedding = Trim(other.params).shed(cluster, np.ones(m, dtype=bool), other.memory)
        other.memory = shedding.memory
        for unload in shedding.unloads:
            other.world.owner[bundles[unload.bundles]] = brokers[unload.destination]
            other.world.owner[bundles[unload.returned]] = brokers[unload.broker]
        other.world.moved[other.world.owner != before] = other.world.now
        other.world.now += 60

        assert (other.world.owner == first.world.owner).all()
    assert sum(first.moves) > 0


def test_the_planner_makes_trims_moves_as_they_are() -> None:
    """Under the guard, with the placement: the same bundles to the same brokers, and the memory comes back."""
    alone, world = Play(skewed()), skewed()
    ring = Play(world).ring
    pair = Pair(Trim(TrimParams()), TrimPlacement(TrimPlacementParams()))
    memory, rng = Memory(), np.random.default_rng(0)
    for _ in range(6):
        before = alone.world.owner.copy()
        alone.minute()
        decision = decide(ring.add(world.cluster()), pair, MoveLimits(), memory, rng)
        memory = decision.memory
        index = {name: row for row, name in enumerate(world.bundles)}
        made = {index[move.bundle]: world.brokers.index(move.destination) for move in decision.plan.moves}
        planned = {row: int(alone.world.owner[row]) for row in np.flatnonzero(alone.world.owner != before).tolist()}
        world.now += 60
        if planned:
            assert made == planned
            break
        assert not made
    assert planned


def drawn_world(draw: Callable[[Any], Any]) -> World:
    """Up to five brokers with up to eight bundles each, and figures as odd as they come."""
    n = draw(st.integers(0, 5))
    points = [draw(st.lists(st.floats(0, 60).map(lambda value: round(value, 3)), max_size=8)) for _ in range(n)]
    world = World.of(*points)
    m = len(world.load)

    def column(values: list[float], size: int) -> Any:
        return np.array(draw(st.lists(st.sampled_from(values), min_size=size, max_size=size)), dtype=np.float64)

    world.cost = COST * column([1.0, 1.0, 0.5, 2.0], n)
    world.background = column([0.0, 0.0, 3.0], n)
    world.cores = column([10.0, 10.0, 10.0, 4.0, 0.0], n)
    world.nic = column([0.0, 0.0, 1e9, 1e8, np.nan], 2 * n).reshape(n, 2)
    world.clients = column([20.0, 0.0, 1000.0, np.nan], m)
    world.long = world.load * column([1.0, 0.5, np.nan], m)
    if m and n:
        world.owner = np.where(column([1.0, 1.0, 1.0, 0.0], m) > 0, world.owner, -1).astype(np.int64)
    return world


@pytest.mark.slow
@settings(max_examples=80)
@given(data=st.data())
def test_any_cluster_gets_a_valid_answer(data: st.DataObject) -> None:
    """No exception and no warning; finite memory; moves that are allowed and never uphill."""
    world = drawn_world(data.draw)
    play = Play(world)
    n, m = len(world.cores), len(world.load)
    sheddable = np.array(data.draw(st.lists(st.booleans(), min_size=m, max_size=m)), dtype=bool)
    for _ in range(data.draw(st.integers(1, 10))):
        factor = data.draw(st.sampled_from([1.0, 1.0, 1.3, 0.0]))
        cluster = world.cluster(factor)
        missing = data.draw(st.sets(st.integers(0, n - 1), max_size=2)) if n else set()
        cluster = play.ring.add(unmeasured(cluster, *missing))
        owner = world.owner.copy()
        shedding = Trim(play.params).shed(cluster, sheddable, play.memory)
        check(cluster, shedding, sheddable, owner)
        play.memory = json.loads(json.dumps(shedding.memory, allow_nan=False))
        world.land(shedding)
        world.now += data.draw(st.sampled_from([60.0, 60.0, 10.0, 90.0, 900.0]))


@pytest.mark.slow
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), n=st.integers(2, 6), least=st.integers(1, 20))
def test_a_measured_cluster_never_gets_worse(seed: int, n: int, least: int) -> None:
    """On true figures and constant load no plan makes the hottest broker hotter, and each makes it more even."""
    rng = np.random.default_rng(seed)
    world = World.of(
        *(spread(rng.uniform(5, 90), least + int(rng.integers(0, 20)), int(rng.integers(99))) for _ in range(n))
    )
    world.clients = np.floor(20 * rng.lognormal(0, 0.9, len(world.load)))
    play = Play(world)
    for _ in range(12):
        before = world.points()
        shedding = play.minute()
        after = world.points()
        assert after.max() <= before.max() + 1e-6
        if shedding.unloads:
            assert np.std(after) < np.std(before)


@pytest.mark.parametrize("seed", [2, 6, 8])
@pytest.mark.parametrize(
    "cores", [(8, 9, 10, 12, 14, 16, 20, 24), (8.0, 8.01, 8.02, 8.03, 8.04, 8.05, 8.06, 8.07)], ids=["unlike", "nearly"]
)
def test_noise_moves_nothing_between_brokers_of_different_kinds(cores: tuple[float, ...], seed: int) -> None:
    """All are at 60 %, and their CPU is measured with 15 % noise. No broker has another one of its kind."""
    points = (spread(6 * own, 10, number) for number, own in enumerate(cores))
    play, rng = Play(World.of(*points, cores=np.array(cores))), np.random.default_rng(seed)
    used = play.world.cpu(play.world.load)
    for _ in range(30):
        play.minute(cpu=used * rng.normal(1, 0.15, len(used)).clip(0.2))

    assert sum(play.moves) == 0
