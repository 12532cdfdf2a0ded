"""How verbs print: ``-o`` and ``--color`` in one place, plain data, and one line for a person."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

TABLE = "table"
COLORS = ("auto", "always", "never")


def add_output_option(
    parser: argparse._ActionsContainer, *, shapes: Sequence[str] = (TABLE, "json", "yaml"), wide: bool = False
) -> None:
    """``-o``, ``--json`` and ``--color``. shapes: what may follow ``-o``, the default first."""
    choices = [shapes[0], *(["wide"] if wide else []), *shapes[1:]]
    parser.add_argument(
        "-o", "--output", choices=choices, metavar="|".join(choices), default=shapes[0], help="(%(default)s)"
    )
    if "json" in shapes:
        parser.add_argument("--json", dest="output", action="store_const", const="json", help="the same as -o json")
    add_color_option(parser)


def add_color_option(parser: argparse._ActionsContainer) -> None:
    """``--color auto|always|never``."""
    parser.add_argument(
        "--color",
        choices=COLORS,
        metavar="|".join(COLORS),
        default="auto",
        help="(%(default)s: on a terminal, unless $NO_COLOR is set)",
    )


def is_data(output: str) -> bool:
    """Whether a program reads it."""
    return output in {"json", "yaml"}


def print_data(value: Any, output: str) -> None:
    """Print plain data; output: ``json`` or ``yaml``."""
    if output == "json":
        print(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120), end="")


def say(output: str, text: str, data: Mapping[str, Any], *, well: bool = True) -> None:
    """Print `data` where that was asked for, else `text`: to standard error if it did not go `well`."""
    if is_data(output):
        print_data(dict(data), output)
    else:
        print(text, file=sys.stdout if well else sys.stderr)
