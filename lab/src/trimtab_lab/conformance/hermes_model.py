"""The weighted balancer: every consumer carries its target weight, in about as many tasks as the others.

Idea. Keep what is placed; give what is not to the lightest consumer, heaviest first; find the target weights; then let
each overloaded consumer move tasks out where counts are uneven, and swap heavy tasks for light ones of others until it
is near its target. What was moved lately is not swapped, and a swap must change the weight by some percent.

When it helps. Tasks of very different weight on machines of different strength, with few moves in each cycle.
When it hurts. A single task heavier than a target can't be divided; the counts are kept even, also where weak machines
should carry less; the original's controller overcorrects on more than a few consumers (see `targets`).

Source. Hermes 2.21.0, its weighted work balancer, with equal decisions in `Iteration.JAVA` with `Compatibility.JAVA`.

What changes between two assignments of subscriptions to consumers.

One cycle of the weighted balancer with everything that is carried on: assignments, profiles, stamps, scores.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np

from trimtab_strategies.params import Compatibility
from trimtab_strategies.shedding.weighted import target_weights
from trimtab_strategies.shedding.weighted.ledger import Ledger, Transfer
from trimtab_strategies.shedding.weighted.nodes import (
    NO_PROFILES,
    Constraints,
    InvalidWorkError,
    NodeLoad,
    Profiles,
    Workload,
    rebuilt,
    stamped,
)
from trimtab_strategies.shedding.weighted.orders import Iteration, Order, order_of
from trimtab_strategies.shedding.weighted.passes import Aim, corrected_pass, original_pass
from trimtab_strategies.shedding.weighted.target_weights import AverageScore, TargetRule, Targets


@dataclass(frozen=True, slots=True)
class Rules:
    """How to balance.

    stabilization: ms in which a moved task is not moved again. min_change: percent of an overloaded consumer's weight
    that a single swap must take off it; corrected: that it must be above its target. targets: how these are found.
    """

    stabilization: float = 1_800_000
    min_change: float = 5.0
    targets: TargetRule = field(default_factory=TargetRule)
    compatibility: Compatibility = Compatibility.JAVA
    iteration: Iteration = Iteration.SORTED

    def __post_init__(self) -> None:
        if not self.stabilization >= 0:
            raise InvalidWorkError(f"the stabilization window is {self.stabilization} ms: it must be 0 or more")
        if not self.min_change >= 0:
            raise InvalidWorkError(f"the significant change is {self.min_change} percent: it must be 0 or more")


@dataclass(frozen=True, slots=True)
class Balance:
    """What a balance decides.

    assignments: by subscription its consumers, ascending; those without any are left out. missing: tasks without place.
    order: the consumers as they were gone through. limit: tasks that each should have at most. before, after: book
    weights (ops/s) by consumer, when the targets were found and at the end. transfers: every step, by number of
    `subscriptions` and of `order`. scores: to hand in at the next balance.
    """

    assignments: Mapping[str, tuple[str, ...]]
    missing: int
    targets: Targets
    order: tuple[str, ...]
    subscriptions: tuple[str, ...]
    limit: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    transfers: tuple[Transfer, ...]

    @property
    def scores(self) -> Mapping[str, AverageScore]:
        """What the controller remembers."""
        return self.targets.memory


def balance(work: Workload, rules: Rules, scores: Mapping[str, AverageScore] | None = None) -> Balance:
    """One balance of `work`. scores: what the last balance returned."""
    return _Balancing(work, rules, order_of(rules.iteration)).run(scores or {})


class _Balancing:
    """One balance under way."""

    def __init__(self, work: Workload, rules: Rules, order: Order) -> None:
        self.work, self.rules, self.order = work, rules, order
        self.corrected = rules.compatibility is Compatibility.CORRECTED
        self.consumers = order.consumers(work.consumers)
        self.subscriptions = order.subscriptions(work.subscriptions)
        profiles = [work.profile(name) for name in self.subscriptions]
        stable_before = work.now - rules.stabilization
        weight = np.array([profile.weight for profile in profiles], dtype=np.float64)
        if self.corrected:
            weight = self.fair(weight)
        stable = np.array([profile.last_rebalance < stable_before for profile in profiles], dtype=bool)
        self.ledger = Ledger(len(self.consumers), weight, stable, order)

    def fair(
        self, weight: np.ndarray[tuple[int], np.dtype[np.float64]]
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The weights with the average one for subscriptions of which nothing is known."""
        known = np.array([name in self.work.profiles for name in self.subscriptions], dtype=bool)
        return np.where(known, weight, weight[known].mean()) if known.any() else weight

    def run(self, scores: Mapping[str, AverageScore]) -> Balance:
        """Restore, place, aim, rebalance."""
        ledger, work = self.ledger, self.work
        waiting = self.restore()
        missing = self.place(waiting, self.aimed(scores, waiting) if self.corrected else None)
        before = dict(zip(self.consumers, ledger.book, strict=True))
        placed = sum(map(ledger.count, range(len(ledger))))
        limit = -(-placed // len(ledger)) if len(ledger) else 0
        found = target_weights.update(before, work.loads, scores, work.now, self.rules.targets)
        aim = Aim(
            targets=[found.weights[name] for name in self.consumers],
            limit=limit,
            min_change=self.rules.min_change,
            most=work.constraints.most,
        )
        (corrected_pass if self.corrected else original_pass)(ledger, aim)
        return Balance(
            assignments=self.assignments(),
            missing=missing,
            targets=found,
            order=tuple(self.consumers),
            subscriptions=tuple(self.subscriptions),
            limit=limit,
            before=before,
            after=dict(zip(self.consumers, ledger.book, strict=True)),
            transfers=tuple(ledger.transfers),
        )

    def aimed(self, scores: Mapping[str, AverageScore], waiting: list[int]) -> list[float]:
        """The targets as they will be once everything that waits is placed."""
        books = dict(zip(self.consumers, self.ledger.book, strict=True))
        found = target_weights.update(books, self.work.loads, scores, self.work.now, self.rules.targets)
        carried = sum(self.ledger.book)
        grown = (carried + float(self.ledger.weight[waiting].sum())) / carried if carried else 1.0
        return [found.weights[name] * grown for name in self.consumers]

    def restore(self) -> list[int]:
        """Give each subscription back to its holders; the tasks (numbers) for which there is none."""
        row = {name: k for k, name in enumerate(self.consumers)}
        most = self.work.constraints.most if self.corrected else np.inf
        waiting: list[int] = []
        for task, name in enumerate(self.subscriptions):
            wanted = self.work.constraints.wanted(name)
            self.ledger.shared |= wanted > 1
            holders = [holder for holder in self.work.holders.get(name, ()) if holder in row]
            if len(holders) > wanted:
                holders = [holder for holder in self.order.holders(name, self.work.holders[name]) if holder in row]
            kept = [row[holder] for holder in holders[:wanted] if self.ledger.count(row[holder]) < most]
            for consumer in kept:
                self.ledger.take(consumer, task)
            waiting.extend(repeat(task, wanted - len(kept)))
        return waiting

    def place(self, waiting: list[int], aim: list[float] | None) -> int:
        """Give the waiting tasks to the lightest consumers (`aim`: to those with most room); how many found none."""
        ledger, most = self.ledger, self.work.constraints.most
        relief = aim or [0.0] * len(ledger)
        lightest = [(ledger.book[c] - relief[c], c) for c in range(len(ledger)) if ledger.count(c) < most]
        heapq.heapify(lightest)
        missing = 0
        for place in self.order.queue(ledger.weight[waiting]).tolist():
            task = waiting[place]
            passed = []
            while lightest and task in ledger.held(lightest[0][1]):
                passed.append(heapq.heappop(lightest))
            if lightest:
                consumer = heapq.heappop(lightest)[1]
                ledger.take(consumer, task)
                if ledger.count(consumer) < most:
                    heapq.heappush(lightest, (ledger.book[consumer] - relief[consumer], consumer))
            else:
                missing += 1
            for entry in passed:
                heapq.heappush(lightest, entry)
        return missing

    def assignments(self) -> dict[str, tuple[str, ...]]:
        """By subscription its consumers, from the tasks and not from the book."""
        found: dict[str, list[str]] = {}
        for consumer in sorted(range(len(self.consumers)), key=self.consumers.__getitem__):
            for task in self.ledger.held(consumer):
                found.setdefault(self.subscriptions[task], []).append(self.consumers[consumer])
        return {name: tuple(held) for name, held in found.items()}


@dataclass(frozen=True, slots=True)
class Diff:
    """By subscription the consumers that lose it and those that get it, ascending; untouched ones are left out."""

    deletions: Mapping[str, tuple[str, ...]]
    additions: Mapping[str, tuple[str, ...]]

    @property
    def rebalanced(self) -> tuple[str, ...]:
        """Subscriptions that change in any way, ascending."""
        return tuple(sorted({*self.deletions, *self.additions}))


def diff(before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> Diff:
    """What must be taken away and what must be given to get from `before` to `after` (holders by subscription)."""
    return Diff(_beyond(before, after), _beyond(after, before))


def _beyond(these: Mapping[str, Sequence[str]], those: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    found = {name: tuple(sorted(set(held) - set(those.get(name, ())))) for name, held in these.items()}
    return {name: rest for name, rest in found.items() if rest}


@dataclass(frozen=True, slots=True)
class State:
    """What a cycle leaves to the next one."""

    assignments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    profiles: Profiles = NO_PROFILES
    scores: Mapping[str, AverageScore] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cycle:
    """What a cycle sees: the clock (ms), who is active, and the reports (those of others are left aside)."""

    now: float
    subscriptions: Sequence[str]
    consumers: Sequence[str]
    loads: Mapping[str, NodeLoad]
    constraints: Constraints


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a cycle decides, what that changes, and the state for the next one."""

    balance: Balance
    diff: Diff
    state: State


def run(state: State, cycle: Cycle, rules: Rules, window: float) -> Outcome:
    """One cycle; `window` (ms) is that of the profiles.

    Placements on consumers that are gone are forgotten first; that alone is no deletion.
    """
    active = set(cycle.consumers)
    loads = {name: load for name, load in cycle.loads.items() if name in active}
    profiles = rebuilt(state.profiles, loads, cycle.now, window, rules.compatibility)
    if rules.compatibility is Compatibility.CORRECTED:  # which keeps what nobody reports, but not for ever
        wanted = set(cycle.subscriptions)
        profiles = Profiles(
            {name: profile for name, profile in profiles.of.items() if name in wanted}, profiles.updated
        )
    holders = {name: [c for c in held if c in active] for name, held in state.assignments.items()}
    work = Workload(cycle.now, cycle.subscriptions, cycle.consumers, cycle.constraints, holders, profiles.of, loads)
    decided = balance(work, rules, state.scores)
    changed = diff(holders, decided.assignments)
    after = stamped(profiles, changed.rebalanced, cycle.now)
    return Outcome(decided, changed, State(decided.assignments, after, decided.scores))
