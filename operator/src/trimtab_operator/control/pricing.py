"""What a plan costs the clients: how many it interrupts, and for how long the latest moves did. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_operator.cluster.move_costs import NOT_MEASURED, MoveCosts, told
from trimtab_strategies.model import ClusterLoad, counted

Measured = Mapping[str, MoveCosts]
"""What moves cost, by ``tenant/name``."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the moves interrupt: producers and consumers, topics; unknown: bundles of which that is not known.

    seconds: for how long, by the latest moves of each bundle's namespace: the median over the bundles of those medians;
    worst: the longest of them all. Both None where nothing was measured, or nobody measures. unmeasured: bundles of
    namespaces none of whose moves was measured yet; None where nobody measures.
    """

    connections: int
    topics: int
    unknown: int = 0
    seconds: float | None = None
    worst: float | None = None
    unmeasured: int | None = None

    def __str__(self) -> str:
        unknown = f", of {counted(self.unknown, 'bundle')} unknown" if self.unknown else ""
        return f"{counted(self.connections, 'connection')}, {counted(self.topics, 'topic')}{unknown}{self.duration}"

    @property
    def duration(self) -> str:
        """For how long, in words that go on; empty where nobody measures."""
        if self.seconds is None or self.worst is None:
            return "; for how long is not measured yet" if self.unmeasured else ""
        rest = f", of {counted(self.unmeasured, 'bundle')} not measured yet" if self.unmeasured else ""
        return f"; publishers for about {told(self.seconds)}, {told(self.worst)} at worst{rest}"


def cost(bundles: Sequence[str], load: ClusterLoad | None, measured: Measured | None = None) -> Cost:
    """What moving or splitting `bundles` interrupts, by the topics and sessions that `load` knows of them.

    measured: what moves cost so far; None where nobody measures that.
    """
    connections, topics, unknown = _interrupted(bundles, load)
    if measured is None:
        return Cost(connections, topics, unknown)
    of = [measured.get(bundle.rpartition("/")[0], NOT_MEASURED).publish_gap for bundle in bundles]
    known = [summary for summary in of if summary is not None]
    return Cost(
        connections,
        topics,
        unknown,
        seconds=round(float(np.median([summary.median for summary in known])), 3) if known else None,
        worst=round(max(summary.longest for summary in known), 3) if known else None,
        unmeasured=len(of) - len(known),
    )


def _interrupted(bundles: Sequence[str], load: ClusterLoad | None) -> tuple[int, int, int]:
    if load is None:
        return 0, 0, len(bundles)
    rows = np.array([load.bundles.index[name] for name in bundles if name in load.bundles.index], dtype=np.int64)
    sessions, topics = load.bundles.sessions[rows], load.bundles.topics[rows]
    known = np.isfinite(sessions) & np.isfinite(topics)
    return int(sessions[known].sum()), int(topics[known].sum()), len(bundles) - int(known.sum())
