"""Pulsar's own balancers against Trimtab, on real brokers under the same load; see docs/side-by-side.md.

Each entrant gets a cluster of its own and plays the same story, one after the other: some 13 minutes each, on a machine
that has nothing else to do. Figures go to docs/data/side-by-side.json, from which `make docs` makes the page.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contest_entrants import ENTRANTS
from contest_run import CORES, WARM_UP, play
from contest_story import RATE, TOPICS

DATA = Path(__file__).parents[1] / "docs" / "data" / "side-by-side.json"


def main() -> None:
    """Run the entrants that are asked for, and put their figures beside those of earlier runs."""
    lines = "\n".join(f"  {name:26} {entrant}" for name, entrant in ENTRANTS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\nentrants:\n{lines}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=ENTRANTS, help="run this one alone; may be repeated")
    parser.add_argument("--minutes", type=float, default=5, help="of each half of the story (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=DATA, help="where the figures go (default: %(default)s)")
    options = parser.parse_args()
    for name in options.only or ENTRANTS:
        _keep(options.json, name, {"minutes": options.minutes, **play(ENTRANTS[name], 60 * options.minutes)})


def _keep(file: Path, name: str, figures: Mapping[str, Any]) -> None:
    entrant = ENTRANTS[name]
    about = {"run_by": entrant.run_by, "manager": entrant.manager, "strategy": entrant.strategy}
    run = {**about, "interval": entrant.interval, **figures}
    known = json.loads(file.read_text())["runs"] if file.exists() else {}
    runs = {each: {**known, name: run}[each] for each in ENTRANTS if each in known or each == name}
    file.parent.mkdir(parents=True, exist_ok=True)
    missing = [str(ENTRANTS[each]) for each in ENTRANTS if each not in runs]
    story = {"topics": TOPICS, "rate": RATE, "cores": CORES, "warm_up": WARM_UP, "missing": missing}
    file.write_text(_written({"story": story, "runs": runs}))
    short = {key: value for key, value in figures.items() if key not in ("first", "shift")}
    print(name, json.dumps(short))
    for part in ("first", "shift"):
        print(
            f"  {part}", json.dumps({k: v for k, v in figures[part].items() if k not in ("rates", "cpu")}), flush=True
        )


def _written(data: Mapping[str, Any]) -> str:
    """JSON with one line for each series, so that a change of one run is read at a glance."""
    runs = ",\n".join(f" {json.dumps(name)}: {json.dumps(run)}" for name, run in data["runs"].items())
    return f'{{"story": {json.dumps(data["story"])},\n"runs": {{\n{runs}\n}}}}\n'


if __name__ == "__main__":
    main()
