"""The page of `benchmarks/side_by_side.py`: tables and a drawing from the figures that its last runs left."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import side_by_side_plot
from side_by_side_runs import Run, Value, cell, measured, typical
from side_by_side_words import MEASURES, Runs, best, title

DATA = Path(__file__).parents[1] / "data" / "side-by-side.json"

INTRODUCTION = """\
# Side by side on real brokers

<!-- made by docs/tools/generate.py from docs/data/side-by-side.json: `make docs` -->

Pulsar's own balancers and Trimtab, each on a fresh cluster of three real brokers (Pulsar 4.0.8, ZooKeeper, one bookie)
with the same producers and consumers. {topics} topics in 24 bundles get {rate:.0f} messages/s of 512 bytes in all.
"""

METHOD = """\
## How it was measured

**The load.** The rates of the topics follow Zipf: the first topic gets {hottest:.0f} messages/s, the last
{coldest:.0f}. At first the 14 bundles with the most messages are on broker 0. Half-way the hot topics change.
The topics of the broker that then serves the most topics get the highest rates, so that the change is equally hard on
every placement.

**What is the same.** The load, the beginning and the change. All measurements come from outside: owners from the admin
REST every half second, CPU from the kernel, acknowledgements counted by the producers. Each broker is in a control
group of {cores:g} cores, so that Pulsar's balancers and Trimtab's source see the broker's own CPU only. Balancing is
switched on after {warm_up:.0f} s of steady load.

**Settings.** Pulsar's defaults for the least that is worth moving are made for larger clusters. Here `minUnloadMessage`
is 10, `minUnloadMessageThroughput` 10,000 and `loadBalancerBundleUnloadMinThroughputThreshold` 0.01. A bundle that
moved stays for 3 minutes instead of 30. Trimtab has the same in its policy. All else is at its default. So is the
minute from one decision to the next, which is the least that Pulsar can be told.

**What is not fair, and to whom.** Brokers, bookie, ZooKeeper and clients share one machine of {machine} cores with
whatever else it does. In Trimtab's runs the operator, its API server and Prometheus share it, too, so Trimtab pays for
its own tools. The load average of each run is in the table. Publish gaps contain the machine's pauses: the column
*others* is the longest silence of a topic that never moved. {count}; {minutes} minutes a half are few for
strategies that wait for several hits of a minute each. Network counts for nothing here, as loopback is no NIC.

