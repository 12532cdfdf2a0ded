"""`trimtab backtest`: replay policies over the recorded load, and compare them with what really happened."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab_operator.cli.common import (
    FINDING,
    FINE,
    HELP,
    CommandError,
    add_output_option,
    add_verb,
    moment,
    print_data,
)

if TYPE_CHECKING:
    from trimtab_lab.backtest.gate import Requirement
    from trimtab_lab.backtest.history import ReplayWindow
    from trimtab_lab.backtest.optimum import KnownLoad
    from trimtab_lab.backtest.optimum_result import OptimumResult
    from trimtab_lab.backtest.sweep import Sweep

_DESCRIPTION = """\
Replay policies over the load that `trimtab run --history` recorded, and compare their moves, costs and balance.

Each policy begins with the real owners of the bundles. Then it decides by itself, as the operator would have. The
traffic of each bundle is the recorded one. Each broker's usage is computed from the bundles that it has in the replay.
As long as these are the bundles that it really had, its usage is the measured one. The hour before --from only warms up
the averages and the memory, and does not count.

columns of the table:
  moves, again    bundles moved for balance or off a drained broker; of those, bundles that had moved before
  cut %           disconnected clients in percent of all; a client counts each time
  silent s        seconds for which moves interrupted publishers, summed over all bundles
  area            percentage points between the busiest and the idlest broker, mean over time
  within          difference between these two that was not exceeded for 95 % of the time, in points
  worst hour      mean difference between these two in the worst hour, in points
  hot min         broker-minutes above 85 %
  measured %      work that was measured on the broker that has it in the replay; a model estimates the rest

--sweep replays variants of the policy. Lists of values are combined with each other. Each sample takes one value from
every range. A star marks each variant that no other one beats: a variant with fewer disconnected clients has a larger
area, and one with a smaller area disconnects more clients.

With --require the command exits with 1 when a requirement is not met. A requirement compares a figure with a number, or
with the same figure of `live` (what really happened) or `against` (the first policy of --against), times a factor if
you like. The figures are moves, again, cut, silent, area, within, worst, hot, measured (as in measured>=80%) and, with
--splits on, splits.

A replay also empties drained brokers, and a policy balances only within its windows. The lines below the table say what
a replay leaves out.

--splits on also replays the splits that a policy would make. Without it, a policy plans none. The parts (children) of a
bundle share its traffic according to its recorded topics, or else its hourly sketch. Where neither is known, they share
it evenly. The report says how much of the work was in such parts, and how much of it was shared evenly.

--optimum searches for the best plan in hindsight: the moves that would have cost least if the load had been known in
advance. It adds a row and two columns. It is for small clusters and a few hours, and needs the extra `optimum`.
  cost            area + WEIGHT x percent of the clients cut each day (a shorter time counts as one day)
                  + broker-minutes above 85 % each hour / 5
  above %         percent by which the cost exceeds a bound that no plan can beat

--spark runs replays in parallel on the cores of this machine (local[2]) or of a cluster, whose executors must be able
to read the history. Policies run in parallel, and with --window the windows do, too. Then it is not known which owners
a policy would have chosen before a later window. So each later window begins with three hours in which the policies act
and nothing counts. The output says how much this changes.

examples:
  trimtab backtest --history DIR
  trimtab backtest --history DIR --policy new.yaml --days 7
  trimtab backtest --history DIR --policy new.yaml --against old.yaml --require "moves<=live*0.5, area<=live, cut<=2%"
  trimtab backtest --history DIR --policy new.yaml --sweep shedder.trim.price=200,400,800 --sweep interval=1m,5m
  trimtab backtest --history s3://bucket/history --policy new.yaml --spark spark://HOST:7077 --window 1
  trimtab backtest --history DIR --policy new.yaml --html report.html
  trimtab backtest --history DIR --policy new.yaml --days 0.05 --optimum
  trimtab backtest --history DIR --policy new.yaml -o markdown > comment.md
