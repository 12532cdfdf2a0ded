"""The simulated world: usage follows ownership, moves land, brokers come and go, and runs repeat."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from small_worlds import RNG, Script, Still, cpu, scenario, small
from trimtab_lab.simulation import AsPulsar, UnderTrimtab, build, catalogue, named, run
from trimtab_lab.simulation.draws import WARM_UP
from trimtab_lab.simulation.world import CORE, GBIT
from trimtab_strategies import registry
from trimtab_strategies.planner.decide import Pair
from trimtab_strategies.planner.drain import NO_DRAINS
from trimtab_strategies.shedding.trim.samples import MINUTES


def threshold() -> Pair:
    return registry.pair("ThresholdShedder", {}, "LeastResourceUsageWithWeight", {})


def test_usage_follows_ownership() -> None:
    script = Script({0: [(0, 1), (1, 1)]})

    run(small(0.8, 0.0), script, RNG(0))

    assert cpu(script.seen[0]) == [80, 0]
    assert cpu(script.seen[1]) == [40, 40]


def test_a_move_lands_after_its_delay_and_is_in_flight_until_then() -> None:
    script = Script({0: [(0, 1)]})

    run(small(0.8, 0.0, landing=3), script, RNG(0))

    assert [cpu(seen)[1] for seen in script.seen[:4]] == [0, 0, 0, 20]
    assert [bool(seen.bundles.in_flight[0]) for seen in script.seen[:4]] == [False, True, True, False]
    assert script.seen[1].bundles.owner[0] == 1
    assert script.seen[1].bundles.moving_from[0] == 0


def test_a_bundle_in_flight_does_not_begin_another_move() -> None:
    record = run(small(0.8, 0.0, 0.0, landing=3), Script({0: [(0, 1)], 1: [(0, 2)]}), RNG(0))

    assert record.moves[:3].tolist() == [1, 0, 0]


def test_a_full_machine_shows_a_hundred_percent_and_less_traffic() -> None:
    script = Script()

    record = run(small(1.6, 0.2), script, RNG(0))

    assert cpu(script.seen[0]) == [100, 20]
    assert script.seen[0].bundles.short[0, 2:].sum() == pytest.approx(4 * CORE)  # a quarter of what 16 cores serve
    assert record.pressure[0].tolist() == pytest.approx([1.6, 0.2])


def test_foreign_load_takes_cpu_and_no_traffic() -> None:
    script = Script()

    run(small(0.4, 0.4, events=[{"event": "foreign", "brokers": [0], "usage": 0.5}]), script, RNG(0))

    assert cpu(script.seen[0]) == [90, 40]
    assert script.seen[0].brokers.traffic[0].tolist() == script.seen[0].brokers.traffic[1].tolist()


def test_a_full_network_limits_what_is_served() -> None:
    machines = [{"count": 1, "cores": 64, "nic": 4, "usage": 1.5, "bundles": 4}, {"count": 1}]
    script = Script()

    record = run(small(machines=machines), script, RNG(0))

    assert script.seen[0].brokers.usage[0, 4] == pytest.approx(4 * GBIT)
    assert record.pressure[0, 0] == pytest.approx(1.5)
    assert record.unserved / record.wanted == pytest.approx(1 / 3)


def test_small_messages_cost_more_cpu_when_they_have_a_price() -> None:
    tenants = [{"skew": 0, "jitter": 0, "message": [100, 10000]}]
    script = Script()

    run(small(0.5, 0.0, per_broker=50, tenants=tenants, realism={"messagePrice": 400}), script, RNG(0))

    cluster = script.seen[0]
    assert cpu(cluster) == [50, 0]
    rate, size = cluster.bundles.short[:, :2].sum(axis=1), cluster.bundles.short[:, 2:].sum(axis=1)
    assert (size + 400 * rate).sum() == pytest.approx(0.5 * 16 * CORE)


def test_bundles_of_a_lost_broker_get_owners_elsewhere() -> None:
    made = small(0.4, 0.4, 0.4, events=[{"event": "leave", "brokers": [2], "round": 3}])

    for decider in (AsPulsar(threshold()), UnderTrimtab(threshold())):
        record = run(made, decider, RNG(0))
        assert np.isnan(record.pressure[-1, 2])
        assert record.pressure[-1, :2].sum() == pytest.approx(1.2)
        assert record.owned == pytest.approx(4 / 12)
        assert record.moves[:4].tolist() == [0, 0, 0, 0]


ROLLING_RESTART = {"event": "restart", "brokers": [0, 1, 2], "round": 3, "away": 2, "every": 4}


def test_brokers_restart_one_after_the_other() -> None:
    made = small(0.4, 0.4, 0.4, events=[ROLLING_RESTART])

    assert [np.flatnonzero(~made.present[:, row]).tolist() for row in range(3)] == [[3, 4], [7, 8], [11, 12]]
    assert made.event == 13


def test_pods_show_which_brokers_have_restarted() -> None:
    script = Script()

    run(small(0.4, 0.4, 0.4, events=[ROLLING_RESTART]), script, RNG(0))

    a, b = "broker-00", "broker-01"
    shown = [drains.restarted for drains in script.drains]
    assert shown[:13] == [set()] * 5 + [{a}] * 4 + [{a, b}] * 4
    assert [drains.pause is None for drains in script.drains[:13]] == [True] * 3 + [False] * 10
    assert set(script.drains[13:]) == {NO_DRAINS}


def test_a_rolling_restart_moves_the_bundles_of_its_first_broker_twice_and_all_others_once() -> None:
    record = run(small(0.4, 0.4, 0.4, per_broker=6, events=[ROLLING_RESTART]), UnderTrimtab(threshold()), RNG(0))

    assert record.owned == pytest.approx(1 + 1 / 3)
    assert not record.moves[:13].any()


def test_a_burst_at_the_start_is_one_sample_among_those_before_it() -> None:
    made = small(0.4, 0.4)
    noise = made.noise.copy()
    noise[0] = 2.0
    script = Script()

    run(replace(made, noise=noise), script, RNG(0))

    carried = script.seen[0].bundles.short[:, 2:].sum(axis=1) / made.real[0]
    assert carried.tolist() == pytest.approx([1.1] * 8), "nine parts of the minutes before, one of it"
    assert (script.seen[0].bundles.newest[:, 2:].sum(axis=1) / made.real[0]).tolist() == pytest.approx([2.0] * 8)


def test_the_minutes_before_the_first_round_are_as_noisy_as_those_after_it() -> None:
    for name in ("skewed", "jitter"):
        made = build(named(name), RNG(5))
        assert made.before.shape == (WARM_UP, made.noise.shape[1])
        assert not (made.before == made.noise[0]).all(axis=1).any(), "a sample of its own each"
        assert np.log(made.before).std() == pytest.approx(np.log(made.noise).std(), rel=0.2)


def test_the_ring_starts_with_the_averages_and_holds_the_newest_samples() -> None:
    script = Script()

    run(build(named("skewed"), RNG(0)), script, RNG(0))

    recents = [seen.recent for seen in script.seen[:10] if seen.recent is not None]
    assert [len(recent) for recent in recents] == [MINUTES] * 10
    assert [recent.assumed for recent in recents] == [MINUTES - 1 - step for step in range(10)]
    recent, newest = script.seen[5].recent, script.seen[5].bundles.newest
    assert recent is not None
    assert recent.bundles[-1][:, 0].tolist() == newest[:, 2].astype(np.float32).tolist()
    assert recent.cpu[-1].tolist() == script.seen[5].brokers.usage[:, 0].tolist()


def test_clients_follow_load_within_bounds() -> None:
    made = build(named("ten-join"), RNG(1))

    assert 1 <= made.sessions.min() < made.sessions.max() <= 400
    assert 15 < made.sessions.mean() < 40
    assert np.corrcoef(np.log(made.real[0]), np.log(made.sessions))[0, 1] > 0.2


def test_a_threshold_shedder_levels_a_skewed_cluster() -> None:
    record = run(build(scenario(0.9, 0.3, 0.3, per_broker=60), RNG(1)), UnderTrimtab(threshold()), RNG(1))

    assert record.imbalance[0] == pytest.approx(60)
    assert record.imbalance[-1] < 20
    assert record.moves.sum() > 0
    assert record.cut > 0


@pytest.mark.slow
def test_the_hour_s_cap_holds() -> None:
    record = run(build(named("twenty-new"), RNG(1)), UnderTrimtab(threshold()), RNG(1))

    assert record.moves.max() == 80
    assert record.moves.sum() <= 200


@pytest.mark.parametrize("name", ["skewed", "bad-metrics", "hot-bundle", "real-life"])
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    first, second = (run(build(named(name), RNG(5)), UnderTrimtab(threshold()), RNG(5)) for _ in range(2))

    assert first.imbalance.tolist() == second.imbalance.tolist()
    assert first.moves.tolist() == second.moves.tolist()
    assert first.cut == second.cut


@pytest.mark.parametrize("name", catalogue())
def test_every_scenario_of_the_catalogue_can_be_run(name: str) -> None:
    made = build(named(name).model_copy(update={"rounds": 8}), RNG(3))

    record = run(made, Still(), RNG(3))

    assert len(record.imbalance) == 9
    assert np.isfinite(record.imbalance).all()
    assert (made.real > 0).all()
    assert 0 <= made.event < made.rounds


def test_an_hour_of_ten_brokers_takes_little_time() -> None:
    made = build(named("skewed"), RNG(0))
    assert (len(made.cores), made.real.shape[1], made.rounds) == (10, 600, 60)

    started = time.process_time()
    run(made, Still(), RNG(0))

    assert time.process_time() - started < 0.3


def test_another_leader_has_only_averages() -> None:
    script = Script()

    run(small(0.8, 0.2, events=[{"event": "failover", "round": 12}]), script, RNG(0))

    measured = [len(seen.recent) - seen.recent.assumed for seen in script.seen[10:15] if seen.recent is not None]
    assert measured == [11, 12, 1, 2, 3]
    assert script.forgot == [12]


def test_only_pulsar_forgets_when_another_leader_takes_over() -> None:
    for decider, known in ((AsPulsar(threshold()), False), (UnderTrimtab(threshold()), True)):
        run(small(0.8, 0.2, rounds=2), decider, RNG(0))
        assert decider.memory.shedder
        decider.forget()
        assert bool(decider.memory.shedder) is known
