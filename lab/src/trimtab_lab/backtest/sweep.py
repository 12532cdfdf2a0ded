"""Variants of a policy: one for each combination of the values that are given for its fields.

``shedder.trim.price=200,400,800`` names three values of a field of `spec`. ``shedder.trim.price=100..1600`` names a
range, from which a given number of values is drawn. The values are spread evenly by ratio: 100 to 200 gets as many as
800 to 1600. If the range begins at 0, they are spread evenly by difference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, get_args

import numpy as np
import yaml
from pydantic import BaseModel

from trimtab_lab.backtest.trace import Figures
from trimtab_operator.resources.policy import BalancingPolicySpec

MOST = 200
"""Maximum number of variants of one policy."""

_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)")


class Variant(NamedTuple):
    """A variant of a policy. name: its changed values, such as ``price=200 worth=300``. manifest: JSON values."""

    name: str
    manifest: Mapping[str, Any]


class InvalidSweepError(ValueError):
    """A text is not a sweep, or makes too many variants. The message says what is wrong, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A field of `spec` with its values, or with the bounds of a range. whole: whether it takes whole numbers only."""

    path: tuple[str, ...]
    values: tuple[Any, ...] = ()
    bounds: tuple[float, float] | None = None
    whole: bool = False

    @classmethod
    def of(cls, text: str) -> Sweep:
        """The sweep of ``field.of.spec=1,2,3`` or ``field.of.spec=1..3``. Raises `InvalidSweepError`."""
        field, _, given = text.partition("=")
        path = tuple(field.strip().split("."))
        if not all(path) or not given.strip():
            raise InvalidSweepError(f"{text!r} is not a sweep: write one like shedder.trim.price=200,400,800")
        if match := _RANGE.fullmatch(given.strip()):
            low, high = float(match[1]), float(match[2])
            if not 0 <= low < high:
                raise InvalidSweepError(f"{text!r}: a range goes up from 0 or more, like 100..1600")
            return cls(path, bounds=(low, high), whole=_counts(BalancingPolicySpec, path))
        try:
            return cls(path, tuple(yaml.safe_load(part) for part in given.split(",")))
        except (
            yaml.YAMLError,
            ValueError,
            LookupError,
            AttributeError,
        ) as error:  # a tag like !!bool raises the last two
            raise InvalidSweepError(f"{text!r} has a value that is not YAML: {error}") from error

    def drawn(self, samples: int, random: np.random.Generator) -> Sweep:
        """The sweep, with `samples` values from its range in random order. A sweep without a range stays as it is.

        The values are whole numbers if the parameter takes no others, or if the bounds are whole numbers that differ by
        more than `samples`.
        """
        if self.bounds is None:
            return self
        low, high = self.bounds
        places = (random.permutation(samples) + random.uniform(0, 1, samples)) / samples
        values = low + (high - low) * places if low == 0 else low * (high / low) ** places
        whole = self.whole or (low.is_integer() and high.is_integer() and high - low > samples)
        return Sweep(self.path, tuple(round(value) if whole else float(f"{value:.3g}") for value in values.tolist()))


def _counts(model: type[BaseModel], path: Sequence[str]) -> bool:
    """Whether the field at `path` below `model` takes whole numbers only."""
    found = next((field for name, field in model.model_fields.items() if path[0] in (field.alias, name)), None)
    if found is None or len(path) == 1:
        return found is not None and _whole(found.annotation)
    models = (kind for kind in _kinds(found.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel))
    return any(_counts(one, path[1:]) for one in models)


def _whole(annotation: Any) -> bool:
    kinds = [*_kinds(annotation)]
    return int in kinds and float not in kinds


def _kinds(annotation: Any) -> Iterator[Any]:
    """An annotation, and all types that it contains."""
    yield annotation
    for part in get_args(annotation):
        yield from _kinds(part)


def variants(manifest: Mapping[str, Any], sweeps: Sequence[Sweep], samples: int, seed: int) -> list[Variant]:
    """All variants of a policy.

    Lists of values are combined with each other. Ranges are not: sample k has value k of each range. Raises
    `InvalidSweepError` for more than `MOST` variants.
    """
    random = np.random.default_rng(seed)
    drawn = [sweep.drawn(samples, random) for sweep in sweeps if sweep.bounds is not None]
    listed = [sweep for sweep in sweeps if sweep.bounds is None]
    count = math.prod(len(sweep.values) for sweep in listed) * (samples if drawn else 1)
    if count > MOST:
        raise InvalidSweepError(f"these sweeps make {count} variants: use {MOST} at most")
    together = list(zip(*(sweep.values for sweep in drawn), strict=True)) or [()]
    found: dict[str, Variant] = {}
    for values in product(*(sweep.values for sweep in listed)):
        for sample in together:
            chosen = dict(zip((sweep.path for sweep in (*listed, *drawn)), (*values, *sample), strict=True))
            name = " ".join(f"{path[-1]}={value}" for path, value in chosen.items())
            found[name] = Variant(name, _with(manifest, chosen))
    return list(found.values())


def _with(manifest: Mapping[str, Any], chosen: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    changed: dict[str, Any] = deepcopy(dict(manifest))
    for path, value in chosen.items():
        inner = changed.setdefault("spec", {})
        for depth, key in enumerate(path[:-1]):
            if depth == 0 and key not in inner and key in ("shedder", "placement"):
                inner[key] = {"type": path[1][:1].upper() + path[1][1:]}  # the type that the path means
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    return changed


def front(figures: Sequence[Figures]) -> list[bool]:
    """Whether each of `figures` is unbeaten.

    Another one beats it if the two differ, and the other has neither more cut clients nor more area. If the number of
    clients is not known, moves count instead.
    """
    points = [(one.cut if one.cut == one.cut else float(one.moves), one.area) for one in figures]
    return [
        not any(
            other[0] <= one[0] and other[1] <= one[1] and other != one for k, other in enumerate(points) if k != place
        )
        for place, one in enumerate(points)
    ]
