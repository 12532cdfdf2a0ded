"""Run every strategy in every scenario of the lab: `python benchmarks/lab.py [--strategies Trim] [--seeds 30]`.

The figures are written to docs/data/comparison.json, from which `docs/tools/generate.py comparison` makes
docs/comparison.md. A cell is a strategy in a scenario. It has the 5th percentile, the median and the 95th percentile of
each score over the seeds 1 to N. A cell is saved as soon as it is measured, and all other cells of the file are kept. A
cell that already has N seeds or more is not measured again, so an interrupted run continues where it stopped. --again
measures such cells, too.

    python benchmarks/lab.py --jobs 2                               # whatever is missing of 30 seeds
    python benchmarks/lab.py --strategies Trim --again --jobs 2     # Trim anew, after a change; baselines stay
    python benchmarks/lab.py --golden                               # renew what the regression test expects of Trim

The same seed gives the same simulated cluster for every strategy, on every machine. Percentiles are numpy's.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from trimtab_lab.simulation import Contender, catalogue, contender, named, regression, shown
from trimtab_lab.simulation.compare import SeedInterval, measured
from trimtab_lab.simulation.verdict import cell

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "data" / "comparison.json"
GOLDEN = ROOT / "tests" / "lab" / "golden" / "catalogue.json"

SEEDS = 30
"""Number of runs of a cell."""


class Measurement(NamedTuple):
    """A cell of the comparison. scores: name -> value. seconds: processor time of one run."""

    scenario: str
    strategy: str
    seeds: int
    scores: dict[str, SeedInterval]
    seconds: float


def measure(scenario: str, who: Contender, seeds: int) -> Measurement:
    """Run a scenario of the catalogue with the seeds 1 to `seeds`."""
    began = time.process_time()
    [played] = measured({scenario: named(scenario)}, [who], range(1, seeds + 1))
    return Measurement(scenario, who.name, seeds, cell(played["runs"]), (time.process_time() - began) / seeds)


def read(file: Path = DATA) -> dict[tuple[str, str], dict[str, Any]]:
    """The cells of a file by scenario and strategy; none if there is no file."""
    rows = json.loads(file.read_text())["cells"] if file.exists() else []
    return {(row["scenario"], row["strategy"]): row for row in rows}


def save(new: Measurement, file: Path = DATA) -> None:
    """Write a cell into the file, in the catalogue's order. The file is read again first: other processes write it."""
    row = {"scenario": new.scenario, "strategy": new.strategy, "seeds": new.seeds}
    scores = {name: [_rounded(value) for value in (of.low, of.median, of.high)] for name, of in new.scores.items()}
    order = [(scenario, who.name) for scenario in catalogue() for who in shown()]
    with _alone(file.parent):
        cells = {**read(file), (new.scenario, new.strategy): {**row, "scores": scores}}
        lines = [json.dumps(cells[key]) for key in order if key in cells]
        fresh = file.with_suffix(".new")
        fresh.write_text('{"cells": [\n' + ",\n".join(lines) + "\n]}\n")
        fresh.replace(file)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder, so that other processes wait before they save there."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _rounded(value: float) -> float:
    return round(value, 3)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the requested cells that are missing."""
    given = _parser().parse_args(arguments)
    names = given.scenarios or list(catalogue())
    if given.golden:
        return renew(names)
    who = [contender(name) for name in given.strategies] or shown()
    there = {} if given.again else read(given.file)
    missing = [
        (name, one) for one in who for name in names if there.get((name, one.name), {"seeds": 0})["seeds"] < given.seeds
    ]
    for number, new in enumerate(_measured(missing, given.seeds, given.jobs), 1):
        save(new, given.file)
        cost = new.scores["cost"].median
        print(
            f"{number}/{len(missing)} {new.scenario} {new.strategy}: cost {cost:.1f}, {new.seconds:.2f} s a run",
            flush=True,
        )
    return 0


def renew(names: Sequence[str], file: Path = GOLDEN) -> int:
    """Run Trim in these scenarios, and write its scores into the golden file; prints the changes."""
    golden = regression.read(file) if file.exists() else {}
    for name in names:
        scenario = named(name)
        found = regression.play(scenario, regression.golden_seeds(scenario))
        before = golden.get(name, found)
        shared = {score: values[: len(before[score])] for score, values in found.items()}
        for word, lines in (("worse", regression.worse), ("better", regression.better)):
            for line in lines(name, before, shared, scenario.goal):
                print(f"{line} ({word})", flush=True)
        golden[name] = found
        regression.write(file, golden)
    return 0


def _measured(cells: Sequence[tuple[str, Contender]], seeds: int, jobs: int) -> Iterator[Measurement]:
    """The cells, each as soon as it is measured."""
    if jobs == 1:
        yield from (measure(name, who, seeds) for name, who in cells)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(measure, name, who, seeds) for name, who in cells]):
            yield done.result()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", nargs="+", metavar="NAME", default=[], help="scenarios to run; default all")
    parser.add_argument(
        "--strategies", nargs="+", metavar="NAME", default=[], help="Trim, AvgShedder/Pulsar; default all"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"runs of a cell (default {SEEDS})")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--again", action="store_true", help="measure complete cells again")
    parser.add_argument(
        "--golden", action="store_true", help="write Trim's scores into tests/lab/golden/catalogue.json"
    )
    parser.add_argument("--file", type=Path, default=DATA, help="file of the figures")
    return parser


if __name__ == "__main__":
    sys.exit(main())
