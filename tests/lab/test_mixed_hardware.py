"""Brokers of different strength under the weighted balancer, in many worlds: equally used in the end, and at rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from trimtab_lab.simulation import Record, Scenario, UnderTrimtab, World, build, run
from trimtab_strategies import registry

CORES = 16.0
ROUNDS = 200
"""Minutes."""
SETTLED = 120
"""Minutes after which nothing may move any more."""
POINTS = 10.0


def drawn(rng: np.random.Generator, cores: np.ndarray[tuple[int], np.dtype[np.float64]]) -> World:
    """Machines of these cores, all with the same traffic at first; it jitters, and so does what else runs there."""
    each, usage = int(rng.integers(12, 60)), rng.uniform(0.25, 0.6)
    machines = [{"count": 1, "cores": of, "usage": usage * CORES / of, "bundles": each} for of in cores.tolist()]
    scenario = Scenario.model_validate(
        {
            "title": "Drawn",
            "description": "Machines of these cores with the same traffic.",
            "rounds": ROUNDS,
            "machines": machines,
            "tenants": [{"skew": 0.6, "jitter": 0.06}],
        }
    )
    return replace(build(scenario, rng), foreign=np.abs(rng.normal(0.3, 0.1, (ROUNDS, len(cores)))))


def alike(rng: np.random.Generator, count: int) -> World:
    return drawn(rng, np.full(count, CORES))


def one_twice_as_strong(rng: np.random.Generator, count: int) -> World:
    cores = np.full(count, CORES)
    cores[rng.integers(count)] *= 2
    return drawn(rng, cores)


def mixed(rng: np.random.Generator, count: int) -> World:
    return drawn(rng, rng.choice([CORES / 2, CORES, 2 * CORES], count))


def balanced(world: World, **params: float) -> Record:
    """What comes of it under the balancer with its defaults, but for `params`."""
    pair = registry.pair("WeightedBalancer", params, "LeastResourceUsageWithWeight", {})
    return run(world, UnderTrimtab(pair), np.random.default_rng(1))


def spread(record: Record) -> float:
    """Percent points between the most and the least used broker, the median of the last half hour."""
    return float(np.median(np.ptp(record.pressure[-30:], axis=1))) * 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("build", [one_twice_as_strong, mixed])
def test_brokers_of_any_strength_end_equally_used_and_at_rest(
    build: Callable[[np.random.Generator, int], World], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    world = build(rng, int(rng.integers(3, 13)))

    record = balanced(world)

    assert spread(record) <= POINTS
    assert record.moves.any()
    assert not record.moves[SETTLED:].any()


@pytest.mark.parametrize("seed", range(4))
def test_among_equal_brokers_nothing_moves(seed: int) -> None:
    rng = np.random.default_rng(seed)

    assert not balanced(alike(rng, int(rng.integers(3, 13)))).moves.any()


@pytest.mark.parametrize("gain", [0.3, 1.8])
def test_a_strong_broker_is_not_overshot_up_to_the_limit_of_stability(gain: float) -> None:
    world = one_twice_as_strong(np.random.default_rng(3), 6)
    strong = int(np.argmax(world.cores))

    record = balanced(replace(world, landing=2), gain=gain)

    above = (record.pressure[:, strong] - record.pressure.mean(axis=1)) * 100
    assert above.max() < 5
    assert spread(record) <= POINTS
