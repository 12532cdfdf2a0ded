"""A record of what a decision considered, written while the decision is made. It never changes the decision.

The constants bound the cost for a cluster of any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab_strategies.guard import Guarded, MoveCaps
from trimtab_strategies.model import CPU, TRAFFIC, ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray
from trimtab_strategies.model.plan import Candidates, Considered, Rejected, Staying
from trimtab_strategies.planner.candidates import DestinationChoice
from trimtab_strategies.planner.prediction import PredictedLoad
from trimtab_strategies.usage import bundle_throughput, percent

MOVES = 20
"""Alternative destinations are recorded for at most this many moves of a decision, the first ones."""
REJECTED = 5
"""Number of rejected brokers that are listed one by one for each move. The others are grouped by reason."""
BROKERS = 10
"""Number of brokers whose bundles are examined.

First come those that should shed, then those held back for a reason, then the most used.
"""
BUNDLES = 10
"""Number of bundles that are listed for each of these brokers, the largest first."""


@dataclass
class DecisionAudit:
    """The record of one decision. answers: bundle (row) -> why no destination was found for it."""

    cluster: ClusterLoad
    choosing: DestinationChoice
    allowed: Guarded
    caps: MoveCaps
    predicted: PredictedLoad
    answers: dict[int, Reason] = field(default_factory=dict)
    _moved: set[int] = field(default_factory=set)
    _candidates: list[Candidates] = field(default_factory=list)

    def move(self, bundle: int, source: int, destination: int, load: FloatArray, giving: BoolArray) -> None:
        """Record the move of a bundle (row) that causes `load` (5,). Call it before the move is counted anywhere.

        giving: brokers (mask, n) that should give bundles away and therefore receive none.
        """
        self._moved.add(bundle)
        self.answers.pop(bundle, None)
        if len(self._candidates) < MOVES:
            self._candidates.append(self._weighed(bundle, source, destination, load, giving))

    def _weighed(self, bundle: int, source: int, destination: int, load: FloatArray, giving: BoolArray) -> Candidates:
        names = self.cluster.brokers.names
        all_brokers = np.arange(len(names))
        after = self.predicted.with_load(all_brokers, load) * 100
        before = float(self.predicted.pressure(np.array([source]))[0]) * 100
        full, others = np.zeros(len(names), dtype=bool), np.ones(len(names), dtype=bool)
        full[self.caps.full] = True
        verdict = self.allowed.may_receive
        if (selected := self.choosing.verdict(bundle)) is not None:
            verdict = verdict.narrowed(self.choosing.brokers, selected)
        verdict = verdict.rule_out(full, Reason.BROKER_CAP).rule_out(giving, Reason.OVERLOADED)
        verdict = verdict.rule_out(~(after < before), Reason.NO_CANDIDATE).rule_out(others, Reason.NOT_CHOSEN)
        reasons, order = verdict.reasons(), np.argsort(after, kind="stable")  # NaN comes last
        reasons[source] = reasons[destination] = None
        rejected = [(row, why) for row in order.tolist() if (why := reasons[row]) is not None]
        rest: dict[Reason, list[str]] = {}
        for row, why in rejected[REJECTED:]:
            rest.setdefault(why, []).append(names[row])
        return Candidates(
            self.cluster.bundles.names[bundle],
            before,
            float(after[destination]),
            tuple(Rejected(names[row], why, float(after[row])) for row, why in rejected[:REJECTED]),
            {why: tuple(found) for why, found in rest.items()},
        )

    def considered(self, sources: Sequence[int], held_back: Sequence[HeldBack]) -> Considered:
        """The whole record. sources: brokers (rows) that should shed. held_back: why others shed nothing."""
        reasons = {held.subject: held.reason for held in reversed(held_back)}
        rows = self._brokers(sources, reasons)
        staying = [stays for row in rows for stays in self._staying(row, row in sources, reasons)]
        names, bundles = self.cluster.brokers.names, self.cluster.bundles
        counts = {names[row]: len(bundles.owned_by(row)) for row in rows}
        return Considered(tuple(self._candidates), tuple(staying), counts)

    def _brokers(self, sources: Sequence[int], reasons: Mapping[str, Reason]) -> list[int]:
        """Brokers (rows): first those that should shed, then those with a reason, then the most used."""
        names = self.cluster.brokers.names
        usage = self.predicted.pressure(np.arange(len(names)))
        busiest = np.argsort(-np.where(np.isfinite(usage), usage, -np.inf), kind="stable").tolist()
        wanted = set(sources)
        first = [row for row in busiest if row in wanted]
        first += [row for row in busiest if row not in wanted and names[row] in reasons]
        return list(dict.fromkeys([*first, *busiest]))[:BROKERS]

    def _staying(self, broker: int, gives: bool, reasons: Mapping[str, Reason]) -> list[Staying]:  # noqa: FBT001 - readable at its only call
        """The largest bundles of a broker (row) that stay, and why."""
        cluster, name = self.cluster, self.cluster.brokers.names[broker]
        rows = cluster.bundles.owned_by(broker)
        flow = np.nan_to_num(bundle_throughput(cluster, rows), nan=0.0, posinf=0.0, neginf=0.0)
        used = float(percent(cluster.brokers.usage[broker], cluster.brokers.limit[broker])[CPU])
        share = flow / flow.sum() if flow.sum() > 0 else np.full(len(rows), np.nan)
        points = np.multiply(used, share, out=np.zeros(len(rows)), where=share != 0)  # since 0 * inf is NaN
        otherwise = Reason.NOT_CHOSEN if gives else reasons.get(name, reasons.get("", Reason.NOT_CHOSEN))
        no_part = self.allowed.may_shed.reason(broker)
        most = np.argsort(-flow, kind="stable")[: BUNDLES + len(self._moved)]
        found = [
            Staying(cluster.bundles.names[row], name, *self._why(row, no_part, otherwise, float(points[k])))
            for k, row in zip(most.tolist(), rows[most].tolist(), strict=True)
            if row not in self._moved
        ]
        return found[:BUNDLES]

    def _why(self, bundle: int, no_part: Reason | None, otherwise: Reason, points: float) -> tuple[Reason, float, str]:
        if (ruled_out := self.allowed.sheddable.reason(bundle)) is not None:
            return ruled_out, points, self._missing(bundle) if ruled_out is Reason.NO_LOAD_DATA else ""
        return no_part or self.answers.get(bundle, otherwise), points, ""

    def _missing(self, bundle: int) -> str:
        """The averages of a bundle (row) that are unknown."""
        unknown = ~(self.cluster.bundles.short[bundle] >= 0)
        names = [name for name, gone in zip(TRAFFIC, unknown.tolist(), strict=True) if gone]
        return f"no {', '.join(names)}"
