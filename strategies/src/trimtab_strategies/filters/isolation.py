"""Isolation: the brokers that may own a namespace's bundles, by regular expressions over host names.

A namespace with an isolation policy gets its primary brokers, and its secondary ones while too few primaries are
available. A namespace without one gets the shared brokers: those that are primary in no policy. A host that is both
primary and secondary counts as primary, as in Pulsar.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trimtab_strategies.filters.patterns import compiled, problem
from trimtab_strategies.model import HeldBack, Isolation, NamespacePolicy, Reason
from trimtab_strategies.model.cluster_load import BoolArray


def host(broker: str) -> str:
    """The host of a broker's name ``host:port``: the text before the last colon."""
    return broker.rpartition(":")[0] or broker


def isolation_problems(brokers: tuple[str, ...], policies: Mapping[str, NamespacePolicy]) -> tuple[HeldBack, ...]:
    """The problems of `policies` (by namespace) among `brokers`: one entry for each namespace with a problem."""
    return IsolationRules(brokers, policies).problems()


def _own_problems(isolation: Isolation) -> Iterator[str]:
    """What is wrong with a policy, whatever the brokers are."""
    for pattern in (*isolation.primary, *isolation.secondary):
        if what := problem(pattern):
            yield f"isolation pattern {pattern!r} {what}"
    for pattern in isolation.primary:
        if pattern in isolation.secondary:
            yield f"isolation pattern {pattern!r} is primary and secondary: leave it in one of the two lists"
    if not isolation.primary and not isolation.secondary:
        yield "the isolation policy has no pattern, so no broker may have its bundles: add one, or remove the policy"
    if isolation.min_available < 0:
        yield f"isolation min_available is {isolation.min_available}: use 0 (never fail over) or more"


@dataclass(frozen=True, slots=True)
class Hosts:
    """The primary and secondary brokers (masks, n) of one namespace's policy, and the policy's problems."""

    primary: BoolArray
    secondary: BoolArray
    min_available: int
    problems: tuple[str, ...]

    def allowed(self, available: BoolArray) -> BoolArray:
        """Which of the `available` brokers (mask, n) may have the namespace's bundles."""
        primary: BoolArray = self.primary & available
        return primary | (self.secondary & available) if primary.sum() < self.min_available else primary


class IsolationRules:
    """Isolation policies applied to some brokers (n). Every distinct pattern is matched against the brokers once."""

    def __init__(self, brokers: tuple[str, ...], policies: Mapping[str, NamespacePolicy]) -> None:
        """Take the names of all brokers, and the policies by namespace. Nothing is matched yet."""
        self._names = brokers
        self._isolations = {space: p.isolation for space, p in policies.items() if p.isolation is not None}
        self._matched: dict[str, BoolArray] = {}
        self._of: dict[str, Hosts | None] = {}

    @cached_property
    def _hosts(self) -> tuple[str, ...]:
        return tuple(map(host, self._names))

    @cached_property
    def shared(self) -> BoolArray:
        """Brokers (mask, n) that are primary of no policy."""
        dedicated = np.zeros(len(self._names), dtype=bool)
        for isolation in self._isolations.values():
            dedicated |= self._any(isolation.primary)
        return ~dedicated

    def of(self, namespace: str) -> Hosts | None:
        """The brokers that a namespace's policy names; None if it has no policy."""
        if not self._isolations:
            return None
        if namespace not in self._of:
            isolation = self._isolations.get(namespace)
            self._of[namespace] = None if isolation is None else self._resolved(isolation)
        return self._of[namespace]

    def problems(self) -> tuple[HeldBack, ...]:
        """The problems of the policies, one entry per namespace with a problem."""
        found = ((space, self.of(space)) for space in sorted(self._isolations))
        return tuple(
            HeldBack(space, Reason.INVALID_POLICY, "; ".join(hosts.problems))
            for space, hosts in found
            if hosts is not None and hosts.problems
        )

    def _resolved(self, isolation: Isolation) -> Hosts:
        primary, secondary = self._any(isolation.primary), self._any(isolation.secondary)
        problems = [*_own_problems(isolation), *self._contradictions(isolation, primary & secondary)]
        if len(self._names) and not (primary | secondary).any() and not problems:
            patterns = ", ".join(map(repr, (*isolation.primary, *isolation.secondary)))
            problems.append(f"isolation matches no broker with {patterns}: name hosts that exist")
        return Hosts(primary, secondary & ~primary, isolation.min_available, tuple(problems))

    def _contradictions(self, isolation: Isolation, both: BoolArray) -> Iterator[str]:
        if both.any() and not set(isolation.primary) & set(isolation.secondary):
            name = self._hosts[int(np.argmax(both))]
            yield f"host {name!r} is primary and secondary of the isolation policy: let only one pattern match it"

    def _any(self, patterns: tuple[str, ...]) -> BoolArray:
        """Brokers (mask, n) whose whole host name matches one of the patterns."""
        matched = np.zeros(len(self._names), dtype=bool)
        for pattern in patterns:
            matched |= self._match(pattern)
        return matched

    def _match(self, pattern: str) -> BoolArray:
        if pattern not in self._matched:
            self._matched[pattern] = self._full_matches(pattern)
        return self._matched[pattern]

    def _full_matches(self, pattern: str) -> BoolArray:
        """Brokers (mask, n) that `pattern` matches. A pattern with a `problem` matches none."""
        if (known := compiled(pattern)) is None:
            return np.zeros(len(self._names), dtype=bool)
        return np.array([known.fullmatch(name) for name in self._hosts], dtype=bool)
