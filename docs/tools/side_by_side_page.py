"""The page of `benchmarks/side_by_side.py`: medians of the recorded runs, and a drawing of one run of each entrant."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import side_by_side_plot
from page_text import ROOT, filled, table

Run = Mapping[str, Any]
Runs = Sequence[Run]

_SETTLED = "settled"


def page() -> str:
    """docs/side-by-side.md."""
    every, story = _data()["runs"], _data()["story"]
    recorded = _on(every, shared=True)
    once = {name: runs for name, runs in every.items() if name not in SHORT_TITLES}
    shares = [1 / (rank + 1) for rank in range(story["topics"])]
    return filled(
        "side-by-side.md",
        SHORT=_short(recorded),
        LEVEL=_level(recorded),
        COST=_cost(recorded),
        OTHERS=_level(once),
        TOPICS=str(story["topics"]),
        RATE=f"{story['rate']:g}",
        HOTTEST=f"{story['rate'] / sum(shares):.0f}",
        COLDEST=f"{story['rate'] * shares[-1] / sum(shares):.0f}",
        CORES=f"{story['cores']:g}",
        WARM=f"{story['warm_up']:g}",
        MACHINE=str(max(run["cores"] for runs in every.values() for run in runs)),
        COUNTS=_counts(recorded),
    )


def drawing() -> str:
    """docs/side-by-side.svg: the median run of each entrant, by how uneven the brokers were."""
    every = _data()["runs"]
    newest = {**every, **_on(every, shared=True)}
    shown = {title(runs[0]): _typical(runs) for runs in newest.values()}
    return side_by_side_plot.draw(shown, _data()["story"]["rate"])


SHORT_TITLES = {
    "pulsar-threshold": "Pulsar: ThresholdShedder (default of 4.x)",
    "pulsar-uniform": "Pulsar: UniformLoadShedder",
    "pulsar-avg": "Pulsar: AvgShedder",
    "pulsar-transfer": "Pulsar: TransferShedder (extensible)",
    "trimtab-trim-modular": "Trimtab: Trim (its default)",
    "trimtab-trim-extensible": "Trimtab: Trim (extensible)",
}
"""The entrants in the README, by their names in the benchmark."""


def readme_table() -> str:
    """The table of README.md: medians of Pulsar's own balancers and of Trim, three runs of each on one machine."""
    recorded = _on(_data()["runs"], shared=True)

    def never(value: float) -> str:
        return "never" if math.isinf(value) else f"{value:.0f} s"

    def row(name: str, text: str) -> tuple[str, ...]:
        runs = recorded[name]
        level = [never(_middle(run[half][_SETTLED] for run in runs)) for half in ("first", "shift")]
        moves = " + ".join(f"{median(run[half]['moves'] for run in runs):.0f}" for half in ("first", "shift"))
        apart, gap = (median(values) for values in (_ends(runs), [run["gaps"]["median"] for run in runs]))
        return text, *level, moves, f"{apart:.2f}", f"{gap:,.0f} ms"

    heads = "| level at first | level after the change | moves | apart at the end | publish gap, median"
    return table(heads, [row(name, text) for name, text in SHORT_TITLES.items()])


def _ends(runs: Runs) -> list[float]:
    return [run["shift"]["uneven_end"] for run in runs]


def title(run: Run) -> str:
    """The entrant of a run, as the benchmark calls it."""
    return f"{run['run_by']}: {run['strategy']}, {run['manager']}, every {run['interval']}"


def _data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "data" / "side-by-side.json").read_text())
    runs = found["runs"]
    return {**found, "runs": {name: runs[name] for name in sorted(runs, key=_place)}}


def _on(every: Mapping[str, Runs], *, shared: bool) -> dict[str, Runs]:
    """The runs of Pulsar's own balancers and of Trim, on a machine whose host is `shared` or is not."""
    found = {name: [run for run in every[name] if (run.get("host") == "shared") == shared] for name in SHORT_TITLES}
    return {name: runs for name, runs in found.items() if runs}


def _place(name: str) -> int:
    """The order: Pulsar's own balancers first, then Trim, then Trimtab's other strategies."""
    return 0 if name.startswith("pulsar") else 1 if "trim-" in name.removeprefix("trimtab") else 2


