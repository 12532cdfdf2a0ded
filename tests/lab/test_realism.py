"""What real clusters do beyond moving load, and that what is wanted is served, lost, or kept for later."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small_worlds import RNG, Script, cpu, small
from trimtab_lab.simulation import build, named, run
from trimtab_lab.simulation.realism import Batching, Reconnect
from trimtab_lab.simulation.run_bundles import RunBundles
from trimtab_lab.simulation.served_load import latency, serve
from trimtab_strategies.model import CPU

MOVE = {2: [(0, 1)]}


def shown(realism: dict[str, Any], wanted: dict[int, list[tuple[int, int]]]) -> list[list[float]]:
    """CPU percent of two brokers by round, from 80 and 0 %, or after moves."""
    script = Script(wanted)
    run(small(0.8, 0.0, realism=realism), script, RNG(0))
    return [cpu(cluster) for cluster in script.seen]


def test_a_moved_bundle_is_not_served_during_the_gap_and_catches_up() -> None:
    rounds = shown({"reconnect": {"gap": 30, "spread": 0, "catchUp": 0.25}}, MOVE)

    assert [step[1] for step in rounds[2:7]] == [0, 10, 25, 25, 20]


def test_traffic_that_is_not_caught_up_is_lost() -> None:
    made = small(0.8, 0.0, realism={"reconnect": {"gap": 30, "spread": 0, "catchUp": 0}})

    record = run(made, Script(MOVE), RNG(0))

    assert record.unserved / record.wanted == pytest.approx(0.25 * 0.5 / 60)


def test_clients_that_give_up_drop_a_part_of_the_backlog() -> None:
    realism = {"reconnect": {"gap": 60, "spread": 0, "catchUp": 0.25, "giveUp": 0.5}}
    made = small(0.8, 0.0, realism=realism)

    record = run(made, Script(MOVE), RNG(0))

    # of a bundle's minute one half is dropped at once, a quarter served, and half of what is left dropped
    assert record.unserved / record.wanted == pytest.approx(0.25 * (0.5 + 0.125 + 0) / 60)
    assert record.wanted == pytest.approx(60 * float(made.real[0].sum()))


def test_a_gap_has_a_median_and_stays_within_a_minute() -> None:
    script = Script({step: [(row, step % 2) for row in range(4)] for step in range(1, 60)})

    run(small(0.8, 0.0, rounds=61, realism={"reconnect": {"gap": 6, "spread": 1, "catchUp": 0}}), script, RNG(0))

    usual = script.seen[0].bundles.newest[0, 2]
    gaps = np.array([60 * (1 - cluster.bundles.newest[:, 2] / usual) for cluster in script.seen[2:]]).ravel()
    assert 4 < np.median(gaps) < 9
    assert gaps.max() <= 60
    assert len(set(gaps.round(6).tolist())) > 100


@pytest.mark.parametrize("name", ["reconnect", "real-life", "hot-bundle", "lost-broker", "network-bound"])
def test_what_is_wanted_is_served_lost_or_waits(name: str) -> None:
    """A hundred rounds with owners that change at random, also to none."""
    rng, made = RNG(4), build(named(name), RNG(4))
    state = RunBundles.of(made)
    wanted = served = lost = 0.0
    for step in range(60):
        state.gap = rng.uniform(0, 60, len(state)) * (rng.random(len(state)) < 0.2)
        moving = rng.random(len(state)) < 0.1
        state.serving = np.where(moving, rng.integers(-1, len(made.cores), len(state)), state.serving)
        found = serve(made, step, state)
        wanted, lost, served = wanted + found.wanted, lost + found.lost, served + float(found.load.sum())
        assert (found.cpu <= made.cores + 1e-9).all()
        assert (found.load >= 0).all()

    assert served + lost + float(state.backlog.sum()) / 60 == pytest.approx(wanted)


def test_a_cold_cache_costs_until_it_is_warm() -> None:
    rounds = shown({"coldCache": {"cost": 1, "minutes": 4}}, MOVE)

    assert [step[1] for step in rounds[2:8]] == [0, 40, 35, 30, 25, 20]


def test_clients_that_arrive_cost_cpu_once() -> None:
    script = Script(MOVE)
    made = small(0.8, 0.0, realism={"clientCpu": 0.5})

    run(made, script, RNG(0))

    extra = float(made.sessions[0]) * 0.5 / 60
    assert script.seen[3].brokers.usage[1, CPU] == pytest.approx(0.2 * 16 + extra)
    assert script.seen[4].brokers.usage[1, CPU] == pytest.approx(0.2 * 16)


def test_a_busy_machine_costs_more_and_is_full_sooner() -> None:
    made = small(0.8, 0.9, realism={"knee": {"at": 0.7, "factor": 1.5}})
    script = Script()

    record = run(made, script, RNG(0))

    assert cpu(script.seen[0]) == pytest.approx([85, 100])
    assert record.pressure[0].tolist() == pytest.approx([0.85, 1.0])
    assert record.unserved == pytest.approx(0, abs=1e-3)
    full = run(small(1.0, 0.2, realism={"knee": {"at": 0.7, "factor": 1.5}}), Script(), RNG(0))
    assert full.unserved / full.wanted == pytest.approx((1 - 0.9) / 1.2)


def test_messages_are_cheaper_on_a_busier_broker() -> None:
    made = small(0.09, 0.64, realism={"batching": {"exponent": 0.5, "idle": 0.1}})
    script = Script()

    record = run(made, script, RNG(0))

    assert cpu(script.seen[0]) == pytest.approx([40, 90])
    assert record.pressure[0].tolist() == pytest.approx([0.4, 0.9])
    assert made.levels[0] == pytest.approx(0.1 + (0.73 / 2) ** 0.5)


def test_a_bundle_that_grows_gets_cheaper_by_message() -> None:
    """One of four equal bundles carries 16 times as much: it costs twice as much, and all of it is served."""
    crowd = {"event": "crowd", "broker": 0, "size": 0.02, "factor": 16, "round": 1, "until": 3}
    batching = {"exponent": 1, "idle": 0, "growth": 0.25}
    made, script = small(0.08, 0.0, events=[crowd], rounds=4, realism={"batching": batching}), Script()

    record = run(made, script, RNG(0))

    assert [cpu(cluster)[0] for cluster in script.seen] == pytest.approx([8, 10, 10, 8])
    assert made.levels.tolist() == pytest.approx([0.04, 0.05, 0.05, 0.04])
    traffic = [cluster.brokers.traffic[0].sum() for cluster in script.seen]
    assert traffic[1] / traffic[0] == pytest.approx(19 / 4)
    assert record.unserved == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(
    "realism",
    [{}, {"knee": {}}, {"batching": {}}, {"knee": {"at": 0.5, "factor": 2}, "batching": {"exponent": 0.5}}],
)
def test_work_and_usage_are_inverse(realism: dict[str, Any]) -> None:
    made, own, foreign = small(0.5, realism=realism), np.linspace(0, 1.5, 31), np.full(31, 0.2)

    assert made.own_work(made.used(own, foreign), foreign) == pytest.approx(own)
    assert (np.diff(made.used(own, foreign)) > 0).all()


REAL = json.loads((Path(__file__).parents[2] / "docs" / "data" / "side-by-side.json").read_text())
ON_A_QUIET_HOST = [run for runs in REAL["runs"].values() for run in runs if run.get("host") != "shared"]
"""Runs of real brokers: the constants of the lab are of a machine that no other guest slows down."""


def test_the_gap_is_that_of_real_brokers_on_a_busy_machine_which_is_longer_than_on_an_idle_one() -> None:
    gaps = [run["gaps"] for run in ON_A_QUIET_HOST]
    spreads = [math.log(gap["p90"] / gap["median"]) / 1.28 for gap in gaps]  # 1.28 deviations: the 90th percentile

    measured = statistics.median(gap["median"] for gap in gaps) / 1000
    assert measured <= 1.1 * Reconnect().gap
    assert Reconnect().gap <= 2 * measured
    assert Reconnect().spread == pytest.approx(statistics.median(spreads), rel=0.3)


def test_cpu_follows_traffic_as_on_real_brokers() -> None:
    """Of runs on a machine that was not overloaded; brokers at their limit or without load tell nothing."""
    calm = [run for run in ON_A_QUIET_HOST if run["load"] < 10]
    halves = [run[half] for run in calm for half in ("first", "shift")]
    rates, used = (np.concatenate([np.ravel(half[what]) for half in halves]) for what in ("rates", "cpu"))
    own = used - 100 * Batching().idle
    telling = (used < 90) & (own > 3) & (rates > 15)

    exponent, _ = np.polyfit(np.log(rates[telling]), np.log(own[telling]), 1)

    assert Batching().exponent == pytest.approx(exponent, abs=0.1)


def test_latency_grows_with_usage() -> None:
    made = small(0.5, 0.9)

    assert latency(made, np.array([0.0, 0.5, 0.9, 1.0])).tolist() == pytest.approx([5, 10, 50, 1000])
    assert run(made, Script(), RNG(0)).latency[3].tolist() == pytest.approx([10, 50])


def test_some_moves_have_no_effect_and_some_end_elsewhere() -> None:
    wanted = {step: [(row, 1) for row in range(100)] for step in range(1)}
    made = small(0.8, 0.0, 0.0, per_broker=100, realism={"failures": {"lost": 0.2, "elsewhere": 0.1}})
    script = Script(wanted)

    record = run(made, script, RNG(0))

    owner = script.seen[1].bundles.owner
    lost, other = (owner == 0).sum(), (owner == 2).sum()
    assert 10 <= lost <= 40
    assert 0 < other < 20
    assert record.moves[0] == 100


def test_a_namespace_stays_on_the_brokers_it_is_isolated_to() -> None:
    tenants = [{"name": "gold/orders", "skew": 0, "jitter": 0, "brokers": [0, 1]}]
    made = small(0.8, 0.0, 0.0, tenants=tenants)
    script = Script({0: [(0, 1), (1, 2)]})

    record = run(made, script, RNG(0))

    assert script.seen[1].bundles.owner[:2].tolist() == [1, 0]
    assert record.moves[0] == 1
    isolation = script.seen[0].policies["gold/orders"].isolation
    assert isolation is not None
    assert isolation.primary == ("broker\\-00", "broker\\-01")


def test_a_move_that_ends_elsewhere_stays_within_the_isolation() -> None:
    tenants = [{"name": "gold/orders", "skew": 0, "jitter": 0, "brokers": [0, 1]}]
    made = small(0.8, 0, 0, 0, tenants=tenants, per_broker=100, realism={"failures": {"lost": 0, "elsewhere": 1}})
    script = Script({0: [(row, 1) for row in range(100)]})

    run(made, script, RNG(0))

    assert set(script.seen[1].bundles.owner.tolist()) == {0, 1}


def test_zones_and_anti_affinity_are_shown() -> None:
    script = Script()

    run(build(named("zones").model_copy(update={"rounds": 1}), RNG(0)), script, RNG(0))

    cluster = script.seen[0]
    assert [cluster.traits_of(row).failure_domain for row in range(6)] == ["a", "a", "b", "b", "c", "c"]
    assert cluster.policies["bank/copy"].anti_affinity_group == "books"


def test_a_week_has_days_and_a_weekend() -> None:
    made = build(named("week"), RNG(0))

    mail = made.real[:, made.namespace == 0].sum(axis=1)
    days = mail.reshape(7, 240)
    assert days[1:5] == pytest.approx(np.tile(days[0], (4, 1)))
    assert days[5] == pytest.approx(0.5 * days[0])
    assert days[0].max() / days[0].min() == pytest.approx(3, rel=0.01)


def test_tenants_step_together() -> None:
    made = build(named("tenants-step"), RNG(0))

    for space in range(3):
        rows = made.real[:, made.namespace == space]
        factors = rows / rows[0]
        assert np.ptp(factors, axis=1).max() == pytest.approx(0, abs=1e-9)
        assert 3 <= (np.diff(factors[:, 0]) != 0).sum() <= 12
