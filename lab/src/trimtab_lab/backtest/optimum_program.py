"""The best plan in hindsight as a mixed-integer program.

The columns are the variables. One column says whether a bundle is on a broker in a cycle: 0 or 1. In each cycle
there is one such column for each bundle and each broker that the bundle may be on. Another column says whether the
bundle moves after the cycle, which disconnects its clients. A broker's usage follows from its bundles, as in a replay.
The largest and the smallest usage are columns, too:

    minimise    sum of price x (largest - smallest)  +  sum of price x clients that moves cut  +  minutes above 85 %

Changes that cost nothing in a replay cost nothing here, too: a pinned bundle is where it really was, a bundle without a
broker gets one immediately, and a new bundle begins where it really was. Like a policy, the plan may not move a bundle
that is pinned, that was never measured, or whose namespace is left out of balancing. Like a policy, it may not send a
bundle to a broker that the isolation of the bundle's namespace excludes, that is not ready, or that takes no bundles.
Limits, cool-downs, intervals and the filters of a policy do not bind the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from trimtab_lab.backtest.solver import MixedProgram
from trimtab_lab.backtest.trace import Trace, days
from trimtab_strategies.counterfactual.imbalance import HOT, busiest, daily_cost
from trimtab_strategies.counterfactual.recorded_cycle import RecordedCycle
from trimtab_strategies.filters import BrokerSelection
from trimtab_strategies.filters.params import SelectionParams
from trimtab_strategies.guard import MoveLimits, movable_bundles
from trimtab_strategies.model import CPU, NETWORK_IN, NETWORK_OUT, ClusterLoad, Move, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray
from trimtab_strategies.planner.candidates import DestinationChoice
from trimtab_strategies.usage import network_limits

NOWHERE = ""
"""The place of a bundle without a broker."""

_ISOLATION = BrokerSelection(params=SelectionParams(max_topics=10**9))  # no effective limit of topics

_FULL = 100.0  # percent: no broker uses more CPU than it has, unless that was measured

Places = Mapping[str, int]
"""Each broker that a bundle may be on in a cycle -> the column that says whether the bundle is there."""


@dataclass(frozen=True, slots=True)
class CostPrices:
    """The prices of the parts of the cost, in points, over k cycles.

    area: (k,) per point between the brokers. hot: (k,) per broker above `HOT`. client: per disconnected client.
    """

    area: FloatArray
    hot: FloatArray
    client: float

    @classmethod
    def of(cls, cycles: Sequence[RecordedCycle], weight: float) -> Self:
        """The prices with which the program minimises the `cost` of a replay of `cycles`.

        `area` is NaN if no cycle has two measured brokers.
        """
        seconds = Trace(times=[cycle.load.now for cycle in cycles]).seconds()
        hours = float(seconds.sum()) / 3600
        two = [np.isfinite(busiest(cycle.load.brokers)).sum() > 1 for cycle in cycles]
        counted = np.where(two, seconds, 0.0)
        area = counted / counted.sum() if counted.any() else np.full(len(cycles), np.nan)
        hot = [daily_cost(area=0, cut=0, hot=each / 60 / hours) for each in seconds.tolist()]
        known = [cycle.clients for cycle in cycles if cycle.clients > 0]
        clients = float(np.nanmean([cycle.clients for cycle in cycles])) if known else math.inf
        client = daily_cost(area=0, cut=100 / clients / days(hours), hot=0, weight=weight)
        return cls(area, np.array(hot), client)


class _UsageLine(NamedTuple):
    """Usage of a resource, percent: constant + sum of factors x columns.

    highest: the usage with all bundles that may come to the broker. most: the most that the broker can use.
    """

    constant: float
    factors: Mapping[int, float]
    highest: float
    most: float

    def within(self, other: _UsageLine) -> bool:
        """Whether this line never exceeds `other`."""
        below = all(factor <= other.factors.get(column, 0.0) for column, factor in self.factors.items())
        return self.constant <= other.constant and below


@dataclass(frozen=True)
class _Step:
    """What may happen between two cycles. movable: (m,) bundles that may leave a broker that serves them."""

    load: ClusterLoad
    ready: frozenset[str]
    movable: BoolArray
    _allowed: Sequence[tuple[str, ...]]
    _group: Sequence[int]

    @classmethod
    def after(cls, load: ClusterLoad) -> Self:
        """What may happen after the cycle of `load`."""
        brokers, bundles = load.brokers, load.bundles
        ready = frozenset(name for name, there in zip(brokers.names, brokers.ready, strict=True) if there)
        owned = replace(bundles, owner=np.zeros_like(bundles.owner), last_unload=np.full(len(bundles), np.nan))
        movable = movable_bundles(replace(load, bundles=owned), MoveLimits()).allowed
        apart = {space: replace(policy, anti_affinity_group="") for space, policy in load.policies.items()}
        receivers = np.flatnonzero(brokers.ready & brokers.schedulable)
        if not apart:
            return cls(load, ready, movable, [_named(load, receivers)], [0] * len(bundles))
        free = replace(load, policies=apart)
        found = DestinationChoice(None, receivers, _ISOLATION.on(free)).destinations(free)
        assert found is not None  # there is a selection
        allowed = [_named(load, np.flatnonzero(row)) for row in found.allowed]
        return cls(load, ready, movable, allowed, found.group.tolist())

    def destinations(self, bundle: int) -> tuple[str, ...]:
        """The brokers that a bundle (row) may be sent to."""
        return self._allowed[self._group[bundle]]


def _named(load: ClusterLoad, rows: Iterable[int]) -> tuple[str, ...]:
    return tuple(load.brokers.names[row] for row in rows)


@dataclass
class PlanProgram:
    """The program of the cycles that `add` has added. prices: the prices for all cycles.

    places: for each cycle the places of each bundle. given: for each cycle the bundles whose place is fixed. start:
    values of columns for the plan that moves nothing.
    """

    prices: CostPrices
    program: MixedProgram = field(default_factory=MixedProgram)
    places: list[dict[str, Places]] = field(default_factory=list)
    given: list[set[str]] = field(default_factory=list)
    start: dict[int, float] = field(default_factory=dict)
    _steps: list[_Step] = field(default_factory=list)
    _still: dict[str, str] = field(default_factory=dict)

    def add(self, cycle: RecordedCycle, begins: Mapping[str, str]) -> None:
        """Add the next cycle. begins: the broker that each new bundle begins with, by name."""
        load, before = cycle.load, self.places[-1] if self.places else {}
        places: dict[str, Places] = {}
        given = set()
        for row, name in enumerate(load.bundles.names):
            then = load.bundles.owner[row]
            if load.bundles.pinned[row] and then >= 0:
                places[name] = self._fixed(name, load.brokers.names[then])
                given.add(name)
            elif name not in before:
                places[name] = self._fixed(name, begins[name])
                given.add(name)
            else:
                places[name] = self._followed(name, before[name])
        self.places.append(places)
        self.given.append(given)
        self._steps.append(_Step.after(load))
        self._count(cycle, places)

    def moves(self, values: FloatArray) -> Iterator[list[Move]]:
        """The moves of a solution after each cycle; the source of a bundle that no broker serves is empty."""
        chosen = [
            {name: max(found, key=lambda broker: float(values[found[broker]])) for name, found in places.items()}
            for places in self.places
        ]
        for number, (now, step) in enumerate(zip(chosen, self._steps, strict=True)):
            later = chosen[number + 1] if number + 1 < len(chosen) else {}
            free = self.given[number + 1] if later else set()
            yield [
                Move(name, broker if broker in step.ready else "", later[name], Reason.OVERLOADED)
                for name, broker in now.items()
                if name in later and name not in free and later[name] != broker
            ]

    def _fixed(self, name: str, broker: str) -> Places:
        self._still[name] = broker
        return {broker: self.program.column(least=1.0)}

    def _followed(self, name: str, before: Places) -> Places:
        """The places of a bundle in the next cycle. Adds the rows that tie them to the places `before`."""
        step, program = self._steps[-1], self.program
        row = step.load.bundles.index[name]
        movable = bool(step.movable[row])
        stays = [broker for broker in before if broker in step.ready]
        left = [column for broker, column in before.items() if broker not in step.ready]
        goes = step.destinations(row) if movable or left else ()
        stays += [] if goes else [broker for broker in before if broker not in step.ready]
        if len(before) == 1 and {*stays, *goes} == {*before}:
            return before
        places = {broker: program.column(whole=True) for broker in dict.fromkeys([*stays, *goes])}
        program.row(dict.fromkeys(places.values(), 1.0), least=1.0, most=1.0)
        price = self.prices.client * float(np.nan_to_num(step.load.bundles.sessions[row]))
        arrives = dict.fromkeys(left, -1.0) | ({program.column(cost=price): -1.0} if movable else {})
        for broker, column in places.items():
            terms = {column: 1.0, **({before[broker]: -1.0} if broker in before else {})}
            program.row(terms | (arrives if broker in goes else {}), most=0.0)
        self._begin(name, places, stays or goes)
        return places

    def _begin(self, name: str, places: Places, stays: Sequence[str]) -> None:
        """Note where the bundle is in the plan that moves nothing."""
        self._still[name] = self._still[name] if self._still[name] in stays else stays[0]
        self.start |= {column: float(broker == self._still[name]) for broker, column in places.items()}

    def _count(self, cycle: RecordedCycle, places: Mapping[str, Places]) -> None:
        """Add what the cycle costs."""
        number, known = len(self.places) - 1, np.flatnonzero(np.isfinite(busiest(cycle.load.brokers)))
        brokers = [list(_lines(cycle, broker, places, self.program)) for broker in known.tolist()]
        for lines in brokers:
            self._add_hot(lines, float(self.prices.hot[number]))
        if len(brokers) < 2:  # noqa: PLR2004 - one broker has no distance
            return
        price = float(self.prices.area[number])
        lowest = min(max(line.highest for line in lines) for lines in brokers)
        largest = self.program.column(cost=price, most=math.inf)
        smallest = self.program.column(cost=-price, most=max(lowest, 0.0))
        self.program.row({largest: 1.0, smallest: -1.0}, least=0.0)
        for lines in brokers:
            self._keep_above(largest, lines)
            self._keep_below(smallest, lines, max(lowest, 0.0))

    def _add_hot(self, lines: Sequence[_UsageLine], price: float) -> None:
        """Add a column that is 1 if the broker is above `HOT`."""
        if not (hot := [line for line in lines if line.highest > HOT]):
            return
        above = self.program.column(cost=price, whole=True)
        for line in hot:
            self.program.row({**line.factors, above: HOT - line.highest}, most=HOT - line.constant)

    def _keep_above(self, largest: int, lines: Sequence[_UsageLine]) -> None:
        """Require that the largest value is at least the broker's usage, which is at most its capacity."""
        for line in lines:
            terms = {largest: 1.0, **{column: -factor for column, factor in line.factors.items()}}
            if line.highest > line.most:
                full = self.program.column(whole=True)
                self.program.row({largest: 1.0, full: -line.most}, least=0.0)
                terms[full] = line.highest - line.most
            self.program.row(terms, least=line.constant)

    def _keep_below(self, smallest: int, lines: Sequence[_UsageLine], most: float) -> None:
        """Require that the smallest value is at most the usage of the broker's busiest resource.

        A usage below 0 counts as 0. most: upper bound of the smallest value.
        """
        ways = _undominated(lines)
        if len(ways) == 1 and ways[0].constant >= 0:
            terms = {column: -factor for column, factor in ways[0].factors.items()}
            self.program.row({smallest: 1.0, **terms}, most=ways[0].constant)
            return
        if max(line.constant for line in ways) < 0:
            ways.append(_UsageLine(0.0, {}, 0.0, math.inf))
        chosen = [self.program.column(whole=True) for _ in ways]
        self.program.row(dict.fromkeys(chosen, 1.0), least=1.0, most=1.0)
        for choice, line in zip(chosen, ways, strict=True):
            slack = max(most - line.constant, 0.0)
            terms = {smallest: 1.0, choice: slack, **{column: -factor for column, factor in line.factors.items()}}
            self.program.row(terms, most=line.constant + slack)


