"""Disruption budgets: how much moves may interrupt, how much they have spent, and when the next move fits. No I/O.

A move makes its clients reconnect. A policy and a namespace can each have a budget that bounds these disruptions. If
both have one, a move must fit both.

| limit | window | counts |
|---|---|---|
| `CONNECTIONS` | hour | disconnected clients, in percent of the clients of the budget's policy or namespace |
| `IN_FLIGHT` | now | pending moves of one namespace |

The window slides: a charge counts until it is an hour old. So the bound holds for each hour, whenever it begins. A
charge is identified by its bundle and the generation that the Bundle object had when the move was decided. The API
server accepts only one move for that generation. If the move is written again, the new charge replaces the old.

Moves that no budget holds back (a drain, a lost broker, a person) are charged, too. Their charges are marked as forced.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate
from typing import Self

HOUR = 3600.0

TINY = 1e-6
"""Sums that differ by less than this count as equal: the difference is a rounding error."""


class BudgetLimit(StrEnum):
    """The limits of a budget, by the names of their fields."""

    CONNECTIONS = "connectionsPercentPerHour"
    IN_FLIGHT = "movesInFlight"


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """The bounds of one policy or namespace. None: not bounded.

    connections: percent per hour. in_flight: pending moves.
    """

    connections: float | None = None
    in_flight: int | None = None

    def bound(self, limit: BudgetLimit) -> float | None:
        """The bound of `limit`; None: there is none."""
        return self.connections if limit is BudgetLimit.CONNECTIONS else self.in_flight


NO_BUDGET = DisruptionBudget()
"""Bounds nothing."""


@dataclass(frozen=True, slots=True)
class Price:
    """The clients that a move disconnects, in percent of all clients of its policy or namespace. NaN: not measured."""

    of_policy: float = 0.0
    of_namespace: float = 0.0


@dataclass(frozen=True, slots=True)
class Charge:
    """What one move was charged, at `at` (epoch seconds). namespace: ``tenant/name``.

    generation: the generation of the Bundle object when the move was decided. forced: why no budget may hold the move
    back, or empty. over: whether it exceeded a budget.
    """

    at: float
    bundle: str
    generation: int
    policy: str
    namespace: str
    price: Price = field(default_factory=Price)
    forced: str = ""
    over: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Equal for all writes of the same move."""
        return self.bundle, self.generation


@dataclass(frozen=True, slots=True)
class BudgetLedger:
    """What was spent. charges: the charges of the last hour, oldest first."""

    charges: tuple[Charge, ...] = ()

    def at(self, now: float) -> Self:
        """The ledger at `now`, without expired charges. A time in the future (the clock was set back) becomes `now`."""
        charges = tuple(
            charge if charge.at <= now else replace(charge, at=now) for charge in self.charges if now - charge.at < HOUR
        )
        return replace(self, charges=charges)

    def charged(self, charges: Sequence[Charge], now: float) -> Self:
        """The ledger with `charges` added. Each replaces an earlier charge for the same move."""
        before, keys = self.at(now), {charge.key for charge in charges}
        kept = (charge for charge in before.charges if charge.key not in keys)
        return replace(before, charges=tuple(sorted((*kept, *charges), key=lambda charge: charge.at)))


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why a move must wait: `limit` of `holder` allows `bound`, of which `spent` is used, and the move costs `price`.

    holder: ``policy NAME`` or ``TopicNamespace NAME``. price: NaN if it was not measured. frees_at: epoch seconds from
    which the move fits. None if unknown: it waits until a pending move ends, or its price is NaN or above the bound.
    """

    holder: str
    limit: BudgetLimit
    bound: float
    spent: float
    price: float
    frees_at: float | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """A policy or a namespace with a budget. name: `Shortfall.holder`."""

    name: str
    budget: DisruptionBudget


@dataclass(frozen=True, slots=True)
class BudgetRules:
    """The budgets that apply to the bundles of one policy.

    policy: its name. own: its budget. spaces: budgets of namespaces, by ``tenant/name``.
    """

    policy: str
    own: Holder
    spaces: Mapping[str, Holder] = field(default_factory=dict)

    def holders(self, namespace: str) -> tuple[Holder, ...]:
        """The budgets that apply to a namespace's bundles."""
        space = self.spaces.get(namespace)
        return (self.own,) if space is None else (self.own, space)

    def stricter(self, namespace: str, limit: BudgetLimit) -> tuple[float, str] | None:
        """The smaller bound of `limit`, and the name of its holder; None: there is no bound."""
        found = [(bound, one.name) for one in self.holders(namespace) if (bound := one.budget.bound(limit)) is not None]
        return min(found, default=None)

    def bounds(self, limit: BudgetLimit) -> bool:
        """Whether any budget bounds `limit`."""
        return any(one.budget.bound(limit) is not None for one in (self.own, *self.spaces.values()))

    @property
    def empty(self) -> bool:
        """Whether nothing is bounded."""
        return not any(self.bounds(limit) for limit in BudgetLimit)

    @property
    def over_time(self) -> bool:
        """Whether a limit is bounded that needs the charges of the past."""
        return self.bounds(BudgetLimit.CONNECTIONS)


