"""The simulated world: usage follows ownership, moves land, events happen, and scores say what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from trimtab_lab.simulation import CUSTOMARY, SCENARIOS, AsPulsar, Record, UnderTrimtab, World, run, score
from trimtab_lab.simulation.run import DesiredOwner
from trimtab_lab.simulation.scenarios import WARM_UP, world
from trimtab_lab.simulation.world import CORE
from trimtab_strategies import registry
from trimtab_strategies.model import CPU, ClusterLoad
from trimtab_strategies.planner.decide import Pair
from trimtab_strategies.usage import percent

RNG = np.random.default_rng


@dataclass
class Script:
    """Decides what it was told to, round by round, and keeps the pictures it was shown."""

    wanted: dict[int, list[DesiredOwner]] = field(default_factory=dict)
    seen: list[ClusterLoad] = field(default_factory=list)

    def desired_owners(self, cluster: ClusterLoad, _: np.random.Generator) -> list[DesiredOwner]:
        self.seen.append(cluster)
        return self.wanted.get(len(self.seen) - 1, [])


def small(*usage: float, per_broker: int = 4) -> World:
    """Equal bundles on brokers with this usage (ratio)."""
    return world(RNG(0), usage, per_broker, skew=0.0)


def threshold() -> Pair:
    return registry.pair("ThresholdShedder", {}, "LeastResourceUsageWithWeight", {})


def cpu(cluster: ClusterLoad) -> list[float]:
    return percent(cluster.brokers.usage, cluster.brokers.limit)[:, CPU].round(1).tolist()


def test_usage_follows_ownership() -> None:
    script = Script({0: [(0, 1), (1, 1)]})

    run(small(0.8, 0.0), script, RNG(0))

    assert cpu(script.seen[0]) == [80, 0]
    assert cpu(script.seen[1]) == [40, 40]


def test_a_move_lands_after_its_delay_and_is_in_flight_until_then() -> None:
    script = Script({0: [(0, 1)]})

    run(replace(small(0.8, 0.0), delay=3), script, RNG(0))

    assert [cpu(seen)[1] for seen in script.seen[:4]] == [0, 0, 0, 20]
    assert [bool(seen.bundles.in_flight[0]) for seen in script.seen[:4]] == [False, True, True, False]
    assert script.seen[1].bundles.owner[0] == 1
    assert script.seen[1].bundles.moving_from[0] == 0


def test_a_full_machine_shows_a_hundred_percent_and_less_traffic() -> None:
    script = Script()

    record = run(small(1.6, 0.2), script, RNG(0))

    assert cpu(script.seen[0]) == [100, 20]
    assert script.seen[0].bundles.short[0, 2:].sum() == pytest.approx(4 * CORE)  # a quarter of what 16 cores serve
    assert record.pressure[0].tolist() == pytest.approx([1.6, 0.2])


def test_foreign_load_takes_cpu_and_no_traffic() -> None:
    made = small(0.4, 0.4)
    foreign = made.foreign.copy()
    foreign[:, 0] = 8.0
    script = Script()

    run(replace(made, foreign=foreign), script, RNG(0))

    assert cpu(script.seen[0]) == [90, 40]
    assert script.seen[0].brokers.traffic[0].tolist() == script.seen[0].brokers.traffic[1].tolist()


def test_bundles_of_a_lost_broker_get_owners_elsewhere() -> None:
    made = small(0.4, 0.4, 0.4)
    present = made.present.copy()
    present[3:, 2] = False
    made = replace(made, present=present)

    for decider in (AsPulsar(threshold()), UnderTrimtab(threshold())):
        record = run(made, decider, RNG(0))
        assert np.isnan(record.pressure[-1, 2])
        assert record.pressure[-1, :2].sum() == pytest.approx(1.2)


def test_a_burst_at_the_start_is_one_sample_among_those_before_it() -> None:
    made = small(0.4, 0.4)
    noise = made.noise.copy()
    noise[0] = 2.0
    script = Script()

    run(replace(made, noise=noise), script, RNG(0))

    carried = script.seen[0].bundles.short[:, 2:].sum(axis=1) / made.size
    assert carried.tolist() == pytest.approx([1.1] * len(made.size)), "nine parts of the minutes before, one of it"


def test_the_minutes_before_the_first_round_are_as_noisy_as_those_after_it() -> None:
    made = {scenario.title: scenario.build(RNG(5)) for scenario in SCENARIOS}

    for title in ("Skewed load", "Load jitter"):
        before, noise = made[title].before, made[title].noise
        assert before.shape == (WARM_UP, noise.shape[1])
        assert not (before == noise[0]).all(axis=1).any(), "a sample of its own each"
        assert np.log(before).std() == pytest.approx(np.log(noise).std(), rel=0.2)
    assert (made["Two brokers"].before == 1).all()


def test_level_is_where_water_stands() -> None:
    made = small(0.2, 0.6)
    foreign = made.foreign.copy()
    foreign[1:, 1] = 16.0

    flooded = replace(made, foreign=foreign)

    assert flooded.level(0).tolist() == pytest.approx([0.4, 0.4])
    assert flooded.level(1).tolist() == pytest.approx([0.8, 1.0])  # the other program alone fills one machine
    assert flooded.imbalance(0, made.owner) == pytest.approx(40)


def test_bigger_machines_should_carry_more() -> None:
    made = replace(small(0.4, 0.4), cores=np.array([32.0, 8.0]))

    assert made.level(0).tolist() == pytest.approx([0.32, 0.32])
    assert made.imbalance(0, made.owner) == pytest.approx(60)


def test_a_threshold_shedder_levels_a_skewed_cluster() -> None:
    record = run(world(RNG(1), [0.9, 0.3, 0.3]), UnderTrimtab(threshold()), RNG(1))

    assert record.imbalance[0] == pytest.approx(60)
    assert record.imbalance[-1] < 20
    assert record.moves.sum() == record.times.sum() > 0


def test_a_moved_bundle_stays_for_half_an_hour() -> None:
    record = run(world(RNG(1), [0.9, 0.1]), AsPulsar(threshold()), RNG(1))

    assert 1 <= record.times.max() <= 2


def test_the_hour_s_cap_holds() -> None:
    record = run(world(RNG(1), [0.8] * 20 + [0.0] * 20), UnderTrimtab(threshold()), RNG(1))

    assert record.moves.max() == 20
    assert record.moves.sum() == 200


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (run(SCENARIOS[0].build(RNG(5)), UnderTrimtab(threshold()), RNG(5)) for _ in range(2))

    assert first.imbalance.tolist() == second.imbalance.tolist()
    assert first.moves.tolist() == second.moves.tolist()


def recorded(imbalance: list[float], moves: list[int]) -> Record:
    pressure = np.array([[0.9, 0.1]] * len(imbalance))
    return Record(np.array(imbalance), pressure, np.array(moves), np.array([3, 1, 0]), backward=2)


def test_score_counts_rounds_from_the_last_event() -> None:
    settled = score(recorded([50, 40, 30, 10, 5], [1, 0, 2, 0]), event=1)

    assert (settled.balanced, settled.quiet) == (2, 2)
    assert (settled.moves, settled.repeated, settled.backward) == (3, 2, 2)
    assert (settled.imbalance, settled.overload) == (5, 4)


def test_a_cluster_that_falls_back_is_not_balanced() -> None:
    swinging = score(recorded([50, 10, 30, 10, 30], [1, 1, 1, 1]))

    assert swinging.balanced is None
    assert swinging.quiet is None


def test_what_is_level_from_the_start_needs_no_round() -> None:
    assert score(recorded([1, 1, 1], [0, 0])).balanced == 0
    assert score(recorded([1, 1, 1], [0, 0])).quiet == 0


def test_every_shedder_has_a_customary_placement() -> None:
    assert set(registry.SHEDDERS) <= set(CUSTOMARY)
    assert {CUSTOMARY[name] for name in registry.SHEDDERS} <= set(registry.PLACEMENTS)


def test_an_hour_of_ten_brokers_takes_less_than_two_seconds() -> None:
    made = SCENARIOS[0].build(RNG(0))
    assert (len(made.cores), len(made.size), made.rounds) == (10, 600, 60)

    started = time.process_time()
    run(made, UnderTrimtab(threshold()), RNG(0))

    assert time.process_time() - started < 2
