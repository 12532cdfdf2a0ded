"""The messages for an invalid scenario: each names the field, its value, the bound and the fix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from trimtab_operator.cli.lint.files import spelt
from trimtab_strategies.params import DescribedModel

_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than_equal": ("ge", "must be at least {0}: write {0} or more"),
    "greater_than": ("gt", "must be above {0}: write more than {0}"),
    "less_than_equal": ("le", "must be at most {0}: write {0} or less"),
    "less_than": ("lt", "must be below {0}: write less than {0}"),
    "enum": ("expected", "must be {0}: write one of these"),
    "literal_error": ("expected", "must be {0}: write one of these"),
    "union_tag_invalid": ("expected_tags", "has an unknown event: write one of {0}"),
    "string_pattern_mismatch": ("pattern", "must match {0}: write it in that form"),
}
"""Pydantic's kind of error -> the key of its bound, and the message."""

_EXPECTED: Mapping[str, str] = {
    "float_parsing": "a number",
    "float_type": "a number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "a text",
    "tuple_type": "a list",
    "bool_parsing": "true or false",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "union_tag_not_found": "a mapping with `event`",
}
"""Pydantic's kind of error -> what was expected."""


def refusals(error: ValidationError, model: type[DescribedModel]) -> str:
    """The problems that pydantic found, one per line."""
    names, tags = _names(model)
    problems: dict[str, str] = {}
    for found in error.errors():
        place = spelt(tuple(part for part in found["loc"] if not (part in tags or str(part).startswith("<"))))
        text = _problem(found, names)
        problems.setdefault(place, f"{place}: {text}" if place else text)
    return "\n".join(problems.values())


def _names(model: type[DescribedModel]) -> tuple[set[str], set[str]]:
    """The names of all fields, and the tags of the events."""
    schema = model.model_json_schema()
    fields = [field for part in (schema, *schema["$defs"].values()) for field in part.get("properties", {}).items()]
    return {name for name, _ in fields}, set(_tags(fields))


def _tags(fields: Sequence[tuple[str, Any]]) -> Iterator[str]:
    return (of["const"] for _, of in fields if "const" in of)


def _problem(found: Any, names: set[str]) -> str:
    kind, value = found["type"], f"is {found['input']!r:.80}, but it"
    if kind == "value_error":
        return str(found["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        wrong = str(found["loc"][-1])
        close = get_close_matches(wrong, sorted(names - {wrong}), n=1)
        return f"there is no such field: {f'write {close[0]}, or ' if close else ''}leave it out"
    if kind == "missing":
        return "is missing: add it"
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return f"{value} {words.format(_plain(found['ctx'][bound]))}"
    expected = _EXPECTED.get(kind)
    return f"{value} must be {expected}: write one" if expected else f"{value}: {found['msg']}"


def _plain(bound: Any) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)
