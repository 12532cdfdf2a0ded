"""The reference of every strategy, from its module, its parameters and its row in the registry."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from page_text import ROOT, anchor, filled, table, wrapped

from trimtab_strategies import registry
from trimtab_strategies.filters import pipelines
from trimtab_strategies.params import StrategyParams
from trimtab_strategies.registry import Row

KINDS: Mapping[str, tuple[str, Mapping[str, Row[Any]]]] = {
    "Shedders": ("say which bundles should leave which brokers.", registry.SHEDDERS),
    "Placements": ("say which broker a bundle should go to.", registry.PLACEMENTS),
    "Splitters": ("say which bundles should be split, and where.", registry.SPLITTERS),
    "Selections": ("say which brokers a bundle may go to at all, before the placement.", registry.SELECTIONS),
}

PARTS = re.compile(r"\b(Idea|Formula|When it helps|When it hurts|Compatibility|Source)\. ")
KEY = re.compile(r"\s*(?:Pulsar|Hermes): (\S+(?: in [a-zA-Z/0-9 -]+)?)\s*$")

BOUNDS = (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<"))

COMMON = 3
"""A parameter that this many strategies have, with the same row, is described once."""

_STORED = re.compile(r"(?:^|\n\n| )Memory[.:] .*?(?=\n\n|$)", re.DOTALL)
"""What a strategy remembers, in a docstring: for those who change its code."""


def page() -> str:
    """docs/strategies.md."""
    kinds = [(kind, name, row) for kind, (_, rows) in KINDS.items() for name, row in rows.items()]
    overview = [(f"[{name}](#{_anchor(kind, name)})", kind[:-1].lower(), row.summary) for kind, name, row in kinds]
    described: dict[str, str] = {}
    parts = []
    for kind, (does, rows) in KINDS.items():
        parts += [f"## {kind}\n\n{kind} {does}\n", *(_strategy(name, row, described) for name, row in rows.items())]
    return filled(
        "strategies.md",
        OVERVIEW=table("strategy | kind | in one sentence", overview),
        COMMON=_table([row for row, count in _counts().items() if count >= COMMON]),
        STRATEGIES="\n".join(parts).rstrip(),
    )


def _heading(kind: str, name: str) -> str:
    """The heading of a strategy, with its kind if two tables have a strategy of this name."""
    twice = sum(name in table for _, table in KINDS.values()) > 1
    return f"{name} ({kind[:-1].lower()})" if twice else name


def _anchor(kind: str, name: str) -> str:
    return anchor(_heading(kind, name))


def _kind_of(row: Row[Any]) -> str:
    return next(kind for kind, (_, table) in KINDS.items() if any(other is row for other in table.values()))


def _strategy(name: str, row: Row[Any], described: dict[str, str]) -> str:
    """A strategy's section. described: for each module that an earlier section describes, the link to that section."""
    kind = _kind_of(row)
    heading, module = _heading(kind, name), _module(row)
    teaching = _teaching(module)
    original = row.original if row.original not in teaching else ""
    lines = [f"### {heading}\n", f"{row.summary}  \n`{original}`\n" if original else f"{row.summary}\n"]
    if module in described:
        lines.append(f"Described under {described[module]}.\n")
    else:
        lines.append(_as_written(teaching, module))
        described[module] = f"[{heading}](#{_anchor(kind, name)})"
    lines += [_parameters(name, row, described), _defects(row), _examples(name)]
    return "\n".join(part for part in lines if part)


def _module(row: Row[Any]) -> str:
    """The module that describes a strategy: its own, except for selections that the registry builds."""
    module = row.build.__module__
    return pipelines.__name__ if module == registry.__name__ else module


def _as_written(text: str, module: str) -> str:
    """The text with the names of parameters as a policy spells them."""
    rows = [row for _, table in KINDS.values() for row in table.values() if _module(row) == module]
    fields = {name: info.alias or name for row in rows for name, info in row.params.model_fields.items()}
    return re.sub(r"\b[a-z]+(_[a-z]+)+\b", lambda match: fields.get(match[0], match[0]), text)


