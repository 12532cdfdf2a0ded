"""The comparison of all strategies in all scenarios of the lab, from docs/data/comparison.json."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from types import SimpleNamespace

from comparison_data import OURS, STRATEGIES, Comparison, Overview, comparisons, moving, overviews, still
from comparison_plot import in_each, over_all
from page_text import filled, table, wrapped

from trimtab_lab.simulation import LEVEL, OVERLOADED
from trimtab_lab.simulation.compare import COLUMNS, SeedInterval
from trimtab_lab.simulation.draws import WARM_UP
from trimtab_lab.simulation.verdict import SHARE, TIES
from trimtab_strategies.model.plan import counted

DRAWINGS = {"comparison": over_all, "comparison-scenarios": in_each}
"""The pictures of the page: name -> the function that draws it."""

WORDS: Mapping[str, str] = {
    "ThresholdShedder": "threshold",
    "OverloadShedder": "overload",
    "UniformLoadShedder": "uniform",
    "AvgShedder": "average",
    "WeightedBalancer": "weighted",
    "TransferShedder": "transfer",
    "Trim": "trim",
}
"""Names of shedders in the text on PIP-364: ``threshold`` as Pulsar runs it, ``our_threshold`` under Trimtab."""

NAMES: Mapping[str, str] = {
    "moves": "moves",
    "cut": "connections cut",
    "backward": "moves to a busier broker",
    "waited": "time to balanced",
    "area": "imbalance over the run",
    "left": "imbalance at the end",
    "overshoot": "overshoot",
    "overload": "hot brokers",
    "unserved": "unserved traffic",
}
"""The scores in which Trim is judged, in words."""

_SHOWN = (
    *("moves", "cut", "backward", "waited", "area", "left", "overshoot", "overload", "unserved", "cost"),
    *("repeated", "splits", "owned", "latency"),
)
_DECIMALS = {"cut": 1, "area": 1, "left": 1, "overshoot": 1, "latency": 1, "cost": 1, "unserved": 2, "owned": 2}


def page() -> str:
    """docs/comparison.md."""
    return filled(
        "comparison.md",
        SHORT=_paragraphs(short()),
        WINS=_wins(),
        MEANING=wrapped(_meaning()),
        STRATEGIES=_strategies(),
        LOSSES=_losses(),
        VERDICTS=_verdicts(),
        PROPOSAL=_proposal(),
        MINUTES=str(WARM_UP),
        SEEDS=_seeds(),
        LEVEL=f"{LEVEL:g}",
        HOT=f"{OVERLOADED * 100:.0f}",
        SHARE=f"{SHARE * 100:.0f}",
        **_ties(),
    )


def figures_file() -> str:
    """docs/comparison.csv: a row for each strategy in each scenario, with each score's median and percentiles."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    parts = ("", " p5", " p95")
    rows.writerow(["scenario", "strategy", "seeds", *(f"{COLUMNS[name]}{part}" for name in _SHOWN for part in parts)])
    for one in comparisons().values():
        for who, cell in one.cells.items():
            scores = (cell[name] for name in _SHOWN)
            rows.writerow(
                [one.name, who, one.seeds[who], *(f"{n:.5g}" for of in scores for n in (of.median, of.low, of.high))]
            )
    return out.getvalue()


# -- summary --


def short() -> Iterator[str]:
    """The result in a few sentences."""
    verdicts = {one.name: one.verdict for one in comparisons().values()}
    better, tied, worse = (
        sum(len(getattr(found, kind)) for found in verdicts.values()) for kind in ("better", "tied", "worse")
    )
    kinds, total = len({found.best for found in verdicts.values()}), better + tied + worse
    yield (
        f"No baseline is the best everywhere: {kinds} of {len(STRATEGIES) - 1} are best in some scenario. We"
        f" compare Trim with the best baseline of each of the {len(verdicts)} scenarios, score by score. Of these"
        f" {total} scores, Trim is better in {better}, equal in {tied} and worse in {worse}."
    )
    costs = sorted((verdicts[one.name].cost, one.scenario.title) for one in moving())
    (least, cheapest), (most, dearest) = costs[0], costs[-1]
    yield (
        f"Where something should move, Trim's [cost](#how-it-was-measured) is {median(c for c, _ in costs):.2f} times"
        f" that of the best baseline (median of {len(costs)} scenarios). The ratio is between {least:.2f} ({cheapest})"
        f" and {most:.2f} ({dearest}). {_dearer(costs)}"
    )
    yield _dominance()
    yield _stillness()


