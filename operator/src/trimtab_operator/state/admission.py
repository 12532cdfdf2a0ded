"""Admission: which moves the disruption budgets let through now. It is the last check before a move is written.

A move that fits is paid for, and the payment is stored, before this returns. A drain, a lost broker and a user's
desired owner are never held back. They are paid for all the same, and reported where they go beyond a budget.

Moves that exchange bundles between two brokers are admitted together or not at all: half an exchange may make the
balance worse.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab_operator.kube.client import ApiError
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.resources.policy import Mode
from trimtab_operator.state.budget_account import Override
from trimtab_operator.state.budget_prices import UNKNOWN_PRICE, Prices, publish_gap
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.ownership_changes import EVACUATIONS
from trimtab_operator.state.settings import Settings
from trimtab_strategies.budget import (
    NO_BUDGET,
    TINY,
    BudgetLimit,
    BudgetRules,
    BudgetTally,
    Charge,
    Holder,
    Price,
    Shortfall,
)
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason

log = logging.getLogger(__name__)

UNRESTRAINED = EVACUATIONS | {Reason.BROKER_LOST, Reason.ADMIN}
"""Reasons of moves that no budget holds back."""


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """A move to admit. bundle: in Pulsar's spelling. A split counts as a move from its source to its source."""

    record: BundleRecord
    bundle: str
    source: str
    destination: str
    reason: Reason

    @property
    def namespace(self) -> str:
        """``tenant/name``."""
        return self.bundle.rpartition("/")[0]

    @property
    def forced(self) -> bool:
        """Whether no budget holds it back."""
        return self.reason in UNRESTRAINED


def rules_of(cluster: ClusterState, settings: Settings) -> BudgetRules:
    """The budgets that hold for the bundles of a policy."""
    spaces = {
        space.full_name: Holder(f"TopicNamespace {space.name}", space.budget)
        for space in cluster.stores.topic_namespaces.items.values()
        if space.budget != NO_BUDGET
    }
    own = NO_BUDGET if settings.budget is None else settings.budget.bounds
    return BudgetRules(settings.name, Holder(f"policy {settings.name}", own), spaces)


def full_name(cluster: ClusterState, record: BundleRecord) -> str:
    """A bundle in Pulsar's spelling; empty if its TopicNamespace is unknown."""
    space = cluster.stores.topic_namespaces.items.get(record.topic_namespace)
    return "" if space is None else f"{space.full_name}/{record.lower}_{record.upper}"


def pending_by_namespace(cluster: ClusterState, written: Iterable[str] = ()) -> dict[str, frozenset[str]]:
    """Names of the bundles with a pending move, by ``tenant/name``.

    written: bundles whose move was written, while the store may not show it yet.
    """
    bundles, spaces = cluster.stores.bundles.items, cluster.stores.topic_namespaces.items
    moving = {name for name, move in cluster.pending_moves.open.items() if move.source != move.destination}
    found = dict[str, set[str]]()
    for name in moving.union(written):
        record = bundles.get(name)
        space = spaces.get(record.topic_namespace) if record is not None else None
        if space is not None:
            found.setdefault(space.full_name, set()).add(name)
    return {space: frozenset(names) for space, names in found.items()}


async def recalled(cluster: ClusterState) -> None:
    """Read the account, unless that was done. Raises `ApiError`."""
    await cluster.budget.recall(cluster.api, cluster.namespace, cluster.process.epoch)


def tally_of(cluster: ClusterState, rules: BudgetRules, written: Iterable[str] = ()) -> BudgetTally:
    """What the budgets of `rules` have left now. written: as in `pending_by_namespace`. Call `recalled` before."""
    return BudgetTally(rules, cluster.budget.ledger, cluster.now(), pending_by_namespace(cluster, written))


# -- before the plan --


async def without_budget(
    cluster: ClusterState, settings: Settings, load: ClusterLoad, records: Mapping[str, BundleRecord]
) -> dict[str, Reason]:
    """The bundles of `load` that no budget would let move now, so that a plan need not consist of them.

    records: by Pulsar's spelling. Notes the prices of the policy's moves. Raises `ApiError`.
    """
    rules = rules_of(cluster, settings)
    if rules.empty or settings.mode is Mode.SHADOW:
        cluster.budget.prices.pop(settings.name, None)
        return {}
    if rules.over_time:
        await recalled(cluster)
    prices = Prices.of(load, cluster.move_costs())
    cluster.budget.prices[settings.name] = prices
    tally = tally_of(cluster, rules)
    held = _too_dear(tally, prices)
    names = load.bundles.names
    found = {names[row]: Reason.DISRUPTION_BUDGET for row in np.flatnonzero(held).tolist()}
    if rules.bounds(BudgetLimit.BUNDLE_MOVES):
        by_name = {record.name: bundle for bundle, record in records.items() if record.name in tally.ledger.days}
        for name, bundle in by_name.items():
            if tally.shortfall(name, bundle.rpartition("/")[0], prices.price(bundle)) is not None:
                found[bundle] = Reason.DISRUPTION_BUDGET
    return found