"""

DAYS = 14.0
"""Days of the recording that are replayed by default."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = add_verb(subparsers, "backtest", _DESCRIPTION, run)
    add_window_options(parser)
    parser.add_argument(
        "--policy",
        metavar="FILE",
        action="append",
        default=[],
        help="manifest of policies to replay; may be repeated",
    )
    parser.add_argument(
        "--against",
        metavar="FILE|live",
        action="append",
        default=[],
        help="what to compare with: a manifest, or live for what really happened (default live); may be repeated",
    )
    parser.add_argument(
        "--sweep",
        metavar="FIELD=VALUES",
        action="append",
        default=[],
        help="replay variants of the policy: values separated by commas, or a range like 100..1600; may be repeated",
    )
    parser.add_argument(
        "--samples", type=count, default=10, help="number of values to take from the ranges of --sweep (default 10)"
    )
    add_splits_option(parser)
    parser.add_argument("--require", metavar="RULES", default="", help="requirements, separated by commas")
    parser.add_argument("--window", type=positive, metavar="DAYS", help="replay windows of this many days in parallel")
    parser.add_argument("--optimum", action="store_true", help="also search for the best plan in hindsight")
    parser.add_argument(
        "--optimum-time", type=positive, default=60.0, metavar="SECONDS", help="time limit of --optimum (default 60)"
    )
    parser.add_argument(
        "--weight",
        type=positive,
        default=1.0,
        help="points of cost per 1 %% of the clients cut each day, for --optimum (default 1)",
    )
    parser.add_argument("--html", metavar="FILE", help="also write a page with charts to this file")
    add_output_option(parser, shapes=("table", "json", "markdown"))


def add_window_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is replayed, and where."""
    parser.add_argument("--history", metavar="DIR", required=True, help="folder or URI of `trimtab run --history`")
    parser.add_argument(
        "--recorded",
        metavar="NAME",
        help="policy whose history is replayed, as namespace/name or name (default: the only one)",
    )
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--days", type=positive, default=DAYS, help=f"days before the end to replay (default {DAYS:g})")
    begin.add_argument("--from", dest="begin", type=moment, metavar="TIME", help=f"first cycle to replay: {HELP}")
    parser.add_argument("--to", dest="end", type=moment, metavar="TIME", help="last cycle to replay, in the same form")
    parser.add_argument("--seed", type=int, default=1, help="seed for choices between equally good brokers (default 1)")
    parser.add_argument(
        "--spark",
        metavar="MASTER",
        help="where to replay: local[N], spark://HOST:PORT or sc://HOST:PORT (default: this process)",
    )


def add_splits_option(parser: argparse.ArgumentParser) -> None:
    """Add the option --splits."""
    parser.add_argument(
        "--splits",
        choices=("on", "off"),
        default="off",
        help="also replay splits that the policies would make (default off)",
    )


def require_splits(arguments: argparse.Namespace, option: str, sweeps: Sequence[Sweep]) -> None:
    """Raise `CommandError` for fields of the splitter without --splits on: all their variants would be equal."""
    if arguments.splits == "off" and (fields := [".".join(one.path) for one in sweeps if one.path[0] == "split"]):
        raise CommandError(f"{option} {fields[0]}: the splitter has no effect without --splits on: add it")


def count(text: str) -> int:
    """Parse an argument that is a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def positive(text: str) -> float:
    """Parse an argument that is a number above 0."""
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code. Raises `CommandError`."""
    from trimtab_lab.backtest.gate import InvalidRequirementError, requirements  # noqa: PLC0415  (loads numpy)
    from trimtab_lab.backtest.history import opened  # noqa: PLC0415
    from trimtab_lab.backtest.players import Chosen, Players  # noqa: PLC0415
    from trimtab_lab.backtest.runners import progress, runner  # noqa: PLC0415
    from trimtab_lab.backtest.sweep import InvalidSweepError, Sweep  # noqa: PLC0415

    try:
        required = requirements(arguments.require)
        sweeps = [Sweep.of(text) for text in arguments.sweep]
    except InvalidRequirementError as error:
        raise CommandError(f"--require: {error}") from error
    except InvalidSweepError as error:
        raise CommandError(f"--sweep: {error}") from error
    require_splits(arguments, "--sweep", sweeps)
    if required and sweeps:
        raise CommandError("--require judges one policy, but --sweep makes many variants: use only one of them")
    if any(one.base == "against" for one in required) and not _files(arguments.against):
        raise CommandError("--require compares with `against`: name a policy with --against")
    if any(one.figure == "splits" for one in required) and arguments.splits == "off":
        raise CommandError("--require limits splits, but a replay makes none without --splits on: add it")
    _require_fit(arguments)
    window = opened(arguments)
    known = _known_load(window) if arguments.optimum else None
    chosen = Chosen(arguments.policy, _files(arguments.against), sweeps, arguments.samples, arguments.splits == "on")
    players = Players.of(window, chosen, arguments.seed)
    if required and len(players.judged) > 1:
        raise CommandError(f"--require judges one policy, but --policy names {len(players.judged)}: give only one")
    with runner(arguments.spark) as tasks, progress() as report:
        window.play(players.replays, tasks, report)
    optimum = _optimum(arguments, known) if known else None
    return _report(arguments, window, players, required, optimum)


def _require_fit(arguments: argparse.Namespace) -> None:
    """Raise `CommandError` for options that can't be combined with --optimum."""
    if not arguments.optimum:
        return
    if arguments.splits == "on":
        raise CommandError("--optimum can't plan splits: leave out --splits on")
    if arguments.window is not None:
        raise CommandError("--optimum plans the whole time as one, but --window divides it: use only one of them")
    import_module("trimtab_lab.backtest.solver")  # fails early if it is not installed


