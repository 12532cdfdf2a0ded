"""Finds what the API server would refuse, from the CRD's schema and from the models' rules about several fields.

This module walks the schema itself, because pydantic would accept "20" for 20. Each of the models' rules about several
fields matches a CEL rule in the CRD. Tests compare both with a real API server.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import chain, islice
from typing import Any

from pydantic import ValidationError

from trimtab_operator.cli.common import CommandError
from trimtab_operator.cli.lint.files import At, Document, Found, Level, spelt
from trimtab_operator.cli.lint.spelling import (
    FORMS,
    choice_meant,
    duration_meant,
    elsewhere,
    flag_meant,
    form_problem,
    is_url,
    number_meant,
)
from trimtab_operator.kube.naming import LONGEST, is_object_name
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.crd import KINDS, Kind, manifest
from trimtab_operator.resources.urls import safe_text
from trimtab_strategies.model import some

Schema = Mapping[str, Any]

_METADATA = frozenset(
    {"name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences", "uid"}
    | {"resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"}
    | {"managedFields", "selfLink"}
)
_SHOWN = 80
"""Maximum number of characters of a value in a message."""
_MOST_FINDINGS = 200
"""Maximum number of findings in one object; a person starts with the first ones."""
_TOO_LARGE = 2**63
_LONGEST_TEXT = 4096
"""Maximum number of characters of a text to compare with a pattern, if the schema has no bound."""


_PARAMETERS = "; its parameters belong in spec.source.prometheus.parameters"


@cache
def _schemas() -> Mapping[str, Schema]:
    return {kind.kind: manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}


def valid_manifest(document: Document) -> dict[str, Any]:
    """The object of a document, without nulls. Raises `CommandError` if the API server would refuse it."""
    if wrong := list(refusals(document.data)):
        errors = [f"{document.file}:{document.line(found.at)}: {spelt(found.at)}: {found.text}" for found in wrong]
        raise CommandError(some(errors, 3, "; "))
    valid: dict[str, Any] = without_nulls(document.data)
    return valid


def refusals(data: Mapping[str, Any]) -> Iterator[Found]:
    """Why an object of group trimtab.dev would be refused; empty if it is accepted."""
    kind = next((known for known in KINDS if known.kind == data.get("kind")), None)
    if data.get("apiVersion") != API_VERSION:
        yield _error(("apiVersion",), "unknown-kind", f"is {_quoted(data.get('apiVersion'))}: write {API_VERSION}")
    elif kind is None:
        names = [known.kind for known in KINDS]
        near = difflib.get_close_matches(str(data.get("kind"))[:_SHOWN], names, 1)
        meant = f"did you mean {near[0]}?" if near else f"the kinds are: {', '.join(names)}"
        yield _error(("kind",), "unknown-kind", f"{_quoted(data.get('kind'))} is not a kind of {API_VERSION}; {meant}")
    else:
        yield from _of_kind(data, kind)


def _of_kind(data: Mapping[str, Any], kind: Kind) -> Iterator[Found]:
    schema = _schemas()[kind.kind]
    fields = {k: v for k, v in data.items() if k != "metadata"}
    found = [*islice(chain(_metadata(data.get("metadata")), _walk(fields, schema, ())), _MOST_FINDINGS)]
    yield from found
    if not found:
        yield from _across(data["spec"], kind)


def _across(spec: Any, kind: Kind) -> Iterator[Found]:
    """Violations of the rules about several fields, which are checked once every field is valid."""
    try:
        kind.spec.model_validate_json(json.dumps(without_nulls(spec)))
    except ValidationError as error:
        for problem in error.errors():
            text = problem["msg"].removeprefix("Value error, ")
            yield _error(("spec", *_said(problem["loc"])), "rule", text)


def _said(loc: tuple[int | str, ...]) -> At:
    return tuple(step for step in loc if isinstance(step, int) or not step.startswith("function-"))


def without_nulls(value: Any) -> Any:
    """`value` as the API server stores it: without fields that are null."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def _metadata(meta: Any) -> Iterator[Found]:
    at: At = ("metadata",)
    if not isinstance(meta, dict):
        yield _error(at, "missing", "metadata with a name is missing")
        return
    name = meta.get("name")
    if not isinstance(name, str) or not name:
        yield _error(at, "missing", "metadata.name is missing: kubectl apply needs it")
    elif not is_object_name(name):
        said = f"{_quoted(name)} is not an object name: use lowercase letters, digits, - and ., at most {LONGEST}"
        yield _error((*at, "name"), "pattern", said)
    for key in meta:
        if key not in _METADATA:
            yield _unknown((*at, key), key, _METADATA)
    for part in ("labels", "annotations"):
        texts = meta.get(part) or {}
        if not isinstance(texts, dict):
            yield _error((*at, part), "type", f"is {_quoted(texts)}: write a map of strings")
            continue
        for key, value in texts.items():
            if not isinstance(value, str):
                yield _error((*at, part, key), "type", f"is {_quoted(value)}: write a string, in quotes")


