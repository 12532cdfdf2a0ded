"""The reference of each kind, field by field, from the schemas in crds/."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from page_text import ROOT, table, wrapped

KINDS = ("BalancingPolicy", "Broker", "Bundle", "BundleSplit", "TopicNamespace")
"""The kinds, in the order of the navigation."""

Schema = Mapping[str, Any]

_BOUNDS = (
    ("minimum", ">= {}"),
    ("maximum", "<= {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "<= {} characters"),
    ("minItems", "at least {} items"),
    ("maxItems", "<= {} items"),
    ("minProperties", "at least {} entries"),
    ("maxProperties", "<= {} entries"),
)
_ONE = {"at least 1 characters": "not empty", "at least 1 items": "not empty", "at least 1 entries": "not empty"}

_PARAMETERS = "Parameters of "
_OWN_PARAMETERS = (
    "Write the [parameters](../strategies.md) of a strategy in the field of its name beside `type`, such as"
    " `thresholdShedder`. Those of other strategies are refused."
)

_MANY = 5
"""So many fields with the same bound share it."""

_REFERENCE = {"name", "key"}
_REFERRED = re.compile(r"Name of the Secret, and the key in it\.( The Secret must have the label \S+ \S+\.?)?")
_SUMMARIES = re.compile(r"(Name of the strategy)\. `.*")
_REFERENCES = """\
## References

A `secretKeyRef` or `configMapKeyRef` has two required fields: `name`, the name of the Secret or ConfigMap, and `key`,
the key in it. A Secret must have the label `trimtab.dev/credentials: "true"`.
"""

_LENGTH = "^([0-9]+(s|m|h))+$"
_TOLD_AGAIN = re.compile(r" \((?:default|above|below|at least|at most|from|one of|between)\b[^()]*\)$")


_PAGE = """\
# {kind}

<!-- made by docs/tools/generate.py from crds/: edit the models in trimtab_operator.resources, then `make crds docs` -->

{text}

`apiVersion: {group}/{version}`, short name `{short}`: `kubectl get {short}`, `kubectl explain {singular}`.

`kubectl` refuses a field that the schema does not know (strict validation, its default). If a client does not ask for
strict validation, the API server silently drops the field. It checks bounds in both cases. A duration is written as
`90s`, `5m` or `1h30m`, a quantity as `10Mi`.

