"""The base of every strategy's parameters: one source for validation, the CRD's schema and the docs.

Descriptions are the docstrings below the fields. They are read when a schema is rendered. Pydantic's own
``use_attribute_docstrings`` reads source files at import, which would take a third of the program's start-up time.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from trimtab_strategies.usage import Weight, Weights

Percent = Annotated[float, Field(ge=0, le=100)]
"""A share in percent. The name of such a parameter ends in ``_percent`` if it could also mean a ratio or a number."""

PositivePercent = Annotated[float, Field(gt=0, le=100)]
"""A share in percent, above 0."""


class Compatibility(StrEnum):
    """Whether a strategy keeps the known defects of the original, or does what the original intended."""

    JAVA = "Java"
    CORRECTED = "Corrected"


_SECONDS = {"s": 1, "m": 60, "h": 3600}
DURATION = r"^([0-9]+(s|m|h))+$"
"""Pattern of a duration."""


def seconds(text: str) -> float:
    """Convert a duration such as ``90s``, ``5m`` or ``1h30m`` to seconds. Raises `ValueError`."""
    if not re.fullmatch(DURATION, text):
        raise ValueError(f"duration {text!r} must look like 90s, 5m or 1h30m")
    found = sum(float(n) * _SECONDS[unit] for n, unit in re.findall(r"([0-9]+)([smh])", text))
    if found == float("inf"):
        raise ValueError(f"duration {text[:_LONGEST]!r}... is too long")
    return found


def _positive(text: str) -> str:
    if seconds(text) <= 0:
        raise ValueError(f"duration {text!r} must be longer than 0s")
    return text


Duration = Annotated[str, Field(pattern=DURATION, max_length=16), AfterValidator(_positive)]
"""A duration as in Kubernetes: ``90s``, ``5m``, ``1h30m``."""

DurationOrZero = Annotated[str, Field(pattern=DURATION, max_length=16)]
"""A duration, or ``0s``."""


def as_duration(length: float) -> str:
    """Whole seconds as a duration in the largest unit that fits: ``30m``."""
    for unit, size in (("h", 3600), ("m", 60)):
        if length and length % size == 0:
            return f"{length / size:.0f}{unit}"
    return f"{length:g}s"


_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTPE", 1)
}
"""Factor of each suffix of a quantity."""

_INT64 = 2**63
_LONGEST = 32
_SUFFIX = "([mkMGTPE]|[KMGTPE]i)?"
AMOUNT = rf"^[0-9]+(\.[0-9]+)?{_SUFFIX}$"
AMOUNT_ABOVE_ZERO = rf"^([0-9]*[1-9][0-9]*(\.[0-9]+)?|[0-9]+\.[0-9]*[1-9][0-9]*){_SUFFIX}$"
"""Patterns of a quantity, and of one above 0."""


def quantity(text: str) -> float:
    """The number that a quantity as in Kubernetes stands for: ``10Mi`` is 10485760. Raises `ValueError`."""
    found = re.fullmatch(rf"([0-9]+(?:\.[0-9]+)?){_SUFFIX}", text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity: write one such as 500k, 10Mi or 1.5G")
    if (amount := float(found[1]) * _UNITS[found[2] or ""]) == float("inf"):
        raise ValueError(f"{text[:_LONGEST]!r}... is too large")
    return amount


def is_whole(value: Any) -> bool:
    """Whether the API server reads a value as a whole number of 64 bits. YAML's 1e3 is a float, and JSON's 1000."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < _INT64 and value == int(value)


def _quantity_text(value: Any) -> Any:
    return str(int(value)) if is_whole(value) else value


def _checked(text: str) -> str:
    if len(text) > _LONGEST:
        raise ValueError(f"{text!r} has more than {_LONGEST} characters")
    if text.startswith("-"):
        raise ValueError("must be at least 0")
    quantity(text)
    return text


