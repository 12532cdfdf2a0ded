"""One cycle of the weighted balancer with everything that is carried on: assignments, profiles, stamps, scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trimtab_strategies.params import Compatibility
from trimtab_strategies.weights.diff import Diff, diff
from trimtab_strategies.weights.profiles import NO_PROFILES, Profiles, rebuilt, stamped
from trimtab_strategies.weights.targets import Score
from trimtab_strategies.weights.weighted import Balance, Rules, balance
from trimtab_strategies.weights.work import Constraints, NodeLoad, Work


@dataclass(frozen=True, slots=True)
class State:
    """What a cycle leaves to the next one."""

    assignments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    profiles: Profiles = NO_PROFILES
    scores: Mapping[str, Score] = field(default_factory=dict)


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
    work = Work(cycle.now, cycle.subscriptions, cycle.consumers, cycle.constraints, holders, profiles.of, loads)
    decided = balance(work, rules, state.scores)
    changed = diff(holders, decided.assignments)
    after = stamped(profiles, changed.rebalanced, cycle.now)
    return Outcome(decided, changed, State(decided.assignments, after, decided.scores))
