"""Models whose fields are described by the docstrings below them, read when a schema is made and not before.

Pydantic can do the same (``use_attribute_docstrings``), but looks for each class's source when the class is made: a
third of what it takes to start the program, which hardly ever shows a description.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class Described(BaseModel):
    """Base of models of which a field's docstring becomes its description in the JSON schema."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> dict[str, Any]:
        """What pydantic makes of it, with the descriptions."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in descriptions(cls).items():
            info = cls.model_fields[name]
            for key in {name, info.alias} & properties.keys():
                properties[key].setdefault("description", text)
        return schema


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The docstring of each field that has one; empty where the source is not at hand."""
    found: dict[str, str] = {}
    for part in reversed(model.__mro__):
        own = _docstrings(part.__module__).get(part.__qualname__, {}) if issubclass(part, Described) else {}
        for name in vars(part).get("__annotations__", {}):
            found[name] = own.get(name, "")
    return {name: found[name] for name in model.model_fields if found.get(name)}


@cache
def _docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """Qualified name of a class of the module -> its fields' docstrings."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    return dict(_classes(tree, ""))


def _classes(node: ast.AST, around: str) -> Iterator[tuple[str, dict[str, str]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield around + child.name, _fields(child)
            yield from _classes(child, f"{around}{child.name}.")
        else:
            yield from _classes(child, around)


def _fields(written: ast.ClassDef) -> dict[str, str]:
    """A text right behind an annotated name belongs to that."""
    found = {}
    for field, text in zip(written.body, written.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[field.target.id] = inspect.cleandoc(value.value)
    return found
