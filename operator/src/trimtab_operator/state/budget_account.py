"""`BudgetAccount`: what the moves of one messaging cluster have spent, in memory and in the ConfigMap `trimtab-budget`.

A move is paid for before it is written. So a crash between the two leaves a payment without a move, and never a move
without a payment. A move whose write failed stays paid: its answer may have been lost. The next attempt at the same
generation of the bundle replaces the payment.

All policies of a Kubernetes namespace share the account, as they may share a topic namespace. It is read when the first
budget asks for it. Without budgets nothing is read, stored or counted.
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
"""Overrides that wait to be reported. While no policy runs nothing reports them, and the oldest are dropped."""


GROWN = 2.0
"""Ratio of a gap to the usual one from which it has grown."""

NOTICEABLE = 0.1
"""Seconds that it must be longer, too: below that, clocks and chance decide."""

FEWEST = 3
"""Measured gaps of a broker that make a usual one."""

KEPT = 20
"""Latest gaps kept of each broker."""


@dataclass(frozen=True, slots=True)
class MovePace:
    """How many moves may be pending to each broker, by the time that clients needed to reconnect there. Pure.

    Additive increase, multiplicative decrease: a publish gap that is much longer than the usual one of the broker
    halves the number. Each gap that is not adds one, until the policy's limit is reached. Only a sample of the moves is
    measured.

    windows: by broker, pending moves that it may get; brokers without one are at the policy's limit.

    gaps: by broker, seconds of the latest publish gaps after moves to it, oldest first.
    """

    windows: Mapping[str, float] = field(default_factory=dict)
    gaps: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def allowed(self, broker: str, limit: int) -> int:
        """Pending moves that `broker` may get at once: between 1 and `limit`."""
        return max(1, min(limit, int(self.windows.get(broker, limit))))

    def measured(self, broker: str, gap: float, limit: int) -> Self:
        """After a move to `broker` whose publishers were away for `gap` seconds. limit: of the policy."""
        before, usual = self.gaps.get(broker, ()), self.usual(broker)
        grown = usual is not None and gap >= GROWN * usual and gap - usual >= NOTICEABLE
        allowed = self.allowed(broker, limit)
        windows = {**self.windows, broker: float(max(1, allowed // 2) if grown else allowed + 1)}
        if windows[broker] >= limit:
            del windows[broker]
        return replace(self, windows=windows, gaps={**self.gaps, broker: (*before, gap)[-KEPT:]})

    def usual(self, broker: str) -> float | None:
        """Median of the measured gaps of `broker` in seconds; None: too few."""
        found = self.gaps.get(broker, ())
        return median(found) if len(found) >= FEWEST else None

    def only(self, brokers: frozenset[str]) -> Self:
        """The same of these brokers alone: others are gone."""
        gaps = {name: found for name, found in self.gaps.items() if name in brokers}
        return replace(self, windows={n: w for n, w in self.windows.items() if n in brokers}, gaps=gaps)


@dataclass(frozen=True, slots=True)
class StoredAccount:
    """What the ConfigMap holds. epoch: of the leader that stored it."""

    ledger: BudgetLedger = field(default_factory=BudgetLedger)
    pace: MovePace = field(default_factory=MovePace)
    epoch: int = 0

    def to_json(self) -> str:
        """As stored."""
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
    remedy="until it is deleted no budget allows a move",
    epoch=lambda account: account.epoch,
)


@dataclass(frozen=True, slots=True)
class Override:
    """A move of `bundle` (object name) that went beyond a budget, because of `reason`. text: what was exceeded."""

    policy: str
    bundle: str
    reason: Reason
    text: str


@dataclass(slots=True)
class BudgetAccount:
    """The account. Call `recall` before anything else, within `lock` where the ledger is changed.

    prices: what each policy's moves cost, by its last cycle. unreadable: why the stored account can't be read; empty if
    it can.
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
        """Read the account, once per process; an unreadable one again each time.

        epoch: of the leader; 0 without an election, then each start counts as one. Raises `ApiError`.
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
        # gaps that were measured before the account was read count, too
        self.ledger, self.pace = found.ledger, self.pace if self.pace.gaps else found.pace
        self._epoch = epoch or found.epoch + 1

    async def keep(self, ledger: BudgetLedger, brokers: Iterable[str]) -> None:
        """Store `ledger`, then use it. brokers: those that exist; the pace of others is forgotten.

        Raises `ApiError`: it was not stored, and nothing may be spent.
        """
        assert self._store is not None, "recall comes first"
        self.pace = self.pace.only(frozenset(brokers))
        await self._store.save(StoredAccount(ledger, self.pace, self._epoch))
        self.ledger = ledger

    def measured(self, broker: str, gap: float, limit: int) -> None:
        """A move to `broker` took its publishers `gap` seconds. limit: pending moves that its policy allows.

        The pace is stored with the next payment.
        """
        self.pace = self.pace.measured(broker, gap, limit)

    def taken(self, policy: str) -> list[Override]:
        """The overrides of a policy since the last call."""
        own = [override for override in self.overrides if override.policy == policy]
        others = [override for override in self.overrides if override.policy != policy]
        self.overrides.clear()
        self.overrides.extend(others)
        return own
