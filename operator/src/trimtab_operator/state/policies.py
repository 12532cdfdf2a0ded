"""Assigns brokers, and with them bundles, to policies when several policies run in one namespace. Pure: no I/O.

Policies share no broker. Where two select the same one, the older policy keeps it and the younger one is refused: a
second policy must not stop the balancing of a cluster. That is so even while the older policy can't run, because a
mistake in it must not start another policy. The younger one then says why the older one does not run. A broker that no
selector finds any more (its pod is gone) stays with the policy that had it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trimtab_operator.kube.broker_records import BrokerRecord, PodRecord
from trimtab_operator.kube.records import BundleRecord
from trimtab_strategies.filters.patterns import matches
from trimtab_strategies.model import Isolation, NamespacePolicy


def selects(labels: Mapping[str, str], pod: PodRecord) -> bool:
    """Whether `pod` carries all of `labels`."""
    return all(pod.labels.get(key) == value for key, value in labels.items())


@dataclass(frozen=True, slots=True)
class Claim:
    """What a policy selects: Broker objects by name, or pods by label; all brokers if neither is given.

    born: creation time of the policy, as text that sorts by time.
    idle: whether the policy is invalid and has not run since the operator started. The brokers that it selects still
    count as its own: a mistake in an older policy must not give them to a younger one that was refused.
    """

    policy: str
    born: str
    names: Collection[str] | None = None
    labels: Mapping[str, str] | None = None
    idle: bool = False

    @property
    def everything(self) -> bool:
        """Whether it selects all brokers."""
        return self.names is None and self.labels is None

    def selected(self, brokers: Mapping[str, BrokerRecord], pods: Mapping[str, PodRecord]) -> frozenset[str]:
        """Names of the brokers that it selects, including those that will be discovered from pods."""
        if self.names is not None:
            return frozenset(self.names)
        if self.labels is None:
            return frozenset(brokers)
        found = {pod.name for pod in pods.values() if selects(self.labels, pod)}
        by_pod = {broker.pod: broker.name for broker in brokers.values() if broker.pod}
        return frozenset(by_pod.get(pod, pod) for pod in found)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Why a policy is refused: an older one has some of its brokers, or one of the two selects all brokers."""

    older: str
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shares:
    """The brokers of each policy.

    standing: the policies that run, oldest first. refused: those that don't, each with the reason.
    policy_of: broker -> its policy, which may be idle.
    """

    standing: tuple[str, ...] = ()
    refused: Mapping[str, Overlap] = field(default_factory=dict)
    policy_of: Mapping[str, str] = field(default_factory=dict)
    _allowed: dict[Isolation, frozenset[str]] = field(default_factory=dict, compare=False, repr=False)

    def caretaker(self, bundle: BundleRecord, asked: NamespacePolicy | None = None) -> str:
        """The policy of a bundle; empty when none runs. asked: the rules of its namespace.

        It is the first of these policies that runs: the one of its broker, the one that chose its last owner, the
        oldest one with a broker that the isolation allows, the oldest one.
        """
        for broker in (bundle.status_owner, bundle.owner):
            if broker and (policy := self.policy_of.get(broker)) in self.standing:
                return policy
        if len(self.standing) == 1 or bundle.policy in self.standing:
            return bundle.policy if bundle.policy in self.standing else self.standing[0]
        return next(self._with_room(asked), self.standing[0]) if self.standing else ""

    def _with_room(self, asked: NamespacePolicy | None) -> Iterator[str]:
        if asked is None or asked.isolation is None:
            return iter(self.standing)
        if (allowed := self._allowed.get(asked.isolation)) is None:  # computed once: it may apply to 60,000 bundles
            # the condition `Valid` of the namespace reports invalid patterns
            patterns = (*asked.isolation.primary, *asked.isolation.secondary)
            allowed = frozenset(
                policy for broker, policy in self.policy_of.items() if any(matches(p, broker) for p in patterns)
            )
            self._allowed[asked.isolation] = allowed
        return (policy for policy in self.standing if policy in allowed)


def share_out(claims: Iterable[Claim], brokers: Mapping[str, BrokerRecord], pods: Mapping[str, PodRecord]) -> Shares:
    """Assign the brokers to the policies with these `claims`."""
    standing, refused, policy_of = list[Claim](), dict[str, Overlap](), dict[str, str]()
    for claim in sorted(claims, key=lambda claim: (claim.born, claim.policy)):
        selected = claim.selected(brokers, pods)
        if (overlap := _overlap(claim, selected, standing, policy_of)) is not None:
            refused[claim.policy] = overlap
            continue
        standing.append(claim)
        policy_of.update(dict.fromkeys(selected, claim.policy))
    podless = [broker for broker in brokers.values() if broker.name not in policy_of and broker.pod not in pods]
    policy_of |= _left_over(podless, standing)
    return Shares(tuple(claim.policy for claim in standing if not claim.idle), refused, policy_of)


def _overlap(
    claim: Claim, selected: frozenset[str], standing: Sequence[Claim], policy_of: Mapping[str, str]
) -> Overlap | None:
    for older in standing:
        shared = sorted(broker for broker in selected if policy_of.get(broker) == older.policy)
        if shared or claim.everything or older.everything:
            return Overlap(older.policy, tuple(shared))
    return None


def _left_over(brokers: Iterable[BrokerRecord], standing: Sequence[Claim]) -> dict[str, str]:
    """The policy of each broker whose pod is gone: the policy that had it, else the oldest one.

    A policy that selects brokers by name gets none of these brokers.
    """
    running = [claim.policy for claim in standing if claim.names is None]
    found = {b.name: b.policy if b.policy in running else next(iter(running), "") for b in brokers}
    return {name: policy for name, policy in found.items() if policy}