def _too_dear(tally: BudgetTally, prices: Prices) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The bundles (mask, m) that cost more than is left, or whose namespace has no pending move left."""
    rules, spaces = tally.rules, prices.namespaces
    left, pending = np.full(len(spaces), np.inf), np.zeros(len(spaces), dtype=bool)
    for row, space in enumerate(spaces):
        holder = rules.spaces.get(space)
        if holder is not None and holder.budget.connections is not None:
            left[row] = holder.budget.connections - tally.clients_of(space)
        flights = rules.stricter(space, BudgetLimit.IN_FLIGHT)
        gap = rules.stricter(space, BudgetLimit.PUBLISH_GAP)
        full = flights is not None and len(tally.pending_of(space)) >= flights[0]
        pending[row] = full or (gap is not None and not prices.gaps[space] <= gap[0] - tally.gaps_of(space) + TINY)
    bounded = np.isfinite(left)[prices.namespace]
    held = pending[prices.namespace] | (bounded & ~(prices.of_namespace <= left[prices.namespace] + TINY))
    if (own := rules.own.budget.connections) is not None:
        held = held | ~(prices.of_policy <= own - tally.clients_of_policy() + TINY)
    return np.asarray(held)


# -- the last check --


async def admit(
    cluster: ClusterState, settings: Settings, requests: Sequence[MoveRequest], written: Collection[str] = ()
) -> list[HeldBack | None]:
    """For each of `requests` why it must wait; None: it may be written now, and is paid for.

    written: as in `pending_by_namespace`. If the account can't be read or stored, only unrestrained moves are let
    through, because what is left is not known.
    """
    if not requests or ((rules := rules_of(cluster, settings)).empty and settings.budget is None):
        return [None] * len(requests)
    async with cluster.budget.lock:
        if rules.over_time and (problem := await _unread(cluster)):
            return _all_but_forced(requests, f"what was spent can't be read: {problem}")
        round_ = _Round(cluster, settings, tally_of(cluster, rules, written))
        held = round_.admitted(requests)
        if round_.tally.made and rules.over_time:
            try:
                await cluster.budget.keep(round_.tally.result)
            except ApiError as error:
                log.warning("policy %s: what its moves spend can't be stored: %s", settings.name, error)
                return _all_but_forced(requests, f"what it spends can't be stored: {error}")
        cluster.budget.overrides.extend(round_.overrides)
        return held


async def _unread(cluster: ClusterState) -> str:
    """Why the account can't be read; empty once it was."""
    try:
        await recalled(cluster)
    except ApiError as error:
        return str(error)
    return cluster.budget.unreadable


def _all_but_forced(requests: Sequence[MoveRequest], why: str) -> list[HeldBack | None]:
    reason = Reason.DISRUPTION_BUDGET
    return [None if request.forced else HeldBack(request.record.name, reason, why) for request in requests]


