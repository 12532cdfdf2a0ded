"""Models of Hermes' two balancers, the weighted one and the selective one. `nodes` explains Hermes' terms.

Weighted. Every consumer should carry its target weight, in about as many tasks as the others. Placed tasks stay. Each
other task goes to the lightest consumer, heaviest task first. Then the target weights are computed. Each overloaded
consumer moves tasks out where the numbers of tasks are uneven, and swaps heavy tasks for light ones of others until it
is near its target. A task that moved recently is not swapped, and a swap must make the consumer lighter by `min_change`
percent.

This helps with tasks of very different weight on machines of different strength, with few moves in each cycle. It hurts
where a single task is heavier than a target, because a task cannot be divided. The numbers of tasks stay even, although
weak machines should carry fewer tasks. Hermes' controller overcorrects on more than a few consumers (see
`target_weights`).

Selective. Only the numbers of tasks matter: every consumer gets as many tasks as the others, whatever they weigh.
Placements stay, except surplus ones, which are removed. A missing placement goes to the consumer with the fewest tasks.
The subscription with the fewest placements comes first. Then the fullest consumer gives to the emptiest while they
differ by more than one. It helps with tasks that are all alike, and hurts everywhere else.

Source. Hermes 2.21.0: its weighted work balancer, and its selective one, which is Hermes' default. The weighted model
decides as Hermes does, in `Iteration.JAVA` with `Compatibility.JAVA`. In Hermes' selective balancer, hash maps decide
ties. Here the first name wins. So the numbers of tasks equal Hermes' if they do not depend on the hash maps, but
holders may differ.
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
    """Settings of a balancing run.

    stabilization: ms in which a moved task is not moved again. min_change: percent of an overloaded consumer's weight
    that a single swap must remove; with `Compatibility.CORRECTED`, of its excess over the target. targets: the target
    rule.
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
    """The result of a balancing run.

    assignments: consumers by subscription, ascending; subscriptions without any are left out. missing: tasks without a
    consumer. order: the consumers in the order of processing. limit: number of tasks that each consumer should have
    at most. before, after: weights (ops/s) by consumer, when the targets were found and at the end. transfers: every
    step; its numbers are positions in `subscriptions` and `order`. scores: input of the next run.
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
        """The controller's memory."""
        return self.targets.memory


def balance(work: Workload, rules: Rules, scores: Mapping[str, AverageScore] | None = None) -> Balance:
    """Balance `work` once. scores: the scores after the last run."""
    return _Balancing(work, rules, order_of(rules.iteration)).run(scores or {})


class _Balancing:
    """One balancing run in progress."""

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
        """The weights, with the average for subscriptions without a profile."""
        known = np.array([name in self.work.profiles for name in self.subscriptions], dtype=bool)
        return np.where(known, weight, weight[known].mean()) if known.any() else weight

    def run(self, scores: Mapping[str, AverageScore]) -> Balance:
        """Restore, place, find the targets, rebalance."""
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
        """The targets, scaled to the weight after all waiting tasks are placed."""
        books = dict(zip(self.consumers, self.ledger.book, strict=True))
        found = target_weights.update(books, self.work.loads, scores, self.work.now, self.rules.targets)
        carried = sum(self.ledger.book)
        grown = (carried + float(self.ledger.weight[waiting].sum())) / carried if carried else 1.0
        return [found.weights[name] * grown for name in self.consumers]

    def restore(self) -> list[int]:
        """Give each subscription back to its holders, and return the tasks (numbers) without a holder."""
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
        """Give waiting tasks to the lightest consumers, and return how many tasks found none.

        With `aim`, the consumers with most room get them instead.
        """
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
        """Consumers by subscription, read from the tasks that they hold."""
        found: dict[str, list[str]] = {}
        for consumer in sorted(range(len(self.consumers)), key=self.consumers.__getitem__):
            for task in self.ledger.held(consumer):
                found.setdefault(self.subscriptions[task], []).append(self.consumers[consumer])
        return {name: tuple(held) for name, held in found.items()}


@dataclass(frozen=True, slots=True)
class Diff:
    """By subscription, the consumers that lose it and those that get it, ascending; unchanged ones are left out."""

    deletions: Mapping[str, tuple[str, ...]]
    additions: Mapping[str, tuple[str, ...]]

    @property
    def rebalanced(self) -> tuple[str, ...]:
        """Subscriptions that change, ascending."""
        return tuple(sorted({*self.deletions, *self.additions}))