@dataclass(slots=True)
class BudgetTally:
    """The sums of the windows that end at `now`, updated with each admitted move of a plan.

    in_flight: names of the bundles with a pending move, by namespace. made: the charges of the admitted moves.
    """

    rules: BudgetRules
    ledger: BudgetLedger
    now: float
    in_flight: Mapping[str, frozenset[str]] = field(default_factory=dict)
    made: list[Charge] = field(default_factory=list)
    _charges: dict[tuple[str, int], Charge] = field(init=False)
    _sums: defaultdict[tuple[str, str], float] = field(init=False)
    _pending: dict[str, set[str]] = field(init=False)
    _spent: dict[tuple[str, str], tuple[list[float], list[float]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.ledger = self.ledger.at(self.now)
        self._pending = {space: set(names) for space, names in self.in_flight.items()}
        self._charges, self._sums = {}, defaultdict(float)
        for charge in self.ledger.charges:
            self._note(charge)

    def _note(self, charge: Charge) -> Charge | None:
        """Count `charge` instead of an earlier charge for the same move, and return the earlier one."""
        before = self._charges.get(charge.key)
        self._add(before, -1)
        self._add(charge, 1)
        self._charges[charge.key] = charge
        return before

    def _add(self, charge: Charge | None, sign: int) -> None:
        for account, cost in _accounts(charge):
            self._sums[account] += sign * cost
            self._spent.pop(account, None)

    def admit(self, charges: Sequence[Charge]) -> tuple[Charge, Shortfall] | None:
        """Count these moves if all of them fit. Otherwise count none, and return the first that does not fit, and why.

        A forced charge always fits.
        """
        done = list[tuple[Charge, Charge | None, bool]]()
        for charge in charges:
            short = None if charge.forced else self._short(charge)
            if short is not None:
                for made, before, moving in reversed(done):
                    self._withdraw(made, before, moving=moving)
                return charge, short
            pending = self._pending.setdefault(charge.namespace, set())
            done.append((charge, self._note(charge), charge.bundle in pending))
            pending.add(charge.bundle)
            self.made.append(charge)
        return None

    def _short(self, charge: Charge) -> Shortfall | None:
        return self.shortfall(charge.bundle, charge.namespace, charge.price, charge.generation)

    def _withdraw(self, charge: Charge, before: Charge | None, *, moving: bool) -> None:
        """Undo the last charge. before: the one it replaced. moving: whether its bundle had a pending move before."""
        self._add(charge, -1)
        self._add(before, 1)
        if before is None:
            del self._charges[charge.key]
        else:
            self._charges[charge.key] = before
        self.made.pop()
        if not moving:
            self._pending[charge.namespace].discard(charge.bundle)

    @property
    def result(self) -> BudgetLedger:
        """The ledger with the admitted moves."""
        return self.ledger.charged(self.made, self.now)

    def clients_of_policy(self) -> float:
        """Percent of the policy's clients that were disconnected in the last hour."""
        return self._sums[_POLICY, self.rules.policy]

    def clients_of(self, namespace: str) -> float:
        """Percent of a namespace's clients that were disconnected in the last hour."""
        return self._sums[_SPACE, namespace]

    def pending_of(self, namespace: str) -> frozenset[str]:
        """The bundles of a namespace with a pending move."""
        return frozenset(self._pending.get(namespace, ()))

    def shortfall(
        self, bundle: str, namespace: str, price: Price, generation: int | None = None, *, dated: bool = True
    ) -> Shortfall | None:
        """Why a move of `bundle` must wait; None if it fits. dated: whether to compute `frees_at`.

        generation: the generation of the Bundle object. An earlier charge for the same move does not count as spent.
        """
        paid = None if generation is None else self._charges.get((bundle, generation))
        return self._pending_short(bundle, namespace) or self._clients_short(namespace, price, paid, dated=dated)

    def _pending_short(self, bundle: str, namespace: str) -> Shortfall | None:
        if (found := self.rules.stricter(namespace, BudgetLimit.IN_FLIGHT)) is None:
            return None
        others = len(self._pending.get(namespace, set()) - {bundle})
        if others + 1 <= found[0]:
            return None
        return Shortfall(found[1], BudgetLimit.IN_FLIGHT, found[0], float(others), 1.0)

    def _clients_short(self, namespace: str, price: Price, paid: Charge | None, *, dated: bool) -> Shortfall | None:
        own, space, limit = self.rules.own, self.rules.spaces.get(namespace), BudgetLimit.CONNECTIONS
        short = self._sum_short(own, limit, (_POLICY, self.rules.policy), price.of_policy, paid, dated=dated)
        if short is None and space is not None:
            return self._sum_short(space, limit, (_SPACE, namespace), price.of_namespace, paid, dated=dated)
        return short

    def _sum_short(
        self,
        holder: Holder,
        limit: BudgetLimit,
        account: tuple[str, str],
        price: float,
        paid: Charge | None,
        *,
        dated: bool,
    ) -> Shortfall | None:
        if (bound := holder.budget.bound(limit)) is None:
            return None
        spent = self._sums[account] - sum(cost for name, cost in _accounts(paid) if name == account)
        if spent + price <= bound + TINY:
            return None
        frees_at = self.frees_at(account, bound, price) if dated else None
        return Shortfall(holder.name, limit, bound, spent, price, frees_at)

    def frees_at(self, account: tuple[str, str], bound: float, price: float) -> float | None:
        """When enough charges of `account` will have expired for `price` to fit; None: never, or an unknown price."""
        if not price <= bound + TINY:
            return None
        times, spent = self._history(account)
        place = bisect_left(spent, self._sums[account] + price - bound - TINY)
        return times[place] + HOUR if place < len(times) else None

    def _history(self, account: tuple[str, str]) -> tuple[list[float], list[float]]:
        """The times of the charges to `account`, oldest first, and the sum of the charges up to each of them."""
        if account not in self._spent:
            costs = [(charge.at, dict(_accounts(charge)).get(account, 0.0)) for charge in self._charges.values()]
            paid = sorted((at, cost) for at, cost in costs if cost)
            self._spent[account] = [at for at, _ in paid], list(accumulate(cost for _, cost in paid))
        return self._spent[account]


_POLICY, _SPACE = "policy", "namespace"


def _accounts(charge: Charge | None) -> tuple[tuple[tuple[str, str], float], ...]:
    """The accounts that a charge counts towards, and how much. An unknown price counts as 0."""
    if charge is None:
        return ()
    price = charge.price
    return (
        ((_POLICY, charge.policy), _known(price.of_policy)),
        ((_SPACE, charge.namespace), _known(price.of_namespace)),
    )


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else value
