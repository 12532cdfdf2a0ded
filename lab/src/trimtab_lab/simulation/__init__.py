"""A small closed world in which strategies can be compared: brokers, bundles, traffic, and what happens to them.

Belongs here: worlds, scenarios, runs and scores; pure, with a `numpy.random.Generator` that is passed in. What is left
out, so that one knows what a result is worth: clients that reconnect, the time a bundle is nobody's while it moves,
caches, metadata stores, garbage collection, and usage that does not follow traffic in a straight line.

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
