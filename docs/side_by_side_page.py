"""The page of `benchmarks/side_by_side.py`: tables and a drawing from the figures that its last runs left."""  # noqa: INP001 - a part of a script

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import side_by_side_plot
from side_by_side_words import MEASURES, Run, best, number, title

DATA = Path(__file__).parent / "data" / "side-by-side.json"

INTRODUCTION = """\
# Side by side on real brokers

<!-- made by docs/generate.py from docs/data/side-by-side.json (`python benchmarks/side_by_side.py`): `make docs` -->

Pulsar's own balancers and Trimtab, each on a fresh cluster of three real brokers (Pulsar 4.0.8, ZooKeeper, one bookie)
with the same producers and consumers. {topics} topics in 24 bundles get {rate:.0f} messages/s of 512 bytes in all, by
Zipf: the first topic {hottest:.0f}, the last {coldest:.0f}. At first the 14 bundles with the most messages are on
broker 0. Half-way the hot topics change: those of the broker that then serves the most topics, whichever that is, get
the highest rates, so that the change is equally hard on every placement.

**What is the same.** The load, the beginning, the change; measurements from outside (owners by the admin REST every
half second, CPU from the kernel, acknowledgements counted by the producers). Each broker is in a control group of
{cores:g} cores, so that it sees its own CPU and nobody else's, Pulsar's balancers and Trimtab's source alike. Balancing
is switched on after {warm_up:.0f} s of steady load. Amounts below which nothing is worth moving are made for larger
clusters: here `minUnloadMessage` is 10, `minUnloadMessageThroughput` 10,000 and
`loadBalancerBundleUnloadMinThroughputThreshold` 0.01, and a bundle that moved stays for 3 minutes instead of 30;
Trimtab has the same in its policy. All else is at its default, the minute from one decision to the next too, which is
the least that Pulsar can be told.

**What is not fair, and to whom.** Brokers, bookie, ZooKeeper, clients and, in its runs, the operator with its API
server and Prometheus share one machine of {machine} cores with whatever else it does: the load average of each run is
in the table. Trimtab's side pays for its own tools with the same cores. Publish gaps contain the machine's pauses: the
column *others* is the longest silence of a topic that never moved. It is one run each; {minutes} minutes a half are few
for strategies that wait for several hits of a minute each. Network counts for nothing here, as loopback is no NIC.
*tuned* is UniformLoadShedder with `rateDifference: 25`, `maxUnload: 0.5` and `compatibility: corrected`, every 15 s: no
default, and Pulsar can't decide more often than once a minute, but could be told the other two.
"""

COLUMNS = """\
| column | what it is |
|---|---|
| level | seconds until the brokers' messages/s differ by no more than half of their mean for the rest of the half; - if they do not |
| uneven | (most - least) / mean of the brokers' messages/s: mean of the half, and of its last 30 s; 3 is all on one |
| CPU | range of the brokers' CPU in points of their box: mean of the half, and of its last 30 s |
| moves, again | bundles that changed their broker; of these, those that had in this half before |
| back | bundles let go that came back to the same broker |
| gap | longest silence of a topic whose bundle moved, within 2 s of it: median, 90th percentile, longest of all moves, ms |
| silent | seconds of all moved topics together that they were silent for longer than between two of their messages |
| others | longest silence of a topic that never moved, ms |
"""  # noqa: E501 - rows of a table


def page() -> str:
    """The whole page."""
    data = json.loads(DATA.read_text())
    runs: Mapping[str, Run] = data["runs"]
    listed = list(runs.values())
    parts = [
        _introduction(data["story"], listed),
        "![Messages/s and CPU of each broker over time, one drawing for each run](side-by-side.svg)\n",
        *_missing(data["story"]["missing"]),
        "## Who comes off best\n",
        "| at what | who | Pulsar's best | Trimtab's best |",
        "|---|---|---|---|",
        *(best(measure, listed) for measure in MEASURES),
        "\n## How level\n",
        "| | first half: level | uneven | CPU | after the change: level | uneven | CPU |",
        "|---|---|---|---|---|---|---|",
        *(f"| {title(run)} | {_level(run['first'])} | {_level(run['shift'])} |" for run in listed),
        "\n## What it cost\n",
        "| | moves | again | back | gap | silent | others | send errors | minutes a half | load average |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(f"| {title(run)} | {_cost(run)} |" for run in listed),
        f"\n{COLUMNS}",
        *_read(),
    ]
    return "\n".join(parts).rstrip() + "\n"


def drawing() -> str:
    """The SVG file that the page shows."""
    data = json.loads(DATA.read_text())
    return side_by_side_plot.draw(_paired(data["runs"]), data["story"]["rate"])


def _introduction(story: Mapping[str, Any], runs: Sequence[Run]) -> str:
    shares = [1 / (rank + 1) for rank in range(story["topics"])]
    zipf = {"hottest": story["rate"] / sum(shares), "coldest": story["rate"] * shares[-1] / sum(shares)}
    minutes = " or ".join(f"{each:g}" for each in sorted({run["minutes"] for run in runs}))
    return INTRODUCTION.format(**story, **zipf, machine=runs[0]["cores"], minutes=minutes)


def _missing(entrants: Sequence[str]) -> list[str]:
    """Whom the page says nothing of, so that nobody takes it for a verdict on them."""
    return [f"**Not run yet.** {'; '.join(entrants)}.\n"] if entrants else []


def _level(half: Mapping[str, Any]) -> str:
    uneven = f"{number(half['uneven'], 2)}, {number(half['uneven_end'], 2)}"
    cpu = f"{number(half['cpu_range'])}, {number(half['cpu_range_end'])}"
    return f"{number(half['settled'])} | {uneven} | {cpu}"


def _cost(run: Run) -> str:
    first, shift, gaps = run["first"], run["shift"], run["gaps"]
    counts = [f"{first[what]} + {shift[what]}" for what in ("moves", "again", "returned")]
    gap = ", ".join(number(gaps[what]) for what in ("median", "p90", "max"))
    rest = (
        number(gaps["interrupted"], 1),
        number(gaps["others"]),
        f"{run['errors']}",
        f"{run['minutes']:g}",
        number(run["load"], 1),
    )
    return " | ".join([*counts, gap, *rest])


def _paired(runs: Mapping[str, Run]) -> list[Run]:
    """Pulsar's run of a strategy at the left, Trimtab's at the right; then what has no other side."""
    order = []
    for name, run in runs.items():
        if name.startswith("pulsar-"):
            order += [run, *(other for twin, other in runs.items() if twin == name.replace("pulsar", "trimtab", 1))]
    return order + [run for run in runs.values() if run not in order]


def _read() -> list[str]:
    """What a person makes of it, kept by hand beside the data."""
    notes = DATA.with_suffix(".md")
    return ["## What to make of it\n", notes.read_text()] if notes.exists() else []
