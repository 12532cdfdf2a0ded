"""`ClusterState`: what all policies of one messaging cluster (one Kubernetes namespace) share.

It is frozen: no field is ever assigned again. Only the objects in its fields change, so code that keeps one of these
objects always sees the current state.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trimtab_operator.budget.account import BudgetAccount
from trimtab_operator.kube.broker_records import BrokerRecord, NodeRecord, PodRecord
from trimtab_operator.kube.client import POLICIES, Api
from trimtab_operator.kube.events import EventPoster
from trimtab_operator.kube.move_costs import MoveCosts
from trimtab_operator.kube.records import BundleRecord, SplitRecord, TopicNamespaceRecord
from trimtab_operator.kube.store import Store
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.urls import SERVICES_ALONE, AllowedUrls
from trimtab_operator.state.hash_rings import HashRings
from trimtab_operator.state.other_leaders import Term
from trimtab_operator.state.ownership_changes import OwnershipChanges
from trimtab_operator.state.pending_moves import PendingMoves
from trimtab_operator.state.policies import Claim, Shares, share_out
from trimtab_operator.state.pulsar_link import PulsarLink
from trimtab_operator.state.settings import FORGET_AFTER, Settings
from trimtab_operator.state.splitting_bundles import (
    Expected,
    KnownTopics,
    SplittingBundles,
    expected,
    still_expected,
)
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_pipeline.api import LoadSources
from trimtab_strategies.model import ClusterLoad, HeldBack, Split
from trimtab_strategies.shedding.trim.samples import CycleSamples, SampleRing
from trimtab_strategies.sizing import Sizing

FRESH_FOR = 120.0
"""Seconds without an event, bookmark or list after which a store no longer counts as up to date."""


@dataclass(slots=True)
class LostBrokers:
    """Since when each broker has been missing, in monotonic seconds.

    A new process starts with an empty table, so each broker gets the whole `lostAfter` again.
    """

    since: dict[str, float] = field(default_factory=dict)

    def update(self, present: Iterable[str], expected: Iterable[str], now: float) -> None:
        """Record at `now` which of the `expected` brokers (those that exist or own a bundle) are not `present`."""
        missing = set(expected) - set(present)
        self.since = {name: self.since.get(name, now) for name in missing}

    def lost(self, now: float, after: float) -> frozenset[str]:
        """Brokers that have been missing for too long. after: the longest time that is allowed, in seconds."""
        return frozenset(name for name, since in self.since.items() if now - since > after)


@dataclass(slots=True)
class Stores:
    """The stores of the objects that decisions depend on.

    nodes: the nodes of the Kubernetes cluster; None where the operator does not watch them, or may not.
    """

    bundles: Store[BundleRecord]
    brokers: Store[BrokerRecord]
    pods: Store[PodRecord]
    topic_namespaces: Store[TopicNamespaceRecord]
    splits: Store[SplitRecord]
    nodes: Store[NodeRecord] | None = None

    def all(self) -> tuple[Store[object], ...]:
        """The five stores of the Kubernetes namespace."""
        return (self.bundles, self.brokers, self.pods, self.topic_namespaces, self.splits)  # type: ignore[return-value]

    def stale(self) -> str:
        """A text that says which store is incomplete or out of date; empty if none is."""
        for store in self.all():
            if not store.synced.is_set():
                return f"{store.ref.plural} are not listed yet"
            if store.age() > FRESH_FOR:
                return f"no news of {store.ref.plural} for {store.age():.0f} s"
        return ""


@dataclass(frozen=True, slots=True)
class KeptSamples:
    """The sample ring of one policy. All of its samples have the same source.

    source: the settings that say what a sample means. For example, the preset decides if CPU is in percent or in cores.
    past: samples of minutes before the first cycle, which are not in the ring yet. measuring: the task that adds them.
    """

    source: tuple[object, ...]
    ring: SampleRing
    past: list[CycleSamples] = field(default_factory=list)
    measuring: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Stop measuring."""
        if self.measuring is not None:
            self.measuring.cancel()


