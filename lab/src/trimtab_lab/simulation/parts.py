"""The base of all parts of a scenario, values that may be a number or a spread, and the text of errors.

Ratios are 0-1. Times are rounds of one minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.params import DescribedModel


class InvalidScenarioError(ValueError):
    """A scenario that can't be built. The message names each field, its value, the bound and the fix."""


class ScenarioPart(DescribedModel):
    """Base of all parts of a scenario: camelCase in YAML, immutable; unknown keys are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
    )


Ratio = Annotated[float, Field(ge=0, le=1)]
"""A ratio 0-1."""

Load = Annotated[float, Field(ge=0, le=10)]
"""Ratio of a machine; above 1 is more than it can serve."""

Round = Annotated[int, Field(ge=0, le=20160)]
"""A round (minute) from the beginning; two weeks at most."""


def _ascending(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError(f"the first of the pair must not be above the second: write [{pair[1]:g}, {pair[0]:g}]")
    return pair


Positive = Annotated[float, Field(gt=0, le=1e9)]
"""A number above 0."""

Drawn = Positive | Annotated[tuple[Positive, Positive], AfterValidator(_ascending)]
"""A number, or a pair: drawn for each bundle between the two, evenly on a logarithmic scale."""

Minutes = Annotated[
    tuple[Annotated[int, Field(ge=1, le=20160)], Annotated[int, Field(ge=1, le=20160)]], AfterValidator(_ascending)
]
"""A pair of minutes: drawn evenly between the two."""


class Even(ScenarioPart):
    """Values evenly spread over the brokers, in their order."""

    first: Load
    """Value of the first broker."""
    last: Load
    """Value of the last broker."""


class About(ScenarioPart):
    """Values within a tenth of one, evenly spread over the brokers, in random order."""

    about: Load
    """The value in the middle."""


Loads = Load | Even | About | tuple[Load, ...]
"""A ratio of a machine for each broker: one for all, evenly spread, about one value, or one by one."""


def loads(rng: np.random.Generator, given: Loads, count: int) -> FloatArray:
    """The value of each of `count` brokers, (count,)."""
    match given:
        case Even():
            return np.linspace(given.first, given.last, count)
        case About():
            return given.about * rng.permutation(np.linspace(0.9, 1.1, count))
        case tuple():
            return np.array(given, dtype=np.float64)
        case _:
            return np.full(count, float(given))


def drawn(rng: np.random.Generator, given: Drawn, count: int) -> FloatArray:
    """The value of each of `count` bundles, (count,)."""
    if isinstance(given, tuple):
        low, high = np.log(given).tolist()
        values: FloatArray = np.exp(rng.uniform(low, high, count))
        return values
    return np.full(count, float(given))


def refusals(error: ValidationError, model: type[DescribedModel]) -> str:
    """The problems that pydantic found, one per line: field, value, bound and fix."""
    problems: dict[str, str] = {}
    for found in error.errors():
        place = [part for part in found["loc"] if not _is_branch(part)]
        problems.setdefault(_path(place), _problem(found, model))
    return "\n".join(f"{path or 'scenario'}: {text}" for path, text in problems.items())


def _is_branch(part: int | str) -> bool:
    """Whether a part of a location names a branch of a union, not a field."""
    if not isinstance(part, str):
        return False
    return part in _PLAIN or not part[:1].islower() or any(mark in part for mark in "[]-_(")


_PLAIN = ("float", "int", "str", "tuple")


def _path(place: Sequence[int | str]) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _problem(found: Any, model: type[DescribedModel]) -> str:
    if found["type"] == "extra_forbidden":
        close = get_close_matches(str(found["loc"][-1]), _field_names(model), n=1)
        hint = f"did you mean {close[0]}? Otherwise leave it out" if close else "leave it out"
        return f"there is no such field: {hint}"
    if found["type"] == "missing":
        return "is missing: add it"
    text = found["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"is {found['input']!r:.60}, but it {text.replace('Input ', '')}: change it"


def _field_names(model: type[DescribedModel]) -> list[str]:
    schema = model.model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    return [name for part in parts for name in part.get("properties", {})]
