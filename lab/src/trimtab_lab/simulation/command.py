"""`trimtab simulate`: play strategies in a simulated cluster, and compare their moves, costs and balance."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from trimtab_lab.backtest.command import count
from trimtab_lab.simulation.compare import COLUMNS, Outcome, intervals, outcomes
from trimtab_lab.simulation.contenders import Player, UnknownContenderError, contender, played, shown
from trimtab_lab.simulation.scenario import InvalidScenarioError, Scenario, catalogue, load
from trimtab_operator.cli.common import CommandError, add_output_option, add_verb

_DESCRIPTION = """\
Play strategies in a simulated cluster. No cluster, Java or Prometheus is needed.

A scenario is a name from the catalogue (--list) or a YAML file. Each strategy plays it with the same load, once per
seed.
A policy plays with its strategies, parameters, limits and interval. Notes list its settings that have no effect here.

The table shows medians over the seeds, with the 5th and 95th percentile in brackets. The strategy with the lowest cost
comes first.

columns of the table:
  moves, again, uphill    bundles moved for balance; those that had moved before; moves to a busier broker
  splits, owners          bundles split; how often bundles without an owner got one, per bundle of the cluster
  cut %                   disconnected clients in percent of all; a client counts each time
  balanced                minutes until the brokers stay within 20 points of each other
  area, left              points between the brokers: mean over the run; at its end
  overshoot, hot          points by which a move made a broker too busy; broker-minutes above 85 %
  unserved %, p99 ms      traffic that full machines did not serve; publish latency
  cost                    one figure for all of this: lower is better

examples:
  trimtab simulate skewed
  trimtab simulate new-broker my.yaml --strategy Trim --against AvgShedder,TransferShedder/Pulsar --seeds 30 --jobs 2
  trimtab simulate --policy policy.yaml --scenario my.yaml --against AvgShedder --seeds 30
  trimtab simulate skewed --against AvgShedder/Pulsar --picture load.svg
  trimtab simulate time-zones --strategy ThresholdShedder --seeds 1 --record trimtab-history
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = add_verb(subparsers, "simulate", _DESCRIPTION, run)
    parser.add_argument(
        "scenarios", metavar="SCENARIO", nargs="*", help="a catalogue name, or a YAML file; `all`: the catalogue"
    )
    parser.add_argument(
        "--scenario", metavar="SCENARIO", dest="more", action="append", default=[], help="one more scenario"
    )
    parser.add_argument("--list", action="store_true", help="print the catalogue")
    parser.add_argument("--strategy", metavar="NAME", help="shedder to play (default Trim, unless there is a --policy)")
    parser.add_argument(
        "--policy",
        metavar="FILE",
        action="append",
        default=[],
        help="manifest with BalancingPolicy objects to play; may be repeated",
    )
    parser.add_argument(
        "--against",
        metavar="NAMES",
        default="",
        help="other strategies, separated by commas, or `all`; Shedder/Pulsar runs the shedder as Pulsar does",
    )
    parser.add_argument("--seeds", type=count, default=5, help="number of runs of each strategy (default 5)")
    parser.add_argument("--first-seed", type=int, default=1, help="seed of the first run (default 1)")
    parser.add_argument("--jobs", type=count, default=os.cpu_count() or 1, help="processes (default: all cores)")
    parser.add_argument(
        "--columns", metavar="NAMES", type=_columns, help="comma-separated columns of the table; `all` (default: seven)"
    )
    parser.add_argument(
        "--picture", metavar="FILE.svg", type=_svg, help="draw the load of each broker over time, for the first seed"
    )
    parser.add_argument(
        "--record", metavar="DIR", help="write one strategy's run in one scenario as a history for `trimtab backtest`"
    )
    add_output_option(parser, shapes=("table", "json"))


def _columns(text: str) -> list[str]:
    """The scores of `COLUMNS` that these headings name."""
    by_heading = {heading.removesuffix(" %").removesuffix(" ms"): name for name, heading in COLUMNS.items()}
    wanted = list(by_heading) if text == "all" else [word.strip() for word in text.split(",")]
    if unknown := [word for word in wanted if word not in by_heading]:
        raise argparse.ArgumentTypeError(f"column {unknown[0]!r} is unknown: use `all` or {', '.join(by_heading)}")
    return [by_heading[word] for word in wanted]


