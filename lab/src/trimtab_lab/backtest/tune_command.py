"""`trimtab tune`: search better parameters of a policy on the recorded load."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab_operator.cli.common import FINE, CommandError, add_output_option, add_verb, iso, print_data, written

if TYPE_CHECKING:
    from trimtab_lab.backtest.history import ReplayWindow
    from trimtab_lab.backtest.sweep import Variant
    from trimtab_lab.backtest.tuning import Tuned

_DESCRIPTION = """\
Search better parameters of a policy on the load that `trimtab run --history` recorded. Nothing is applied.

Variants of the policy are replayed over the first part of the time: all over a short end of it, the best third over
more, and the best of those over all of it. The winner then plays the rest, which the search has not seen. If it is
better there, too, the command prints the change of the file, for `git apply`.

cost = mean points between the busiest and the idlest broker
     + WEIGHT x percent of the clients cut each day (less than a day counts as one)
     + broker-minutes above 85 % each hour / 5

examples:
  trimtab tune --history DIR --policy main.yaml
  trimtab tune --history DIR --policy main.yaml --search shedder.trim.price=100..1600 --samples 54 --spark local[2]
  trimtab tune --history DIR --policy main.yaml -o diff | git apply
"""

_FEWEST_HOURS = 1.0
"""Of each part: less load shows nothing."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    from trimtab_lab.backtest.command import add_window_options, count, positive  # noqa: PLC0415

    parser = add_verb(subparsers, "tune", _DESCRIPTION, run)
    parser.add_argument("--policy", metavar="FILE", required=True, help="manifest of the policy")
    add_window_options(parser)
    parser.add_argument(
        "--search",
        metavar="FIELD[=VALUES]",
        action="append",
        default=[],
        help="field to search, with values or a range if you like; may be repeated (default: the shedder's numbers)",
    )
    parser.add_argument("--samples", type=count, default=27, help="variants (default 27)")
    parser.add_argument(
        "--train", type=positive, default=0.7, metavar="RATIO", help="part of the time for the search (default 0.7)"
    )
    parser.add_argument(
        "--weight", type=float, default=1.0, help="points that 1 %% of the clients cut each day are worth (default 1)"
    )
    add_output_option(parser, shapes=("table", "json", "diff"))


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code. Raises `CommandError`."""
    from trimtab_lab.backtest.history import opened  # noqa: PLC0415  (loads numpy)
    from trimtab_lab.backtest.runners import progress, runner  # noqa: PLC0415
    from trimtab_lab.backtest.tuning import Search, UnreadableHistoryError  # noqa: PLC0415
    from trimtab_lab.simulation.policy import policies  # noqa: PLC0415

    found = policies([arguments.policy])
    if len(found) > 1:
        raise CommandError(f"{arguments.policy} has {len(found)} policies: tune works on one")
    variants = _variants(arguments, found[0].manifest)
    window = opened(arguments)
    middle = _middle(window, arguments.train)
    search = Search(
        window.folder, window.recording.policy, window.begin, middle, window.end, arguments.weight, arguments.seed
    )
    try:
        with runner(arguments.spark) as tasks, progress() as report:
            tuned = search.run(found[0].manifest, variants, tasks, report)
    except UnreadableHistoryError as error:
        raise CommandError(f"{error}; `trimtab history --dir {window.folder}` says which files are damaged") from error
    _print(arguments, found[0].name, window, tuned)
    return FINE


def _variants(arguments: argparse.Namespace, manifest: Any) -> list[Variant]:
    """The variants to try. Raises `CommandError`."""
    from trimtab_lab.backtest.players import require_valid  # noqa: PLC0415
    from trimtab_lab.backtest.sweep import InvalidSweepError, Sweep, tunable, variants  # noqa: PLC0415

    try:
        given = [Sweep.of(text) for text in arguments.search]
        given = given or [sweep for path, sweep in tunable(manifest["spec"]).items() if path[0] == "shedder"]
        made = variants(manifest, given, arguments.samples, arguments.seed)
    except InvalidSweepError as error:
        raise CommandError(f"--search: {error}") from error
    if not given:
        raise CommandError("this policy's shedder has no numbers to search: name a field with --search")
    for one in made:
        require_valid(one)
    return made


def _middle(window: ReplayWindow, train: float) -> float:
    """Epoch seconds at which the search's part ends. Raises `CommandError`."""
    if not train < 1:
        raise CommandError(
            f"--train {train:g} leaves nothing to judge the winner on: give a ratio below 1, such as 0.7"
        )
    middle = window.begin + train * (window.end - window.begin)
    least = min(middle - window.begin, window.end - middle) / 3600
    if least < _FEWEST_HOURS:
        raise CommandError(
            f"one of the parts has {least:.1f} hours, and {_FEWEST_HOURS:g} are needed: record more, or change --train"
        )
    return middle