def _teaching(module: str) -> str:
    """The module's docstring without its first line. Each part becomes a paragraph that begins with its name."""
    text = importlib.import_module(module).__doc__ or ""
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]
    body = "\n\n".join(paragraphs[1:])
    text = re.sub(r"\s*\n\n+", "\n\n", PARTS.sub(r"\n\n**\1.** ", _STORED.sub("", body))).strip()
    return "\n\n".join(map(wrapped, text.split("\n\n"))) + "\n"


def _parameters(name: str, row: Row[Any], described: dict[str, str]) -> str:
    """The table of parameters, without those that many strategies have: their names follow."""
    rows = _rows(row.params)
    if not rows:
        return "It has no parameters.\n"
    same = ", ".join(map("".join, rows))
    if same in described:
        return f"Its parameters are those of {described[same]}.\n"
    described[same] = f"[{_heading(_kind_of(row), name)}](#{_anchor(_kind_of(row), name)})"
    own = [each for each in rows if _counts()[each] < COMMON]
    shared = [each[0] for each in rows if each not in own]
    parts = [_table(own)] if own else []
    parts += [wrapped(f"[Common parameters](#common-parameters): {', '.join(shared)}.")] if shared else []
    return "\n\n".join(parts) + "\n"


def _table(rows: list[tuple[str, ...]]) -> str:
    """A table of parameters. The column of the originals' keys is left out if it is empty."""
    heads = ["parameter", "default", "bound", "what it is", "the original's key"]
    used = slice(None if any(row[-1] for row in rows) else -1)
    return table(" | ".join(heads[used]), [row[used] for row in rows])


@cache
def _counts() -> Counter[tuple[str, ...]]:
    """How many strategies have a row."""
    return Counter(row for _, rows in KINDS.values() for each in rows.values() for row in _rows(each.params))


def _rows(model: type[StrategyParams]) -> list[tuple[str, ...]]:
    schema, rows = model.model_json_schema(), []
    for key, field in schema.get("properties", {}).items():
        meaning, original = _meaning(field.get("description", ""))
        rows.append((f"`{key}`", _value(field.get("default")), _bound(field, schema), meaning, original))
    return rows


def _meaning(description: str) -> tuple[str, str]:
    """What a field is, and the original's key for it."""
    key = KEY.search(description)
    meaning = " ".join(KEY.sub("", description).split()).replace("|", "\\|")
    named, _, unit = key[1].partition(" in ") if key else ("", "", "")
    return meaning, f"`{named}`{unit and f' in {unit}'}" if named else ""


def _value(value: Any) -> str:
    """A value as a policy spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "`[]`" if not value else ", ".join(map(str, value))
    return f"`{value}`" if isinstance(value, str) else "" if value is None else f"{value}"


def _bound(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The allowed values."""
    kinds = [_resolved(kind, schema) for kind in field.get("anyOf") or field.get("allOf") or [field]]
    return " or ".join(filter(None, (_bound_of(kind) for kind in kinds)))


def _resolved(field: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = field.get("$ref", "").rpartition("/")[2]
    found: Mapping[str, Any] = schema["$defs"][reference] if reference else field
    return found


def _bound_of(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "boolean":
        return "true, false"
    if {"minimum", "maximum"} <= field.keys():
        return f"{field['minimum']} to {field['maximum']}"
    return ", ".join(f"{sign} {field[word]}" for word, sign in BOUNDS if word in field)


def _defects(row: Row[Any]) -> str:
    rows = [(defect.original, defect.corrected) for defect in row.defects]
    return table("known defect of the original | with `compatibility: Corrected`", rows) + "\n" if rows else ""


def _examples(name: str) -> str:
    asked = re.compile(rf"\btype: {name}\b")
    files = [path.name for path in sorted((ROOT / "examples").glob("*.yaml")) if asked.search(path.read_text())]
    return (
        wrapped(f"Examples: {', '.join(f'[{file[:2]}](../examples/{file})' for file in files)}.") + "\n"
        if files
        else ""
    )
