"""Pulsar's own balancers against Trimtab, on real brokers under the same load; see docs/side-by-side.md.

Each entrant gets a cluster of its own and plays the same story, one after the other: some 13 minutes each, on a machine
that has nothing else to do. Figures go to docs/data/side-by-side.json as soon as a run has finished, and `make docs`
makes the page from them: medians, when there are several runs. What is recorded is not played again, so the same
command goes on after a break. New runs beside old ones need a line that divides them:

    python benchmarks/side_by_side.py --runs 3 --since "2026-11-23 08:00"

Then rewrite docs/data/side-by-side.md, which says by hand what to make of the figures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import contest_data
from contest_entrants import ENTRANTS
from contest_run import CORES, WARM_UP, play
from contest_story import RATE, TOPICS

DATA = Path(__file__).parents[1] / "docs" / "data" / "side-by-side.json"


def main(arguments: list[str] | None = None) -> None:
    """Play the runs that are missing, and put each one's figures beside those of earlier ones."""
    parser = _parser()
    given = parser.parse_args(arguments)
    names, recorded = given.only or list(ENTRANTS), contest_data.read(given.json)
    due = contest_data.due(recorded, names, given.runs, given.since)
    if found := contest_data.other_lengths(recorded, due, given.minutes, given.since):
        parser.error(f"{found[0]}: a median with runs of {given.minutes:g} says nothing; use its length or --since")
    if not due:
        print(f"nothing to play: {given.json} has --runs {given.runs} of each; --since TIME asks for new ones")
    for name in due:
        figures = {"minutes": given.minutes, **play(ENTRANTS[name], 60 * given.minutes)}
        record(given.json, name, figures, given.since)
        _tell(name, figures)


def record(file: Path, name: str, figures: Mapping[str, Any], since: str = "") -> None:
    """Save a run of an entrant behind its others; those that finished before `since` give way to it."""
    entrant, recorded = ENTRANTS[name], contest_data.read(file)
    about = {"run_by": entrant.run_by, "manager": entrant.manager, "strategy": entrant.strategy}
    run = {**about, "interval": entrant.interval, **figures}
    runs = {**recorded, name: [*contest_data.counting(recorded.get(name, ()), since), run]}
    missing = [str(entrant) for each, entrant in ENTRANTS.items() if each not in runs]
    story = {"topics": TOPICS, "rate": RATE, "cores": CORES, "warm_up": WARM_UP, "missing": missing}
    contest_data.write(file, story, {each: runs[each] for each in ENTRANTS if each in runs})


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:26} {entrant}" for name, entrant in ENTRANTS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\nentrants:\n{lines}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=ENTRANTS, help="run this one alone; may be repeated")
    parser.add_argument("--runs", type=_runs, default=1, help="of each entrant, recorded ones included (%(default)s)")
    parser.add_argument("--since", type=_moment, default="1970-01-01", metavar="'DAY [HH:MM]'", help=_SINCE)
    parser.add_argument("--minutes", type=float, default=5, help="of each half of the story (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=DATA, help="where the figures go (default: %(default)s)")
    return parser


_SINCE = "runs that finished before this time (UTC) do not count: an entrant's first new run replaces them"


def _runs(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is no number of runs; give 1 or more, as --runs 3")
    return int(text)


def _moment(text: str) -> str:
    try:
        return contest_data.moment(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no time; write it as 2026-11-23 or '2026-11-23 08:00'") from None


def _tell(name: str, figures: Mapping[str, Any]) -> None:
    short = {key: value for key, value in figures.items() if key not in ("first", "shift")}
    print(name, json.dumps(short))
    for part in ("first", "shift"):
        print(
            f"  {part}", json.dumps({k: v for k, v in figures[part].items() if k not in ("rates", "cpu")}), flush=True
        )


if __name__ == "__main__":
    main()
