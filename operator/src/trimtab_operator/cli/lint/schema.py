"""Finds what the API server would refuse, with the models of the resources in pydantic's strict mode.

The models decide alone. The CRD's schema, which is rendered from them, only supplies words: descriptions, bounds, known
names. Each of the models' rules about several fields matches a CEL rule in the CRD. Tests compare both with a real API
server.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain, islice
from typing import Any

from pydantic import BaseModel, ValidationError, create_model
from pydantic_core import ErrorDetails

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
from trimtab_strategies.params import YamlModel, is_whole

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
_LONGEST_TEXT = 4096
"""Maximum number of characters of a text that is compared with the names of choices."""

_PARAMETERS = "; its parameters belong in spec.source.prometheus.parameters"


@cache
def _schemas() -> Mapping[str, Schema]:
    return {kind.kind: manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}


def valid_manifest(document: Document) -> dict[str, Any]:
    """The object of a document, without nulls. Raises `CommandError` if the API server would refuse it."""
    if wrong := list(refusals(document.data)):
        errors = [f"{document.file}:{document.line(found.at)}: {spelt(found.at)}: {found.text}" for found in wrong]
        raise CommandError(some(errors, 3, "; "))
    return dict(as_stored(document.data))


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
        yield from islice(chain(_metadata(data.get("metadata")), _invalid(data, kind)), _MOST_FINDINGS)


@cache
def _whole_object(kind: Kind) -> type[BaseModel]:
    """The model of an object of `kind`, without the fields that all kinds share."""
    fields: dict[str, Any] = {"spec": (kind.spec, ...), "status": (kind.status | None, None)}
    return create_model(kind.kind, __base__=YamlModel, **fields)


def _invalid(data: Mapping[str, Any], kind: Kind) -> Iterator[Found]:
    """Errors in the fields of an object, and violations of the rules about several fields."""
    schema = _schemas()[kind.kind]
    given = as_stored(
        {key: value for key, value in data.items() if key not in {"apiVersion", "kind", "metadata"}}, schema
    )
    try:
        # A value with a tag such as !!binary becomes a list, which is refused where a text belongs.
        text = json.dumps(given, default=lambda tagged: [str(tagged)])
        _whole_object(kind).model_validate_json(text, strict=True)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            yield _described(problem, schema)


def as_stored(value: Any, schema: Schema | None = None) -> Any:
    """`value` as the API server stores it: no fields that are null, ``20`` for ``20.0``, no integers above 64 bits.

    schema: that of the value. With it, only fields that it knows are left out.
    """
    if isinstance(value, dict):
        inside = {key: None if schema is None else _field(schema, (key,)) for key in value}
        kept = {key: part for key, part in value.items() if part is not None or inside[key] == {}}
        return {key: as_stored(part, inside[key]) for key, part in kept.items()}
    if isinstance(value, list):
        return [as_stored(part, None if schema is None else _field(schema, (0,))) for part in value]
    if is_whole(value):
        return int(value)
    return float(str(value)) if isinstance(value, int) and not isinstance(value, bool) else value


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


def _described(problem: ErrorDetails, schema: Schema) -> Found:
    """An error of pydantic, with the value, the bound and what to write. schema: that of the object."""
    at, field = problem["loc"], _field(schema, problem["loc"])
    if problem["type"] == "extra_forbidden":
        return _unknown(at, str(at[-1]), _field(schema, at[:-1]).get("properties", {}))
    if problem["type"] == "missing":
        what = field.get("description", "")
        return _error(at[:-1], "missing", f"{spelt(at)} is missing{f': {what}' if what else ''}")
    word, text = _violated(problem, field)
    more = _PARAMETERS if at[-2:] == ("prometheus", "url") and word == "pattern" and "?" in problem["input"] else ""
    return _error(at, word, f"{text}{more}")


def _violated(problem: ErrorDetails, schema: Schema) -> tuple[str, str]:
    """The word of a field's schema that its value violates, and the text."""
    value, kind = problem["input"], problem["type"]
    if schema.get("x-kubernetes-int-or-string"):
        return _wrong_amount(value, schema)
    if kind in _BOUNDS:
        word, text = _BOUNDS[kind]
        size = len(value) if isinstance(value, (str, list, dict)) else 0
        return word, text.format(value=value, size=size, **problem["ctx"])
    if kind == "string_pattern_mismatch":
        return "pattern", _pattern(value, schema)
    if kind == "enum" and isinstance(value, str):
        return "enum", _enum(value, schema)
    if kind == "enum" or kind.endswith("_type"):
        return "type", _wrong_type(value, schema)
    return "rule", problem["msg"].removeprefix("Value error, ")