def _dearer(costs: Sequence[tuple[float, str]]) -> str:
    above = [title for cost, title in costs if cost > 1]
    if not above:
        return "It is above 1 in no scenario."
    return f"It is above 1 in {_listed(above)}."


def _dominance() -> str:
    over = {one.scenario.title: one.verdict.dominated_by for one in comparisons().values() if one.verdict.dominated_by}
    if not over:
        return "No baseline dominates Trim in any scenario."
    found = _listed([f"{title} ({_listed(list(names))})" for title, names in over.items()])
    return f"Baselines dominate Trim in {counted(len(over), 'scenario')}: {found}. In the others, no baseline does."


def _stillness() -> str:
    moved = [
        f"{one.scenario.title} ({_numbers('moves', one.ours['moves'])})"
        for one in still()
        if one.ours["moves"].high > 0
    ]
    calm = len(still()) - len(moved)
    says = f"Where nothing should move, Trim moves nothing in {calm} of {len(still())} scenarios"
    return says + (f"; it moves bundles in {_listed(moved)}." if moved else ".")


def _wins() -> str:
    """How often Trim is better, equal and worse than the best baseline, by score."""
    scenarios = moving()
    counts = {
        kind: Counter(name for one in scenarios for name in getattr(one.verdict, kind))
        for kind in ("better", "tied", "worse")
    }
    head = f"in {len(scenarios)} scenarios | Trim is better | equal | worse"
    rows = [(what, *(str(counts[kind][name]) for kind in counts)) for name, what in NAMES.items()]
    return table(head, rows)


def _meaning() -> str:
    return (
        f"The table shows medians of the {len(moving())} scenarios in which something should move. *Cost* is divided by"
        f" the cost of the scenario's cheapest strategy. In {len(still())} other scenarios, nothing should move. The"
        " last column counts those in which the median run has moves."
    )


def _strategies() -> str:
    head = "strategy | cost | cheapest in | level in | moves | cut % | area | left | moves in vain in"
    found = list(overviews())
    best = {
        name: _best(name, found) for name in ("ratio", "cheapest", "balanced", "moves", "cut", "area", "left", "moved")
    }
    rows = []
    for one in found:
        cells = (
            (f"{one.ratio:.2f}", "ratio"), (str(one.cheapest), "cheapest"), (str(one.balanced), "balanced"),
            (f"{one.moves:.0f}", "moves"), (f"{one.cut:.1f}", "cut"), (f"{one.area:.1f}", "area"),
            (f"{one.left:.1f}", "left"), (str(one.moved), "moved"),
        )  # fmt: skip
        rows.append((_called(one.strategy), *(_bold(text, getattr(one, name) == best[name]) for text, name in cells)))
    return table(head, rows)


def _best(name: str, found: Sequence[Overview]) -> float:
    values = [getattr(one, name) for one in found]
    return float(max(values) if name in ("cheapest", "balanced") else min(values))


def _losses() -> str:
    """Every score in which Trim is worse than the best baseline."""
    lines = []
    for one in comparisons().values():
        found = one.verdict
        parts = [
            f"{COLUMNS[name]} {_number(name, one.ours[name].median)} instead of"
            f" {_number(name, one.cells[found.best][name].median)}"
            for name in found.worse
        ]
        if parts:
            lines.append(wrapped(f"- {one.scenario.title}: {', '.join(parts)} ({found.best})", "  "))
    return "\n".join(lines) or "Nowhere, beyond a tie."


def _verdicts() -> str:
    head = (
        "scenario | best baseline | better | equal | worse | cost | baselines that Trim dominates | that dominate Trim"
    )
    return table(head, [_verdict(one) for one in comparisons().values()])


def _verdict(one: Comparison) -> tuple[str, ...]:
    found = one.verdict
    counts = (str(len(names)) for names in (found.better, found.tied, found.worse))
    cost = "-" if found.cost == float("inf") else f"{found.cost:.2f}"
    others = f"{len(found.dominates)} of {len(one.cells) - 1}"
    return one.scenario.title, found.best, *counts, cost, others, ", ".join(found.dominated_by) or "none"


# -- PIP-364 --


def figures() -> SimpleNamespace:
    """Medians as the paragraphs on PIP-364 name them: ``skewed.our_threshold.moves``."""
    return SimpleNamespace(
        **{
            name.replace("-", "_"): SimpleNamespace(
                **{
                    _word(who): SimpleNamespace(**{score: of.median for score, of in cell.items()})
                    for who, cell in one.cells.items()
                }
            )
            for name, one in comparisons().items()
        }
    )


