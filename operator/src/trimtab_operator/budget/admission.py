"""Admission: decides which moves the disruption budgets allow now. It is the last check before a move is written.

A move that fits is charged to the budget, and the charge is stored, before `admit` returns. Moves for a drain, a lost
broker or a user's desired owner are never held back. But they are charged, and reported if they exceed a budget.

Moves that exchange bundles between two brokers are admitted together or not at all: half an exchange may make the
balance worse.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from trimtab_operator.budget.account import Override
from trimtab_operator.budget.left import in_words, recalled, rules_of, tally_of
from trimtab_operator.budget.prices import UNKNOWN_PRICE, UNRESTRAINED, together
from trimtab_operator.kube.client import ApiError
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_strategies.budget import BudgetTally, Charge
from trimtab_strategies.model import HeldBack, Reason

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """A move to admit. bundle: in Pulsar's spelling (``tenant/name/0x00000000_0x40000000``).

    A split is a move whose source is also its destination.
    """

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
        """Whether no budget holds the move back."""
        return self.reason in UNRESTRAINED


async def admit(
    cluster: ClusterState, settings: Settings, requests: Sequence[MoveRequest], written: Collection[str] = ()
) -> list[HeldBack | None]:
    """Return for each of `requests` why it must wait, or None if it was charged and may be written now.

    written: as in `budget_left.pending_by_namespace`. While the `BudgetAccount` can't be read or stored, only moves
    that no budget holds back may be written.
    """
    if not requests or (rules := rules_of(cluster, settings)).empty:
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
    """Read the account. Returns why it can't be read; empty if it was read."""
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
    """One call of `admit`. overrides: how its forced moves exceed budgets."""

    cluster: ClusterState
    settings: Settings
    tally: BudgetTally
    overrides: list[Override] = field(default_factory=list)

    def admitted(self, requests: Sequence[MoveRequest]) -> list[HeldBack | None]:
        found: list[HeldBack | None] = [None] * len(requests)
        for rows in together([(request.source, request.destination) for request in requests]):
            if (why := self._unit([requests[row] for row in rows])) is not None:
                for row in rows:
                    if not requests[row].forced:
                        found[row] = HeldBack(requests[row].record.name, Reason.DISRUPTION_BUDGET, why)
        return found

    def _unit(self, requests: Sequence[MoveRequest]) -> str | None:
        """Charge moves that must be admitted together, or return why they must wait. Forced ones are always charged."""
        for request in requests:
            if request.forced:
                self.tally.admit([self._forced(request)])
        others = [request for request in requests if not request.forced]
        if (found := self.tally.admit([self._charge(request) for request in others])) is not None:
            charge, short = found
            text = in_words(short, self.cluster.now())
            with_it = f"{charge.bundle}, part of the same exchange, must wait: " if len(others) > 1 else ""
            return f"{with_it}{text}"
        return None

    def _charge(self, request: MoveRequest, forced: str = "") -> Charge:
        name, record = self.settings.name, request.record
        prices = self.cluster.budget.prices.get(name)
        price = UNKNOWN_PRICE if prices is None else prices.price(request.bundle)
        return Charge(self.cluster.now(), record.name, record.generation, name, request.namespace, price, forced)

    def _forced(self, request: MoveRequest) -> Charge:
        charge = self._charge(request, str(request.reason))
        short = self.tally.shortfall(charge.bundle, charge.namespace, charge.price, charge.generation, dated=False)
        if short is None or math.isnan(short.price):
            return charge
        text = in_words(short, self.cluster.now())
        self.overrides.append(Override(self.settings.name, charge.bundle, request.reason, text))
        return replace(charge, over=True)
