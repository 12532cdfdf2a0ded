"""The interface of a strategy: one method that takes a snapshot of the cluster and returns a choice.

A strategy keeps no state. What it must remember, it gets as `memory`, a mapping of JSON values. It returns the new
memory. A broker's values are in ``memory["brokers"][what][broker name]``. So the planner can remove the values of
brokers that are gone, for any strategy. `recall` and `remember` read and write that form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import isnan
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray

NOTHING: IntArray = np.empty(0, dtype=np.int64)
"""An array of no rows."""


@dataclass(frozen=True, slots=True)
class Unload:
    """Bundles (rows, in the order in which they should leave) that a broker (row) should give away, and why.

    destination: the broker (row) that the shedder wants them to go to; -1: the placement decides.
    returned:    bundles (rows) that the destination gives back. Such a swap is made as a whole or not at all.
    fixed:       the move follows from a weight that a user fixed: the destination may end up more used than the source,
                 as long as it is not overloaded.
    judged:      the shedder itself has computed the load after the move. The planner checks only the caps and whether
                 the move is allowed (for an exception see `planner.moves`). It makes the move to this destination or
                 not at all.
    """

    broker: int
    bundles: IntArray
    reason: Reason
    destination: int = -1
    returned: IntArray = field(default_factory=lambda: NOTHING)
    fixed: bool = False
    judged: bool = False


@dataclass(frozen=True, slots=True)
class Shedding:
    """The result of a shedder: the unloads, the bundles that stay and why, and the shedder's memory.

    target_weights: broker name -> the weight it should carry; only from shedders that use weights.
    carried: broker name -> the weight it carries now, with pending moves counted as complete.
    cause: why bundles are unloaded, with figures; empty if the reasons of the unloads say enough.
    """

    unloads: tuple[Unload, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)
    target_weights: Mapping[str, float] = field(default_factory=dict)
    carried: Mapping[str, float] = field(default_factory=dict)
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Predictions:
    """How good a shedder's last predictions of the brokers' CPU were.

    judged: number of predictions compared with the measured CPU. right: ratio 0-1 of them that were at most `within`
    points off. off: their median error in points. Both are NaN if none was judged. step: the next plan may make this
    ratio (0-1) of the usual number of moves.
    """

    judged: int
    right: float
    off: float
    within: float
    step: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The result of a placement: the best brokers (rows, several when they tie), and the placement's memory."""

    brokers: IntArray
    memory: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SplitCandidate:
    """A bundle (row) that should be split at `boundaries` (hashes strictly inside its range, ascending), and why.

    spread: whether its children are placed in the same plan; otherwise they stay with the owner.
    shares: (children,) ratio 0-1 of the bundle's load in each child, ascending by range, summing to 1.
    load:   (5,) usage that the whole bundle causes, in each resource's unit; empty: the planner estimates it.
    """

    bundle: int
    boundaries: IntArray
    reason: Reason
    spread: bool = False
    shares: FloatArray = field(default_factory=lambda: np.empty(0))
    load: FloatArray = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, slots=True)
class Splitting:
    """The result of a splitter: the bundles to split, those that stay whole and why, and the splitter's memory."""

    proposed: tuple[SplitCandidate, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)


class Shedder(Protocol):
    """Chooses the bundles that should leave their brokers."""

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:
        """Choose among the bundles marked `sheddable` (m,). All brokers of `cluster` take part in the comparison.

        The next decision, and only that one, gets the returned memory.
        """


@runtime_checkable
class RestsAfterSplits(Protocol):
    """A shedder that sheds nothing in a decision in which children of split bundles leave their parent's owner."""

    rests_after_splits: ClassVar[bool]


@dataclass(frozen=True, slots=True)
class Destinations:
    """The brokers that each bundle may go to, by isolation, anti-affinity and the other filters.

    group: (m,) group (row of `allowed`) of each bundle. allowed: (g, n) whether a broker may get bundles of a group.
    """

    group: IntArray
    allowed: BoolArray

    def only(self, part: BoolArray) -> Destinations:
        """These destinations, reduced to the brokers in `part` (mask, n)."""
        return Destinations(self.group, self.allowed[:, part])

    def fit(self, bundles: IntArray, brokers: IntArray) -> BoolArray:
        """Whether each of `brokers` (rows, b) may get each of `bundles` (rows, k): (b, k)."""
        fit: BoolArray = self.allowed[self.group[bundles]][:, brokers].T
        return fit


@runtime_checkable
class ChoosesDestinations(Protocol):
    """A shedder that names destinations, and plans better if it knows which ones are allowed."""

    def among(self, destinations: Destinations) -> Shedder:
        """The same shedder for bundles that may only go to `destinations`."""


class Placement(Protocol):
    """Chooses the broker that a bundle should go to."""

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:
        """The best of `candidates` (rows, ascending, never empty) for `bundle` (row); several when they tie.

        `cluster` shows the load as it will be after the moves planned so far.
        """


@runtime_checkable
class RemembersChoices(Protocol):
    """A placement that must know which of its tied brokers was taken, if any."""

    def chosen(self, cluster: ClusterLoad, bundle: int, broker: int, memory: Mapping[str, Any]) -> Mapping[str, Any]:
        """The memory after `bundle` was assigned to `broker` (rows)."""


@runtime_checkable
class HeaviestFirst(Protocol):
    """A placement that should get the heaviest bundle first if several bundles have no owner."""

    heaviest_first: ClassVar[bool]


@runtime_checkable
class ScoresPredictions(Protocol):
    """A shedder that compares what its plans predicted with what was measured afterwards."""

    def predictions(self, memory: Mapping[str, Any]) -> Predictions:
        """The score in the shedder's `memory`."""


class Splitter(Protocol):
    """Chooses the bundles to split, and the boundaries of their children."""

    def split(self, cluster: ClusterLoad, splittable: BoolArray, memory: Mapping[str, Any]) -> Splitting:
        """Choose among the bundles marked `splittable` (m,). The next decision gets the returned memory."""


def recall(memory: Mapping[str, Any], what: str, brokers: Sequence[str]) -> FloatArray:
    """The remembered value of each broker (names, n): (n,), NaN where there is none."""
    known = memory.get("brokers", {}).get(what, {})
    if not known:
        return np.full(len(brokers), np.nan)
    return np.fromiter(map(known.get, brokers, repeat(np.nan)), dtype=np.float64, count=len(brokers))


def remember(memory: Mapping[str, Any], what: str, brokers: Sequence[str], values: FloatArray) -> dict[str, Any]:
    """A copy of `memory` with the `values` (n,) of `brokers` (n). NaN removes a value; other brokers keep theirs."""
    of_brokers = memory.get("brokers", {})
    new = dict(zip(brokers, values.tolist(), strict=True))
    known = {**of_brokers.get(what, {}), **new}
    if any(map(isnan, new.values())):
        known = {broker: value for broker, value in known.items() if not isnan(value)}
    return {**memory, "brokers": {**of_brokers, what: known}}


def forget_others(memory: Mapping[str, Any], brokers: Sequence[str]) -> dict[str, Any]:
    """A copy of `memory` with the values of only these brokers (names)."""
    present = set(brokers)
    known = memory.get("brokers", {})
    if known and all(of.keys() <= present for of in known.values()):
        return dict(memory)
    kept = {what: {name: value for name, value in of.items() if name in present} for what, of in known.items()}
    return {**memory, "brokers": kept} if kept else dict(memory)
