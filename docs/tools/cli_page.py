"""The reference of the command line: every verb and flag of the argparse parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points

from page_text import filled, table

from trimtab_operator.cli.parser import PLUGINS, VERBS, verb_help

WIDTH = 110
"""Characters of a usage line."""

GROUPS: Mapping[str, Sequence[str]] = {
    "Try": ("simulate", "demo"),
    "Look": ("status", "plan", "explain", "why-not", "observe", "history", "lint"),
    "Decide": ("approve", "refresh", "stop", "pause", "resume"),
    "By hand": ("move", "rebalance", "apply-plan", "split", "drain", "undrain"),
    "Come and go": ("migrate", "restore"),
    "Run": ("run",),
}
"""Verbs by purpose; all other verbs come last."""

_ITEM = re.compile(r"^  (\d+\.) ", re.MULTILINE)
"""An item of a numbered list, which help texts indent."""


def page() -> str:
    """docs/reference/cli.md."""
    known = verb_help({point.name: point for point in entry_points(group=PLUGINS)})
    groups = {**GROUPS, "For machines": [verb for verb in known if not any(verb in of for of in GROUPS.values())]}
    overview = [
        (title if n == 0 else "", f"[`{verb}`](#trimtab-{verb})", known[verb])
        for title, verbs in groups.items()
        for n, verb in enumerate(verbs)
    ]
    parts = "\n".join(f"## {title}\n\n" + "\n".join(map(_section, verbs)) for title, verbs in groups.items())
    return filled("reference/cli.md", OVERVIEW=table("| verb | what it does", overview), VERBS=parts)


def _parser(verb: str) -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="trimtab")
    subparsers = top.add_subparsers()
    plugin = next((point for point in entry_points(group=PLUGINS) if point.name == verb), None)
    register = plugin.load() if plugin else VERBS[verb].register()
    register(subparsers)
    parser: argparse.ArgumentParser = subparsers.choices[verb]
    return parser


def _section(verb: str) -> str:
    parser = _parser(verb)
    parts = [f"### trimtab {verb}\n", *_described(parser.description or ""), _usage(parser), *_tables(parser)]
    if parser.epilog:
        parts += list(_described(parser.epilog))
    return "\n".join(parts)


def _described(text: str) -> Iterator[str]:
    """Paragraphs as prose. Indented text below a line that ends with a colon becomes a block."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        first, _, rest = paragraph.partition("\n")
        indented = bool(rest) and all(line.startswith("  ") for line in rest.splitlines())
        if first.endswith(":") and indented:
            block = "\n".join(line[2:] for line in rest.splitlines())
            yield f"{first[0].upper()}{first[1:]}\n\n```text\n{block}\n```\n"
        elif paragraph:
            yield _ITEM.sub(r"\1  ", paragraph) + "\n"


def _usage(parser: argparse.ArgumentParser) -> str:
    parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=WIDTH)
    lines = "\n".join(line[len("usage: ") :] for line in parser.format_usage().rstrip().splitlines())
    return f"```text\n{lines}\n```\n"


def _tables(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A table of each group of arguments."""
    for group in parser._action_groups:  # noqa: SLF001 - argparse has no other way
        rows = [_row(action) for action in group._group_actions if _shown(action)]  # noqa: SLF001
        if rows:
            title = {"positional arguments": "argument", "options": "option"}.get(group.title or "", group.title or "")
            yield table(f"{title} |", rows) + "\n"


def _shown(action: argparse.Action) -> bool:
    return action.dest != "help" and action.help != argparse.SUPPRESS


def _row(action: argparse.Action) -> tuple[str, str]:
    formatter = argparse.HelpFormatter("trimtab", width=WIDTH)
    name = _name(action)
    value = "" if action.nargs == 0 else f" {formatter._format_args(action, name)}"  # noqa: SLF001
    names = ", ".join(action.option_strings) + value if action.option_strings else name
    text = formatter._expand_help(action) if action.help else ""  # noqa: SLF001
    return f"`{_cell(names)}`", _cell(text)


def _name(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None and action.option_strings:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
