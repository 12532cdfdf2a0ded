"""What all verbs share: the program's name, exit codes, errors, times and sizes, ``-o`` and ``--color``."""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAME = "trimtab"

PLUGIN = "kubectl-trimtab"
"""The file that kubectl looks for on the PATH when a user types ``kubectl trimtab``."""


_AS_COMMAND = re.compile(r"(?<![\w./-])trimtab(?= [a-zA-Z<-])")


def program() -> str:
    """``trimtab``, or ``kubectl trimtab``: what the user typed."""
    return f"kubectl {NAME}" if Path(sys.argv[0]).name.startswith(PLUGIN) else NAME


def spoken(text: str) -> str:
    """`text` with its commands as the user types them: ``trimtab plan`` may become ``kubectl trimtab plan``."""
    name = program()
    return text if name == NAME else _AS_COMMAND.sub(name, text)


EMBEDDED = "local[2]"
"""Value of ``--spark`` by default: a JVM of this process runs two tasks at once."""

NO_SPARK = "none"
"""Value of ``--spark`` with which threads of this process measure."""


FINE = 0

FINDING = 1

USAGE = 2


class CommandError(Exception):
    """Wrong usage or input. The text is all the user sees: it names the value, the bound and the fix."""


Moment = Callable[[float], float]
"""A function that returns a point in time, given the time of the newest cycle (both in epoch seconds)."""


HELP = "a time such as 2026-11-21T15:00:00Z, or time before the newest cycle, such as 90s, 5m or 1h30m"
"""How to write a `Moment`, for --help."""


def moment(text: str) -> Moment:
    """Parse the text of a `Moment`; the type of an argument. Raises `argparse.ArgumentTypeError`."""
    from trimtab_strategies.params import seconds  # noqa: PLC0415  (loads the strategies)

    try:
        return _ago(seconds(text))
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write {HELP}") from error
    at = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return lambda _: at


def _ago(length: float) -> Moment:
    return lambda now: now - length


def written(at: float) -> str:
    """Epoch seconds as ``2026-11-21 15:00:00``."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def iso(at: float) -> str:
    """Epoch seconds as ``2026-11-21T15:00:00.000Z``."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def length(span: float) -> str:
    """A duration in its two largest units: ``45s``, ``2m 5s``, ``3h 2m``, ``4d 1h``; ``-`` for NaN."""
    if math.isnan(span):
        return "-"
    parts: list[str] = []
    left = round(span)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def ago(at: float, now: float) -> str:
    """How long ago `at` was, such as ``5m 3s ago``."""
    return f"{length(max(0.0, now - at))} ago"


def size(count: float) -> str:
    """Bytes with a unit: ``512 B``, ``1.5 KiB``, ``8.4 GiB``; ``-`` for NaN."""
    if math.isnan(count):
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


Run = Callable[[argparse.Namespace], int]
"""Runs a verb and returns the exit code. Raises `CommandError`."""


_COLUMN = re.compile(r" *\S+(?: \S+)* {2,}(?=\S)| *")


class HelpText(argparse.RawDescriptionHelpFormatter):
    """Help whose lines are folded on a terminal that is too narrow for them."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:  # noqa: ARG002  (argparse's signature)
        room = shutil.get_terminal_size().columns
        if not sys.stdout.isatty() or all(len(line) <= room for line in text.splitlines()):
            return text
        lines = [""]
        for line in text.split("\n"):
            if lines[-1][:1].strip() and line[:1].strip():  # both are of one paragraph
                lines[-1] += f" {line}"
            else:
                lines.append(line)
        return "\n".join(_folded(line, room) for line in lines[1:])


def _folded(line: str, room: int) -> str:
    """A line folded at `room` columns. It continues below its first word, or below a second column of text."""
    found = _COLUMN.match(line)
    below = found.end() if found and found.end() <= room // 2 else 4
    return textwrap.fill(line, room, subsequent_indent=" " * below, break_long_words=False, break_on_hyphens=False)


def add_verb(subparsers: Any, verb: str, description: str, run: Run, epilog: str = "") -> argparse.ArgumentParser:
    """A parser for `verb`. run: carries the verb out."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        verb,
        description=description,
        epilog=epilog,
        formatter_class=HelpText,
        allow_abbrev=False,  # as in kubectl, a flag has only one spelling; the chart's checks rely on that
    )
    parser.set_defaults(run=run)
    return parser


TABLE = "table"

COLORS = ("auto", "always", "never")


def add_output_option(
    parser: argparse._ActionsContainer, *, shapes: Sequence[str] = (TABLE, "json", "yaml"), wide: bool = False
) -> None:
    """Add ``-o``, ``--json`` and ``--color``. shapes: what may follow ``-o``, the default first."""
    choices = [shapes[0], *(["wide"] if wide else []), *shapes[1:]]
    parser.add_argument(
        "-o",
        "--output",
        choices=choices,
        metavar="|".join(choices),
        default=shapes[0],
        help="output format (%(default)s)",
    )
    if "json" in shapes:
        parser.add_argument("--json", dest="output", action="store_const", const="json", help="same as -o json")
    add_color_option(parser)


def add_color_option(parser: argparse._ActionsContainer) -> None:
    """Add ``--color auto|always|never``."""
    parser.add_argument(
        "--color",
        choices=COLORS,
        metavar="|".join(COLORS),
        default="auto",
        help="when to use colors (%(default)s: on a terminal, unless $NO_COLOR is set)",
    )


def is_data(output: str) -> bool:
    """Whether the output is meant for a program."""
    return output in {"json", "yaml"}


def print_data(value: Any, output: str) -> None:
    """Print plain data; output: ``json`` or ``yaml``."""
    if output == "json":
        print(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        import yaml  # noqa: PLC0415  (takes a while to load)

        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120), end="")


@dataclass(frozen=True, slots=True)
class VersionPart:
    """A line of `trimtab version`. text: for people; data: for programs."""

    text: str
    data: Mapping[str, Any]


def say(output: str, text: str, data: Mapping[str, Any], *, well: bool = True) -> None:
    """Print `data` as JSON or YAML, or else `text`. well: whether the command succeeded; if not, `text` is an error."""
    if is_data(output):
        print_data(dict(data), output)
    else:
        print(text, file=sys.stdout if well else sys.stderr)


# -- packages that a plain installation leaves out --

EXTRAS: Mapping[str, str] = {
    "pyarrow": "measure",
    "prometheus_api_client": "measure",
    "kopf": "operator",
    "pandas": "operator",
    "py4j": "operator",
    "pyspark": "operator",
}
"""The smallest extra that installs a package, by the package's name in Python."""


def missing(verb: str, package: str, extra: str) -> str:
    """The error of a verb that needs a package, and how to install it with an extra."""
    return (
        f"{verb} needs {package}, which is not installed; "
        f"install it with: pip install 'WHEEL[{extra}]', with the path of your wheel of trimtab, "
        f"or pip install '.[{extra}]' in a clone of Trimtab"
    )


def extra_of(error: ImportError) -> str | None:
    """The extra that installs what could not be imported; None if no extra does."""
    return EXTRAS.get((error.name or "").partition(".")[0])


def require(verb: str, extra: str) -> None:
    """Raise `CommandError` if a package of `EXTRAS` is missing. extra: installs them."""
    for package in EXTRAS:
        if find_spec(package) is None:
            raise CommandError(missing(verb, package, extra))
