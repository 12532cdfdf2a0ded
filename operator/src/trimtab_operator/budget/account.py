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
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.budget.prices import Prices
from trimtab_operator.kube.client import Api
from trimtab_operator.kube.config_map_store import (
    ConfigMapStore,
    StoredFormat,
    UnreadableContentError,
    check_version,
    reading,
)
from trimtab_operator.kube.naming import BUDGET
from trimtab_strategies.budget import BudgetLedger, Charge, Price
from trimtab_strategies.model import Reason

_KEY = "budget.json.gz"

MOST_OVERRIDES = 1000
"""Maximum number of overrides kept for `taken`. While no policy runs, none are taken, and the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class StoredAccount:
    """The content of the ConfigMap. epoch: that of the leader that stored it."""

    ledger: BudgetLedger = field(default_factory=BudgetLedger)
    epoch: int = 0

    def to_json(self) -> str:
        """The account as JSON, to be stored."""
        value = {
            "version": 1,
            "epoch": self.epoch,
            "charges": [_listed(charge) for charge in self.ledger.charges],
        }
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> StoredAccount:
        """Read back; raises `UnreadableContentError`."""
        with reading("the spent budget"):
            value = json.loads(text)
            check_version("the spent budget", value["version"])
            return cls(BudgetLedger(tuple(_charge(found) for found in value["charges"])), int(value["epoch"]))


def _listed(charge: Charge) -> list[Any]:
    price = charge.price
    return [
        charge.at, charge.bundle, charge.generation, charge.policy, charge.namespace,
        price.of_policy, price.of_namespace, charge.forced, charge.over,
    ]  # fmt: skip


def _charge(found: list[Any]) -> Charge:
    at, bundle, generation, policy, namespace, of_policy, of_namespace, forced, over = found
    price = Price(float(of_policy), float(of_namespace))
    return Charge(float(at), str(bundle), int(generation), str(policy), str(namespace), price, str(forced), bool(over))


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
        self.ledger = found.ledger
        self._epoch = epoch or found.epoch + 1

    async def keep(self, ledger: BudgetLedger) -> None:
        """Store `ledger`, then use it. Raises `ApiError` if it was not stored. Then nothing may be spent."""
        assert self._store is not None, "recall comes first"
        await self._store.save(StoredAccount(ledger, self._epoch))
        self.ledger = ledger

    def taken(self, policy: str) -> list[Override]:
        """The overrides of a policy since the last call."""
        own = [override for override in self.overrides if override.policy == policy]
        others = [override for override in self.overrides if override.policy != policy]
        self.overrides.clear()
        self.overrides.extend(others)
        return own
