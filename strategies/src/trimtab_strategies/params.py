"""The base of every strategy's parameters: one source for validation, the CRD's schema and the docs.

Descriptions are the docstrings below the fields. They are read when a schema is rendered. Pydantic's own
``use_attribute_docstrings`` reads source files at import, which takes a third of the program's start-up time.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from trimtab_strategies.usage import Weight, Weights


class Compatibility(StrEnum):
    """Whether a strategy keeps the known defects of the original, or does what the original intended."""

    JAVA = "java"
    CORRECTED = "corrected"


class Defect(NamedTuple):
    """A known defect of an original: what it does, and what `Compatibility.CORRECTED` does instead."""

    original: str
    corrected: str


class DescribedModel(BaseModel):
    """Base of models whose fields' docstrings become their descriptions in the JSON schema."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /) -> dict[str, Any]:
        """Pydantic's schema, with the descriptions."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in descriptions(cls).items():
            info = cls.model_fields[name]
            for key in {name, info.alias} & properties.keys():
                properties[key].setdefault("description", text)
        return schema


class YamlModel(DescribedModel):
    """Base of models that a person writes: camelCase in YAML, immutable; unknown keys are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
    )


class StrategyParams(YamlModel):
    """Parameters of one strategy.

    A field's docstring says what it does and its unit, and ends with Pulsar's key for it.
    """


class WeightedParams(StrategyParams):
    """Parameters of a strategy that compares brokers by the weighted maximum of their resources."""

    cpu_weight: Weight = 1
    """Factor on CPU percent.
    Pulsar: loadBalancerCPUResourceWeight"""
    direct_memory_weight: Weight = 0
    """Factor on direct memory percent.
    Pulsar: loadBalancerDirectMemoryResourceWeight"""
    network_in_weight: Weight = 1
    """Factor on percent of the network received.
    Pulsar: loadBalancerBandwidthInResourceWeight"""
    network_out_weight: Weight = 1
    """Factor on percent of the network sent.
    Pulsar: loadBalancerBandwidthOutResourceWeight"""

    @property
    def weights(self) -> Weights:
        """The weights of all resources."""
        return Weights(self.cpu_weight, 0.0, self.direct_memory_weight, self.network_in_weight, self.network_out_weight)


def pulsar_keys(params: type[StrategyParams]) -> dict[str, str]:
    """Pulsar's configuration key of each parameter that has one -> the field's name."""
    found = {}
    for name, text in descriptions(params).items():
        _, marker, key = text.rpartition("Pulsar: ")
        if marker:
            found[key.strip()] = name
    return found


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The docstring of each field that has one; empty when the source is not available."""
    found: dict[str, str] = {}
    for part in reversed(model.__mro__):
        own = _docstrings(part.__module__).get(part.__qualname__, {}) if issubclass(part, DescribedModel) else {}
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
    """Field names with their docstrings: each is the text that directly follows an annotated name."""
    found = {}
    for field, text in zip(written.body, written.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[field.target.id] = inspect.cleandoc(value.value)
    return found
