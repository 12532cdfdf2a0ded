"""The simulated scenarios. Most are the problems that PIP-364 describes, with the same figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab_lab.simulation.world import CORE, World, bursts, jitter, skewed_sizes, steady
from trimtab_strategies.model.cluster_load import FloatArray

ROUNDS = 60
"""One hour, in rounds of one minute."""

WARM_UP = 10
"""Minutes before the first round in which bundles were already measured: a full short window."""

CORES = 16.0
"""Cores of a machine, where a scenario does not set them."""

KIBIBYTE = 1024.0


@dataclass(frozen=True, slots=True)
class SimulationScenario:
    """A simulated cluster and what happens to it.

    title: a few words. description: the events, in one or two sentences. build: creates the cluster. event: the round
    of the last event, from which the rounds to balance are counted.
    """

    title: str
    description: str
    build: Callable[[np.random.Generator], World]
    event: int = 0


def world(rng: np.random.Generator, usage: Sequence[float], per_broker: int = 60, skew: float = 0.8) -> World:
    """Equal brokers with the CPU `usage` (ratio) of each; a broker at 0 has no bundles. Traffic is steady."""
    wanted = np.array(usage) * CORES * CORE
    sizes = skewed_sizes(rng, wanted, per_broker, skew)
    owner = np.repeat(np.arange(len(usage)), per_broker)
    kept = sizes > 0
    n, m = len(usage), int(kept.sum())
    return World(
        cores=np.full(n, CORES),
        speed=np.full(n, CORE),
        foreign=np.zeros((ROUNDS, n)),
        present=np.ones((ROUNDS, n), dtype=bool),
        size=sizes[kept],
        noise=steady(ROUNDS, m),
        before=steady(WARM_UP, m),
        message=np.full(m, KIBIBYTE),
        owner=owner[kept],
    )


def about(rng: np.random.Generator, usage: float, count: int) -> list[float]:
    """`count` usages (ratio) within a tenth of `usage`, evenly spread, in random order, so that no two are equal."""
    spread: FloatArray = rng.permutation(np.linspace(0.9, 1.1, count))
    usages: list[float] = (usage * spread).tolist()
    return usages


def over_unloading(rng: np.random.Generator) -> World:
    """Two brokers, 90 and 10 %."""
    return world(rng, [0.9, 0.1], 300)


def over_placement(rng: np.random.Generator) -> World:
    """Six brokers, 40, 40, 40, 40, 69 and 70 %."""
    return world(rng, [0.40, 0.40, 0.40, 0.40, 0.69, 0.70], 100)


def slow(rng: np.random.Generator) -> World:
    """Twenty brokers at about 80 % and twenty new ones."""
    return world(rng, about(rng, 0.8, 20) + [0.0] * 20, 30)


def new_broker(rng: np.random.Generator) -> World:
    """Nine brokers at about 60 % and a new one."""
    return world(rng, [*about(rng, 0.6, 9), 0.0])


def lost_broker(rng: np.random.Generator) -> World:
    """Ten brokers at about 50 %; one leaves in round 5 and returns without bundles in round 20."""
    made = world(rng, about(rng, 0.5, 10))
    present = made.present.copy()
    present[5:20, 3] = False
    return replace(made, present=present)


def shared_machine(rng: np.random.Generator) -> World:
    """Three brokers: 10 %, 50 %, and one without bundles on whose machine another program takes 70 %."""
    made = world(rng, [0.1, 0.5, 0.0], 200)
    foreign = made.foreign.copy()
    foreign[:, 2] = 0.7 * CORES
    return replace(made, foreign=foreign)


def foreign_load(rng: np.random.Generator) -> World:
    """Ten brokers at about 45 %; from round 5 on another program takes 45 % of one machine."""
    made = world(rng, about(rng, 0.45, 10))
    foreign = made.foreign.copy()
    foreign[5:, 3] = 0.45 * CORES
    return replace(made, foreign=foreign)


def mixed_machines(rng: np.random.Generator) -> World:
    """Four machines of 32 cores and six of 8, all with about the same traffic: about 20 % and about 80 %."""
    cores = np.array([32.0] * 4 + [8.0] * 6)
    made = world(rng, about(rng, 0.4, 10))
    return replace(made, cores=cores)


def noisy(rng: np.random.Generator) -> World:
    """Ten brokers at about 45 %; traffic varies, and sometimes all of a broker's bundles carry twice as much."""
    made = world(rng, about(rng, 0.45, 10))
    home: FloatArray = made.owner.astype(np.float64)

    def some(rounds: int) -> FloatArray:
        return jitter(rng, rounds, len(home), 0.3) * bursts(rng, rounds, home, 0.03, 2.0)

    return replace(made, noise=some(ROUNDS), before=some(WARM_UP))


def skewed(rng: np.random.Generator) -> World:
    """Ten brokers from 20 to 95 %; traffic varies."""
    made = world(rng, np.linspace(0.20, 0.95, 10).tolist())
    noise, before = (jitter(rng, rounds, len(made.size), 0.3) for rounds in (ROUNDS, WARM_UP))
    return replace(made, noise=noise, before=before)


SCENARIOS: tuple[SimulationScenario, ...] = (
    SimulationScenario(
        "Skewed load", "Ten equal brokers are between 20 and 95 %; traffic varies by up to 30 %.", skewed
    ),
    SimulationScenario("Two brokers", "One broker is at 90 %, the other at 10 %.", over_unloading),
    SimulationScenario("Two hot brokers of six", "Brokers are at 40, 40, 40, 40, 69 and 70 %.", over_placement),
    SimulationScenario(
        "A new broker", "Nine brokers are at about 60 %; a tenth has just joined and has no bundles.", new_broker
    ),
    SimulationScenario("Twenty new brokers", "Twenty brokers are at about 80 %, twenty have just joined.", slow),
    SimulationScenario(
        "A broker is lost and comes back",
        "Ten brokers are at about 50 %. One leaves in round 5 and returns without bundles in round 20.",
        lost_broker,
        event=20,
    ),
    SimulationScenario(
        "Mixed machines",
        "Four machines have 32 cores and six have 8; all carry about the same traffic: about 20 % and about 80 %.",
        mixed_machines,
    ),
    SimulationScenario(
        "A shared machine",
        "Brokers at 10 and 50 %, and one without bundles on whose machine another program takes 70 %.",
        shared_machine,
    ),
    SimulationScenario(
        "Foreign load arrives",
        "Ten brokers are at about 45 %. In round 5 another program begins to take 45 % of one machine.",
        foreign_load,
        event=5,
    ),
    SimulationScenario(
        "Load jitter",
        "Ten brokers are all at about 45 %. Traffic varies by up to 30 %, and in 3 of 100 rounds all bundles of a"
        " broker carry twice as much for a minute. Every move is useless.",
        noisy,
    ),
)
"""In the order of the documentation page."""
