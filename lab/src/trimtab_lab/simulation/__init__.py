"""A small simulated cluster to compare strategies: brokers, bundles, traffic, and events.

It has clusters, scenarios, runs and scores. All are pure, with a `numpy.random.Generator` as argument. The model leaves
out clients that reconnect, the time in which a moving bundle has no owner, caches, metadata stores, garbage collection,
and usage that is not proportional to traffic. Results are worth only what these assumptions allow.

    world = SCENARIOS[0].build(rng); record = run(world, UnderTrimtab(pair), rng); score(record)
"""

from trimtab_lab.simulation.compare import (
    CUSTOMARY,
    LEVEL,
    Contender,
    RunScore,
    SimulationResult,
    compare,
    comparison,
    contenders,
    played,
    score,
)
from trimtab_lab.simulation.run import AsPulsar, Decider, Record, UnderTrimtab, run
from trimtab_lab.simulation.scenarios import SCENARIOS, SimulationScenario
from trimtab_lab.simulation.world import World

__all__ = [
    "CUSTOMARY",
    "LEVEL",
    "SCENARIOS",
    "AsPulsar",
    "Contender",
    "Decider",
    "Record",
    "RunScore",
    "SimulationResult",
    "SimulationScenario",
    "UnderTrimtab",
    "World",
    "compare",
    "comparison",
    "contenders",
    "played",
    "run",
    "score",
]
