"""Converts a pydantic model to a structural schema, the OpenAPI 3.0 dialect of CRDs.

Pydantic writes JSON Schema 2020: references, ``anyOf`` with null, numeric exclusive bounds, titles. This module
translates each construct. An unknown one is an error, because the API server would prune it silently.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from trimtab_operator.resources.common import SET, Status

Schema = dict[str, Any]


class InexpressibleError(ValueError):
    """A model uses a construct without a counterpart in a structural schema. The text names the field and construct."""


_DROPPED = frozenset({"title", "examples", "$defs", "propertyNames"})
_KEPT = frozenset(
    {"type", "format", "enum", "pattern", "required", "minimum", "maximum", "minLength", "maxLength", "minItems"}
    | {"maxItems", "minProperties", "maxProperties", "x-kubernetes-validations", "x-kubernetes-list-type"}
    | {"x-kubernetes-list-map-keys", "x-kubernetes-int-or-string"}
)
_NUMBERS = frozenset({"minimum", "maximum"})
_FIRST = ("description", "type", "format", "enum", "default")
_LAST = ("required", "properties", "items", "additionalProperties")


def structural(model: type[BaseModel]) -> Schema:
    """The schema of `model` without references. Raises `InexpressibleError`.

    Descriptions of spec fields end with bounds and default, because ``kubectl explain`` does not show these.
    Descriptions of the fields of a `Status` have neither, because users only read a status.
    """
    schema = model.model_json_schema(mode="validation")
    return _Translation(schema.get("$defs", {}), describe_bounds=not issubclass(model, Status)).schema(
        schema, model.__name__
    )


class _Translation:
    """Translates the schemas of one model. definitions: targets of its references."""

    def __init__(self, definitions: Mapping[str, Schema], *, describe_bounds: bool) -> None:
        self._definitions = definitions
        self._describe_bounds = describe_bounds
        self._open: list[str] = []

    def schema(self, source: Schema, at: str) -> Schema:
        """Translate `source`. at: its path, for errors."""
        if "$ref" in source:
            return self._reference(source, at)
        if "anyOf" in source:
            return self.schema(_without_null(source, at), at)
        result: Schema = {}
        for key, value in source.items():
            self._word(result, key, value, at)
        if "type" not in result and not result.get("x-kubernetes-int-or-string"):
            raise InexpressibleError(f"{at}: a value of any type can't be described; give the field a type")
        if result.get("type") == "integer":
            result["format"] = "int64"
        result = _with_defaults(result, source, at)
        return _in_reading_order(_with_bounds(result) if self._describe_bounds else result)

    def _reference(self, source: Schema, at: str) -> Schema:
        name = source["$ref"].removeprefix("#/$defs/")
        if name in self._open:
            raise InexpressibleError(f"{at}: {name} contains itself; a CRD can't be recursive")
        self._open.append(name)
        beside = {key: value for key, value in source.items() if key != "$ref"}
        result = self.schema({**self._definitions[name], **beside}, at)
        self._open.pop()
        return result

    def _word(self, result: Schema, key: str, value: Any, at: str) -> None:
        translate: Callable[[Schema, Any, str], None] | None = getattr(self, f"_{key}", None)
        if translate is not None:
            translate(result, value, at)
        elif key in _KEPT:
            result[key] = _whole(value) if key in _NUMBERS else value
        elif key not in _DROPPED and key != "default":
            raise InexpressibleError(f"{at}: {key}: {value!r} has no counterpart in a structural schema")

    def _properties(self, result: Schema, value: Mapping[str, Schema], at: str) -> None:
        result["properties"] = {name: self.schema(field, f"{at}.{name}") for name, field in value.items()}

    def _items(self, result: Schema, value: Schema, at: str) -> None:
        result["items"] = self.schema(value, f"{at}[]")

    def _additionalProperties(self, result: Schema, value: Schema | bool, at: str) -> None:  # noqa: N802, FBT001  JSON Schema's word
        """Translate a map's values. `false` is the API server's default: it prunes unknown fields, or refuses them."""
        if isinstance(value, dict):
            result["additionalProperties"] = self.schema(value, f"{at}[*]")
        elif value:
            raise InexpressibleError(f"{at}: an open object can't be described; name its fields")

    @staticmethod
    def _description(result: Schema, value: str, _at: str) -> None:
        result["description"] = " ".join(inspect.cleandoc(value).replace("``", "`").split())

    @staticmethod
    def _const(result: Schema, value: Any, _at: str) -> None:
        result["enum"] = [value]

    @staticmethod
    def _exclusiveMinimum(result: Schema, value: float, _at: str) -> None:  # noqa: N802
        result.update(minimum=_whole(value), exclusiveMinimum=True)

    @staticmethod
    def _exclusiveMaximum(result: Schema, value: float, _at: str) -> None:  # noqa: N802
        result.update(maximum=_whole(value), exclusiveMaximum=True)

    @staticmethod
    def _uniqueItems(result: Schema, _value: bool, _at: str) -> None:  # noqa: N802, FBT001
        result.update(SET)


def _without_null(source: Schema, at: str) -> Schema:
    """Translate ``X | None`` to an optional X, which is absent and never null."""
    others = [choice for choice in source["anyOf"] if choice.get("type") != "null"]
    if len(others) != 1:
        raise InexpressibleError(
            f"{at}: a choice between {len(others)} types can't be described; use a union with `type`"
        )
    return {**others[0], **{key: value for key, value in source.items() if key != "anyOf"}}


def _with_defaults(result: Schema, source: Schema, at: str) -> Schema:
    """Add the default. For an object it is ``{}``, and the API server fills in the defaults of its fields."""
    default = source.get("default")
    if default is None:
        return result
    if isinstance(default, dict):
        fields = {name: field["default"] for name, field in result.get("properties", {}).items() if "default" in field}
        if {key: value for key, value in default.items() if value not in (None, {}, [])} != fields:
            raise InexpressibleError(
                f"{at}: the default {default} must be made of the defaults of its fields, {fields}"
            )
        default = {}
    return {**result, "default": _whole(default)}


def _with_bounds(schema: Schema) -> Schema:
    """Append bounds and default to the description."""
    default = schema.get("default")
    parts = [
        f"{'above' if schema.get('exclusiveMinimum') else 'at least'} {schema['minimum']}"
        if "minimum" in schema
        else "",
        f"{'below' if schema.get('exclusiveMaximum') else 'at most'} {schema['maximum']}"
        if "maximum" in schema
        else "",
        f"default {str(default).lower() if isinstance(default, bool) else default}"
        if default not in (None, "", {}, [])
        else "",
    ]
    note = ", ".join(filter(None, parts))
    if not note or "description" not in schema:
        return schema
    return {**schema, "description": f"{schema['description']} ({note})"}


def _whole(value: Any) -> Any:
    """Convert 10.0 to 10."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _in_reading_order(schema: Schema) -> Schema:
    """Sort keys: description and type first, nested schemas last."""
    words = [*_FIRST, *(word for word in schema if word not in _FIRST + _LAST), *_LAST]
    return {word: schema[word] for word in words if word in schema}
