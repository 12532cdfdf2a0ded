"""The disruption budget of a policy in simulations and backtests: what its moves spend, and which ones must wait.

The rules are those of the operator. The plan leaves out bundles that cost more than is left. Each move of the plan
spends from the budget, or waits. Only moves of the same round are pending together. Budgets of TopicNamespaces are not
simulated: neither a scenario nor a history has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from trimtab_lab.simulation.deciders import Orders
from trimtab_operator.budget.prices import UNRESTRAINED, Prices, together, too_dear
from trimtab_operator.state.settings import Settings
from trimtab_strategies.budget import BudgetLedger, BudgetRules, BudgetTally, Charge, Holder
from trimtab_strategies.counterfactual.ownership import OwnerChange
from trimtab_strategies.model import ClusterLoad, Reason


@dataclass
class PlayedBudget:
    """What a policy may spend, and has spent.

    linked: whether Pulsar assigns bundles without an owner. The budget is not charged for these assignments.
    """

    rules: BudgetRules
    linked: bool = False
    _ledger: BudgetLedger = field(default_factory=BudgetLedger)
    _paid: int = 0

    @classmethod
    def of(cls, settings: Settings) -> PlayedBudget | None:
        """The budget of a policy; None if it has none."""
        if settings.budget is None:
            return None
        holder = Holder(f"policy {settings.name}", settings.budget.bounds)
        return cls(BudgetRules(settings.name, holder), settings.pulsar is not None)

    def withheld(self, load: ClusterLoad) -> ClusterLoad:
        """The load, whose `withheld` also has the bundles that the budget does not allow to move now."""
        held = too_dear(self._tally(load), Prices.of(load))
        return replace(load, withheld={**load.withheld, **dict.fromkeys(held, Reason.DISRUPTION_BUDGET)})

    def admitted(self, orders: Orders, load: ClusterLoad, *, paid: bool = True) -> Orders:
        """The orders that may be carried out now.

        A split counts as a move of the bundle to its current owner. paid: whether the orders are charged; False if the
        real moves are charged instead.
        """
        tally, prices = self._tally(load), Prices.of(load)
        reasons = [order.reason for part in (orders.moves, orders.splits) for order in part]
        routes = [OwnerChange(move.bundle, move.source, move.destination) for move in orders.moves]
        routes += [OwnerChange(split.bundle, split.source, split.source) for split in orders.splits]
        through = set[int]()
        for rows in together([(route.source, route.destination) for route in routes]):
            forced = [row for row in rows if reasons[row] in UNRESTRAINED]
            others = [row for row in rows if row not in forced]
            for unit in (*([row] for row in forced), others):
                paid_for = [row for row in unit if routes[row].source or not self.linked]
                charges = [self._charge(routes[row], reasons[row], load.now, prices) for row in paid_for]
                if tally.admit(charges) is None:
                    through.update(unit)
        self._ledger = tally.result if paid else tally.ledger
        count = len(orders.moves)
        return Orders(
            tuple(move for row, move in enumerate(orders.moves) if row in through),
            tuple(split for row, split in enumerate(orders.splits, count) if row in through),
        )

    def charge(self, changes: Iterable[OwnerChange], load: ClusterLoad, at: float) -> None:
        """Charge moves that were really made at `at` (epoch seconds)."""
        tally, prices = self._tally(load), Prices.of(load)
        for change in changes:
            tally.admit([self._charge(change, Reason.ADMIN, at, prices)])
        self._ledger = tally.result

    def _tally(self, load: ClusterLoad) -> BudgetTally:
        return BudgetTally(self.rules, self._ledger, load.now)

    def _charge(self, route: OwnerChange, reason: Reason, now: float, prices: Prices) -> Charge:
        self._paid += 1  # stands for the generation of an object, so that no charge replaces another
        space, price = route.bundle.rpartition("/")[0], prices.price(route.bundle)
        forced = str(reason) if reason in UNRESTRAINED else ""
        return Charge(now, route.bundle, self._paid, self.rules.policy, space, price, forced)
