"""A simulated cluster to compare strategies: machines, tenants, events, and metrics that may be wrong.

A scenario is data (`scenario`, YAML files in `catalogue/`). `build` draws a world from it, `run` lets a decider balance
it, and `score` rates the run. All are pure. `build` and `run` get their random values from a `numpy.random.Generator`.
The model has no metadata store, and its clients do not send less when a broker is slow. Results are only as good as
these assumptions.

    world = build(named("skewed"), rng); record = run(world, UnderTrimtab(pair), rng); score(record)
"""

from trimtab_lab.simulation.build import build
from trimtab_lab.simulation.contenders import (
    USUAL_PLACEMENTS,
    Contender,
    SimulationResult,
    contender,
    played,
    shown,
)
from trimtab_lab.simulation.deciders import AsPulsar, Decider, Orders, UnderTrimtab
from trimtab_lab.simulation.run import Record, run
from trimtab_lab.simulation.scenario import Goal, InvalidScenarioError, Scenario, catalogue, load, named, parsed
from trimtab_lab.simulation.score import LEVEL, OVERLOADED, RunScore, score
from trimtab_lab.simulation.world import World

__all__ = [
    "LEVEL",
    "OVERLOADED",
    "USUAL_PLACEMENTS",
    "AsPulsar",
    "Contender",
    "Decider",
    "Goal",
    "InvalidScenarioError",
    "Orders",
    "Record",
    "RunScore",
    "Scenario",
    "SimulationResult",
    "UnderTrimtab",
    "World",
    "build",
    "catalogue",
    "contender",
    "load",
    "named",
    "parsed",
    "played",
    "run",
    "score",
    "shown",
]
