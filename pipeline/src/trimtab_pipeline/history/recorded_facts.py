"""Parses the facts and the memory that an operator wrote to a history as JSON.

An imported file may contain anything, so values are checked when they are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.prometheus.response_limits import json_of
from trimtab_strategies.model import BrokerTraits, NamespacePolicy
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray

_TRAITS, _POLICY = TypeAdapter(BrokerTraits), TypeAdapter(NamespacePolicy)


@contextmanager
def foreign_values() -> Iterator[None]:
    """Raise `ForeignFileError` instead of the errors that are caused by values that no operator writes."""
    try:
        yield
    except ForeignFileError:
        raise
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise ForeignFileError(f"it holds values that no operator writes ({error!r:.200})") from error


def fact_value(text: str) -> dict[str, Any]:
    """The JSON object of a fact or a policy. Raises `ForeignFileError`."""
    with foreign_values():
        found = json_of(text)
        if not isinstance(found, dict):
            raise TypeError(f"{text[:100]!r} is no JSON object")
        return found


def traits_of(value: Mapping[str, Any]) -> BrokerTraits:
    """The traits of a broker. Raises `ValueError`."""
    unknown = {key: math.nan for key in ("weight", "started") if value.get(key) is None}
    return _TRAITS.validate_python({**value, **unknown})


def policy_of(value: Mapping[str, Any]) -> NamespacePolicy:
    """The rules of a namespace. Raises `ValueError`, and `TypeError` for an isolation that is not an object."""
    isolation = value.get("isolation")
    found = None if isolation is None else {"primary": (), **isolation}
    return _POLICY.validate_python({**value, "isolation": found})


@dataclass(frozen=True, eq=False)
class RecordedMoves:
    """Moves of m bundles in a cycle: under way, or landed so recently that usage does not show them yet.

    facts: the facts about each bundle, as JSON values of kind ``bundle`` in `FACTS`.
    """

    facts: Sequence[Mapping[str, Any]]

    @cached_property
    def _special(self) -> list[int]:
        """Rows of the bundles about which more is recorded than the owner. For most bundles, only the owner is."""
        return [row for row, one in enumerate(self.facts) if len(one) > 1]

    @cached_property
    def in_flight(self) -> BoolArray:
        """(m,) whether a move of the bundle was under way."""
        found = np.zeros(len(self.facts), dtype=bool)
        found[[row for row in self._special if self.facts[row].get("inFlight")]] = True
        return found

    @cached_property
    def rows(self) -> list[int]:
        """Rows of the bundles whose load was still in the usage of another broker, the source."""
        return [row for row in self._special if self.facts[row].get("movingFrom")]

    @cached_property
    def share(self) -> FloatArray:
        """(m,) ratio 0-1 of the bundle's load that was still measured at the source."""
        found = np.zeros(len(self.facts))
        found[self.rows] = [self.facts[row].get("movingShare", 0.0) for row in self.rows]
        return found

    def sources(self, brokers: Sequence[str]) -> IntArray:
        """(m,) row of the source in `brokers`, -1 for none."""
        at, source = {name: row for row, name in enumerate(brokers)}, np.full(len(self.facts), -1, dtype=np.int64)
        for row in self.rows:
            source[row] = at.get(self.facts[row]["movingFrom"], -1)
        return source


class RecordedMemory(NamedTuple):
    """What the strategies remembered after the cycle at `at` (epoch s): JSON, as the operator stored it."""

    at: float
    text: str


def newest_memory(policies: Iterable[pa.Table], before: float) -> RecordedMemory | None:
    """The newest memory of a cycle before `before` (epoch s) in rows of `POLICIES`; None without one."""
    found = None
    for table in policies:
        for row in table.filter(pc.equal(table["kind"], "memory")).to_pylist():
            if (at := row["at"].timestamp()) < before:
                found = RecordedMemory(at, row["value"])
    return found