{fields}
"""


def page(kind: str) -> str:
    crds = (yaml.safe_load(file.read_text()) for file in sorted((ROOT / "crds").glob("*.yaml")))
    spec = next(crd["spec"] for crd in crds if crd["spec"]["names"]["kind"] == kind)
    (version,) = spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    fields = [
        *_half("spec", schema),
        *_half("status", schema),
        *_references(schema),
        _columns(version["additionalPrinterColumns"]),
    ]
    return _PAGE.format(
        kind=kind,
        text=wrapped(_text(schema)),
        group=spec["group"],
        version=version["name"],
        short=spec["names"]["shortNames"][0],
        singular=spec["names"]["singular"],
        fields="\n".join(part for part in fields if part).rstrip(),
    )


def _half(name: str, schema: Schema) -> Iterator[str]:
    """spec or status: first simple fields, then each object under its own heading."""
    half = schema["properties"].get(name)
    if half is None:
        return
    yield f"## {name}\n\n{wrapped(_text(half))}\n"
    small = {key: field for key, field in half["properties"].items() if not _inside(field)}
    yield _table({**half, "properties": small}, list(_rows(small, half)), read_only=name == "status")
    for key, field in half["properties"].items():
        if _inside(field):
            facts = _facts(field, required=key in half.get("required", ())) if name == "spec" else ""
            yield f"### {name}.{key}\n\n{wrapped(facts + _text(field))}\n"
            if key == "conditions":
                yield "[What each says](reasons.md#conditions).\n"
            else:
                yield _table(field, list(_rows(_inside(field), _unwrapped(field))), read_only=name == "status")


def _rows(fields: Mapping[str, Schema], owner: Schema, prefix: str = "") -> Iterator[tuple[str, ...]]:
    """A row for each field and all fields inside it.

    An object whose only field refers to a Secret gets one row. The parameters of a strategy are on a page of their own.
    """
    required, shared = owner.get("required", ()), _shared_bound(fields)
    for name, field in fields.items():
        path, text, inside = f"{prefix}{name}", _text(field), _inside(field)
        needed = "required" if name in required else _default(field)
        if text.startswith(_PARAMETERS):
            continue
        if list(inside) == ["secretKeyRef"]:
            path, inside = f"{path}.secretKeyRef", inside["secretKeyRef"]["properties"]
        if set(inside) == _REFERENCE:
            yield f"`{path}`", "[reference](#references)", needed, "", _REFERRED.sub("", text)
            continue
        bound = f"each {each}" if (each := _shared_bound(inside)) else _bound(field) if not shared else ""
        yield f"`{path}`", _type(field), needed, bound, _SUMMARIES.sub(r"\1.", text)
        into = "[]." if field.get("type") == "array" else "."
        yield from _rows(inside, _unwrapped(field), f"{path}{into}")


def _shared_bound(fields: Mapping[str, Schema]) -> str:
    """The bound that all of many fields have, which then stands in the row of their object; empty if they differ."""
    bounds = {_bound(field) for field in fields.values()}
    return bounds.pop() if len(bounds) == 1 and len(fields) >= _MANY else ""


def _default(field: Schema) -> str:
    return f"`{_value(field['default'])}`" if _says(field.get("default")) else ""


def _table(owner: Schema, rows: list[tuple[str, ...]], *, read_only: bool) -> str:
    """A table of fields and the rules across them. read_only: no defaults, no bounds but the values."""
    head = "field | type | what it is" if read_only else "field | type | default | bound | what it is"
    shown = [(row[0], row[3] if row[3].startswith("`") else row[1], row[-1]) for row in rows] if read_only else rows
    parts = [table(head, shown) + "\n"] if rows else []
    if rules := sorted(set(_rules(owner))):
        parts.append("Rules:\n\n" + "\n".join(wrapped(f"- {rule}", "  ") for rule in rules) + "\n")
    return "\n".join(parts)


def _rules(schema: Schema) -> Iterator[str]:
    """Rules across fields. All rules that tie parameters to a strategy's type become one sentence."""
    for rule in schema.get("x-kubernetes-validations", ()):
        message = str(rule.get("message", rule["rule"]))
        yield _OWN_PARAMETERS if " belongs to type " in message else message
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
        return "quantity"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    values = field.get("additionalProperties")
    if isinstance(values, dict):
        return f"map to {_type(values)}"
    return {"date-time": "time"}.get(field.get("format", ""), str(field.get("type", "any")))


def _bound(field: Schema) -> str:
    """The allowed values."""
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if {"minimum", "maximum"} <= field.keys() and not field.get("exclusiveMinimum"):
        return f"{field['minimum']} to {field['maximum']}"
    told = [text.format(field[key]) for key, text in _BOUNDS if key in field]
    told = [_ONE.get(text, text) for text in told]
    if field.get("exclusiveMinimum"):
        told = [text.replace(">=", ">") for text in told]
    if field.get("pattern") == _LENGTH:
        return ""
    if field.get("x-kubernetes-int-or-string"):
        return "> 0" if field.get("minimum") else ""
    if pattern := field.get("pattern"):
        told.append(f"matches `{pattern}`".replace("|", "\\|"))
    return ", ".join(told)


def _says(default: Any) -> bool:
    return default not in (None, "", [], {})


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).replace("|", "\\|")


def _text(field: Schema) -> str:
    """The description of a field without default and bounds, which have their own columns."""
    words = _TOLD_AGAIN.sub("", " ".join(str(field.get("description", "")).split()))
    return words.replace("|", "\\|").replace("<", "&lt;")


def _references(schema: Schema) -> Iterator[str]:
    """The section on references to Secrets, if a field is one."""
    fields = list(_inside(schema).values())
    for field in fields:
        fields += _inside(field).values()
        if set(_inside(field)) == _REFERENCE:
            yield _REFERENCES
            return


def _columns(columns: list[Schema]) -> str:
    rows = [(each["name"], f"`{each['jsonPath']}`", "yes" if each.get("priority") else "") for each in columns]
    return "## Columns\n\n" + table("column | from | only with `-o wide`", rows)
