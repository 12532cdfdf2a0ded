"""A destination for every bundle that should leave its broker, until a cap is reached.

A move is made only if it improves the balance: with the bundle, the destination must stay below the source's current
usage. So two strategies that disagree can't pass a bundle back and forth. A broker that should give bundles away
receives none. Otherwise bundles would move in a circle among almost equal brokers. After a swap, both brokers must be
below the source's current usage. A swap is made as a whole or not at all.

The rules about usage have two exceptions. If a user fixed a broker's weight, the destination may end up more used than
the source, up to `OVERLOAD_LINE`. A `judged` unload is not checked for load, because its shedder has computed the load
after the move. But a judged move of a single bundle is checked if another bundle should have left the destination and
could not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from trimtab_strategies.guard import Guarded, MoveCaps, MoveLimits
from trimtab_strategies.model import CPU, ClusterLoad, HeldBack, Move, Reason, counted
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.planner.audit import DecisionAudit
from trimtab_strategies.planner.candidates import DestinationChoice
from trimtab_strategies.planner.prediction import OVERLOAD_LINE, PredictedLoad
from trimtab_strategies.protocols import Unload
from trimtab_strategies.usage import attributed, percent

_FOR_NOW = (Reason.SAME_BROKER, Reason.BROKER_CAP, Reason.CYCLE_CAP, Reason.HOUR_CAP)
"""Reasons that do not depend on the bundle, so it would not help if the shedder offered another bundle instead."""


@dataclass
class MovePlanner:
    """The destinations of one decision.

    It takes the shedder's unloads one after the other. `unplaced` (mask, m) marks the bundles that no broker can take.
    """

    cluster: ClusterLoad
    choosing: DestinationChoice
    allowed: Guarded
    limits: MoveLimits
    caps: MoveCaps
    predicted: PredictedLoad
    rng: np.random.Generator
    memory: Mapping[str, Any]
    _left_out: dict[tuple[int, Reason], list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._giving = np.zeros(len(self.cluster.brokers), dtype=bool)
        self._seen: set[int] = set()
        self._keeping: set[int] = set()  # brokers that keep a bundle that should have left
        self._caused: dict[int, tuple[FloatArray, float]] = {}
        self.unplaced: BoolArray = np.zeros(len(self.cluster.bundles), dtype=bool)
        self.notes = DecisionAudit(self.cluster, self.choosing, self.allowed, self.caps, self.predicted)

    def moves(self, unloads: tuple[Unload, ...]) -> Iterator[Move]:
        """The accepted moves, in the order in which they should be made."""
        if not unloads:
            return
        self._weigh(unloads)
        self._giving[[unload.broker for unload in unloads if not len(unload.returned)]] = True
        for offer in self.in_turn(unloads):
            bundles = [*offer.bundles.tolist(), *offer.returned.tolist()]
            if not self._seen.isdisjoint(bundles):
                continue  # offered twice, or in an earlier round
            self._seen.update(bundles)
            answer = self.swap(offer) if len(offer.returned) else self.place(offer)
            if isinstance(answer, Reason):
                self._keeping.add(offer.broker)
                self.unplaced[bundles] = answer not in _FOR_NOW
                names = [self.cluster.bundles.names[bundle] for bundle in bundles]
                self.notes.answers.update(dict.fromkeys(bundles, answer))
                self._left_out.setdefault((offer.broker, answer), []).extend(names)
            else:
                yield from answer

    def _weigh(self, unloads: tuple[Unload, ...]) -> None:
        """Compute in one step what each bundle causes: usage (5,), and percentage points of its owner's CPU."""
        rows = [rows for unload in unloads for rows in (unload.bundles, unload.returned)]
        order = np.concatenate([*rows, np.empty(0, dtype=np.int64)])
        load = attributed(self.cluster, order)
        points = percent(load, self.cluster.brokers.limit[self.cluster.bundles.owner[order]])[:, CPU]
        self._caused = dict(zip(order.tolist(), zip(load, points.tolist(), strict=True), strict=True))

    def in_turn(self, unloads: tuple[Unload, ...]) -> Iterator[Unload]:
        """The first offers of all unloads, busiest broker first, then the second offers. So caps affect all equally.

        A broker may be the source of some judged moves and the destination of others. The moves off this broker come
        first, because they make room for the bundles that it gets.
        """
        sources = np.array([unload.broker for unload in unloads], dtype=np.int64)
        usage, filled = self.predicted.pressure(sources), {unload.destination for unload in unloads if unload.judged}
        makes_room = np.array([unload.judged and unload.broker in filled for unload in unloads], dtype=bool)
        busiest = [unloads[k] for k in np.lexsort((-usage, ~makes_room))]
        for offers in zip_longest(*map(self.offers, busiest)):
            yield from (offer for offer in offers if offer is not None)

    def offers(self, unload: Unload) -> Iterator[Unload]:
        """One offer for each bundle of `unload` that may be moved. A swap stays whole, or is dropped."""
        leaving = self.movable(unload.bundles, unload.broker)
        if not len(unload.returned):
            yield from (replace(unload, bundles=leaving[k : k + 1]) for k in range(len(leaving)))
        elif len(leaving) == len(unload.bundles) and len(self.movable(unload.returned, unload.destination)) == len(
            unload.returned
        ):
            yield unload

    def movable(self, bundles: IntArray, broker: int) -> IntArray:
        """Those of `bundles` (rows) that `broker` (row) owns and that may be moved.

        A strategy may also name bundles that do not meet these conditions.
        """
        allowed: IntArray = bundles[
            self.allowed.sheddable.allowed[bundles] & (self.cluster.bundles.owner[bundles] == broker)
        ]
        return allowed

    def place(self, offer: Unload) -> tuple[Move, ...] | Reason:
        """The move of one bundle to the broker that gets it, or why none does."""
        bundle, source = int(offer.bundles[0]), offer.broker
        if not self.caps.allow():
            return self.allowed.cap
        if not self.caps.may_send(source):
            return Reason.BROKER_CAP
        if (stays := self.choosing.may_leave(bundle)) is not None:
            return stays
        requested = self.requested(offer)
        if requested is None:
            destination = self._refused(offer) if offer.judged else self.chosen(bundle, source)
        else:
            destination = requested
        return destination if isinstance(destination, Reason) else (self.made(offer, bundle, destination),)

    def _refused(self, offer: Unload) -> Reason:
        """Why a judged move is not made: its destination receives no more bundles, or may not have this one."""
        full = offer.destination >= 0 and not self.caps.may_receive(offer.destination)
        return Reason.BROKER_CAP if full else Reason.NO_CANDIDATE

    def requested(self, offer: Unload) -> int | None:
        """The destination that the shedder named, if it may receive and stays below the source's current usage.

        For a judged move, the destination's usage matters only if the destination keeps a bundle that should have left.
        """
        requested, bundle = offer.destination, int(offer.bundles[0])
        if (
            requested < 0
            or not self.caps.may_receive(requested)
            or (self._giving[requested] and not offer.judged)
            or not self.choosing.allows(bundle, requested)
        ):
            return None
        if offer.judged and requested not in self._keeping:
            return requested
        load = self._caused[bundle][0]
        better = self.predicted.better(offer.broker, np.array([requested]), load, line=_line(offer))
        return requested if len(better) else None

    def chosen(self, bundle: int, source: int) -> int | Reason:
        """The destination that the placement chooses, or why there is none."""
        choice = self.choosing.best(bundle, self.predicted.cluster, self.memory, self.caps.full)
        self.memory = choice.memory
        if not len(choice.brokers):
            return Reason.BROKER_CAP if len(self.choosing.candidates(bundle)) else self.choosing.why_none(bundle)
        if choice.brokers.tolist() == [source]:
            return self.choosing.why_none(bundle) if self.only(bundle, source) else Reason.SAME_BROKER
        others = choice.brokers[~self._giving[choice.brokers]]
        better = self.predicted.better(source, others, self._caused[bundle][0])
        return int(better[self.rng.integers(len(better))]) if len(better) else Reason.NO_CANDIDATE

    def only(self, bundle: int, source: int) -> bool:
        """Whether the selection allows only `source` (row) for a bundle (row), although other brokers may receive."""
        return len(self.choosing.brokers) > 1 and self.choosing.candidates(bundle).tolist() == [source]

    def swap(self, offer: Unload) -> tuple[Move, ...] | Reason:
        """The moves of a swap, or why it is not made."""
        forbidden = self.capped(offer) or self.kept_apart(offer)
        if forbidden is not None:
            return forbidden
        if not offer.judged and not self.predicted.evens_out(
            offer.broker, offer.destination, self._load(offer), line=_line(offer)
        ):
            return Reason.NO_CANDIDATE
        leave = [self.made(offer, bundle, offer.destination) for bundle in offer.bundles.tolist()]
        back = replace(offer, broker=offer.destination)
        return (*leave, *(self.made(back, bundle, offer.broker) for bundle in offer.returned.tolist()))

    def capped(self, offer: Unload) -> Reason | None:
        """The cap that a swap, taken as a whole, would exceed; None if it fits."""
        leave, come = len(offer.bundles), len(offer.returned)
        if not self.caps.allow(leave + come):
            return self.allowed.cap
        ways = ((offer.broker, leave, come), (offer.destination, come, leave))
        fits = all(self.caps.may_send(end, out) and self.caps.may_receive(end, back) for end, out, back in ways)
        return None if fits else Reason.BROKER_CAP

    def kept_apart(self, offer: Unload) -> Reason | None:
        """Why a swap's bundles may not go where they should; None if they may."""
        if not self.allowed.may_receive.allowed[[offer.broker, offer.destination]].all():
            return Reason.UNSCHEDULABLE
        ways = [(bundle, offer.destination) for bundle in offer.bundles.tolist()]
        ways += [(bundle, offer.broker) for bundle in offer.returned.tolist()]
        for bundle, destination in ways:
            if (stays := self.choosing.may_leave(bundle)) is not None:
                return stays
            if not self.choosing.allows(bundle, destination):
                return Reason.ISOLATION
        return None

    def _load(self, offer: Unload) -> FloatArray:
        """The net load of a swap (5,): what leaves minus what comes back."""
        nothing = np.zeros(5)
        leaves = sum((self._caused[bundle][0] for bundle in offer.bundles.tolist()), nothing)
        returns = sum((self._caused[bundle][0] for bundle in offer.returned.tolist()), nothing)
        return leaves - returns

    def made(self, offer: Unload, bundle: int, destination: int) -> Move:
        """Make the move of a bundle (row), and count it in the caps and the prediction."""
        cluster, source = self.cluster, offer.broker
        load, cpu = self._caused[bundle]
        self.notes.move(bundle, source, destination, load, self._giving)
        self.predicted.move(source, destination, load, cluster.bundles.short[bundle])
        self.caps.count(source, destination)
        self.memory = self.choosing.chosen(bundle, destination, self.predicted.cluster, self.memory)
        names = cluster.brokers.names
        return Move(cluster.bundles.names[bundle], names[source], names[destination], offer.reason, cpu)

    def held_back(self) -> list[HeldBack]:
        """The bundles that did not move, one entry per source and reason."""
        if not self._left_out:
            return []
        words = {
            Reason.SAME_BROKER: "the placement chose no other broker",
            Reason.NO_CANDIDATE: "no broker would be better off than the source is now",
            Reason.ISOLATION: "isolation policies allow no such move",
            Reason.ANTI_AFFINITY: "the anti-affinity group would not be kept apart",
            Reason.TOPIC_LIMIT: "the other brokers have as many topics as a broker may have",
            Reason.VERSION: "the other brokers run an older version",
            Reason.LOAD_MANAGER: "the other brokers run another load manager",
            Reason.UNEVEN: "the other brokers have more bundles of the namespace",
            Reason.ZONE: "the brokers of the namespace's zone have room",
            Reason.UNSCHEDULABLE: "one of the two brokers of a swap takes no bundles",
            Reason.BROKER_CAP: f"at most {counted(self.limits.max_moves_per_broker, 'move')} per broker and cycle"
            + (", and fewer while a broker ramps up" if self.limits.ramp_up else ""),
            Reason.CYCLE_CAP: f"at most {counted(self.limits.cycle_cap(len(self.cluster.brokers)), 'move')} per cycle",
            Reason.HOUR_CAP: f"at most {counted(self.limits.hour_cap(len(self.cluster.brokers)), 'move')} per hour",
        }
        found = [(self.cluster.brokers.names[broker], why, names) for (broker, why), names in self._left_out.items()]
        return [
            HeldBack(
                broker,
                why,
                f"{counted(len(names), 'bundle')}, first {names[0]}: {words.get(why, 'no broker may receive')}",
                len(names),
            )
            for broker, why, names in found
        ]


def _line(offer: Unload) -> float:
    """Weighted usage (ratio) that both brokers of this unload may reach in any case."""
    return OVERLOAD_LINE if offer.fixed else 0.0