def _field(schema: Schema, at: At) -> Schema:
    """The schema of the value at `at`; empty if there is none."""
    for step in at:
        inside = schema.get("properties", {}).get(step, schema.get("additionalProperties", {}))
        schema = schema.get("items", {}) if isinstance(step, int) else inside
    return schema


_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than": ("minimum", "is {value:g}, but must be above {gt:.15g}"),
    "greater_than_equal": ("minimum", "is {value:g}, but must be at least {ge:.15g}"),
    "less_than": ("maximum", "is {value:g}, but must be below {lt:.15g}"),
    "less_than_equal": ("maximum", "is {value:g}, but must be at most {le:.15g}"),
    "string_too_short": ("minLength", "has {size} characters, but at least {min_length} are allowed"),
    "string_too_long": ("maxLength", "has {size} characters, but at most {max_length} are allowed"),
    "too_short": ("minItems", "has {size} entries, but at least {min_length} are allowed"),
    "too_long": ("maxItems", "has {size} entries, but at most {max_length} are allowed"),
}
"""For an error of pydantic about a bound: the word of the schema, and the text."""


def _wrong_amount(value: Any, schema: Schema) -> tuple[str, str]:
    """The word of the schema that a quantity violates, and the text."""
    if isinstance(value, str):
        return "pattern", _pattern(value, schema)
    if is_whole(value):
        return "minimum", f"is {value}, but must be at least {schema['minimum']}"
    return "type", f"is {_quoted(value)}: write a whole number, or a quantity such as 10Mi"


def _wrong_type(value: Any, schema: Schema) -> str:
    wanted = schema.get("type", "object")
    if wanted == "string" and isinstance(value, (bool, int, float)):
        return f"is {_quoted(value)}: write a string, in quotes{_like(value, schema)}"
    return f"is {_quoted(value)}: write {_TYPES[wanted]}{_unquoted(value, wanted, schema)}"


def _like(value: Any, schema: Schema) -> str:
    """A string that a number or a boolean may stand for."""
    form = FORMS.get(schema.get("pattern", ""))
    if form is None:
        return f": {meant}" if (meant := choice_meant(str(value), schema.get("enum", ()))) else ""
    return f': "{value}s"' if form.meant is duration_meant and is_whole(value) else f": {form.words}"


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


_TYPES: Mapping[str, str] = {
    "object": "a map of fields",
    "array": "a list",
    "string": "a string",
    "boolean": "true or false",
    "number": "a number",
    "integer": "a whole number",
}


def _enum(value: Any, schema: Schema) -> str:
    choices, text = schema["enum"], str(value)[:_LONGEST_TEXT]
    if meant := choice_meant(text, choices):
        return f"is {_quoted(value)}: write {meant}"
    near = difflib.get_close_matches(text[:_SHOWN], choices, 1)
    meant = elsewhere(text) or (f"did you mean {near[0]}?" if near else "")
    return f"is {_quoted(value)}, but must be one of {', '.join(map(str, choices))}{meant and f'; {meant}'}"


def _pattern(value: Any, schema: Schema) -> str:
    if problem := form_problem(value, schema["pattern"]):
        return f"is {_quoted(safe_text(value) if is_url(schema['pattern']) else value)}: {problem}"
    return f"is {_quoted(value)}, but must match {schema['pattern']}"


def _unknown(at: At, name: str, known: Mapping[str, Any] | frozenset[str]) -> Found:
    near = difflib.get_close_matches(name[:_SHOWN], known, 1)
    meant = f"did you mean {near[0]}?" if near else f"the known ones are: {some(sorted(known), 12)}"
    return _error(at, "unknown-key", f"is unknown; {meant}")


def _error(at: At, rule: str, text: str) -> Found:
    return Found(Level.ERROR, rule, at, text)


def _quoted(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
