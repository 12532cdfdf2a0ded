"""Compares Pulsar's own balancers with Trimtab, on real brokers under the same load; see docs/side-by-side.md.

Each entrant gets its own cluster and the same scenario, one after the other. A run takes about 13 minutes. It needs a
machine without other work, whose host has no other guests (`vmstat`: steal is 0). A run is saved in
docs/data/side-by-side.json as soon as it has finished. `make docs` makes the page and its drawing from that file.
Recorded runs are not repeated, so the same command continues after an interruption. To replace old runs, give the time
that separates them from new ones:

    python benchmarks/side_by_side.py --runs 3 --since "2026-11-23 08:00"

The section "What to make of it" on docs/side-by-side.md is written by hand. Check it after new runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from side_by_side_entrants import ENTRANTS, RATE, TOPICS
from side_by_side_run import CORES, WARM_UP, play

DATA = Path(__file__).parents[1] / "docs" / "data" / "side-by-side.json"

Run = Mapping[str, Any]
Recorded = Mapping[str, Sequence[Run]]
"""Name of an entrant -> its runs."""

TIME = "%Y-%m-%d %H:%M"
"""The format of the time at which a run finished, in UTC."""


def read(file: Path) -> Recorded:
    """The runs in `file`; none if there is no such file."""
    return dict(json.loads(file.read_text())["runs"]) if file.exists() else {}


def write(file: Path, story: Mapping[str, Any], recorded: Recorded) -> None:
    """Replace `file` in one step, so that an interrupted program leaves the old one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(_written(story, recorded))
    new.replace(file)


def moment(text: str) -> str:
    """A time in the format of runs, from a day or a day and a time. Raises `ValueError` for anything else."""
    try:
        return datetime.strptime(text, TIME).strftime(TIME)  # noqa: DTZ007 - all of them are UTC
    except ValueError:
        return datetime.strptime(text, "%Y-%m-%d").strftime(TIME)  # noqa: DTZ007


def counting(runs: Iterable[Run], since: str) -> list[Run]:
    """Runs that finished at the time `since` or later. Older runs are replaced by new ones."""
    return [run for run in runs if run["finished"] >= since]


def due(recorded: Recorded, names: Iterable[str], runs: int, since: str = "") -> list[str]:
    """The entrants to run, in order, until each of `names` has `runs` runs since `since`.

    All first runs come before any second run, so that a change of the machine affects all entrants alike.
    """
    have = {name: len(counting(recorded.get(name, ()), since)) for name in names}
    return [name for number in range(runs) for name in have if have[name] <= number]


def other_lengths(recorded: Recorded, names: Iterable[str], minutes: float, since: str = "") -> list[str]:
    """As text, the runs since `since` whose halves are not `minutes` long. A median of both lengths means nothing."""
    return [
        f"{name} has a run of {run['minutes']:g} minutes a half, finished {run['finished']}"
        for name in names
        for run in counting(recorded.get(name, ()), since)
        if run["minutes"] != minutes
    ]


def _written(story: Mapping[str, Any], recorded: Recorded) -> str:
    """JSON with one line for each run, so that diffs stay small."""
    runs = ",\n".join(f" {json.dumps(name)}: [\n{_lines(of)}\n ]" for name, of in recorded.items())
    return f'{{"story": {json.dumps(story)},\n"runs": {{\n{runs}\n}}}}\n'


def _lines(runs: Sequence[Run]) -> str:
    return ",\n".join(f"  {json.dumps(run)}" for run in runs)


def main(arguments: list[str] | None = None) -> None:
    """Make the missing runs, and save the figures of each with those of earlier runs."""
    parser = _parser()
    given = parser.parse_args(arguments)
    names, recorded = given.only or list(ENTRANTS), read(given.json)
    missing = due(recorded, names, given.runs, given.since)
    if found := other_lengths(recorded, missing, given.minutes, given.since):
        parser.error(f"{found[0]}: can't be mixed with runs of {given.minutes:g}; give its --minutes, or use --since")
    if not missing:
        print(f"nothing to run: {given.json} has {given.runs} of each entrant; --since TIME requests new ones")
    for name in missing:
        figures = {"minutes": given.minutes, **play(ENTRANTS[name], 60 * given.minutes)}
        record(given.json, name, figures, given.since)
        _tell(name, figures)


def record(file: Path, name: str, figures: Mapping[str, Any], since: str = "") -> None:
    """Save a run after the entrant's other runs, and drop those that finished before `since`."""
    entrant, recorded = ENTRANTS[name], read(file)
    about = {"run_by": entrant.run_by, "manager": entrant.manager, "strategy": entrant.strategy}
    run = {**about, "interval": entrant.interval, **figures}
    runs = {**recorded, name: [*counting(recorded.get(name, ()), since), run]}
    missing = [str(entrant) for each, entrant in ENTRANTS.items() if each not in runs]
    story = {"topics": TOPICS, "rate": RATE, "cores": CORES, "warm_up": WARM_UP, "missing": missing}
    write(file, story, {each: runs[each] for each in ENTRANTS if each in runs})


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:26} {entrant}" for name, entrant in ENTRANTS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\nentrants:\n{lines}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=ENTRANTS, help="run only this entrant; may be repeated")
    parser.add_argument("--runs", type=_runs, default=1, help="runs of each, including recorded ones (%(default)s)")
    parser.add_argument("--since", type=_moment, default="1970-01-01", metavar="'DAY [HH:MM]'", help=_SINCE)
    parser.add_argument("--minutes", type=float, default=5, help="minutes of each half (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=DATA, help="file of the figures (default: %(default)s)")
    return parser


_SINCE = "runs that finished before this time (UTC) do not count: an entrant's first new run replaces them"


def _runs(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is not a number of runs; give 1 or more, such as --runs 3")
    return int(text)


def _moment(text: str) -> str:
    try:
        return moment(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text} is not a time; write it as 2026-11-23 or '2026-11-23 08:00'"
        ) from None


def _tell(name: str, figures: Mapping[str, Any]) -> None:
    short = {key: value for key, value in figures.items() if key not in ("first", "shift")}
    print(name, json.dumps(short))
    for part in ("first", "shift"):
        print(
            f"  {part}", json.dumps({k: v for k, v in figures[part].items() if k not in ("rates", "cpu")}), flush=True
        )


if __name__ == "__main__":
    main()
