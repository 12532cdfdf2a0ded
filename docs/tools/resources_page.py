"""The reference of each kind, field by field, from the schema in crds/ that the API server enforces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from page_text import wrapped

CRDS = Path(__file__).parents[2] / "crds"

KINDS = ("BalancingPolicy", "Broker", "Bundle", "BundleSplit", "TopicNamespace")
"""In the order of the navigation."""

Schema = Mapping[str, Any]

_BOUNDS = (
    ("minimum", ">= {}"),
    ("maximum", "<= {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("minProperties", "at least {} entries"),
    ("maxProperties", "at most {} entries"),
)

_LENGTH = "^([0-9]+(s|m|h))+$"
_TOLD_AGAIN = re.compile(r" \((?:default|above|below|at least|at most|from|one of|between)\b[^()]*\)$")

_HEAD = """\
# {kind}

<!-- made by docs/tools/generate.py from crds/: edit the models in trimtab_operator.resources, then `make crds docs` -->

{text}

`apiVersion: {group}/{version}`, short name `{short}`: `kubectl get {short}`, `kubectl explain {singular}`.

A field the schema does not know is refused by `kubectl` (strict validation, its default); clients that leave that out
lose it silently. Bounds are checked by the API server.
"""


def page(kind: str) -> str:
    """The page of one of `KINDS`."""
    crd = next(crd for crd in _crds() if crd["spec"]["names"]["kind"] == kind)
    version = crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    names = crd["spec"]["names"]
    head = _HEAD.format(
        kind=kind,
        text=wrapped(_text(schema)),
        group=crd["spec"]["group"],
        version=version["name"],
        short=names["shortNames"][0],
        singular=names["singular"],
    )
    parts = [head, *_half("spec", schema), *_half("status", schema), _columns(version["additionalPrinterColumns"])]
    return "\n".join(part for part in parts if part)


def _crds() -> Iterator[Schema]:
    return (yaml.safe_load(file.read_text()) for file in sorted(CRDS.glob("*.yaml")))


def _half(name: str, schema: Schema) -> Iterator[str]:
    """What is wished, or what is observed: single fields first, then each of its objects under a heading of its own."""
    half = schema["properties"].get(name)
    if half is None:
        return
    yield f"## {name}\n\n{wrapped(_text(half))}\n"
    small = {key: field for key, field in half["properties"].items() if not _inside(field)}
    yield _table(half, list(_rows(small, half)))
    for key, field in half["properties"].items():
        if _inside(field):
            facts = _facts(field, required=key in half.get("required", ()))
            yield f"### {name}.{key}\n\n{wrapped(facts + _text(field))}\n"
            yield _table(field, list(_rows(_inside(field), _unwrapped(field))))


def _rows(fields: Mapping[str, Schema], owner: Schema, prefix: str = "") -> Iterator[str]:
    """A row for each field, and for what is inside of it, however deep."""
    required = owner.get("required", ())
    for name, field in fields.items():
        path = f"{prefix}{name}"
        default = f"`{_value(field['default'])}`" if _says(field.get("default")) else ""
        needed = "required" if name in required else default
        yield f"| `{path}` | {_type(field)} | {needed} | {_bound(field)} | {_text(field)} |"
        into = "[]." if field.get("type") == "array" else "."
        yield from _rows(_inside(field), _unwrapped(field), f"{path}{into}")


def _table(owner: Schema, rows: list[str]) -> str:
    lines = ["| field | type | default | bound | what it is |", "|---|---|---|---|---|", *rows, ""] if rows else []
    rules = sorted(set(_rules(owner)))
    return "\n".join([*lines, *(["Rules:\n", *(wrapped(f"- {rule}", "  ") for rule in rules), ""] if rules else [])])


def _rules(schema: Schema) -> Iterator[str]:
    """What the API server checks across fields; of a union's members one sentence says enough."""
    for rule in schema.get("x-kubernetes-validations", ()):
        message = str(rule.get("message", rule["rule"]))
        yield "Only the parameters of the chosen `type` may be there." if " belongs to type " in message else message
    for field in _inside(schema).values():
        yield from _rules(field)


def _inside(field: Schema) -> Mapping[str, Schema]:
    """The fields of an object, or of the objects in a list."""
    found: Mapping[str, Schema] = _unwrapped(field).get("properties", {})
    return found


def _unwrapped(field: Schema) -> Schema:
    found: Schema = field.get("items") or field
    return found


def _facts(field: Schema, *, required: bool) -> str:
    facts = [_type(field), *(["required"] if required else []), *filter(None, [_bound(field)])]
    return f"*{', '.join(facts)}.* " if facts != ["object"] else ""


def _type(field: Schema) -> str:
    if field.get("pattern") == _LENGTH:
        return "duration"
    if field.get("x-kubernetes-int-or-string"):
        return "number or text"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    values = field.get("additionalProperties")
    if isinstance(values, dict):
        return f"map to {_type(values)}"
    return {"date-time": "time"}.get(field.get("format", ""), str(field.get("type", "any")))


def _bound(field: Schema) -> str:
    """What values are allowed."""
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    told = [text.format(field[key]) for key, text in _BOUNDS if key in field]
    if field.get("exclusiveMinimum"):
        told = [text.replace(">=", ">") for text in told]
    if field.get("pattern") == _LENGTH:
        return "such as `90s`, `5m`, `1h30m`"
    if pattern := field.get("pattern"):
        told.append(f"matches `{pattern}`".replace("|", "\\|"))
    return ", ".join(told)


def _says(default: Any) -> bool:
    return default not in (None, "", [], {})


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace("|", "\\|")


def _text(field: Schema) -> str:
    """What is written of a field, without the default and the bounds, which have columns of their own."""
    words = _TOLD_AGAIN.sub("", " ".join(str(field.get("description", "")).split()))
    return words.replace("|", "\\|").replace("<", "&lt;")


def _columns(columns: list[Schema]) -> str:
    lines = ["## Columns\n", "| column | from | only with `-o wide` |", "|---|---|---|"]
    lines += [
        f"| {each['name']} | `{each['jsonPath']}` | {'yes' if each.get('priority') else ''} |" for each in columns
    ]
    return "\n".join([*lines, ""])