def _above_zero(text: str) -> str:
    if not quantity(_checked(text)) > 0:
        raise ValueError(f"{text!r} must be above 0")
    return text


def _int_or_string(pattern: str, least: int) -> WithJsonSchema:
    bounds = {"pattern": pattern, "maxLength": _LONGEST, "minimum": least}
    return WithJsonSchema({"x-kubernetes-int-or-string": True, **bounds})


Quantity = Annotated[str, BeforeValidator(_quantity_text), AfterValidator(_checked), _int_or_string(AMOUNT, 0)]
"""An amount as in Kubernetes: a whole number, or a text such as ``500k``, ``10Mi`` or ``1.5G``."""

PositiveQuantity = Annotated[
    str, BeforeValidator(_quantity_text), AfterValidator(_above_zero), _int_or_string(AMOUNT_ABOVE_ZERO, 1)
]
"""A `Quantity` above 0."""


def as_quantity(value: float) -> str:
    """`value` (not negative) as a quantity with at most one decimal, rounded down, in the largest unit that fits."""
    for prefix in ("Gi", "Mi", "Ki"):
        if value >= _UNITS[prefix]:
            tenths = int(value / _UNITS[prefix] * 10)
            return f"{tenths // 10}.{tenths % 10}{prefix}".replace(".0", "")
    return str(int(value))


def as_percent(ratio: float) -> float:
    """A ratio 0-1 in percent, without the rounding error of the multiplication."""
    percent = round(100 * ratio, 10)
    return int(percent) if percent.is_integer() else percent


def rounded(value: float, digits: int) -> float | None:
    """`value` with `digits` decimals; None for NaN and infinity."""
    return round(float(value), digits) if math.isfinite(value) else None


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
    """Factor on percent of incoming network traffic.
    Pulsar: loadBalancerBandwidthInResourceWeight"""
    network_out_weight: Weight = 1
    """Factor on percent of outgoing network traffic.
    Pulsar: loadBalancerBandwidthOutResourceWeight"""

    @property
    def weights(self) -> Weights:
        """The weights of all resources."""
        return Weights(self.cpu_weight, 0.0, self.direct_memory_weight, self.network_in_weight, self.network_out_weight)


class PulsarKey(NamedTuple):
    """A parameter that Pulsar has, too. name: our field. unit: the unit of Pulsar's value, empty if it equals ours."""

    name: str
    unit: str

    def value(self, given: Any) -> Any:
        """Pulsar's value in our unit. A value that is not a number stays as it is."""
        if isinstance(given, bool) or not isinstance(given, int | float) or self.unit not in _FROM_PULSAR:
            return given
        return _FROM_PULSAR[self.unit](given)


def _bytes(given: float) -> Any:
    for prefix in ("Mi", "Ki"):
        if given > 0 and given % _UNITS[prefix] == 0:
            return f"{given / _UNITS[prefix]:.0f}{prefix}"
    return f"{given:.0f}" if float(given).is_integer() else str(given)


_FROM_PULSAR: Mapping[str, Callable[[float], Any]] = {
    "MiB/s": lambda given: f"{given}Mi",
    "bytes/s": _bytes,
    "seconds": as_duration,
    "0-1": as_percent,
    "cycles before": lambda given: given + 1,
}
"""Pulsar's unit -> how to convert a value to ours."""


def pulsar_keys(params: type[StrategyParams]) -> dict[str, PulsarKey]:
    """Pulsar's configuration key of each parameter that has one -> our field, and the unit of Pulsar's value."""
    found = {}
    for name, text in descriptions(params).items():
        _, marker, key = text.rpartition("Pulsar: ")
        if marker:
            named, _, unit = key.strip().partition(" in ")
            found[named] = PulsarKey(name, unit)
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
    """Field names with their docstrings. A docstring is the text directly after an annotated name."""
    found = {}
    for field, text in zip(written.body, written.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[field.target.id] = inspect.cleandoc(value.value)
    return found
