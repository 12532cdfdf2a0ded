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
Replay policies over the load that `trimtab run --history` recorded: what would they have moved, cut and left?

Each policy begins with the owners that the bundles had, and then decides by itself, as the operator would have. The
traffic of each bundle is the recorded one. What a broker would have used follows from the bundles that it would have
had; while they are where they really were, it is what was measured. The hour before --from warms up the averages and
the memory, and does not count.

columns of the table:
  moves, again    bundles moved for balance or off a drained broker; of those, bundles that had moved before
  cut %           clients that lost their connection, in percent of all; counted each time
  silent s        seconds for which moves interrupted publishers, of all bundles together
  area            points between the busiest and the idlest broker, mean over time
  within          the same: points that were not exceeded for 95 % of the time
  worst hour      the same: mean of the worst hour
  hot min         broker-minutes above 85 %
  measured %      work that was measured on the broker that would have had it; the rest follows a model

--sweep replays a variant of the policy for each combination of values. Lists are combined with each other; each sample
takes a value from every range. A star marks the variants that no other one beats: none has fewer clients cut and the
brokers as near to each other.

--require exits with 1 when a requirement is not met. It compares a figure with a number, or with that of `live` (what
really happened) or `against` (the first policy of --against), times a factor if you like. The figures are moves, again,
cut, silent, area, within, worst, hot, measured (as in measured>=80%) and, with --splits on, splits.

Drained brokers are emptied in a replay, too, and a policy balances within its windows. What a replay leaves out is said
below the table.

--splits on replays the splits that a policy would make, too; else it plans none. The traffic of a bundle is shared out
to its parts by its recorded topics, or by its hourly sketch; where neither is known, evenly. The report says how much
of the work was in such parts, and how much of it was shared out evenly.

--optimum searches the best plan in hindsight: the moves that would have cost least, had the load been known. It adds a
row and two columns. It is for small clusters and some hours, and needs the extra `optimum`.
  cost            area + WEIGHT x percent of the clients cut each day (less than a day counts as one)
                  + broker-minutes above 85 % each hour / 5
  above %         percent by which that is above the least that is possible

--spark spreads the replays over the cores of this machine (local[2]) or of a cluster, whose executors must see the
history. Policies are spread, and with --window also parts of the time: each window but the first begins with three
hours in which the policies act and nothing counts, instead of with the owners that they would have left. The output
says what that changed.

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
"""Days of the recording that are replayed unless others are asked for."""


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
        help="replay variants of the policy: values with commas, or a range like 100..1600; may be repeated",
    )
    parser.add_argument(
        "--samples", type=count, default=10, help="variants with values from the ranges of --sweep (default 10)"
    )
    add_splits_option(parser)
    parser.add_argument("--require", metavar="RULES", default="", help="requirements, with commas between them")
    parser.add_argument(
        "--window", type=positive, metavar="DAYS", help="replay windows of so many days at the same time"
    )
    parser.add_argument("--optimum", action="store_true", help="also search the best plan in hindsight")
    parser.add_argument(
        "--optimum-time", type=positive, default=60.0, metavar="SECONDS", help="end the search then (default 60)"
    )
    parser.add_argument(
        "--weight",
        type=positive,
        default=1.0,
        help="of --optimum: points that 1 %% of the clients cut each day are worth (default 1)",
    )
    parser.add_argument("--html", metavar="FILE", help="also write a page with charts to this file")
    add_output_option(parser, shapes=("table", "json", "markdown"))


def add_window_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is replayed, and where."""
    parser.add_argument("--history", metavar="DIR", required=True, help="folder or URI of `trimtab run --history`")
    parser.add_argument(
        "--recorded", metavar="NAME", help="policy whose history is replayed, as namespace/name or name (the only one)"
    )
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--days", type=positive, default=DAYS, help=f"days before the end to replay (default {DAYS:g})")
    begin.add_argument("--from", dest="begin", type=moment, metavar="TIME", help=f"first cycle to replay: {HELP}")
    parser.add_argument("--to", dest="end", type=moment, metavar="TIME", help="last cycle to replay, in the same way")
    parser.add_argument("--seed", type=int, default=1, help="for choices between equally good brokers (default 1)")
    parser.add_argument(
        "--spark",
        metavar="MASTER",
        help="where to replay: local[N], spark://HOST:PORT or sc://HOST:PORT (default here)",
    )


def add_splits_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that also replays splits."""
    parser.add_argument(
        "--splits", choices=("on", "off"), default="off", help="also replay splits that the policies would make (off)"
    )


def require_splits(arguments: argparse.Namespace, option: str, sweeps: Sequence[Sweep]) -> None:
    """Raise `CommandError` for fields of the splitter if no splits are replayed: their variants would all be equal."""
    if arguments.splits == "off" and (fields := [".".join(one.path) for one in sweeps if one.path[0] == "split"]):
        raise CommandError(f"{option} {fields[0]}: without --splits on the splitter has no effect, so add it")


def count(text: str) -> int:
    """A number of things, as an argument."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def positive(text: str) -> float:
    """A number above 0, as an argument."""
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
        raise CommandError("--require judges one policy, and --sweep makes many of it: give one of them")
    if any(one.base == "against" for one in required) and not _files(arguments.against):
        raise CommandError("--require compares with `against`: name a policy with --against")
    if any(one.figure == "splits" for one in required) and arguments.splits == "off":
        raise CommandError("--require limits splits, and without --splits on a replay makes none: add it")
    _require_fit(arguments)
    window = opened(arguments)
    known = _known_load(window) if arguments.optimum else None
    chosen = Chosen(arguments.policy, _files(arguments.against), sweeps, arguments.samples, arguments.splits == "on")
    players = Players.of(window, chosen, arguments.seed)
    if required and len(players.judged) > 1:
        raise CommandError(f"--require judges one policy, and --policy names {len(players.judged)}: give one of them")
    with runner(arguments.spark) as tasks, progress() as report:
        window.play(players.replays, tasks, report)
    optimum = _optimum(arguments, known) if known else None
    return _report(arguments, window, players, required, optimum)


def _require_fit(arguments: argparse.Namespace) -> None:
    """Raise `CommandError` for options that --optimum does not go with."""
    if not arguments.optimum:
        return
    if arguments.splits == "on":
        raise CommandError("--optimum knows no splits: leave out --splits on")
    if arguments.window is not None:
        raise CommandError("--optimum plans all of the time as one, and --window cuts it: leave out one of them")
    import_module("trimtab_lab.backtest.solver")  # if it is not installed, that is said before anything is read


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
    """Print the result; the exit code."""
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