def _known_load(window: ReplayWindow) -> KnownLoad:
    from trimtab_lab.backtest.optimum import KnownLoad, NoOptimumError  # noqa: PLC0415  (loads the solver)

    try:
        return KnownLoad.of(window)
    except NoOptimumError as error:
        raise CommandError(f"--optimum: {error}") from error


def _optimum(arguments: argparse.Namespace, known: KnownLoad) -> OptimumResult:
    from trimtab_lab.backtest.optimum import NoOptimumError  # noqa: PLC0415  (loads the solver)
    from trimtab_lab.backtest.runners import searching  # noqa: PLC0415

    try:
        with searching(arguments.optimum_time):
            return known.best(arguments.weight, arguments.optimum_time)
    except NoOptimumError as error:
        raise CommandError(f"--optimum: {error}") from error


def _write_page(file: str, report: Any, players: Any) -> None:
    from trimtab_lab.backtest.html_report import html_report  # noqa: PLC0415

    try:
        Path(file).write_text(html_report(report, players), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--html {file}: {error.strerror}") from error


def _files(against: Sequence[str]) -> list[str]:
    return [file for file in against if file != "live"]


def _report(
    arguments: argparse.Namespace,
    window: ReplayWindow,
    players: Any,
    required: Sequence[Requirement],
    optimum: OptimumResult | None,
) -> int:
    """Print the result, and return the exit code."""
    from trimtab_lab.backtest.report import BacktestReport  # noqa: PLC0415
    from trimtab_operator.cli.tables import console, print_grid  # noqa: PLC0415

    report = BacktestReport.of(window, players, required, optimum)
    if arguments.output == "json":
        print_data(report.as_data(), "json")
    elif arguments.output == "markdown":
        print(report.markdown(), end="")
    else:
        screen = console(arguments.color)
        screen.print(report.title, style="bold")
        print_grid(screen, report.grid)
        for line in report.lines:
            screen.print(line)
        for line in report.failed:
            print(f"not met: {line}", file=sys.stderr)
    if arguments.html:  # last, so that a file that can't be written loses no result
        _write_page(arguments.html, report, players)
    return FINDING if report.failed else FINE