@dataclass(slots=True)
class PolicyTable:
    """The policies whose loops run, by name.

    settings: those of the policies that may run. claims: the brokers that each policy selects. shares: which policy has
    which brokers, by the last `ClusterState.share_out`. wakers: set to start a policy's next reconcile immediately.
    refusals: why each policy does not run, by its last cycle or reconcile; None: it runs.
    sizings: advice on the number of brokers. topics: those that the last cycle measured. samples: those of the last
    minutes. leaders: who else leads, as the policy's status tells. former: who led before our term, or empty.
    """

    settings: dict[str, Settings] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    shares: Shares = field(default_factory=Shares)
    wakers: dict[str, asyncio.Event] = field(default_factory=dict)
    refusals: dict[str, HeldBack | None] = field(default_factory=dict)
    sizings: dict[str, Sizing] = field(default_factory=dict)
    topics: dict[str, KnownTopics] = field(default_factory=dict)
    samples: dict[str, KeptSamples] = field(default_factory=dict)
    leaders: dict[str, Term] = field(default_factory=dict)
    former: str = ""


@dataclass(slots=True)
class ProcessState:
    """Role and readiness of this process.

    leader, epoch, lease: identity, epoch and Lease (``namespace/name``) of the leader; empty and 0 where there is no
    election. deposed: why its term has ended; empty while it goes on. cold: why the load sources are not warm; empty
    until the first attempt to warm them has ended, None once they are warm.
    """

    leader: str = ""
    epoch: int = 0
    lease: str = ""
    deposed: str = ""
    cold: str | None = ""

    @property
    def term(self) -> Term:
        """The leader's term."""
        return Term(self.leader, self.epoch, self.lease)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """An immutable handle on the state that the policies of one Kubernetes namespace share.

    now: epoch seconds, for what is written and for queries. clock: monotonic seconds, for durations: a correction of
    the wall clock must not make a broker lost, or a move overdue.
    chance: a random number 0-1, which spreads the cycles of policies over time.
    urls: the URLs that policies may name.
    engine: set once the load sources are warm, or the first attempt to warm them failed.
    lost_brokers: brokers that are not ready. podless: brokers whose pod or address is gone.
    care: names of bundles that reconciliation must examine. served: names of the bundles that each broker serves.
    awaited: names of bundles whose landing wakes the policies, because it makes room for the next approved move.
    splitting: bundles that are being split, and their children. expected: what children of recent splits are expected
    to carry, by the child's name in Pulsar's spelling.
    link: the connection to the Pulsar cluster, where there is one. rings: the hash ring of each TopicNamespace.
    cut_by: ``tenant/name`` -> the TopicNamespace object for which this process created the bundles.
    budget: what moves have spent of disruption budgets.
    """

    api: Api
    namespace: str
    stores: Stores
    sources: LoadSources
    metrics: Metrics
    events: EventPoster
    ownership_changes: OwnershipChanges
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    urls: AllowedUrls = SERVICES_ALONE
    process: ProcessState = field(default_factory=ProcessState)
    engine: asyncio.Event = field(default_factory=asyncio.Event)
    policies: PolicyTable = field(default_factory=PolicyTable)
    pending_moves: PendingMoves = field(default_factory=PendingMoves)
    lost_brokers: LostBrokers = field(default_factory=LostBrokers)
    podless: LostBrokers = field(default_factory=LostBrokers)
    care: set[str] = field(default_factory=set)
    awaited: set[str] = field(default_factory=set)
    served: dict[str, set[str]] = field(default_factory=dict)
    splitting: SplittingBundles = field(default_factory=SplittingBundles)
    expected: dict[str, Expected] = field(default_factory=dict)
    link: PulsarLink = field(default_factory=PulsarLink)
    rings: HashRings = field(default_factory=HashRings)
    cut_by: dict[str, str] = field(default_factory=dict)
    budget: BudgetAccount = field(default_factory=BudgetAccount)

    def subscribe(self) -> None:
        """Follow the stores. Call it once, before they fill."""
        self.stores.bundles.subscribe(self._bundle_changed)
        self.stores.brokers.subscribe(self._broker_changed)
        self.stores.pods.subscribe(self._pod_changed)
        self.stores.splits.subscribe(lambda _old, _new: self.splitting.wake.set())

    def _bundle_changed(self, old: BundleRecord | None, new: BundleRecord | None) -> None:
        self.pending_moves.update(new, old, self.clock())
        self.ownership_changes.update(old, new, self.now())
        self._serve(old, new)
        self._landed(old, new)
        self.splitting.update(old, new)
        self.rings.update(old, new)
        if new is not None and new.needs_repair:
            self.care.add(new.name)
            if not new.owner or new.overruled:
                self.wake()
        elif (gone := new or old) is not None:
            self.care.discard(gone.name)

    def _landed(self, old: BundleRecord | None, new: BundleRecord | None) -> None:
        if (
            old is not None
            and old.name in self.awaited
            and old.owner_pending
            and (new is None or not new.owner_pending)
        ):
            self.awaited.discard(old.name)
            self.wake()

    def _serve(self, old: BundleRecord | None, new: BundleRecord | None) -> None:
        before, after = old.status_owner if old else "", new.status_owner if new else ""
        if before == after:
            return
        if old is not None and before:
            self.served[before].discard(old.name)
            if not self.served[before]:
                del self.served[before]
        if new is not None and after:
            self.served.setdefault(after, set()).add(new.name)

    def _broker_changed(self, old: BrokerRecord | None, new: BrokerRecord | None) -> None:
        if _takes_bundles(old) != _takes_bundles(new):
            self.wake()

    def _pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        if (old is not None and old.deleted) != (new is not None and new.deleted):
            self.wake()

    async def post(self, kind: str, name: str, event: tuple[str, str, str], *, action: str, uid: str = "") -> None:
        """Post an Event about an object of this namespace.

        event: type, reason and message, as for `EventPoster.post`.
        """
        involved = {"apiVersion": API_VERSION, "kind": kind, "name": name, "namespace": self.namespace, "uid": uid}
        await self.events.post(involved, *event, action=action)

    def wake(self) -> None:
        """Start the next reconcile of all policies immediately."""
        for event in self.policies.wakers.values():
            event.set()

    def share_out(self) -> Shares:
        """Assign brokers to policies again, from the current policies, brokers and pods."""
        table = self.policies
        table.shares = share_out(table.claims.values(), self.stores.brokers.items, self.stores.pods.items)
        return table.shares

    def leave(self, policy: str) -> None:
        """Forget a policy that is gone."""
        table = self.policies
        if (kept := table.samples.get(policy)) is not None:
            kept.close()
        for known in (table.settings, table.refusals, table.sizings, table.claims, table.topics, table.samples):
            known.pop(policy, None)
        table.leaders.pop(policy, None)
        self.metrics.forget_policy(policy)
        self.share_out()

    def speaker(self) -> Settings | None:
        """The oldest policy that runs; None while none runs. Its `spec.pulsar` applies to all policies."""
        table = self.policies
        return next((found for name in table.shares.standing if (found := table.settings.get(name))), None)

    def relink(self) -> None:
        """Connect to the Pulsar cluster that `speaker` names. A change drops what was known of the former cluster."""
        speaker = self.speaker()
        self.link.lead_to(speaker.pulsar if speaker else None, speaker.name if speaker else "")

    async def link_settled(self) -> bool:
        """Whether `link` says reliably if a Pulsar cluster is connected.

        After a start, `link` is not reliable until each policy that names a Pulsar cluster is valid and its loop has
        started. Raises `ApiError`.
        """
        if self.link.linked:
            return True
        policies = [policy async for page in self.api.list(POLICIES, self.namespace) for policy in page.items]
        names = {policy["metadata"]["name"] for policy in policies if (policy.get("spec") or {}).get("pulsar")}
        return names <= {name for name, claim in self.policies.claims.items() if not claim.idle}

    def brokers_of(self, policy: str) -> dict[str, BrokerRecord]:
        """The Broker objects of a policy, in the order of their names."""
        found, policy_of = sorted(self.stores.brokers.items.items()), self.policies.shares.policy_of
        return {name: broker for name, broker in found if policy_of.get(name) == policy}

    def cares(self, policy: str, bundle: str) -> bool:
        """Whether a bundle belongs to a policy; a bundle that is gone belongs to the oldest policy."""
        record = self.stores.bundles.items.get(bundle)
        if len(standing := self.policies.shares.standing) == 1 or record is None:
            return standing[:1] == (policy,)
        return self.caretaker(record) == policy

    def caretaker(self, bundle: BundleRecord) -> str:
        """The policy that a bundle belongs to."""
        space = self.stores.topic_namespaces.items.get(bundle.topic_namespace)
        return self.policies.shares.caretaker(bundle, space.policy if space else None)

    def in_flight(self, policy: str) -> int:
        """Number of pending moves of a policy's bundles, without those from a broker to itself."""
        pending_moves = self.pending_moves.open.values()
        return sum(
            pending.source != pending.destination and self.cares(policy, pending.bundle) for pending in pending_moves
        )

    def move_costs(self) -> dict[str, MoveCosts] | None:
        """Measured costs of moves, by ``tenant/name``; None where no Pulsar cluster is connected."""
        spaces = self.stores.topic_namespaces.items.values()
        return {space.full_name: space.move_costs for space in spaces} if self.link.linked else None

    def forgotten(self) -> frozenset[str]:
        """Brokers to forget: they have no bundle, and their pod or address has been gone for `forgetAfter`."""
        brokers, now = self.stores.brokers.items, self.clock()
        self.podless.update([b.name for b in brokers.values() if self._stands_for_something(b)], brokers, now)
        if not self.podless.since:
            return frozenset()
        needed = set(self.owners())
        settings, policy_of = self.policies.settings, self.policies.shares.policy_of
        policies = {name: settings.get(policy_of.get(name, "")) for name in self.podless.since}
        after = {name: FORGET_AFTER if p is None else p.forget_after for name, p in policies.items()}
        return frozenset(name for name in after if name in self.podless.lost(now, after[name]) and name not in needed)

    def _stands_for_something(self, broker: BrokerRecord) -> bool:
        """Whether the pod or address behind a Broker exists; True for an address that a person declared."""
        if broker.pod:
            return broker.pod in self.stores.pods.items
        return not broker.discovered or self.link.ids is None or broker.name in self.link.ids

    def known_nodes(self) -> Mapping[str, NodeRecord]:
        """The nodes by name; empty where they are not watched."""
        return self.stores.nodes.items if self.stores.nodes is not None else {}

    def expect(self, splits: Sequence[Split], load: ClusterLoad) -> None:
        """Record the expected load of the children of `splits`: their share of the parent's load in `load`."""
        clock = self.clock()
        for name in self.expected.keys() - still_expected(self.expected, clock).keys():
            del self.expected[name]
        self.expected.update(expected(splits, load, clock))

    def missing_brokers(self, settings: Settings) -> list[str]:
        """Names in `spec.brokers.names` without a Broker object."""
        return [n for n in settings.broker_names or () if n not in self.stores.brokers.items]

    def owners(self) -> Iterable[str]:
        """Every broker that is owner, or desired owner, of a bundle, with or without a Broker object."""
        yield from self.served
        for name in self.care:
            if (bundle := self.stores.bundles.items.get(name)) is not None and bundle.owner:
                yield bundle.owner


def _takes_bundles(broker: BrokerRecord | None) -> tuple[bool, bool]:
    return (False, False) if broker is None else (broker.ready, broker.schedulable)
