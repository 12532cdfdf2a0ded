"""`trimtab backtest`: replay policies over the recorded load, and compare them with what really happened."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
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

--spark runs replays in parallel on the cores of this machine (local[2]) or of a cluster, whose executors must be able
to read the history. Policies run in parallel, and with --window the windows do, too. Then it is not known which owners
a policy would have chosen before a later window. So each later window begins with three hours in which the policies act
and nothing counts. The output says how much this changes.

examples:
  trimtab backtest --history DIR
  trimtab backtest --history DIR --policy new.yaml --days 7
  trimtab backtest --history DIR --policy new.yaml --against old.yaml --require "moves<=live*0.5, area<=live, cut<=2%"
  trimtab backtest --history DIR --policy new.yaml --sweep shedder.trim.price=200,400,800 --sweep interval=1m,5m
  trimtab backtest --history load.tar --policy new.yaml
  trimtab backtest --history s3://bucket/history --policy new.yaml --spark spark://HOST:7077 --window 1
  trimtab backtest --history DIR --policy new.yaml --html report.html
  trimtab backtest --history DIR --policy new.yaml -o markdown > comment.md
"""

DAYS = 14.0
"""Days of the recording that are replayed by default."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = add_verb(subparsers, "backtest", _DESCRIPTION, run)
    parser.add_argument(
        "--history",
        metavar="DIR",
        required=True,
        help="folder or URI of `trimtab run --history`, or FILE.tar of an export",
    )
    parser.add_argument(
        "--recorded",
        metavar="NAME",
        help="policy whose history is replayed, as namespace/name or name (default: the only one)",
    )
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--days", type=_positive, default=DAYS, help=f"days before the end to replay (default {DAYS:g})")
    begin.add_argument("--from", dest="begin", type=moment, metavar="TIME", help=f"first cycle to replay: {HELP}")
    parser.add_argument("--to", dest="end", type=moment, metavar="TIME", help="last cycle to replay, in the same form")
    parser.add_argument("--seed", type=int, default=1, help="seed for choices between equally good brokers (default 1)")
    parser.add_argument(
        "--spark",
        metavar="MASTER",
        help="where to replay: local[N], spark://HOST:PORT or sc://HOST:PORT (default: this process)",
    )
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
    parser.add_argument(
        "--splits",
        choices=("on", "off"),
        default="off",
        help="also replay splits that the policies would make (default off)",
    )
    parser.add_argument("--require", metavar="RULES", default="", help="requirements, separated by commas")
    parser.add_argument("--window", type=_positive, metavar="DAYS", help="replay windows of this many days in parallel")
    parser.add_argument("--html", metavar="FILE", help="also write a page with charts to this file")
    add_output_option(parser, shapes=("table", "json", "markdown"))


def _require_splits(arguments: argparse.Namespace, sweeps: Sequence[Sweep]) -> None:
    """Raise `CommandError` for fields of the splitter without --splits on: all their variants would be equal."""
    if arguments.splits == "off" and (fields := [".".join(one.path) for one in sweeps if one.path[0] == "split"]):
        raise CommandError(f"--sweep {fields[0]}: the splitter has no effect without --splits on: add it")


def count(text: str) -> int:
    """Parse an argument that is a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def _positive(text: str) -> float:
    """Parse an argument that is a number above 0."""
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code. Raises `CommandError`."""
    from trimtab_lab.backtest.gate import InvalidRequirementError, requirements  # noqa: PLC0415  (loads numpy)
    from trimtab_lab.backtest.history import opened  # noqa: PLC0415
    from trimtab_lab.backtest.sweep import InvalidSweepError, Sweep  # noqa: PLC0415
    from trimtab_pipeline.history.export import ExchangeError, readable  # noqa: PLC0415

    try:
        required = requirements(arguments.require)
        sweeps = [Sweep.of(text) for text in arguments.sweep]
    except InvalidRequirementError as error:
        raise CommandError(f"--require: {error}") from error
    except InvalidSweepError as error:
        raise CommandError(f"--sweep: {error}") from error
    _require_splits(arguments, sweeps)
    if required and sweeps:
        raise CommandError("--require judges one policy, but --sweep makes many variants: use only one of them")
    if any(one.base == "against" for one in required) and not _files(arguments.against):
        raise CommandError("--require compares with `against`: name a policy with --against")
    if any(one.figure == "splits" for one in required) and arguments.splits == "off":
        raise CommandError("--require limits splits, but a replay makes none without --splits on: add it")
    try:
        with readable(arguments.history) as folder:
            return _played(arguments, opened(arguments, folder), required, sweeps)
    except ExchangeError as error:
        raise CommandError(str(error)) from error


def _played(
    arguments: argparse.Namespace, window: ReplayWindow, required: Sequence[Requirement], sweeps: Sequence[Sweep]
) -> int:
    """Replay the window, print the result, and return the exit code. Raises `CommandError`."""
    from trimtab_lab.backtest.players import Chosen, Players  # noqa: PLC0415  (loads numpy)
    from trimtab_lab.backtest.runners import progress, runner  # noqa: PLC0415

    chosen = Chosen(arguments.policy, _files(arguments.against), sweeps, arguments.samples, arguments.splits == "on")
    players = Players.of(window, chosen, arguments.seed)
    if required and len(players.judged) > 1:
        raise CommandError(f"--require judges one policy, but --policy names {len(players.judged)}: give only one")
    with runner(arguments.spark) as tasks, progress() as report:
        window.play(players.replays, tasks, report)
    return _report(arguments, window, players, required)


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
) -> int:
    """Print the result, and return the exit code."""
    from trimtab_lab.backtest.report import BacktestReport  # noqa: PLC0415
    from trimtab_operator.cli.tables import console, print_grid  # noqa: PLC0415

    report = BacktestReport.of(window, players, required)
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