def _walk(value: Any, schema: Schema, at: At) -> Iterator[Found]:
    """Errors in `value`, whose place is `at`."""
    wrong = _wrong_type(value, schema)
    if wrong:
        yield _error(at, "type", wrong)
        return
    for word, check in _CHECKS.items():
        if word in schema and _concerns(word, value, schema) and (text := check(value, schema)):
            more = _PARAMETERS if at[-2:] == ("prometheus", "url") and "?" in value else ""
            yield _error(at, word, f"{text}{more}")
    if isinstance(value, dict):
        yield from _fields(value, schema, at)
    elif isinstance(value, list):
        for k, item in enumerate(value):
            yield from _walk(item, schema["items"], (*at, k))


def _fields(value: Mapping[str, Any], schema: Schema, at: At) -> Iterator[Found]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if value.get(name) is None:
            what = known.get(name, {}).get("description", "")
            yield _error(at, "missing", f"{spelt((*at, name))} is missing{f': {what}' if what else ''}")
    for name, part in value.items():
        field = known.get(name, others)
        if field is not None:
            yield from () if part is None else _walk(part, field, (*at, name))
        elif at or name not in {"apiVersion", "kind"}:
            yield _unknown((*at, name), name, known)


def _wrong_type(value: Any, schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        well = isinstance(value, str) or _whole(value)
        return "" if well else f"is {_quoted(value)}: write a whole number, or a quantity such as 10Mi"
    wanted = schema.get("type", "object")
    if wanted == "string" and isinstance(value, (bool, int, float)):
        return f"is {_quoted(value)}: write a string, in quotes{_like(value, schema)}"
    is_it, words = _TYPES[wanted]
    return "" if is_it(value) else f"is {_quoted(value)}: write {words}{_unquoted(value, wanted, schema)}"


def _like(value: Any, schema: Schema) -> str:
    """A string that a number or a boolean may stand for."""
    form = FORMS.get(schema.get("pattern", ""))
    if form is None:
        return f": {meant}" if (meant := choice_meant(str(value), schema.get("enum", ()))) else ""
    return f': "{value}s"' if form.meant is duration_meant and _whole(value) else f": {form.words}"


def _unquoted(value: Any, wanted: str, schema: Schema) -> str:
    """The value without quotes that a text probably stands for."""
    if wanted == "boolean" and (meant := flag_meant(value)):
        return f": {meant}, without quotes"
    if wanted in {"number", "integer"} and isinstance(value, str) and (meant := number_meant(value[:_SHOWN])):
        return f": {meant}, without quotes"
    types = schema.get("properties", {}).get("type", {}).get("enum", ())
    if wanted == "object" and isinstance(value, str) and (meant := choice_meant(value[:_LONGEST_TEXT], types)):
        return f": {{type: {meant}}}"
    return ""


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(value: Any) -> bool:
    """Whether the API server reads a value as a whole number, of 64 bits."""
    return _number(value) and abs(value) < _TOO_LARGE and (isinstance(value, int) or value.is_integer())


def _told(value: float) -> str:
    """A number for a message, shortened if it is too large for floating point."""
    return f"{value:g}" if abs(value) <= sys.float_info.max or value != value else _quoted(value)  # noqa: PLR0124  NaN


_TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "object": (lambda v: isinstance(v, dict), "a map of fields"),
    "array": (lambda v: isinstance(v, list), "a list"),
    "string": (lambda v: isinstance(v, str), "a string"),
    "boolean": (lambda v: isinstance(v, bool), "true or false"),
    "number": (_number, "a number"),
    "integer": (_whole, "a whole number"),
}


