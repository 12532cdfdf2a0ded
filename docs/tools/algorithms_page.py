"""The page of algorithms, each with a drawing of a simulated scenario."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

import numpy as np
import splitting_story
from algorithms_plot import Panel, draw
from page_text import filled, table, wrapped

from trimtab_lab.simulation import (
    USUAL_PLACEMENTS,
    Contender,
    Scenario,
    SimulationResult,
    UnderTrimtab,
    build,
    catalogue,
    played,
    run,
    score,
)
from trimtab_lab.simulation.compare import SEED
from trimtab_strategies import registry
from trimtab_strategies.model.plan import counted

SHOWN: Mapping[str, tuple[str, str]] = {
    "Trim": (
        "Skewed load",
        "All brokers reach their level after one plan, and stay there. The noise causes no moves.",
    ),
    "ThresholdShedder": (
        "Two hot brokers of six",
        (
            "In the upper drawing, a round uses one snapshot, so many bundles go to one broker. In the lower drawing, "
            "each move of a round counts when the next one is chosen."
        ),
    ),
    "OverloadShedder": (
        "Skewed load",
        "The shedder moves nothing below its limit of 85 %, however far apart brokers are. Only the top lines change.",
    ),
    "UniformLoadShedder": (
        "A new broker",
        "In each round, only the busiest broker gives load: a share of its difference from the idlest.",
    ),
    "AvgShedder": (
        "Skewed load",
        "Pairs of brokers wait for their hits. Then several pairs are balanced in one round, the farthest apart first.",
    ),
    "WeightedBalancer": (
        "Mixed machines",
        (
            "The shedder learns which machines are stronger, and fills them. The original is part of Hermes, not of "
            "Pulsar. The upper drawing shows it with its defects and without a guard."
        ),
    ),
    "TransferShedder": (
        "Two brokers",
        "The shedder waits for its hits, then moves bundles directly to the least used broker, and waits again.",
    ),
}
"""For each shedder, the scenario that shows best what it does, and what the reader should look for."""

PLACED = "Mixed machines"
"""The scenario for the placements. In it, only usage shows which broker has room."""


def page() -> str:
    """docs/explanation/algorithms.md."""
    placements = table("placement | in one sentence", [(n, row.summary) for n, row in registry.PLACEMENTS.items()])
    return filled(
        "explanation/algorithms.md",
        SHEDDERS="\n".join(map(_shedder, registry.SHEDDERS)).rstrip(),
        STORY=wrapped(f"**{PLACED}.** {_scenario(PLACED).description}"),
        PLACEMENTS=placements,
        SPLITTERS="\n".join(map(_splitter, splitting_story.stories())),
    )


def drawing(name: str) -> str:
    """The SVG file of one of `DRAWINGS`."""
    return DRAWINGS[name]()


def _shedder(name: str) -> str:
    scenario, look = SHOWN[name]
    row = registry.SHEDDERS[name]
    story = _scenario(scenario).description
    picture = f"![CPU of each broker over an hour of {name}]({_file(name)}.svg)"
    reference = f"[Formula and parameters](../strategies.md#{_anchor(name)})"
    words = wrapped(f"**{scenario}.** {story} {look}")
    return f"### {name}\n\n{row.summary}\n\n{words}\n\n{picture}\n\n{reference}.\n"


def _anchor(name: str) -> str:
    return name.lower() + ("-shedder" if name in registry.PLACEMENTS else "")


def _file(shedder: str) -> str:
    return f"shedder-{shedder.lower()}"


def _splitter(story: splitting_story.Story) -> str:
    last = max(n for n, ring in enumerate(story.rings) if ring != story.rings[n - 1 if n else 0])
    busiest, row = splitting_story.largest(story.rings[-1]), registry.SPLITTERS[story.name]
    many = f"{story.cuts} new boundaries, the last in cycle {last}; the busiest bundle then carries {busiest:.0f} MiB/s"
    return wrapped(f"- **{story.name}**: {row.summary} {many}.", "  ")


def _scenario(title: str) -> Scenario:
    return next(scenario for scenario in catalogue().values() if scenario.title == title)


@cache
def _outcome(name: str, *, guarded: bool) -> SimulationResult:
    """A run of a shedder with its usual placement."""
    return played(_scenario(SHOWN[name][0]), Contender(name, guarded), SEED)


def _shedder_drawing(name: str) -> str:
    panels = [
        Panel(title, _told(_outcome(name, guarded=guarded)), _outcome(name, guarded=guarded).record)
        for title, guarded in (("As Pulsar runs it", False), ("Under Trimtab", True))
        if guarded or registry.SHEDDERS[name].original
    ]
    return draw(f"{name}: {SHOWN[name][0]}", panels)


def _told(outcome: SimulationResult) -> tuple[str, str]:
    got = outcome.score
    level = "not level within the hour" if got.balanced is None else f"level after {got.balanced} min"
    return f"{counted(got.moves, 'move')}, {got.backward} uphill", f"{level}, {got.left:.0f} points left"


def _placement_drawing() -> str:
    return draw(f"Placements: {PLACED}", [_placed(name) for name in registry.PLACEMENTS])


def _placed(name: str) -> Panel:
    """A run of a placement under Trimtab."""
    shedder = name if name in registry.SHEDDERS else "ThresholdShedder"
    scenario = _scenario(PLACED)
    world = build(scenario, np.random.default_rng(SEED))
    record = run(world, UnderTrimtab(registry.pair(shedder, {}, name, {})), np.random.default_rng(SEED))
    return Panel(name, _told(SimulationResult(record, score(record, scenario.event))), record)


DRAWINGS = {
    **{_file(name): partial(_shedder_drawing, name) for name in SHOWN},
    "placements": _placement_drawing,
    "splitters": splitting_story.draw,
}
"""The drawings by name, with the functions that make them."""

assert set(SHOWN) == set(registry.SHEDDERS) == set(USUAL_PLACEMENTS)  # a new shedder needs a scenario here