def _svg(text: str) -> Path:
    path = Path(text)
    if path.suffix != ".svg":
        raise argparse.ArgumentTypeError(f"{text} does not end in .svg: the picture is an SVG, so name it FILE.svg")
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {path.parent}: create it first")
    return path


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code. Raises `CommandError`."""
    if arguments.list:
        for name, scenario in catalogue().items():
            print(f"{name:<22} {' '.join(scenario.description.split())}")
        return 0
    names = [*arguments.scenarios, *arguments.more]
    if not names:
        raise CommandError("name a scenario, e.g. trimtab simulate skewed; trimtab simulate --list shows all")
    try:
        scenarios = catalogue() if "all" in names else {name: load(name) for name in names}
        who = _players(arguments)
    except (InvalidScenarioError, UnknownContenderError) as error:
        raise CommandError(str(error)) from error
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    if arguments.record:
        _record(arguments.record, scenarios, who, seeds[0])
    if arguments.output == "json":
        found = list(outcomes(scenarios, who, seeds, arguments.jobs))
        print(json.dumps([_data(outcome) for outcome in found], indent=2))
    else:
        found = list(_tables(scenarios, who, seeds, arguments))
    if arguments.picture:
        _draw(arguments.picture, scenarios, found)
    return 0


def _players(arguments: argparse.Namespace) -> list[Player]:
    """The policies, the strategy, and the others, each only once."""
    found: list[Player] = []
    if arguments.policy:
        from trimtab_lab.simulation.policy import policies  # noqa: PLC0415  (loads the Kubernetes client)

        given = policies(arguments.policy)
        for player in given:
            print(player.notes, file=sys.stderr)
        found += given
    first = arguments.strategy or ("" if found else "Trim")
    against = arguments.against
    others = [who.name for who in shown()] if against == "all" else against.split(",")
    return [*found, *dict.fromkeys(contender(name) for name in [first, *others] if name)]


def _data(outcome: Outcome) -> dict[str, Any]:
    """All runs and their intervals as JSON values."""
    found = intervals(outcome.scores)
    return {**outcome.as_data(), "summary": {name: asdict(interval) for name, interval in found.items()}}


def _tables(
    scenarios: dict[str, Scenario], who: Sequence[Player], seeds: Sequence[int], arguments: argparse.Namespace
) -> Iterator[Outcome]:
    """Print the table of each scenario as soon as its runs are over."""
    from trimtab_lab.simulation.summary import USUAL, grid, title, words  # noqa: PLC0415  (Rich takes a while to load)
    from trimtab_operator.cli.tables import console, print_grid  # noqa: PLC0415

    screen, columns = console(arguments.color), arguments.columns or USUAL
    found = outcomes(scenarios, who, seeds, arguments.jobs)
    for name, group in groupby(found, key=lambda outcome: outcome.scenario):
        group_found = list(group)
        screen.print(title(name, scenarios[name], len(seeds)), style="bold")
        print_grid(screen, grid(scenarios[name], group_found, columns))
        screen.print(words(scenarios[name], group_found))
        screen.print()
        yield from group_found


def _record(folder: str, scenarios: dict[str, Scenario], who: Sequence[Player], seed: int) -> None:
    """Play once more with the first seed, and write the run as a history. Raises `CommandError`."""
    from trimtab_lab.simulation.recorder import RunRecorder  # noqa: PLC0415  (loads pyarrow)
    from trimtab_pipeline.history.snapshot_writer import PULSARS_AVERAGES, SnapshotWriter  # noqa: PLC0415

    if len(scenarios) != 1 or len(who) != 1:
        raise CommandError(
            f"--record takes one scenario and one strategy, not {len(scenarios)} and {len(who)}: leave out the others"
        )
    [(name, scenario)], [player] = scenarios.items(), who
    manifest = getattr(player, "manifest", None)
    try:
        writer = SnapshotWriter(folder, f"simulated/{Path(name).stem}", PULSARS_AVERAGES)
        if writer.exists:
            raise CommandError(f"{folder} has a history of simulated/{Path(name).stem} already: name another folder")
        played(scenario, player, seed, RunRecorder(writer, None if manifest is None else manifest["spec"]))
    except (OSError, ValueError) as error:
        raise CommandError(f"--record {folder}: {error}") from error
    print(f"{folder} has the history of this run", file=sys.stderr)


def _draw(file: Path, scenarios: dict[str, Scenario], found: Sequence[Outcome]) -> None:
    from trimtab_lab.simulation.picture import draw  # noqa: PLC0415

    try:
        file.write_text(draw(scenarios, found), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"can't write {file}: {error.strerror}: name another file") from error
    print(f"{file} shows the load of each broker over time", file=sys.stderr)
