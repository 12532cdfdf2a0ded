"""Moves that were under way in a cycle, or had just landed: the usage of brokers does not show them yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class RecordedMoves:
    """The moves of m bundles. facts: what is known of each bundle, as JSON values of kind ``bundle`` in `FACTS`."""

    facts: Sequence[Mapping[str, Any]]

    @cached_property
    def _special(self) -> list[int]:
        """Rows of the bundles of which more is known than the owner: one pass, as most are only owned."""
        return [row for row, one in enumerate(self.facts) if len(one) > 1]

    @cached_property
    def in_flight(self) -> BoolArray:
        """(m,) whether a move of it was under way."""
        found = np.zeros(len(self.facts), dtype=bool)
        found[[row for row in self._special if self.facts[row].get("inFlight")]] = True
        return found

    @cached_property
    def rows(self) -> list[int]:
        """The bundles that another broker's usage still contained."""
        return [row for row in self._special if self.facts[row].get("movingFrom")]

    @cached_property
    def share(self) -> FloatArray:
        """(m,) ratio 0-1 of its load that was still measured where it came from."""
        found = np.zeros(len(self.facts))
        found[self.rows] = [self.facts[row].get("movingShare", 0.0) for row in self.rows]
        return found

    def sources(self, brokers: Sequence[str]) -> IntArray:
        """(m,) row among `brokers` of the one whose usage still contained it, -1 none."""
        at, source = {name: row for row, name in enumerate(brokers)}, np.full(len(self.facts), -1, dtype=np.int64)
        for row in self.rows:
            source[row] = at.get(self.facts[row]["movingFrom"], -1)
        return source