**Tuned** is UniformLoadShedder with `rateDifference: 25`, `maxUnload: 0.5` and `compatibility: corrected`, every 15 s.
Pulsar could be told the first two, but can't decide more often than once a minute.
"""

COLUMNS = """\
| column | what it is |
|---|---|
| level | seconds until the brokers' messages/s differ by no more than half of their mean for the rest of the half; - if they do not |
| uneven | (most - least) / mean of the brokers' messages/s: mean of the half, and of its last 30 s; 3 is all on one |
| CPU | range of the brokers' CPU in points of their control group: mean of the half, and of its last 30 s |
| moves, again | bundles that changed their broker; of these, those that had in this half before |
| back | bundles let go that came back to the same broker |
| gap | longest silence of a topic whose bundle moved, within 2 s of it: median, 90th percentile, longest of all moves, ms |
| silent | seconds of all moved topics together that they were silent for longer than between two of their messages |
| others | longest silence of a topic that never moved, ms |
"""  # noqa: E501 - rows of a table


SEVERAL = """\
**Several runs.** A cell is the median of an entrant's runs. In brackets are the least and the most of them. A run that
never became level counts as later than any other. *Runs overlap* says that the better side had a run that was no better
than one of the other side's best: take that row for a draw. The drawing shows one run of each entrant: the middle one
by how uneven the brokers were.
"""


def page(file: Path = DATA) -> str:
    """The whole page, from the runs recorded in `file`."""
    data = json.loads(file.read_text())
    listed: list[Runs] = list(data["runs"].values())
    values = _values(data["story"], listed)
    parts = [
        INTRODUCTION.format(**values),
        "## In short\n",
        "| at what | who | Pulsar's best | Trimtab's best |",
        "|---|---|---|---|",
        *(best(measure, listed) for measure in MEASURES),
        "",
        "![Messages/s and CPU of each broker over time, one drawing for each run](side-by-side.svg)\n",
        *_missing(data["story"]["missing"]),
        *([SEVERAL] if any(len(runs) > 1 for runs in listed) else []),
        *_read(),
        "## How level\n",
        "| | first half: level | uneven | CPU | after the change: level | uneven | CPU |",
        "|---|---|---|---|---|---|---|",
        *(f"| {title(runs[0])} | {_level(runs, 'first')} | {_level(runs, 'shift')} |" for runs in listed),
        "\n## What it cost\n",
        "| | moves | again | back | gap | silent | others | send errors | minutes a half | load average |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(f"| {title(runs[0])}{_counted(runs, listed)} | {_cost(runs)} |" for runs in listed),
        f"\n{COLUMNS}",
        METHOD.format(**values),
    ]
    return "\n".join(parts).rstrip() + "\n"


def drawing(file: Path = DATA) -> str:
    """The SVG file that the page shows: one run of each entrant."""
    data = json.loads(file.read_text())
    shown = {name: typical(runs) for name, runs in data["runs"].items()}
    return side_by_side_plot.draw(_paired(shown), data["story"]["rate"])


def _values(story: Mapping[str, Any], listed: Sequence[Runs]) -> dict[str, Any]:
    """What the texts name: figures of the load, of the machine and of the runs."""
    runs = [run for of in listed for run in of]
    shares = [1 / (rank + 1) for rank in range(story["topics"])]
    zipf = {"hottest": story["rate"] / sum(shares), "coldest": story["rate"] * shares[-1] / sum(shares)}
    minutes = " or ".join(f"{each:g}" for each in sorted({run["minutes"] for run in runs}))
    count = _count(sorted({len(of) for of in listed}))
    return {**story, **zipf, "machine": runs[0]["cores"], "minutes": minutes, "count": count}


def _count(numbers: Sequence[int]) -> str:
    """How many runs there are of each entrant."""
    if numbers == [1]:
        return "It is one run each"
    return f"There are {' or '.join(map(str, numbers))} runs of each"


def _missing(entrants: Sequence[str]) -> list[str]:
    """Whom the page says nothing of, so that nobody takes it for a verdict on them."""
    return [f"**Not run yet.** {'; '.join(entrants)}.\n"] if entrants else []


def _level(runs: Runs, half: str) -> str:
    uneven = f"{_over(runs, half, 'uneven', 2)}, {_over(runs, half, 'uneven_end', 2)}"
    cpu = f"{_over(runs, half, 'cpu_range')}, {_over(runs, half, 'cpu_range_end')}"
    return f"{_over(runs, half, 'settled')} | {uneven} | {cpu}"


def _over(runs: Runs, half: str, what: str, digits: int = 0) -> str:
    return cell([run[half][what] for run in runs], digits)


def _cost(runs: Runs) -> str:
    whole = 0 if len(runs) % 2 else 1  # the median of an even number of counts may lie between two
    counts = [
        f"{_over(runs, 'first', what, whole)} + {_over(runs, 'shift', what, whole)}"
        for what in ("moves", "again", "returned")
    ]
    gap = ", ".join(cell(_gaps(runs, what)) for what in ("median", "p90", "max"))
    rest = (
        cell([run["gaps"]["interrupted"] for run in runs], 1),
        cell(_gaps(runs, "others")),
        cell([run["errors"] for run in runs], whole),
        " or ".join(f"{each:g}" for each in sorted({run["minutes"] for run in runs})),
        cell([run["load"] for run in runs], 1),
    )
    return " | ".join([*counts, gap, *rest])


def _gaps(runs: Runs, what: str) -> Sequence[Value]:
    """Of the runs in which there was such a gap at all."""
    return measured([run["gaps"][what] for run in runs])


def _counted(runs: Runs, listed: Sequence[Runs]) -> str:
    """How many runs an entrant has, where not all have as many."""
    alike = len({len(of) for of in listed}) == 1
    return "" if alike else f" ({len(runs)} run{'s' if len(runs) > 1 else ''})"


def _paired(runs: Mapping[str, Run]) -> list[Run]:
    """Pulsar's run of a strategy, then Trimtab's; last what has no other side."""
    order = []
    for name, run in runs.items():
        if name.startswith("pulsar-"):
            order += [run, *(other for twin, other in runs.items() if twin == name.replace("pulsar", "trimtab", 1))]
    return order + [run for run in runs.values() if run not in order]


def _read() -> list[str]:
    """What a person makes of it, kept by hand beside the data."""
    notes = DATA.with_suffix(".md")
    return ["## What to make of it\n", notes.read_text()] if notes.exists() else []
