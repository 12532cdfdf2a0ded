"""`trimtab history`: shows and compacts the history of load, and exports windows of it."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from trimtab_operator.cli.common import (
    FINDING,
    FINE,
    HELP,
    CommandError,
    HelpText,
    add_output_option,
    is_data,
    iso,
    length,
    moment,
    print_data,
    size,
    written,
)
from trimtab_operator.cli.tables import Grid, console, print_grid
from trimtab_pipeline.history.anonymizer import Renaming, kept_key
from trimtab_pipeline.history.export import export
from trimtab_pipeline.history.housekeeping import compact
from trimtab_pipeline.history.reader import HistoryReader, HistorySummary, policies
from trimtab_strategies.params import rounded

_KEY = "names.key"
_SHOWN = 10
_COLUMNS = ("From (UTC)", "To", "Age", "Cycles", "Every", "Size", "A day", "Gaps")
_SPARE = ("Age", "Cycles", "A day")
"""Columns that a narrow terminal leaves out, in this order."""

_USAGE = """\
trimtab history --dir DIR [POLICY] [-o table|json|yaml] [--check] [--compact]
       trimtab history export --dir DIR [--from TIME] [--to TIME] [--hash-names] FILE [POLICY]"""

_DESCRIPTION = """\
Show the history of load: its time span, its total size, the size of a day of each table, and its gaps (pauses of more
than twice the usual interval). The command only reads, unless --compact is given. The operator may be running.

The history is a dataset: Spark, DuckDB and pandas read each table by its folder, such as DIR/history/demand.
"""

_EPILOG = """\
exit codes: 0: fine; 1: gaps or damaged files, with --check; 2: wrong usage or input

examples:
  trimtab history --dir trimtab-history
  trimtab history --dir trimtab-history messaging/cluster-a --check
  trimtab history --dir s3a://telemetry/trimtab --compact
  trimtab history export --dir trimtab-history --from 2h --hash-names report.tar
  trimtab observe --history report.tar
"""

_EXPORT = """\
Write a window of the history to a file. FILE.tar holds everything; `trimtab backtest` and `trimtab observe` read it.
FILE.parquet holds the demand of the bundles of one policy, for a notebook.

--hash-names replaces names of brokers, tenants, namespaces, topics and policies by hashes, and leaves out error texts,
decisions and policies, so that the file can go into a bug report. The key of the hashes is in DIR/names.key, so equal
names get equal hashes in later exports. Keep the key secret. Bundle ranges are not hashed.
"""


class _Parser(argparse.ArgumentParser):
    """Passes the words after `export` to a parser of their own."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(args or ())
        if words[:1] == ["export"]:
            return _exporting().parse_known_args(words[1:], namespace)
        return super().parse_known_args(words, namespace)


def _register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _Parser(
        "trimtab history",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=HelpText,
        allow_abbrev=False,
    )
    _add_folder(parser)
    parser.add_argument("policy", nargs="?", metavar="POLICY", help="policy as namespace/name or name (default: all)")
    add_output_option(parser)
    parser.add_argument(
        "--check", action="store_true", help="read all files, and exit with 1 if there are gaps or damage"
    )
    parser.add_argument(
        "--compact", action="store_true", help="first merge the files of each hour that is over into one per table"
    )
    parser.set_defaults(run=_run, carry_out=_show)
    subparsers.choices["history"] = parser  # add_parser() can't make this class


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir",
        required=True,
        help="history of `trimtab run --history`: a folder, or a URI such as s3a://bucket/folder",
    )


def _exporting() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "trimtab history export",
        description=_EXPORT,
        formatter_class=HelpText,
        allow_abbrev=False,
    )
    _add_folder(parser)
    parser.add_argument("--from", dest="begin", type=moment, metavar="TIME", help=f"start of the window: {HELP}")
    parser.add_argument(
        "--to", dest="end", type=moment, metavar="TIME", help="end of the window, inclusive, as for --from"
    )
    parser.add_argument("--hash-names", action="store_true", help="replace names by hashes, and leave out error texts")
    parser.add_argument("--key", type=Path, metavar="KEYFILE", help="file with the key of the hashes (DIR/names.key)")
    parser.add_argument("file", type=Path, metavar="FILE", help="file to write: .tar or .parquet")
    parser.add_argument("policy", nargs="?", metavar="POLICY", help="policy as namespace/name or name (default: all)")
    parser.set_defaults(run=_run, carry_out=_export)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    try:
        return int(arguments.carry_out(arguments))
    except CommandError:
        raise
    except ValueError as error:  # errors of the history, and a URI that can't be opened
        raise CommandError(str(error)) from error
    except OSError as error:
        where = error.filename or (arguments.file if arguments.carry_out is _export else arguments.dir)
        raise CommandError(f"{where}: {error.strerror or error}") from error


def only_history(folder: str, policy: str | None) -> HistoryReader:
    """The history of `policy`, or without a name the only one below `folder`. Raises `CommandError`."""
    names = [policy] if policy else policies(folder)
    if len(names) > 1:
        raise CommandError(f"{folder} holds several policies; choose one with --policy: {', '.join(names)}")
    return HistoryReader(folder, names[0])