def diff(before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> Diff:
    """The changes from `before` to `after` (holders by subscription)."""
    return Diff(_beyond(before, after), _beyond(after, before))


def _beyond(these: Mapping[str, Sequence[str]], those: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    found = {name: tuple(sorted(set(held) - set(those.get(name, ())))) for name, held in these.items()}
    return {name: rest for name, rest in found.items() if rest}


@dataclass(frozen=True, slots=True)
class HermesState:
    """The state between two cycles."""

    assignments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    profiles: Profiles = NO_PROFILES
    scores: Mapping[str, AverageScore] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HermesCycle:
    """Input of a cycle: the clock (ms), active consumers, and reports. Reports of other consumers are ignored."""

    now: float
    subscriptions: Sequence[str]
    consumers: Sequence[str]
    loads: Mapping[str, NodeLoad]
    constraints: Constraints


@dataclass(frozen=True, slots=True)
class HermesOutcome:
    """A cycle's decision, the changes, and the state for the next cycle."""

    balance: Balance
    diff: Diff
    state: HermesState


def run(state: HermesState, cycle: HermesCycle, rules: Rules, window: float) -> HermesOutcome:
    """One cycle. window: the averaging window of the profiles in ms.

    Placements on consumers that are gone are dropped first, which does not count as a deletion.
    """
    active = set(cycle.consumers)
    loads = {name: load for name, load in cycle.loads.items() if name in active}
    profiles = rebuilt(state.profiles, loads, cycle.now, window)
    holders = {name: [c for c in held if c in active] for name, held in state.assignments.items()}
    work = Workload(cycle.now, cycle.subscriptions, cycle.consumers, cycle.constraints, holders, profiles.of, loads)
    decided = balance(work, rules, state.scores)
    changed = diff(holders, decided.assignments)
    after = stamped(profiles, changed.rebalanced, cycle.now)
    return HermesOutcome(decided, changed, HermesState(decided.assignments, after, decided.scores))


@dataclass(frozen=True, slots=True)
class SelectiveBalance:
    """The result of a selective balancing run.

    assignments: consumers by subscription, ascending; subscriptions without any are left out. missing: placements that
    were not made. counts: number of tasks by consumer.
    """

    assignments: Mapping[str, tuple[str, ...]]
    missing: int
    counts: Mapping[str, int]


def selective(work: Workload) -> SelectiveBalance:
    """Balance `work` once, by the numbers of tasks. Profiles and loads are ignored."""
    selecting = _Selecting(work)
    selecting.place()
    selecting.equalize()
    return selecting.result()


class _Selecting:
    """One run in progress: subscriptions by consumer, consumers by subscription."""

    def __init__(self, work: Workload) -> None:
        self.most = work.constraints.most
        self.wanted = {name: work.constraints.wanted(name) for name in sorted(work.subscriptions)}
        active = set(work.consumers)
        self.holders: dict[str, set[str]] = {}
        for name, wanted in self.wanted.items():
            kept = sorted({holder for holder in work.holders.get(name, ()) if holder in active})
            self.holders[name] = set(kept[:wanted])
        self.held: dict[str, set[str]] = {name: set() for name in sorted(work.consumers)}
        for name, holders in self.holders.items():
            for holder in holders:
                self.held[holder].add(name)

    def place(self) -> None:
        """Place subscriptions with the fewest placements first, each on the consumer with the fewest tasks."""
        queue = [(len(self.holders[name]), name) for name, wanted in self.wanted.items()]
        heapq.heapify(queue)
        while queue:
            placed, name = heapq.heappop(queue)
            if placed >= self.wanted[name]:
                continue
            able = [c for c, held in self.held.items() if name not in held and len(held) < self.most]
            if able:
                self.give(name, min(able, key=lambda c: len(self.held[c])))
            if able or self.make_room(name):
                heapq.heappush(queue, (placed + 1, name))

    def make_room(self, name: str) -> bool:
        """Place a subscription although no consumer has room, by moving other tasks away; say whether that worked."""
        lacking = [c for c, held in self.held.items() if name not in held]
        full = min(lacking, key=lambda c: len(self.held[c]), default=None)
        if full is None:
            return False
        while len(self.held[full]) >= self.most:
            roomy = next((c for c, held in self.held.items() if len(held) < self.most), None)
            if roomy is None:
                return False
            self.transfer(min(self.held[full] - self.held[roomy]), full, roomy)
        self.give(name, full)
        return True

    def transfer(self, name: str, source: str, destination: str) -> None:
        """Move one placement."""
        self.held[source].remove(name)
        self.holders[name].remove(source)
        self.give(name, destination)

    def give(self, name: str, consumer: str) -> None:
        """Add one placement."""
        self.holders[name].add(consumer)
        self.held[consumer].add(name)

    def equalize(self) -> None:
        """Move tasks from the fullest consumer to the emptiest until they differ by at most one."""
        while len(self.wanted) > 1 and self.held:
            fullest = max(self.held, key=lambda c: len(self.held[c]))
            emptiest = min(self.held, key=lambda c: len(self.held[c]))
            if len(self.held[fullest]) - len(self.held[emptiest]) <= 1:
                return
            self.transfer(min(self.held[fullest] - self.held[emptiest]), fullest, emptiest)

    def result(self) -> SelectiveBalance:
        """The result so far."""
        assignments = {name: tuple(sorted(holders)) for name, holders in self.holders.items() if holders}
        missing = sum(wanted - len(self.holders[name]) for name, wanted in self.wanted.items())
        return SelectiveBalance(assignments, missing, {name: len(held) for name, held in self.held.items()})