@dataclass(slots=True)
class _Round:
    """One admission. overrides: of its forced moves."""

    cluster: ClusterState
    settings: Settings
    tally: BudgetTally
    overrides: list[Override] = field(default_factory=list)
    _to: Counter[str] = field(init=False)

    def __post_init__(self) -> None:
        moving = self.cluster.pending_moves.open.values()
        self._to = Counter(move.destination for move in moving if move.source != move.destination)

    def admitted(self, requests: Sequence[MoveRequest]) -> list[HeldBack | None]:
        found: list[HeldBack | None] = [None] * len(requests)
        for rows in _units(requests):
            if (why := self._unit([requests[row] for row in rows])) is not None:
                for row in rows:
                    if not requests[row].forced:
                        found[row] = HeldBack(requests[row].record.name, *why)
        return found

    def _unit(self, requests: Sequence[MoveRequest]) -> tuple[Reason, str] | None:
        """Why these moves must wait together. Forced ones are paid for, whatever the others do."""
        for request in requests:
            if request.forced:
                self.tally.admit([self._forced(request)])
        others = [request for request in requests if not request.forced]
        if (why := self._paced(others)) is not None:
            return Reason.PACE, why
        if (found := self.tally.admit([self._charge(request) for request in others])) is not None:
            charge, short = found
            text = in_words(short, self.cluster.now())
            with_it = f"{charge.bundle}, which it exchanges with, must wait: " if len(others) > 1 else ""
            return Reason.DISRUPTION_BUDGET, f"{with_it}{text}"
        self._to.update(request.destination for request in requests if request.source != request.destination)
        return None

    def _charge(self, request: MoveRequest, forced: str = "") -> Charge:
        name, record = self.settings.name, request.record
        price = _price(self.cluster, name, request)
        return Charge(self.cluster.now(), record.name, record.generation, name, request.namespace, price, forced)

    def _forced(self, request: MoveRequest) -> Charge:
        charge = self._charge(request, str(request.reason))
        short = self.tally.shortfall(charge.bundle, charge.namespace, charge.price, charge.generation)
        if short is None or math.isnan(short.price):
            return charge
        text = in_words(short, self.cluster.now())
        self.overrides.append(Override(self.settings.name, charge.bundle, request.reason, text))
        return replace(charge, over=True)

    def _paced(self, requests: Sequence[MoveRequest]) -> str | None:
        """Why the pace of a destination does not allow these moves now."""
        budget, limit = self.settings.budget, self.settings.max_moves_in_flight
        if budget is None or not budget.adaptive_pace:
            return None
        pace = self.cluster.budget.pace
        for broker, count in Counter(r.destination for r in requests if r.source != r.destination).items():
            allowed = pace.allowed(broker, limit)
            # an exchange that needs more than one is let through when nothing else is pending
            if self._to[broker] and self._to[broker] + count > allowed:
                usual = pace.usual(broker)
                gap = "" if usual is None else f", where a publish gap is usually {usual:.1f} s"
                return f"{self._to[broker]} moves to {broker} are pending, and {allowed} may be{gap}"
        return None


def _units(requests: Sequence[MoveRequest]) -> list[list[int]]:
    """Rows of `requests` that are admitted together: moves between two brokers in both directions, else each alone."""
    ways = {(request.source, request.destination) for request in requests if request.source != request.destination}
    units = dict[object, list[int]]()
    for row, request in enumerate(requests):
        exchanged = request.source and (request.destination, request.source) in ways
        units.setdefault(frozenset({request.source, request.destination}) if exchanged else row, []).append(row)
    return list(units.values())


def _price(cluster: ClusterState, policy: str, request: MoveRequest) -> Price:
    prices = cluster.budget.prices.get(policy)
    if prices is None:
        return Price(*(float("nan"),) * 2, publish_gap(cluster.move_costs(), request.namespace))
    return prices.price(request.bundle)


# -- words --


def in_words(short: Shortfall, now: float) -> str:
    """The budget, its bound, what is spent, what the move costs, and when it fits."""
    unit = _UNITS[short.limit]
    head = f"{short.limit} of {short.holder} is {short.bound:g}"
    if short.limit is BudgetLimit.IN_FLIGHT:
        return f"{head}, and {short.spent:g} are pending: it waits until one lands"
    if math.isnan(short.price):
        return f"{head}, and {_UNMEASURED[short.limit]}"
    if short.price > short.bound:
        return f"{head}{unit}, and this move alone costs {short.price:.3g}{unit}: it never fits, raise the budget"
    when = "" if short.frees_at is None else f": it fits from {timestamp(max(now, short.frees_at) + 1)} on"
    cost = "" if short.limit is BudgetLimit.BUNDLE_MOVES else f" and it costs {short.price:.3g}{unit}"
    return f"{head}{unit}, {short.spent:.3g}{unit} spent{cost}{when}"


_UNITS = {
    BudgetLimit.CONNECTIONS: " %",
    BudgetLimit.PUBLISH_GAP: " s",
    BudgetLimit.BUNDLE_MOVES: "",
    BudgetLimit.IN_FLIGHT: "",
}

_UNMEASURED = {
    BudgetLimit.CONNECTIONS: "the connections of the bundle were not measured",
    BudgetLimit.PUBLISH_GAP: "nothing measures publish gaps without spec.pulsar",
}


def why_withheld(cluster: ClusterState, settings: Settings, bundle: str, name: str) -> str:
    """Why the bundle `name` (in Pulsar's spelling `bundle`) may not move now; empty if it may.

    Call `recalled` before.
    """
    tally, space = tally_of(cluster, rules_of(cluster, settings)), bundle.rpartition("/")[0]
    prices = cluster.budget.prices.get(settings.name)
    short = tally.shortfall(name, space, UNKNOWN_PRICE if prices is None else prices.price(bundle))
    return "" if short is None else in_words(short, cluster.now())