def _print(arguments: argparse.Namespace, name: str, window: ReplayWindow, tuned: Tuned) -> None:
    """Print the result in the wanted shape."""
    diff = _diff(arguments.policy, name, tuned)
    if arguments.output == "json":
        print_data(_as_data(tuned, diff), "json")
        return
    lines = _lines(name, window, tuned)
    if arguments.output == "diff":
        print("\n".join([*(f"# {line}" for line in lines), diff]), end="")
        return
    from trimtab_operator.cli.tables import console, print_grid  # noqa: PLC0415

    screen = console(arguments.color)
    screen.print(lines[0], style="bold")
    print_grid(screen, _grid(tuned))
    for line in lines[1:]:
        screen.print(line)
    print(f"\n{diff}" if diff else "", end="")


def _grid(tuned: Tuned) -> Any:
    """The policies on the load that the search has not seen."""
    from trimtab_lab.backtest.report import COLUMNS, cell  # noqa: PLC0415
    from trimtab_operator.cli.tables import Grid  # noqa: PLC0415

    rows = [
        (
            "tuned" if name == tuned.best.name else name,
            f"{tuned.costs[name]:.1f}",
            *(cell(column, getattr(one, column)) for column in COLUMNS),
        )
        for name, one in tuned.figures.items()
    ]
    columns = ("cost", *COLUMNS.values())
    return Grid("", ("policy", *columns), rows, columns, ("silent s", "again", "worst hour", "within"))


def _lines(name: str, window: ReplayWindow, tuned: Tuned) -> list[str]:
    """The evidence, a sentence each."""
    first, last = tuned.rungs[0], tuned.rungs[-1]
    part = f"{written(tuned.begin)} to {written(tuned.end)}"
    lines = [f"{window.recording.policy}: judged on {part}, which the search has not seen"]
    tried = len(first.costs) - 1
    told = f"The search tried {tried} variants of {name} on {written(last.begin)} to {written(last.end)}."
    best = last.costs[tuned.best.name]
    lines.append(f"{told} There the best costs {best:.1f}, and the policy as it is {last.costs['as it is']:.1f}.")
    lines.append(f"The best: {tuned.best.name}.")
    change = "less" if tuned.gained >= 0 else "more"
    verdict = f"On load that it has not seen it costs {abs(tuned.gained):.0%} {change}"
    keep = "" if tuned.winner else ": keep the policy as it is"
    return [*lines, f"{verdict}{keep}."]


def _diff(file: str, name: str, tuned: Tuned) -> str:
    """The change of the file; empty if nothing is better."""
    from trimtab_lab.backtest.manifest_edit import UneditableError, edited  # noqa: PLC0415

    if tuned.winner is None:
        return ""
    before = Path(file).read_text()
    try:
        after = edited(before, name, tuned.winner.changes)
    except UneditableError as error:
        raise CommandError(f"{file} can't be changed ({error}); the winner is {tuned.winner.name}") from error
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{file}", f"b/{file}"
    )
    return "".join(lines)


def _as_data(tuned: Tuned, diff: str) -> dict[str, Any]:
    """As JSON values."""
    from trimtab_lab.backtest.report import ReplayResult  # noqa: PLC0415

    judged = {
        name: {**ReplayResult(name, figures, {}).as_data(), "cost": tuned.costs[name]}
        for name, figures in tuned.figures.items()
    }
    best = {".".join(path): value for path, value in tuned.best.changes.items()}
    return {
        "better": tuned.winner is not None,
        "best": {"name": tuned.best.name, "fields": best},
        "gained": tuned.gained,
        "from": iso(tuned.begin),
        "to": iso(tuned.end),
        "judged": judged,
        "rungs": [{"from": iso(one.begin), "to": iso(one.end), "costs": dict(one.costs)} for one in tuned.rungs],
        "diff": diff,
    }