def _minimum(value: Any, schema: Schema) -> str:
    bound, above = schema["minimum"], schema.get("exclusiveMinimum", False)
    well = value > bound if above else value >= bound
    return "" if well else f"is {_told(value)}, but must be {'above' if above else 'at least'} {bound}"


def _maximum(value: Any, schema: Schema) -> str:
    bound, below = schema["maximum"], schema.get("exclusiveMaximum", False)
    well = value < bound if below else value <= bound
    return "" if well else f"is {_told(value)}, but must be {'below' if below else 'at most'} {bound}"


def _enum(value: Any, schema: Schema) -> str:
    choices = schema["enum"]
    if value in choices:
        return ""
    text = str(value)[:_LONGEST_TEXT]
    if meant := choice_meant(text, choices):
        return f"is {_quoted(value)}: write {meant}"
    near = difflib.get_close_matches(text[:_SHOWN], choices, 1)
    meant = elsewhere(text) or (f"did you mean {near[0]}?" if near else "")
    return f"is {_quoted(value)}, but must be one of {', '.join(map(str, choices))}{meant and f'; {meant}'}"


def _pattern(value: Any, schema: Schema) -> str:
    if len(value) > schema.get("maxLength", _LONGEST_TEXT):
        return "" if "maxLength" in schema else f"has {len(value)} characters, but at most {_LONGEST_TEXT} are read"
    pattern = re.sub(r"\$$", r"\\Z", schema["pattern"])
    if re.search(pattern, value, re.ASCII):
        return ""
    if problem := form_problem(value, schema["pattern"]):
        return f"is {_quoted(safe_text(value) if is_url(schema['pattern']) else value)}: {problem}"
    return f"is {_quoted(value)}, but must match {schema['pattern']}"


def _size(word: str, noun: str, *, most: bool) -> Callable[[Any, Schema], str]:
    def check(value: Any, schema: Schema) -> str:
        bound = schema[word]
        if len(value) <= bound if most else len(value) >= bound:
            return ""
        return f"has {len(value)} {noun}, but {'at most' if most else 'at least'} {bound} are allowed"

    return check


def _twice(value: Any, schema: Schema) -> str:
    if schema["x-kubernetes-list-type"] != "set" or not isinstance(value, list):
        return ""
    seen = set[str]()
    for item in value:
        text = json.dumps(item, sort_keys=True, default=str)
        if text in seen:
            return f"holds {_quoted(item)} twice: leave one out"
        seen.add(text)
    return ""


def _concerns(word: str, value: Any, schema: Schema) -> bool:
    """Whether a check applies to `value`.

    If a field takes numbers and texts, `minimum` checks only numbers, and all other checks only texts.
    """
    both = schema.get("x-kubernetes-int-or-string", False)
    return not both or (word == "minimum") == _number(value)


_CHECKS: Mapping[str, Callable[[Any, Schema], str]] = {
    "enum": _enum,
    "pattern": _pattern,
    "minimum": _minimum,
    "maximum": _maximum,
    "minLength": _size("minLength", "characters", most=False),
    "maxLength": _size("maxLength", "characters", most=True),
    "minItems": _size("minItems", "items", most=False),
    "maxItems": _size("maxItems", "items", most=True),
    "minProperties": _size("minProperties", "fields", most=False),
    "maxProperties": _size("maxProperties", "fields", most=True),
    "x-kubernetes-list-type": _twice,
}


def _unknown(at: At, name: str, known: Mapping[str, Any] | frozenset[str]) -> Found:
    near = difflib.get_close_matches(name[:_SHOWN], known, 1)
    meant = f"did you mean {near[0]}?" if near else f"the known ones are: {some(sorted(known), 12)}"
    return _error(at, "unknown-key", f"is unknown; {meant}")


def _error(at: At, rule: str, text: str) -> Found:
    return Found(Level.ERROR, rule, at, text)


def _quoted(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
