"""What a strategy is: one method, a picture of the cluster in, a choice out.

A strategy keeps nothing: what it must remember goes in and comes back as `memory`, a mapping of JSON values. What it
remembers of a broker stands in ``memory["brokers"][what][broker name]``, so that the balancer can forget brokers that
left without knowing the strategy; `recall` and `remember` read and write that form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Protocol, runtime_checkable

import numpy as np

from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray

NOTHING: IntArray = np.empty(0, dtype=np.int64)
"""No row."""


@dataclass(frozen=True, slots=True)
class Unload:
    """Bundles (rows, in the order in which they should leave) that a broker (row) should give away, and why.

    destination: the broker (row) that the shedder wants them to go to, -1: the placement decides.
    returned:    bundles (rows) that the destination gives back. Then it is a swap: made as a whole or not at all.
    fixed:       a weight that a person fixed wants it so: the destination may end more used than the source is, as long
                 as it is not overloaded.
    """

    broker: int
    bundles: IntArray
    reason: Reason
    destination: int = -1
    returned: IntArray = field(default_factory=lambda: NOTHING)
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Shedding:
    """What a shedder answers: what should leave which broker, what it left alone and why, and its memory.

    target_weights: by broker name, the weight each should carry; only from shedders that have such a notion.
    carried: by broker name, the weight each of those carries, moves in flight counted as landed.
    """

    unloads: tuple[Unload, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)
    target_weights: Mapping[str, float] = field(default_factory=dict)
    carried: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a placement answers: every broker (rows) that is as good as the best, and its memory."""

    brokers: IntArray
    memory: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SplitWish:
    """A bundle (row) that should be divided at `boundaries` (hashes strictly inside its range, ascending), and why.

    spread: whether its children should be placed anew in the same plan; else they stay with the owner.
    shares: (children,) ratio 0-1 of the bundle's load in each child, ascending by range, summing to 1.
    """

    bundle: int
    boundaries: IntArray
    reason: Reason
    spread: bool = False
    shares: FloatArray = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, slots=True)
class Splitting:
    """What a splitter answers: what should be divided, what it left alone and why, and its memory."""

    wishes: tuple[SplitWish, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)


class Shedder(Protocol):
    """Says which bundles should leave which brokers."""

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:
        """Choose among the bundles marked `sheddable` (m,). All brokers of `cluster` take part in the comparison.

        The memory that comes back is handed in again at the next decision, and only then.
        """


class Placement(Protocol):
    """Says which broker a bundle should go to."""

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:
        """The best of `candidates` (rows, ascending, never empty) for `bundle` (row); several when they tie.

        `cluster` shows the load as it will be after the moves planned so far.
        """


@runtime_checkable
class RemembersChoices(Protocol):
    """A placement that has to know what became of its answer: which of the tied brokers was taken, if any."""

    def chosen(self, cluster: ClusterLoad, bundle: int, broker: int, memory: Mapping[str, Any]) -> Mapping[str, Any]:
        """The memory once `bundle` goes to `broker` (rows)."""


class Splitter(Protocol):
    """Says which bundles should be divided, and where."""

    def split(self, cluster: ClusterLoad, splittable: BoolArray, memory: Mapping[str, Any]) -> Splitting:
        """Choose among the bundles marked `splittable` (m,). The memory is handed in again at the next decision."""


def recall(memory: Mapping[str, Any], what: str, brokers: Sequence[str]) -> FloatArray:
    """What was remembered of each broker (names, n): (n,), NaN where nothing was."""
    known = memory.get("brokers", {}).get(what, {})
    return np.fromiter(map(known.get, brokers, repeat(np.nan)), dtype=np.float64, count=len(brokers))


def remember(memory: Mapping[str, Any], what: str, brokers: Sequence[str], values: FloatArray) -> dict[str, Any]:
    """A copy of `memory` in which each broker (names, n) has its value (n,); values of others stay, NaN forgets."""
    of_brokers = memory.get("brokers", {})
    known = dict(of_brokers.get(what, {}))
    known.update(zip(brokers, values.tolist(), strict=True))
    for row in np.flatnonzero(np.isnan(values)).tolist():
        del known[brokers[row]]
    return {**memory, "brokers": {**of_brokers, what: known}}


def forget_others(memory: Mapping[str, Any], brokers: Sequence[str]) -> dict[str, Any]:
    """A copy of `memory` that knows only these brokers (names)."""
    present = set(brokers)
    known = memory.get("brokers", {})
    kept = {what: {name: value for name, value in of.items() if name in present} for what, of in known.items()}
    return {**memory, "brokers": kept} if kept else dict(memory)