def _typical(runs: Runs) -> Run:
    order = sorted(runs, key=lambda run: run["first"]["uneven"] + run["shift"]["uneven"])
    return order[(len(order) - 1) // 2]


def _short(recorded: Mapping[str, Runs]) -> str:
    """A row for each question, with the best entrant of each side."""
    rows = [
        ("time until level, after the start", lambda run: run["first"][_SETTLED], "{:.0f} s"),
        ("time until level, after the change", lambda run: run["shift"][_SETTLED], "{:.0f} s"),
        ("least uneven at the end", lambda run: run["shift"]["uneven_end"], "{:.2f}"),
        ("smallest range of CPU at the end", lambda run: run["shift"]["cpu_range_end"], "{:.0f} points"),
        ("fewest moves, if the brokers were level before the change and at the end", _moves_if_level, "{:.0f}"),
        ("shortest publish gap of a move, median", lambda run: run["gaps"]["median"], "{:.0f} ms"),
    ]
    sides = ("pulsar", "trimtab")
    return table(
        "question | Pulsar's best | Trimtab's best",
        [(text, *(_best(recorded, side, value, form) for side in sides)) for text, value, form in rows],
    )


def _moves_if_level(run: Run) -> float | None:
    halves = (run["first"], run["shift"])
    level = all(half[_SETTLED] is not None for half in halves)
    return sum(half["moves"] for half in halves) if level else None


def _best(recorded: Mapping[str, Runs], side: str, value: Any, form: str) -> str:
    """The entrant of a side with the least median of `value`. A value of None means never."""
    found = [(_middle(map(value, runs)), runs[0]) for name, runs in recorded.items() if name.startswith(side)]
    least, run = min(found, key=lambda one: one[0])
    return "never" if math.isinf(least) else f"{form.format(least)} ({run['strategy']}, {run['manager']})"


def _middle(values: Iterable[float | None]) -> float:
    return median(math.inf if value is None else value for value in values)


def _cell(values: Iterable[float | None], digits: int = 0) -> str:
    """Median, and the range in brackets unless all runs are alike; - means never."""
    known = [math.inf if value is None else value for value in values]
    least, middle, most = (_number(value, digits) for value in (min(known), median(known), max(known)))
    return middle if least == most else f"{middle} ({least} to {most})"


def _number(value: float, digits: int) -> str:
    return "-" if math.isinf(value) else f"{value:,.{digits}f}"


def _level(recorded: Mapping[str, Runs]) -> str:
    columns = ((_SETTLED, 0), ("uneven", 2), ("uneven_end", 2), ("cpu_range_end", 0))
    rows = (
        (
            title(runs[0]),
            *(
                _cell([run[half][what] for run in runs], digits)
                for half in ("first", "shift")
                for what, digits in columns
            ),
        )
        for runs in recorded.values()
    )
    half = "level, s | uneven | at the half's end | CPU"
    return table(f"entrant | {half} | after the change: {half}", rows)


def _cost(recorded: Mapping[str, Runs]) -> str:
    rows = (
        (
            title(runs[0]),
            *(
                " + ".join(_cell([run[half][what] for run in runs]) for half in ("first", "shift"))
                for what in ("moves", "again")
            ),
            _cell([run["gaps"]["median"] for run in runs if run["gaps"]["median"] is not None] or [None]),
            _cell([run["gaps"]["interrupted"] for run in runs], 1),
            _cell([run["gaps"]["others"] for run in runs if run["gaps"]["others"] is not None] or [None]),
            _cell([run["errors"] for run in runs]),
            str(len(runs)),
            max(run["finished"] for run in runs)[:10],
            _cell([run["load"] for run in runs], 1),
        )
        for runs in recorded.values()
    )
    return table(
        "entrant | moves | again | gap, ms | silent, s | others, ms | errors | runs | day | load average", rows
    )


def _counts(recorded: Mapping[str, Runs]) -> str:
    """How many runs the entrants have."""
    numbers = sorted({len(runs) for runs in recorded.values()})
    return f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
