"""The comparison of PIP-364, from runs of our own implementations in the simulated world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import groupby

from page_text import ROOT, anchor, filled, table, wrapped

from trimtab_lab.simulation import (
    LEVEL,
    OVERLOADED,
    Contender,
    RunScore,
    Scenario,
    SimulationResult,
    named,
)
from trimtab_lab.simulation.compare import SEED, compare
from trimtab_lab.simulation.draws import WARM_UP
from trimtab_strategies.params import Compatibility

SCENARIOS = tuple(
    map(
        named,
        (
            "skewed",
            "two-brokers",
            "two-hot",
            "new-broker",
            "twenty-new",
            "lost-broker",
            "mixed-machines",
            "shared-machine",
            "foreign-load",
            "jitter",
        ),
    )
)
"""The scenarios of the proposal, in the order of the page."""

BARS = "▁▂▃▄▅▆▇█"
COLUMNS = 20
"""Length of a chart; each character is the mean of three minutes."""

SUMMARY = (
    ("mixed machines: points left", "Mixed machines", "left"),
    ("shared machine: moves uphill", "A shared machine", "backward"),
    ("load jitter: moves in vain", "Load jitter", "moves"),
    ("over placement: moves uphill", "Two hot brokers of six", "backward"),
    ("over unloading: moves", "Two brokers", "moves"),
    ("slow: rounds for 20 new brokers", "Twenty new brokers", "balanced"),
)
"""The proposal's own table: column, scenario, and the score that puts a number in place of its adjective."""

WORDS: Mapping[str, str] = {
    "ThresholdShedder": "threshold",
    "OverloadShedder": "overload",
    "UniformLoadShedder": "uniform",
    "AvgShedder": "average",
    "TransferShedder": "transfer",
    "WeightedBalancer": "weighted",
}
"""Shedders in the sentences: ``threshold`` as Pulsar runs it, ``our_threshold`` corrected and under Trimtab."""


@cache
def _results() -> dict[str, dict[Contender, SimulationResult]]:
    """All results: by the scenario's title, then by contender."""
    return {scenario.title: compare(scenario) for scenario in SCENARIOS}


def page() -> str:
    """docs/comparison.md."""
    text = (ROOT / "docs" / "templates" / "comparison-scenarios.md").read_text()
    sentences = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    links = ", ".join(f"[{scenario.title}](#{anchor(scenario.title)})" for scenario in SCENARIOS)
    return filled(
        "comparison.md",
        SUMMARY=_summary(),
        SCENARIOS=wrapped(f"The scenarios: {links}."),
        MINUTES=str(WARM_UP),
        SEED=str(SEED),
        LEVEL=f"{LEVEL:g}",
        HOT=f"{OVERLOADED * 100:.0f}",
        SECTIONS="\n\n".join(_section(scenario, sentences[scenario.title]) for scenario in SCENARIOS),
    )


def scores(scenario: str) -> dict[str, RunScore]:
    """The scores of a scenario by the names that its sentences use."""
    outcomes = _results()[scenario]
    return {("our_" if who.guarded else "") + WORDS[who.shedder]: outcomes[who].score for who in _shown(outcomes)}


def _summary() -> str:
    rows = [
        (
            _pair(who),
            _run_by(who),
            *(_number(getattr(_results()[title][who].score, what)) for _, title, what in SUMMARY),
        )
        for who in _shown(next(iter(_results().values())))
    ]
    return table(f"shedder, placement | run by | {' | '.join(column for column, _, _ in SUMMARY)}", rows)


def _shown(contenders: Mapping[Contender, object]) -> Iterator[Contender]:
    """Pulsar's decisions as Pulsar runs them, and corrected ones under Trimtab."""
    for who in contenders:
        wanted = Compatibility.CORRECTED if who.guarded else Compatibility.JAVA
        if who.compatibility in (None, wanted):
            yield who


def _section(scenario: Scenario, sentences: str) -> str:
    head = "shedder | run by | compatibility | balanced | quiet | moves | again | uphill | left | hot | the hour"
    rows = table(head, _merged(_results()[scenario.title]))
    said = wrapped(" ".join(sentences.split()).format(**scores(scenario.title)))
    return f"## {scenario.title}\n\n{wrapped(scenario.description)}\n\n{rows}\n\n{said}"


def _merged(outcomes: Mapping[Contender, SimulationResult]) -> Iterator[tuple[str, ...]]:
    """Rows of cells; both values of `compatibility` share one row when all cells are the same."""
    for (shedder, run_by), group in groupby(_by_run(outcomes), key=lambda who: (who.shedder, _run_by(who))):
        for cells, same in groupby(group, key=lambda who: _cells(outcomes[who])):
            values = ", ".join(str(who.compatibility) for who in same if who.compatibility) or "-"
            yield shedder, run_by, values, *cells


def _cells(outcome: SimulationResult) -> tuple[str, ...]:
    got = outcome.score
    counts = (got.balanced, got.quiet, got.moves, got.repeated, got.backward, got.left, got.overload)
    return (*map(_number, counts), f"`{_chart(outcome.record.imbalance[1:].tolist())}`")


def _by_run(outcomes: Mapping[Contender, SimulationResult]) -> list[Contender]:
    """The contenders, of each shedder first Pulsar's runs."""
    order = list(dict.fromkeys(who.shedder for who in outcomes))
    return sorted(outcomes, key=lambda who: (order.index(who.shedder), who.guarded))


def _chart(values: list[float]) -> str:
    """`values` (0-100) as a row of bars."""
    step = len(values) / COLUMNS
    parts = [values[int(k * step) : int((k + 1) * step)] for k in range(COLUMNS)]
    return "".join(BARS[min(len(BARS) - 1, int(sum(part) / len(part) / 100 * len(BARS)))] for part in parts)


def _pair(who: Contender) -> str:
    return who.shedder if who.placement == who.shedder else f"{who.shedder}, {who.placement}"


def _run_by(who: Contender) -> str:
    return "Trimtab" if who.guarded else "Pulsar"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.0f}"