def _chosen(arguments: argparse.Namespace) -> list[HistoryReader]:
    names = [arguments.policy] if arguments.policy else policies(arguments.dir)
    return [HistoryReader(arguments.dir, name) for name in names]


def _show(arguments: argparse.Namespace) -> int:
    now = time.time()
    if arguments.compact:
        _compact(arguments, now)
    summaries = [past.summary(whole=arguments.check) for past in _chosen(arguments)]
    if is_data(arguments.output):
        print_data([as_data(summary, now) for summary in summaries], arguments.output)
    else:
        print_summaries(console(arguments.color), summaries, now)
    found = any(summary.gaps or summary.damaged for summary in summaries)
    return FINDING if arguments.check and found else FINE


def _compact(arguments: argparse.Namespace, now: float) -> None:
    """Merge hours that are over, and print how many to stderr, so that stdout holds only data."""
    for past in _chosen(arguments):
        count = compact(arguments.dir, past.policy, now)
        print(
            f"{past.policy}: {count} hour{'' if count == 1 else 's'} of a table merged into one file", file=sys.stderr
        )


def as_data(summary: HistorySummary, now: float) -> dict[str, Any]:
    """Plain data: times in ISO 8601, durations in seconds, sizes in bytes; null if unknown."""
    return {
        "policy": summary.policy,
        "from": iso(summary.begin),
        "to": iso(summary.end),
        "age": round(now - summary.end, 3),
        "cycles": summary.cycles,
        "interval": rounded(summary.interval, 3),
        "files": summary.files,
        "bytes": summary.bytes,
        "bytesPerDay": rounded(summary.bytes_per_day, 3),
        "tables": {
            name: {"bytes": held, "bytesPerDay": rounded(summary.a_day(held), 3)}
            for name, held in summary.tables.items()
        },
        "gaps": [{"from": iso(gap.begin), "to": iso(gap.end), "seconds": gap.end - gap.begin} for gap in summary.gaps],
        "damaged": [{"file": file, "why": why} for file, why in summary.damaged],
    }


def print_summaries(screen: Console, summaries: Sequence[HistorySummary], now: float) -> None:
    """Print a row for each policy. Then, policy by policy, the sizes of tables, the newest gaps and damaged files."""
    rows = [_cells(summary, now) for summary in summaries]
    print_grid(screen, Grid("", ("Policy", *_COLUMNS), rows, _COLUMNS, _SPARE))
    for summary in summaries:
        _print_tables(screen, summary)
        _print_findings(screen, summary)


def _cells(summary: HistorySummary, now: float) -> tuple[str, ...]:
    return (
        summary.policy,
        written(summary.begin)[:-3],
        written(summary.end)[:-3],
        length(now - summary.end),
        f"{summary.cycles:,}",
        length(summary.interval),
        size(summary.bytes),
        size(summary.bytes_per_day),
        str(len(summary.gaps)),
    )


def _print_tables(screen: Console, summary: HistorySummary) -> None:
    """Print the size of a day of each table, the largest first."""
    if not math.isfinite(summary.interval):
        return
    tables = sorted(summary.tables.items(), key=lambda table: -table[1])
    days = ", ".join(f"{name} {size(summary.a_day(held))}" for name, held in tables if held)
    screen.print(Text(f"{summary.policy}: a day is {size(summary.bytes_per_day)}: {days}"), soft_wrap=True)


def _print_findings(screen: Console, summary: HistorySummary) -> None:
    for gap in reversed(summary.gaps[-_SHOWN:]):
        span = f"{written(gap.begin)} to {written(gap.end)}"
        screen.print(Text(f"{summary.policy}: gap of {length(gap.end - gap.begin)}, {span}", style="yellow"))
    if len(summary.gaps) > _SHOWN:
        screen.print(f"{summary.policy}: and {len(summary.gaps) - _SHOWN} older gaps; -o json shows them all")
    for file, why in summary.damaged:
        screen.print(Text(f"{summary.policy}: {file}: {why}", style="red"), soft_wrap=True)


def _export(arguments: argparse.Namespace) -> int:
    pasts = _chosen(arguments)
    newest = max(past.summary().end for past in pasts)
    begin = arguments.begin(newest) if arguments.begin else -math.inf
    end = arguments.end(newest) if arguments.end else math.inf
    if begin > end:
        raise CommandError(f"--from {iso(begin)} is later than --to {iso(end)}")
    window = export(pasts, begin, end, arguments.file, _renaming(arguments))
    print(f"wrote {arguments.file}: {written(window.begin)} to {written(window.end)} UTC")
    for policy, cycles in window.cycles.items():
        print(f"  {policy}: {cycles:,} cycle{'' if cycles == 1 else 's'}")
    return FINE


def _renaming(arguments: argparse.Namespace) -> Renaming | None:
    if not arguments.hash_names:
        if arguments.key:
            raise CommandError("--key needs --hash-names")
        return None
    try:
        return Renaming(kept_key(arguments.key or _own_key(arguments.dir)))
    except ValueError as error:
        raise CommandError(str(error)) from error


def _own_key(folder: str) -> Path:
    if "://" in folder:
        raise CommandError(f"{folder} can't hold the key of the hashes; name a file for it with --key")
    return Path(folder, _KEY)
