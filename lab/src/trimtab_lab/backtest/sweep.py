"""Variants of a policy: each combination of the values that fields of it are given.

``shedder.trim.price=200,400,800`` names three values of a field of `spec`. ``shedder.trim.price=100..1600`` names a
range, from which each of a number of samples gets a value of its own: evenly in proportion, so 100 to 200 has as many
as 800 to 1600; evenly in steps where the range begins at 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import yaml

from trimtab_lab.backtest.trace import Figures

MOST = 200
"""Variants of one policy."""

_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)")


class InvalidSweepError(ValueError):
    """A text that is no sweep, or too many variants. It says what is wrong, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A field of `spec`, and the values it gets; or the bounds of a range."""

    path: tuple[str, ...]
    values: tuple[Any, ...] = ()
    bounds: tuple[float, float] | None = None

    @classmethod
    def of(cls, text: str) -> Sweep:
        """The sweep of ``field.of.spec=1,2,3`` or ``field.of.spec=1..3``. Raises `InvalidSweepError`."""
        field, equals, given = text.partition("=")
        path = tuple(field.strip().split("."))
        if not equals or not all(path) or not given.strip():
            raise InvalidSweepError(f"{text!r} is no sweep: write one like shedder.trim.price=200,400,800")
        if match := _RANGE.fullmatch(given.strip()):
            low, high = float(match[1]), float(match[2])
            if not 0 <= low < high:
                raise InvalidSweepError(f"{text!r}: a range goes up from 0 or more, like 100..1600")
            return cls(path, bounds=(low, high))
        return cls(path, tuple(yaml.safe_load(part) for part in given.split(",")))

    def drawn(self, samples: int, random: np.random.Generator) -> Sweep:
        """The sweep with values for `samples`, in random order; whole numbers if the bounds are."""
        if self.bounds is None:
            return self
        low, high = self.bounds
        places = (random.permutation(samples) + random.uniform(0, 1, samples)) / samples
        values = low + (high - low) * places if low == 0 else low * (high / low) ** places
        whole = low.is_integer() and high.is_integer() and high - low > samples
        return Sweep(self.path, tuple(round(value) if whole else float(f"{value:.3g}") for value in values.tolist()))


def variants(
    manifest: Mapping[str, Any], sweeps: Sequence[Sweep], samples: int, seed: int
) -> dict[str, dict[str, Any]]:
    """The manifests of all variants by what sets them apart, such as ``price=200 worth=300``.

    Lists of values are combined with each other. Ranges are not: sample k has value k of each. Raises
    `InvalidSweepError` for more than `MOST`.
    """
    random = np.random.default_rng(seed)
    drawn = [sweep.drawn(samples, random) for sweep in sweeps if sweep.bounds is not None]
    listed = [sweep for sweep in sweeps if sweep.bounds is None]
    count = math.prod(len(sweep.values) for sweep in listed) * (samples if drawn else 1)
    if count > MOST:
        raise InvalidSweepError(f"these sweeps make {count} variants: use {MOST} at most")
    together = list(zip(*(sweep.values for sweep in drawn), strict=True)) or [()]
    found = {}
    for values in product(*(sweep.values for sweep in listed)):
        for sample in together:
            chosen = dict(zip((sweep.path for sweep in (*listed, *drawn)), (*values, *sample), strict=True))
            found[" ".join(f"{path[-1]}={value}" for path, value in chosen.items())] = _with(manifest, chosen)
    return found


def _with(manifest: Mapping[str, Any], chosen: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    changed: dict[str, Any] = deepcopy(dict(manifest))
    for path, value in chosen.items():
        inner = changed.setdefault("spec", {})
        for depth, key in enumerate(path[:-1]):
            if depth == 0 and key not in inner and key in ("shedder", "placement"):
                inner[key] = {"type": path[1][:1].upper() + path[1][1:]}  # a policy without one uses the default
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    return changed


def front(figures: Sequence[Figures]) -> list[bool]:
    """Which of these no other one beats: none cuts fewer clients at the same distance of the brokers, or the reverse.

    Where clients are not known, moves count.
    """
    points = [(one.cut if one.cut == one.cut else float(one.moves), one.area) for one in figures]
    return [
        not any(
            other[0] <= one[0] and other[1] <= one[1] and other != one for k, other in enumerate(points) if k != place
        )
        for place, one in enumerate(points)
    ]
