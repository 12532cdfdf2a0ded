"""The reference of the command line: every verb and flag of the argparse parsers."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import entry_points

from page_text import filled, table, wrapped

from trimtab_operator.cli.parser import PLUGINS, VERBS, verb_help

WIDTH = 110
"""Characters of a usage line."""

GROUPS: Mapping[str, Sequence[str]] = {
    "Try": ("simulate", "demo"),
    "Look": ("status", "plan", "explain", "why-not", "observe", "history", "lint"),
    "Decide": ("approve", "refresh", "stop", "pause", "resume"),
    "By hand": ("move", "split", "drain", "undrain"),
    "Come and go": ("migrate", "restore"),
    "Run": ("run",),
}
"""Verbs by purpose; all other verbs come last."""

COMMON = 3
"""An option that this many verbs describe in the same words is described once."""

_CONNECTION = ("--kubeconfig", "--context", "--as", "--as-group", "--request-timeout")
"""Options that come together. A verb's section names them as those of the connection."""

_USUAL = "argument or option"
"""Head of the table of what belongs to no other group."""

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
    parsers = {verb: _parser(verb) for verbs in groups.values() for verb in verbs}
    counts = Counter(_row(action) for parser in parsers.values() for action in _options(parser))
    common = {row for row, count in counts.items() if count >= COMMON}
    sections = [
        f"## {title}\n\n" + "\n".join(_section(verb, parsers[verb], common) for verb in verbs)
        for title, verbs in groups.items()
    ]
    return filled(
        "reference/cli.md",
        OVERVIEW=table("| verb | what it does", overview),
        COMMON=table("option | what it is", [row for row in counts if row in common]),
        VERBS="\n".join(sections),
    )


def _parser(verb: str) -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="trimtab")
    subparsers = top.add_subparsers()
    plugin = next((point for point in entry_points(group=PLUGINS) if point.name == verb), None)
    register = plugin.load() if plugin else VERBS[verb].register()
    register(subparsers)
    parser: argparse.ArgumentParser = subparsers.choices[verb]
    return parser


def _section(verb: str, parser: argparse.ArgumentParser, common: Collection[tuple[str, str]]) -> str:
    parts = [f"### trimtab {verb}\n", *_described(parser.description or ""), _usage(parser), *_tables(parser, common)]
    if parser.epilog:
        parts += list(_described(parser.epilog))
    return "\n".join(parts)


def _described(text: str) -> Iterator[str]:
    """Paragraphs as prose. Indented text below a line that ends with a colon becomes a block; examples are left out."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        first, _, rest = paragraph.partition("\n")
        if first.lower() == "examples:":
            continue
        indented = bool(rest) and all(line.startswith("  ") for line in rest.splitlines())
        if first.endswith(":") and indented:
            block = "\n".join(line[2:] for line in rest.splitlines())
            yield f"{first[0].upper()}{first[1:]}\n\n```text\n{block}\n```\n"
        elif paragraph:
            yield _ITEM.sub(r"\1  ", paragraph) + "\n"


def _usage(parser: argparse.ArgumentParser) -> str:
    """The usage line: arguments, and options that are required or exclude each other. The tables have the others."""
    groups = parser._mutually_exclusive_groups  # noqa: SLF001 - argparse has no other way
    exclusive = [action for group in groups for action in group._group_actions]  # noqa: SLF001
    named = [a for a in parser._actions if not a.option_strings or a.required or a in exclusive]  # noqa: SLF001
    formatter = argparse.HelpFormatter(parser.prog, width=WIDTH)
    formatter.add_usage(None, [action for action in named if action.help != argparse.SUPPRESS], groups, prefix="")
    text = formatter.format_help().strip()
    return f"```text\n{text.replace(parser.prog, f'{parser.prog} [OPTION ...]', 1)}\n```\n"


def _tables(parser: argparse.ArgumentParser, common: Collection[tuple[str, str]]) -> Iterator[str]:
    """A table of arguments and options, one of each other group, and the names of the common options."""
    shared, tables = [], dict[str, list[tuple[str, str]]]()
    for group in parser._action_groups:  # noqa: SLF001 - argparse has no other way
        rows = {_row(action): action for action in group._group_actions if _shown(action)}  # noqa: SLF001
        shared += [action.option_strings[0] for row, action in rows.items() if row in common]
        if own := [row for row in rows if row not in common]:
            title = {"positional arguments": _USUAL, "options": _USUAL}.get(group.title or "", group.title or "")
            tables.setdefault(title, []).extend(own)
    yield from (table(f"{title} |", rows) + "\n" for title, rows in tables.items())
    if shared:
        names = [f"`{name}`" for name in shared if name not in _CONNECTION]
        names += ["those of the connection"] if _CONNECTION[0] in shared else []
        yield wrapped(f"[Common options](#common-options): {', '.join(names)}.") + "\n"


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings and _shown(action)]  # noqa: SLF001


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
