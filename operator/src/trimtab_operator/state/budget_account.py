"""`BudgetAccount`: what the moves of one messaging cluster have spent, in memory and in the ConfigMap `trimtab-budget`.

A move is charged before it is written. So a crash in between leaves a charge without a move, and never a move without
a charge. A move whose write failed stays charged: the write may have succeeded, with only the answer lost. The next
attempt for the same generation of the bundle replaces the charge.

All policies of a Kubernetes namespace share the account, because they may share a topic namespace. It is read when the
first budget needs it. Without budgets nothing is read, stored or counted.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Self

from trimtab_operator.kube.client import Api
from trimtab_operator.kube.config_map_store import (
    ConfigMapStore,
    StoredFormat,
    UnreadableContentError,
    check_version,
    reading,
)
from trimtab_operator.kube.naming import BUDGET
from trimtab_operator.state.budget_prices import Prices
from trimtab_strategies.budget import BudgetLedger, Charge, Price
from trimtab_strategies.model import Reason

_KEY = "budget.json.gz"

MOST_OVERRIDES = 1000
"""Maximum number of overrides kept for `taken`. While no policy runs, none are taken, and the oldest are dropped."""


GROWN = 2.0
"""A publish gap has grown if it is at least this many times as long as the usual gap."""

NOTICEABLE = 0.1
"""Seconds by which a gap must also exceed the usual gap. Smaller differences are due to clocks and chance."""

FEWEST = 3
"""Number of measured gaps that a broker needs before its usual gap is known."""

KEPT = 20
"""Number of latest gaps that are kept for each broker."""


@dataclass(frozen=True, slots=True)
class MovePace:
    """How many moves may be pending to each broker. It depends on how long clients needed to reconnect there. Pure.

    Additive increase, multiplicative decrease: a publish gap that is much longer than the broker's usual gap halves the
    number. Each other gap adds one, until the policy's limit is reached. Only a sample of the moves is measured.

    windows: broker -> how many moves to it may be pending. A broker without an entry has the policy's limit.

    gaps: broker -> seconds of the latest publish gaps after moves to it, oldest first.
    """

    windows: Mapping[str, float] = field(default_factory=dict)
    gaps: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def allowed(self, broker: str, limit: int) -> int:
        """How many moves to `broker` may be pending at the same time: 1 to `limit`."""
        return max(1, min(limit, int(self.windows.get(broker, limit))))

    def measured(self, broker: str, gap: float, limit: int) -> Self:
        """The pace after a move to `broker` that cut publishers off for `gap` seconds. limit: the policy's limit."""
        before, usual = self.gaps.get(broker, ()), self.usual(broker)
        grown = usual is not None and gap >= GROWN * usual and gap - usual >= NOTICEABLE
        allowed = self.allowed(broker, limit)
        windows = {**self.windows, broker: float(max(1, allowed // 2) if grown else allowed + 1)}
        if windows[broker] >= limit:
            del windows[broker]
        return replace(self, windows=windows, gaps={**self.gaps, broker: (*before, gap)[-KEPT:]})

    def usual(self, broker: str) -> float | None:
        """Median of the measured gaps of `broker` in seconds; None if too few were measured."""
        found = self.gaps.get(broker, ())
        return median(found) if len(found) >= FEWEST else None

    def only(self, brokers: frozenset[str]) -> Self:
        """The pace without the brokers that are gone. brokers: those that exist."""
        gaps = {name: found for name, found in self.gaps.items() if name in brokers}
        return replace(self, windows={n: w for n, w in self.windows.items() if n in brokers}, gaps=gaps)


@dataclass(frozen=True, slots=True)
class StoredAccount:
    """The content of the ConfigMap. epoch: that of the leader that stored it."""

    ledger: BudgetLedger = field(default_factory=BudgetLedger)
    pace: MovePace = field(default_factory=MovePace)
    epoch: int = 0

    def to_json(self) -> str:
        """The account as JSON, to be stored."""
        value = {
            "version": 1,
            "epoch": self.epoch,
            "charges": [_listed(charge) for charge in self.ledger.charges],
            "days": self.ledger.days,
            "windows": self.pace.windows,
            "gaps": self.pace.gaps,
        }
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> StoredAccount:
        """Read back; raises `UnreadableContentError`."""
        with reading("the spent budget"):
            value = json.loads(text)
            check_version("the spent budget", value["version"])
            days = {str(name): tuple((float(at), int(g)) for at, g in moves) for name, moves in value["days"].items()}
            ledger = BudgetLedger(tuple(_charge(found) for found in value["charges"]), days)
            return cls(ledger, _pace(value), int(value["epoch"]))


def _listed(charge: Charge) -> list[Any]:
    price = charge.price
    return [
        charge.at, charge.bundle, charge.generation, charge.policy, charge.namespace,
        price.of_policy, price.of_namespace, price.gap, charge.forced, charge.over,
    ]  # fmt: skip


def _charge(found: list[Any]) -> Charge:
    at, bundle, generation, policy, namespace, of_policy, of_namespace, gap, forced, over = found
    price = Price(float(of_policy), float(of_namespace), float(gap))
    return Charge(float(at), str(bundle), int(generation), str(policy), str(namespace), price, str(forced), bool(over))


def _pace(value: Mapping[str, Any]) -> MovePace:
    windows = {str(name): float(window) for name, window in value["windows"].items()}
    return MovePace(windows, {str(name): tuple(map(float, gaps)) for name, gaps in value["gaps"].items()})


ACCOUNT_FORMAT: StoredFormat[StoredAccount] = StoredFormat(
    encode=lambda account, _: {_KEY: account.to_json},
    decode=lambda texts: StoredAccount.from_json(texts.get(_KEY, "")),
    remedy="delete the ConfigMap; until then no budget allows a move",
    epoch=lambda account: account.epoch,
)


@dataclass(frozen=True, slots=True)
class Override:
    """A move of `bundle` (object name) that exceeded a budget, because of `reason`. text: what was exceeded."""

    policy: str
    bundle: str
    reason: Reason
    text: str


@dataclass(slots=True)
class BudgetAccount:
    """The account. Call `recall` before anything else. Hold `lock` while you change the ledger.

    prices: what each policy's moves cost, as of its last cycle. unreadable: why the stored account can't be read; empty
    if it can.
    """

    ledger: BudgetLedger = field(default_factory=BudgetLedger)
    pace: MovePace = field(default_factory=MovePace)
    prices: dict[str, Prices] = field(default_factory=dict)
    overrides: deque[Override] = field(default_factory=lambda: deque(maxlen=MOST_OVERRIDES))
    unreadable: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _epoch: int = 0
    _store: ConfigMapStore[StoredAccount] | None = None

    async def recall(self, api: Api, namespace: str, epoch: int) -> None:
        """Read the account once per process. Read it again in each call while it is unreadable.

        epoch: the leader's; 0 without an election, where each start gets the next epoch. Raises `ApiError`.
        """
        if self._store is not None and not self.unreadable:
            return
        store = ConfigMapStore(api, namespace, BUDGET, ACCOUNT_FORMAT)
        try:
            found = await store.load() or StoredAccount()
        except UnreadableContentError as error:
            self._store, self.unreadable = store, str(error)
            return
        self._store, self.unreadable = store, ""
        # if gaps were measured before the account was read, their pace replaces the stored one
        self.ledger, self.pace = found.ledger, self.pace if self.pace.gaps else found.pace
        self._epoch = epoch or found.epoch + 1

    async def keep(self, ledger: BudgetLedger, brokers: Iterable[str]) -> None:
        """Store `ledger`, then use it. brokers: those that exist; the pace of others is forgotten.

        Raises `ApiError` if it was not stored. Then nothing may be spent.
        """
        assert self._store is not None, "recall comes first"
        self.pace = self.pace.only(frozenset(brokers))
        await self._store.save(StoredAccount(ledger, self.pace, self._epoch))
        self.ledger = ledger

    def measured(self, broker: str, gap: float, limit: int) -> None:
        """Record that a move to `broker` cut publishers off for `gap` seconds. The pace is stored with the next charge.

        limit: pending moves that the policy allows.
        """
        self.pace = self.pace.measured(broker, gap, limit)

    def taken(self, policy: str) -> list[Override]:
        """The overrides of a policy since the last call."""
        own = [override for override in self.overrides if override.policy == policy]
        others = [override for override in self.overrides if override.policy != policy]
        self.overrides.clear()
        self.overrides.extend(others)
        return own
