"""The base of all parts of a scenario, and types of values such as a number or a range.

Ratios are 0-1. Times are rounds of one minute.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Discriminator, Field, Tag

from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.params import YamlModel


class ScenarioPart(YamlModel):
    """Base of all parts of a scenario."""


Ratio = Annotated[float, Field(ge=0, le=1)]
"""A ratio 0-1."""

Load = Annotated[float, Field(ge=0, le=10)]
"""Ratio of a machine; above 1 is more than it can serve."""

Round = Annotated[int, Field(ge=0, le=20160)]
"""A round (minute) from the beginning; two weeks at most."""


def _ascending(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError(
            f"is [{pair[0]:g}, {pair[1]:g}], but the first must not be above the second: write"
            f" [{pair[1]:g}, {pair[0]:g}]"
        )
    return pair


Positive = Annotated[float, Field(gt=0, le=1e9)]
"""A number above 0."""

Factors = Annotated[tuple[Positive, Positive], AfterValidator(_ascending)]
"""The smallest and the largest factor. Values between them are equally likely."""


def form(value: Any) -> str:
    """The form in which a value is written, as a tag: so errors are only about that form."""
    match value:
        case list() | tuple():
            return "<list>"
        case {"about": _} | About():
            return "<about>"
        case dict() | Even():
            return "<even>"
        case _:
            return "<one>"


ONE, LIST, EVEN, ABOUT = map(Tag, ("<one>", "<list>", "<even>", "<about>"))

Drawn = Annotated[
    Annotated[Positive, ONE] | Annotated[tuple[Positive, Positive], AfterValidator(_ascending), LIST],
    Discriminator(form),
]
"""A number; or a pair between which a value is drawn for each bundle, evenly on a logarithmic scale."""

Minutes = Annotated[
    tuple[Annotated[int, Field(ge=1, le=20160)], Annotated[int, Field(ge=1, le=20160)]], AfterValidator(_ascending)
]
"""The fewest and the most minutes. Values between them are equally likely."""


_Row = Annotated[int, Field(ge=0)]

BrokerRows = Annotated[Annotated[str, ONE] | Annotated[tuple[_Row, ...], LIST], Discriminator(form)]
"""Brokers by number, counted from 0 in the order of the machines; or the name of a group of machines."""


class Even(ScenarioPart):
    """Values evenly spread over the brokers, in their order."""

    first: Load
    """Value of the first broker."""
    last: Load
    """Value of the last broker."""


class About(ScenarioPart):
    """Values within 10 % of one value, evenly spread over the brokers, in random order."""

    about: Load
    """The value in the middle."""


Loads = Annotated[
    Annotated[Load, ONE] | Annotated[Even, EVEN] | Annotated[About, ABOUT] | Annotated[tuple[Load, ...], LIST],
    Discriminator(form),
]
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