def _word(strategy: str) -> str:
    shedder, _, run_by = strategy.partition("/")
    return ("our_" if run_by == "Trimtab" else "") + WORDS.get(shedder, shedder)


def _proposal() -> str:
    return _paragraphs(part.format(**vars(figures())) for part in _PROPOSAL.split("\n\n"))


_PROPOSAL = """\
**ThresholdShedder**, as Pulsar runs it, places all bundles of a round by the same snapshot. In *Two hot brokers of six*
it makes {two_hot.threshold.moves:.0f} moves, and {two_hot.threshold.backward:.0f} of them go to a broker that is busier
than the one that they leave. The proposal calls that *over placement*. The shedder decides by a smoothed usage, which
stays uneven long after the load is level. So in *Two brokers* it makes {two_brokers.threshold.moves:.0f} moves, and
AvgShedder only {two_brokers.average.moves:.0f}. The proposal calls that *over unloading*. Under Trimtab,
ThresholdShedder makes {two_brokers.our_threshold.moves:.0f} moves in *Two brokers*, and in *Two hot brokers of six*
{two_hot.our_threshold.backward:.0f} of its moves go to a busier broker.

**OverloadShedder** stops as soon as no broker is above 85 %, and has no other goal. In *Skewed load* the brokers' usage
still differs by {skewed.overload.left:.0f} points.

**UniformLoadShedder** looks at traffic alone. In *A shared machine* it moves {shared_machine.uniform.backward:.0f}
bundles to the broker whose machine also runs another program, because that broker has little traffic. It does not react
at all in *Foreign load arrives*. It relieves one broker per round, so *Twenty new brokers* is not level after the hour.

**AvgShedder** waits for its hit counters: *Skewed load* is balanced only after {skewed.average.waited:.0f} minutes.
Then it relieves all pairs of brokers at the same time. It was made for mixed machines. But it pairs brokers by usage
and then requires a difference in *traffic*. In *Mixed machines* that difference is small or has the opposite sign, and
the brokers' usage still differs by {mixed_machines.average.left:.0f} points.

**TransferShedder** stops when the standard deviation of usage is within its target of 25 points. In *Skewed load* the
brokers' usage still differs by {skewed.transfer.left:.0f} points.

**WeightedBalancer** in its original form moves bundles back and forth: it makes {skewed.weighted.moves:.0f} moves in
*Skewed load*. In {skewed.weighted.repeated:.0f} of these, the bundle had moved before. Its corrected form under Trimtab
makes {skewed.our_weighted.moves:.0f} moves, and needs {skewed.our_weighted.waited:.0f} minutes until the load is
balanced.
"""
"""What the page says on PIP-364, a paragraph for each shedder. tests/docs/test_comparison.py checks it."""


# -- details --


def _seeds() -> str:
    counts = {count for one in comparisons().values() for count in one.seeds.values()}
    fewest, most = min(counts), max(counts)
    said = counted(most, "seed") if fewest == most else f"{fewest} to {most} seeds; the file says how many"
    return wrapped(
        f"**How often.** Every strategy plays every scenario with {said}. With the same seed, all strategies get the"
        " same cluster. A figure is the median over the seeds; the file has the 5th and the 95th percentile, too."
    )


def _ties() -> dict[str, str]:
    names = {
        "MOVESTIE": "moves", "CUTTIE": "cut", "UPHILLTIE": "backward", "BALANCEDTIE": "waited", "AREATIE": "area",
        "LEFTTIE": "left", "OVERTIE": "overshoot", "HOTTIE": "overload", "UNSERVEDTIE": "unserved",
    }  # fmt: skip
    return {place: f"{TIES[name]:g}" for place, name in names.items()}


def _numbers(name: str, of: SeedInterval) -> str:
    low, middle, high = (_number(name, value) for value in (of.low, of.median, of.high))
    return middle if low == high else f"{middle} ({low}-{high})"


def _number(name: str, value: float) -> str:
    return f"{_rounded(name, value):.{_DECIMALS.get(name, 0)}f}"


def _rounded(name: str, value: float) -> float:
    return round(value, _DECIMALS.get(name, 0))


def _called(strategy: str) -> str:
    return "**Trim**" if strategy == OURS else strategy


def _bold(words: str, best: bool) -> str:  # noqa: FBT001 - a condition on the words
    return f"**{words}**" if best else words


def _paragraphs(texts: Iterable[str]) -> str:
    return "\n\n".join(wrapped(" ".join(text.split())) for text in texts)


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
