"""`trimtab tune`: search for better parameters of a policy on the recorded load."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab_operator.cli.common import FINE, CommandError, add_output_option, add_verb, print_data

if TYPE_CHECKING:
    from trimtab_lab.backtest.history import ReplayWindow
    from trimtab_lab.backtest.sweep import Variant
    from trimtab_lab.backtest.tune_report import TuneReport
    from trimtab_lab.simulation.policy import PolicyPlayer

_DESCRIPTION = """\
Search for better parameters of a policy on the load that `trimtab run --history` recorded. Nothing is applied.

The first part of the time is for the search. All variants of the policy are replayed over its last ninth. The best
third of them are replayed over its last third, and the best third of those over all of it. The winner is then replayed
over the rest of the time, which the search has not seen. If it is better there, too, the command prints a diff of the
file, for `git apply`.

cost = mean points between the busiest and the idlest broker
     + WEIGHT x percent of the clients cut each day (a shorter time counts as one day)
     + broker-minutes above 85 % each hour / 5

--splits on also replays the splits that the policy and its variants would make, as in `trimtab backtest`. The clients
that a split disconnects count in the cost. With this option, --search may name fields of the splitter.

examples:
  trimtab tune --history DIR --policy main.yaml
  trimtab tune --history DIR --policy main.yaml --search shedder.trim.price=100..1600 --samples 54 --spark local[2]
  trimtab tune --history DIR --policy main.yaml --splits on --search split.trim.above
  trimtab tune --history DIR --policy main.yaml -o diff | git apply
"""

_FEWEST_HOURS = 1.0
"""Each of the two parts needs at least this many hours of recorded load."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    from trimtab_lab.backtest.command import add_splits_option, add_window_options, count, positive  # noqa: PLC0415

    parser = add_verb(subparsers, "tune", _DESCRIPTION, run)
    parser.add_argument("--policy", metavar="FILE", required=True, help="manifest of the policy")
    add_window_options(parser)
    parser.add_argument(
        "--search",
        metavar="FIELD[=VALUES]",
        action="append",
        default=[],
        help="field to search, optionally with values or a range; may be repeated (default: the shedder's numbers)",
    )
    add_splits_option(parser)
    parser.add_argument("--samples", type=count, default=27, help="number of variants (default 27)")
    parser.add_argument(
        "--train", type=positive, default=0.7, metavar="RATIO", help="part of the time for the search (default 0.7)"
    )
    parser.add_argument(
        "--weight",
        type=positive,
        default=1.0,
        help="points of cost per 1 %% of the clients cut each day (default 1)",
    )
    add_output_option(parser, shapes=("table", "json", "diff"))


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code. Raises `CommandError`."""
    from trimtab_lab.backtest.history import opened  # noqa: PLC0415  (loads numpy)
    from trimtab_lab.backtest.notes import notes_before  # noqa: PLC0415
    from trimtab_lab.backtest.players import policy_replay  # noqa: PLC0415
    from trimtab_lab.backtest.runners import progress, runner  # noqa: PLC0415
    from trimtab_lab.backtest.search import Search, UnjudgedError, UnreadableHistoryError  # noqa: PLC0415
    from trimtab_lab.backtest.tune_report import TuneReport  # noqa: PLC0415

    policy = _policy(arguments.policy)
    variants = _variants(arguments, policy.manifest)
    window = opened(arguments)
    seen, rest = _parts(window, arguments.train)
    splits = arguments.splits == "on"
    search = Search(window.folder, window.recording.policy, seen, rest, arguments.weight, arguments.seed, splits)
    try:
        with runner(arguments.spark) as tasks, progress() as report:
            tuned = search.run(policy.manifest, variants, tasks, report)
    except UnreadableHistoryError as error:
        raise CommandError(f"{error}; `trimtab history --dir {window.folder}` says which files are damaged") from error
    except UnjudgedError as error:
        raise CommandError(str(error)) from error
    window.tell_damage()
    notes = notes_before(window, [policy_replay(policy.name, policy.manifest, arguments.seed, splits=splits)])
    _print(arguments, TuneReport.of(window.recording.policy, policy.name, arguments.policy, tuned, notes))
    return FINE


def _policy(file: str) -> PolicyPlayer:
    """The policy in a file. Raises `CommandError` unless the file has exactly one."""
    from trimtab_lab.simulation.policy import policies  # noqa: PLC0415

    if not Path(file).is_file():
        raise CommandError(f"--policy {file}: there is no such file; name the manifest that tune should change")
    found = policies([file])
    if len(found) > 1:
        raise CommandError(f"{file} has {len(found)} policies: tune works on one")
    return found[0]


def _variants(arguments: argparse.Namespace, manifest: Any) -> list[Variant]:
    """The variants to try. Raises `CommandError`."""
    from trimtab_lab.backtest.command import require_splits  # noqa: PLC0415
    from trimtab_lab.backtest.players import require_valid  # noqa: PLC0415
    from trimtab_lab.backtest.sweep import InvalidSweepError, Sweep, tunable, variants  # noqa: PLC0415

    try:
        given = [Sweep.of(text) for text in arguments.search]
        given = given or [sweep for path, sweep in tunable(manifest["spec"]).items() if path[0] == "shedder"]
        made = variants(manifest, given, arguments.samples, arguments.seed)
    except InvalidSweepError as error:
        raise CommandError(f"--search: {error}") from error
    require_splits(arguments, "--search", given)
    if not given:
        raise CommandError("this policy's shedder has no numbers to search: name a field with --search")
    for one in made:
        require_valid(one)
    return made


def _parts(window: ReplayWindow, train: float) -> tuple[list[float], list[float]]:
    """The cycles (epoch s) of the search's part, and of the rest. Raises `CommandError`."""
    if not train < 1:
        raise CommandError(
            f"--train {train:g} leaves no time to judge the winner on: give a ratio below 1, such as 0.7"
        )
    times = window.recording.times(window.begin, window.end)
    middle = window.begin + train * (window.end - window.begin)
    parts = [at for at in times if at < middle], [at for at in times if at >= middle]
    least = min(map(len, parts)) * window.recording.summary.interval / 3600
    if least < _FEWEST_HOURS:
        raise CommandError(
            f"one of the parts has {least:.1f} hours of recorded load, and {_FEWEST_HOURS:g} are needed: "
            "record more, or change --train"
        )
    return parts


def _print(arguments: argparse.Namespace, report: TuneReport) -> None:
    """Print the result in the requested format."""
    if arguments.output == "json":
        print_data(report.as_data(), "json")
        return
    if arguments.output == "diff":
        print(report.patch(), end="")
        return
    from trimtab_operator.cli.tables import console, print_grid  # noqa: PLC0415

    screen = console(arguments.color)
    screen.print(report.title, style="bold")
    print_grid(screen, report.grid)
    for line in report.lines:
        screen.print(line)
    print(f"\n{report.diff}" if report.diff else "", end="")
