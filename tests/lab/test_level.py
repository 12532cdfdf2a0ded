"""The water level: the least usage of the busiest broker if load could be divided freely."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from small_worlds import RNG, Still, small
from trimtab_lab.simulation import Scenario, World, build, run


def test_level_is_where_water_stands() -> None:
    foreign = np.zeros((60, 2))
    foreign[1:, 1] = 16.0
    flooded = replace(small(0.2, 0.6), foreign=foreign)

    assert flooded.targets[0].tolist() == pytest.approx([0.4, 0.4])
    assert flooded.targets[1].tolist() == pytest.approx([0.8, 1.0])  # the other program alone fills one machine


def test_bigger_machines_should_carry_more() -> None:
    made = replace(small(0.4, 0.4), cores=np.array([32.0, 8.0]))

    assert made.targets[0].tolist() == pytest.approx([0.32, 0.32])


def test_absent_brokers_carry_nothing() -> None:
    made = small(0.3, 0.3, 0.0, events=[{"event": "join", "brokers": [2], "round": 5}])

    assert made.levels[[4, 5]].tolist() == pytest.approx([0.3, 0.2])


def drawn(seed: int) -> World:
    """Machines of any kind, some with other programs, messages of any size and fan-out."""
    rng = RNG(seed)
    kinds = [
        {
            "count": 1,
            "cores": float(rng.integers(4, 64)),
            "speed": float(rng.uniform(0.5, 2)),
            "nic": float(rng.choice([2, 10, 25])),
            "usage": float(rng.uniform(0.1, 0.9)),
            "bundles": 5,
        }
        for _ in range(3)
    ]
    return build(
        Scenario.model_validate(
            {
                "title": "Drawn",
                "description": "Any machines.",
                "rounds": 1,
                "machines": kinds,
                "tenants": [{"message": [100, 10000], "fanout": [0.5, 8]}],
                "events": [{"event": "foreign", "brokers": [0], "usage": float(rng.uniform(0, 0.6))}],
                "realism": {"messagePrice": 300},
            }
        ),
        rng,
    )


def divisions(steps: int) -> Iterator[tuple[float, float, float]]:
    """All ways to divide a whole between three brokers in `steps` parts."""
    for a in range(steps + 1):
        for b in range(steps + 1 - a):
            yield a / steps, b / steps, (steps - a - b) / steps


@pytest.mark.parametrize("seed", range(6))
def test_no_division_of_the_load_beats_the_level(seed: int) -> None:
    """Brute force: the load as a mix, divided in steps of 1/200 in all ways."""
    world = drawn(seed)
    parts = np.array(list(divisions(200)))
    real = world.real[0]
    cpu = parts * (real @ world.cost) / world.speed / world.cores + world.foreign[0] / world.cores
    into = parts * (real @ world.share_in) / world.nic
    out = parts * (real @ (1 - world.share_in)) / world.nic
    busiest = np.max([cpu, into, out], axis=0)
    floor = world.foreign[0] / world.cores
    above = np.where(parts > 0, busiest, floor).max(axis=1).min()

    level = max(float(world.levels[0]), float(floor.max()))

    assert level <= above + 1e-9
    assert above == pytest.approx(level, rel=0.05)


def test_imbalance_is_the_range_of_distances_from_the_target() -> None:
    made = replace(small(0.4, 0.4), cores=np.array([32.0, 8.0]))

    assert run(made, Still(), RNG(0)).imbalance[0] == pytest.approx(60)


def test_the_level_knows_that_busy_machines_cost_more() -> None:
    made = small(0.9, 0.9, realism={"knee": {"at": 0.7, "factor": 2}})

    assert made.levels[0] == pytest.approx(0.7 + 2 * 0.2)
    assert run(made, Still(), RNG(0)).imbalance[0] == pytest.approx(0, abs=1e-9)