def _undominated(lines: Sequence[_UsageLine]) -> list[_UsageLine]:
    """The lines, except each one that never exceeds some other line."""
    kept: list[_UsageLine] = []
    for line in lines:
        if not any(line.within(other) for other in kept):
            kept = [*(other for other in kept if not other.within(line)), line]
    return kept


def _lines(
    cycle: RecordedCycle, broker: int, places: Mapping[str, Places], program: MixedProgram
) -> Iterator[_UsageLine]:
    """A line for each measured resource of a broker (row): the usage, depending on which bundles the broker has."""
    load = cycle.load
    brokers, name, there = load.brokers, load.brokers.names[broker], load.bundles.owner == broker
    may = [(row, found[name]) for row, found in enumerate(places[one] for one in load.bundles.names) if name in found]
    fixed = np.zeros(len(there), dtype=bool)
    fixed[[row for row, column in may if program.least[column] > 0]] = True
    free = [(row, column) for row, column in may if not fixed[row]]
    known = np.isfinite(network_limits(brokers.limit[[broker]])[0])
    amounts = {
        CPU: cycle.slope[broker] * cycle.work,
        NETWORK_IN: cycle.wanted[:, 2] * known[0],
        NETWORK_OUT: cycle.wanted[:, 3] * known[1],
    }
    for resource, amount in amounts.items():
        limit, used = float(brokers.limit[broker, resource]), float(brokers.usage[broker, resource])
        if not (limit > 0 and math.isfinite(used)):
            continue
        points = 100 * amount / limit
        constant = 100 * used / limit - float(points[there].sum()) + float(points[fixed].sum())
        factors = {column: float(points[row]) for row, column in free if points[row] > 0}
        highest = constant + sum(factors.values())
        yield _UsageLine(constant, factors, highest, max(_FULL, 100 * used / limit) if resource == CPU else math.inf)
