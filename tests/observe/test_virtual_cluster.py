"""The virtual cluster of a shadow: equal to the real one while it decides the same, and its own when it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from records import bundle
from trim_world import World, spread
from trimtab_operator.observe.snapshot import Snapshot
from trimtab_operator.observe.virtual_cluster import STALE, VirtualCluster, VirtualSnapshot
from trimtab_operator.state.shadow_state import ShadowState
from trimtab_strategies import registry
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import ClusterLoad, Memory, Move
from trimtab_strategies.planner.decide import Pair, decide
from trimtab_strategies.shedding.trim.samples import SampleRing

MINUTE = 60.0
LIMITS = MoveLimits(cool_down=300)

TRIM = registry.pair("Trim", {}, "Trim", {})
THRESHOLD = registry.pair(
    "ThresholdShedder",
    {"threshold": 5, "history_percent": 0, "min_throughput": 0},
    "LeastResourceUsageWithWeight",
    {"average_difference": 5, "history_percent": 0},
)


def planned(pair: Pair, load: ClusterLoad, memory: Memory) -> tuple[tuple[Move, ...], Memory]:
    """The moves of a decision, and its memory."""
    found = decide(load, pair, LIMITS, memory, np.random.default_rng(int(load.now)))
    return found.plan.moves, found.memory


@dataclass
class Beside:
    """A real cluster, and a shadow beside the policy that acts; None: nothing acts, or the shadow decides nothing."""

    world: World
    acting: Pair | None = None
    shadow: Pair | None = None
    virtual: VirtualCluster = field(default_factory=VirtualCluster)
    ring: SampleRing = field(default_factory=SampleRing)
    memories: list[Memory] = field(default_factory=lambda: [Memory(), Memory()])
    stored: ShadowState | None = None
    of: str = "as written"

    def see(self, change: Callable[[ClusterLoad], ClusterLoad] = lambda load: load) -> VirtualSnapshot:
        """The next virtual cluster. change: what was measured otherwise."""
        load = self.ring.add(change(self.world.cluster()))
        records = {name: bundle(name) for name in load.bundles.names}
        return self.virtual.see(Snapshot(load, records), self.ring, self.of, "main", self.stored)

    def minute(self, change: Callable[[ClusterLoad], ClusterLoad] = lambda load: load) -> VirtualSnapshot:
        """One minute: both decide on what they have, and all moves land."""
        seen, real = self.see(change), replace(self.world.cluster(), recent=None)
        real = replace(real, recent=seen.recorded.load.recent)
        moves: tuple[Move, ...] = ()
        if self.acting is not None:
            made, self.memories[0] = planned(self.acting, real, self.memories[0])
            rows = [self.world.bundles.index(move.bundle) for move in made]
            self.world.owner[rows] = [self.world.brokers.index(move.destination) for move in made]
            self.world.moved[rows] = self.world.now
        if self.shadow is not None:
            moves, self.memories[1] = planned(self.shadow, seen.snapshot.load, self.memories[1])
        self.virtual.take(seen, [], moves, MINUTE)
        self.world.now += MINUTE
        return seen

    def rename(self) -> None:
        """All bundles are gone, and others are in their place."""
        self.world.bundles = tuple(name.replace("default", "new") for name in self.world.bundles)

    def sums(self) -> tuple[tuple[int, float, float], tuple[int, float, float]]:
        """Moves, points and hot minutes of both."""
        assert self.virtual.comparison is not None
        total = self.virtual.comparison.total
        acting, shadow = total.figures(total.acting), total.figures(total.shadow)
        return (acting.moves, acting.range, acting.hot), (shadow.moves, shadow.range, shadow.hot)


def uneven() -> World:
    """One broker at 70 %, two at 25 %."""
    return World.of(spread(70, 20, 1), spread(25, 20, 2), spread(25, 20, 3))


worlds = st.lists(st.integers(5, 80), min_size=2, max_size=4)
"""Percent of each broker."""


@pytest.mark.slow
@pytest.mark.parametrize("pair", [TRIM, THRESHOLD], ids=["Trim", "ThresholdShedder"])
@example(points=[70, 25, 25], factors=[1.0] * 12)
@given(points=worlds, factors=st.lists(st.floats(0.7, 1.3), min_size=6, max_size=12))
@settings(deadline=None, max_examples=15)
def test_a_shadow_that_decides_as_the_policy_that_acts_has_its_figures(
    pair: Pair, points: list[int], factors: list[float]
) -> None:
    world = World.of(*(spread(value, 12, seed) for seed, value in enumerate(points)))
    both, load = Beside(world, pair, pair), world.load.copy()
    for factor in factors:
        world.load = load * factor
        both.minute()
    both.acting = both.shadow = None

    both.minute()  # the last moves have really landed

    acting, shadow = both.sums()
    assert acting == pytest.approx(shadow, nan_ok=True)
    assert acting[0] > 0 or points != [70, 25, 25]
    assert not both.virtual.state(both.see(), 1).displaced


def test_a_shadow_that_levels_has_the_usage_that_its_owners_would_have_caused() -> None:
    both = Beside(uneven(), shadow=THRESHOLD)
    for _ in range(10):
        both.minute()

    seen = both.see()

    acting, shadow = both.sums()
    assert (acting[0], acting[1]) == (0, pytest.approx(45, abs=1))
    assert shadow[0] > 0
    truth = both.world
    truth.owner = seen.owner.copy()
    cpu = 100 * seen.snapshot.load.brokers.usage[:, 0] / truth.cores
    assert cpu == pytest.approx(truth.points(), abs=2)
    assert cpu.max() - cpu.min() < 15


def test_a_still_shadow_keeps_what_the_policy_that_acts_has_moved() -> None:
    both = Beside(uneven(), acting=THRESHOLD)
    for _ in range(10):
        both.minute()

    seen = both.see()

    acting, shadow = both.sums()
    assert acting[0] > 0 == shadow[0]
    assert len(both.virtual.state(seen, 1).displaced or ()) == acting[0]
    cpu = 100 * seen.snapshot.load.brokers.usage[:, 0] / both.world.cores
    assert cpu == pytest.approx([70, 25, 25], abs=2)


def test_a_move_that_has_not_really_landed_is_neither_in_flight_nor_counted_twice() -> None:
    both = Beside(uneven())
    both.minute()

    def moving(load: ClusterLoad) -> ClusterLoad:
        """Bundle 0 has been given to broker 1, and is still measured on broker 0."""
        one = np.arange(len(load.bundles)) == 0
        owner = np.where(one, 1, load.bundles.owner)
        source, share = np.where(one, 0, -1), one.astype(float)
        there = replace(load.bundles, owner=owner, moving_from=source, moving_share=share, in_flight=one)
        return replace(load, bundles=there)

    seen = both.see(moving)

    assert not seen.snapshot.load.bundles.in_flight.any()
    assert seen.owner[0] == 0
    before = both.world.cluster().brokers.usage[:, 0]
    assert seen.snapshot.load.brokers.usage[:, 0] == pytest.approx(before, rel=0.02)


def test_it_goes_on_after_a_restart() -> None:
    both = Beside(uneven(), shadow=THRESHOLD)
    for _ in range(3):
        seen = both.minute()
    state = both.virtual.state(seen, 1)
    assert state.displaced
    expected = both.see().owner

    again = Beside(both.world, virtual=VirtualCluster(), stored=ShadowState.from_json(state.to_json()))
    found = again.minute()

    assert found.owner.tolist() == expected.tolist()
    assert again.virtual.comparison is not None
    assert again.virtual.comparison.since == state.comparison.since
    assert again.virtual.begun == "the shadow is new"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda both: setattr(both, "of", "edited"), "the shadow or policy main was edited"),
        (lambda both: setattr(both.virtual, "acting", "former"), "policy main acts now"),
        (lambda both: setattr(both.world, "now", both.world.now + STALE + 1), "nothing was compared for a day"),
        (
            lambda both: setattr(
                both.world, "bundles", tuple(name.replace("default", "new") for name in both.world.bundles)
            ),
            "more than half of the bundles are new or gone",
        ),
    ],
    ids=["edited", "another policy", "stale", "other bundles"],
)
def test_it_begins_anew_with_the_real_owners_when_it_would_be_no_comparison(
    change: Callable[[Beside], None], why: str
) -> None:
    both = Beside(uneven(), shadow=THRESHOLD)
    for _ in range(3):
        both.minute()
    change(both)

    seen = both.see()

    assert both.virtual.begun == why
    assert seen.owner.tolist() == both.world.owner.tolist()
    assert both.virtual.comparison is not None
    assert both.virtual.comparison.since == both.world.now


def test_owners_that_did_not_fit_begin_anew_after_a_restart_and_only_then() -> None:
    both = Beside(uneven(), shadow=THRESHOLD)
    for _ in range(3):
        seen = both.minute()
    lost = replace(both.virtual.state(seen, 1), displaced=None)

    again = Beside(both.world, stored=lost)
    again.minute()
    since = again.virtual.comparison
    again.minute()

    assert again.virtual.begun.startswith("more virtual owners differed than a ConfigMap holds")
    assert since is not None
    assert again.virtual.comparison is not None
    assert again.virtual.comparison.since == since.since
