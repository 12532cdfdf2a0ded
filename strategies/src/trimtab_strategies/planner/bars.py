"""What bars the moves that a shedder would make: the true reason when nothing moves.

A shedder sees only bundles that may move, and only brokers that may have them. If nothing is left, it reports that no
move is worth its price, or that a broker has no bundles. That sends a person to the wrong setting. So if it moves
nothing while some bundles are barred, it runs once more as if none were. What it would move then names the brokers that
the bars concern. Their bundles, counted by reason, are what decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from trimtab_strategies.guard import Guarded, MoveLimits, measured
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason, counted
from trimtab_strategies.model.cluster_load import BoolArray, IntArray
from trimtab_strategies.planner.candidates import DestinationChoice
from trimtab_strategies.protocols import Shedding

_ENDS = {
    Reason.PINNED: "pinned, until a person sets spec.pinned: false",
    Reason.IN_FLIGHT: "still moving, until that move lands or is withdrawn",
    Reason.SPLITTING: "being split, until that ends",
    Reason.DISRUPTION_BUDGET: "over a disruption budget, until status.budget shows room again",
    Reason.LAST_PRIORITY: "in a namespace with the priority Last, until no other bundle can move",
    Reason.EXCLUDED: "in a namespace that is left out, until its TopicNamespace has balanced: true",
    Reason.NO_LOAD_DATA: "without load data, until they are measured",
    Reason.DRAINED: "being drained, until the drain ends",
}
"""Each reason that bars a bundle, and what ends it. A cool-down ends at a time."""


def barred(
    cluster: ClusterLoad,
    allowed: Guarded,
    limits: MoveLimits,
    choosing: DestinationChoice,
    unbarred: Callable[[BoolArray], Shedding],
) -> tuple[HeldBack, ...]:
    """What bars the moves that would be made otherwise, one entry for each broker that would give bundles away.

    unbarred: runs the shedder on the bundles in a mask (m,), without restrictions of their destinations. Empty if it
    moves nothing either: then the shedder's own reason is the true one.
    """
    owned = cluster.bundles.owner >= 0
    if not ((owned & ~allowed.sheddable.allowed).any() or choosing.selecting is not None):
        return ()
    unloads = unbarred(owned & measured(cluster)).unloads
    sources = dict.fromkeys(
        unload.broker
        for unload in unloads
        if any(_reason(allowed, choosing, row, unload.broker) for row in unload.bundles.tolist())
    )
    return tuple(_of_broker(cluster, allowed, limits, choosing, broker) for broker in sources)


def _of_broker(
    cluster: ClusterLoad, allowed: Guarded, limits: MoveLimits, choosing: DestinationChoice, broker: int
) -> HeldBack:
    """What bars bundles of one broker (row), the most frequent reason first."""
    rows = cluster.bundles.owned_by(broker)
    reasons = [_reason(allowed, choosing, row, broker) for row in rows.tolist()]
    counts = dict(Counter(reason for reason in reasons if reason is not None).most_common())
    parts = [
        f"{count} {_until(cluster, limits, rows[[r is reason for r in reasons]], reason)} ({reason})"
        for reason, count in counts.items()
    ]
    whole = f"{sum(counts.values())} of its {counted(len(rows), 'bundle')} can't move now"
    return HeldBack(cluster.brokers.names[broker], next(iter(counts)), f"{whole}: {'; '.join(parts)}", count=0)


def _reason(allowed: Guarded, choosing: DestinationChoice, bundle: int, broker: int) -> Reason | None:
    """Why a bundle (row) can't leave its broker now; None if it can."""
    if (reason := allowed.sheddable.reason(bundle)) is not None:
        return reason
    return None if len(np.setdiff1d(choosing.candidates(bundle), [broker])) else choosing.why_none(bundle)


def _until(cluster: ClusterLoad, limits: MoveLimits, rows: IntArray, reason: Reason) -> str:
    """What bars these bundles (rows) for one reason, and when that ends."""
    if reason is not Reason.COOL_DOWN:
        return _ENDS.get(reason, "may go to no other broker, by the rules of their namespace")
    ends = cluster.bundles.last_unload[rows] + limits.cool_down
    first, last = (_clock(float(end), cluster.now) for end in (ends.min(), ends.max()))
    until = f"until {first}" if first == last else f"the first until {first}, the last until {last}"
    return f"moved lately, {until}"


def _clock(end: float, now: float) -> str:
    """A time of day, and the day if it is not within a day. Both in epoch seconds."""
    second, days = int(end) % 86400, int(end - now) // 86400
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02} UTC"
    return f"{clock} in {counted(days, 'day')}" if days else clock
