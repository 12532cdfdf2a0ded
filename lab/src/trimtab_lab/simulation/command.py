"""`trimtab simulate`: play strategies in a simulated cluster, and compare what they moved, cut and left."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence

from trimtab_lab.simulation.compare import COLUMNS, measured, table
from trimtab_lab.simulation.contenders import Contender, UnknownContenderError, contender, shown
from trimtab_lab.simulation.scenario import InvalidScenarioError, Scenario, catalogue, load
from trimtab_operator.cli.common import CommandError

_DESCRIPTION = """\
Play strategies in a simulated cluster. No cluster, Java or Prometheus is needed.

A scenario is a name of the catalogue (--list) or a YAML file. Each strategy plays it with the same load, once per seed.
The table shows medians:

  moves, again, uphill    bundles moved for balance; those that had moved before; moves to a busier broker
  cut %                   clients that lost their connection, in percent of all; counted each time
  balanced                minutes until the brokers stay within 20 points of each other
  area, left              points between the brokers, on average over the run, and at its end
  overshoot, hot          points by which a move made a broker too busy; broker-minutes above 85 %
  unserved %, p99 ms      traffic that full machines did not serve; publish latency
  cost                    one figure for all of it: less is better

examples:
  trimtab simulate skewed
  trimtab simulate new-broker my.yaml --strategy Trim --against AvgShedder,TransferShedder/Pulsar --seeds 30 --jobs 2
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "simulate",
        help="play strategies in a simulated cluster",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "scenarios", metavar="SCENARIO", nargs="*", help="a name of the catalogue, or a YAML file; `all`: the catalogue"
    )
    parser.add_argument("--list", action="store_true", help="print the catalogue")
    parser.add_argument("--strategy", metavar="NAME", default="Trim", help="shedder to play (default Trim)")
    parser.add_argument(
        "--against",
        metavar="NAMES",
        default="",
        help="others, with commas: Shedder/Pulsar plays as Pulsar runs it; `all`",
    )
    parser.add_argument("--seeds", type=_positive, default=5, help="number of runs (default 5)")
    parser.add_argument("--first-seed", type=int, default=1, help="seed of the first run (default 1)")
    parser.add_argument("--jobs", type=_positive, default=os.cpu_count() or 1, help="processes (default: all cores)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="format (default table)")
    parser.set_defaults(run=run)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code."""
    if arguments.list:
        for name, scenario in catalogue().items():
            print(f"{name:<22} {' '.join(scenario.description.split())}")
        return 0
    if not arguments.scenarios:
        raise CommandError("name a scenario, e.g. trimtab simulate skewed; trimtab simulate --list shows all")
    try:
        scenarios = catalogue() if arguments.scenarios == ["all"] else {n: load(n) for n in arguments.scenarios}
        who = _players(arguments.strategy, arguments.against)
    except (InvalidScenarioError, UnknownContenderError) as error:
        raise CommandError(str(error)) from error
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    if arguments.output == "json":
        print(json.dumps(measured(scenarios, who, seeds, arguments.jobs), indent=2))
    else:
        _print(scenarios, who, seeds, arguments.jobs)
    return 0


def _players(strategy: str, against: str) -> list[Contender]:
    """The contenders, each once."""
    others = [who.name for who in shown()] if against == "all" else [name for name in against.split(",") if name]
    return list(dict.fromkeys(contender(name) for name in [strategy, *others]))


def _print(scenarios: dict[str, Scenario], who: Sequence[Contender], seeds: Sequence[int], jobs: int) -> None:
    widths = [max(7, len(heading)) for heading in COLUMNS.values()]
    first = max(len("scenario"), *map(len, scenarios))
    second = max(len("strategy"), *(len(one.name) for one in who))
    for scenario, strategy, *cells in table(scenarios, who, seeds, jobs):
        numbers = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        print(f"{scenario:<{first}}  {strategy:<{second}}", *numbers, flush=True)
