"""What `side_by_side.py` has recorded: the runs of each entrant, oldest first, in a file that is always whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

Run = Mapping[str, Any]
Recorded = Mapping[str, Sequence[Run]]
"""The runs by the name of their entrant."""

TIME = "%Y-%m-%d %H:%M"
"""How a run says when it finished, in UTC."""


def read(file: Path) -> Recorded:
    """The runs of `file`; none if there is no such file."""
    return dict(json.loads(file.read_text())["runs"]) if file.exists() else {}


def write(file: Path, story: Mapping[str, Any], recorded: Recorded) -> None:
    """Replace `file`: whoever ends the program meanwhile leaves the old one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(_written(story, recorded))
    new.replace(file)


def moment(text: str) -> str:
    """A time as runs have it, from a day or a day and a time. Raises `ValueError` for anything else."""
    try:
        return datetime.strptime(text, TIME).strftime(TIME)  # noqa: DTZ007 - all of them are UTC
    except ValueError:
        return datetime.strptime(text, "%Y-%m-%d").strftime(TIME)  # noqa: DTZ007


def counting(runs: Iterable[Run], since: str) -> list[Run]:
    """Those that finished at `since` or later; the others are of another time and give way to new ones."""
    return [run for run in runs if run["finished"] >= since]


def due(recorded: Recorded, names: Iterable[str], runs: int, since: str = "") -> list[str]:
    """Whose runs are missing until each of `names` has `runs` that count, in the order of play.

    Nobody's second run comes before everybody's first, so that what changes on the machine meets all alike.
    """
    have = {name: len(counting(recorded.get(name, ()), since)) for name in names}
    return [name for number in range(runs) for name in have if have[name] <= number]


def other_lengths(recorded: Recorded, names: Iterable[str], minutes: float, since: str = "") -> list[str]:
    """Runs that count but are of other `minutes` a half, in words: a median of both would compare nothing."""
    return [
        f"{name} has a run of {run['minutes']:g} minutes a half, finished {run['finished']}"
        for name in names
        for run in counting(recorded.get(name, ()), since)
        if run["minutes"] != minutes
    ]


def _written(story: Mapping[str, Any], recorded: Recorded) -> str:
    """JSON with one line for each run, so that a change is read at a glance."""
    runs = ",\n".join(f" {json.dumps(name)}: [\n{_lines(of)}\n ]" for name, of in recorded.items())
    return f'{{"story": {json.dumps(story)},\n"runs": {{\n{runs}\n}}}}\n'


def _lines(runs: Sequence[Run]) -> str:
    return ",\n".join(f"  {json.dumps(run)}" for run in runs)
