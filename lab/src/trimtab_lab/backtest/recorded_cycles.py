"""The cycles of a recording, with what each bundle would cost on each broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from trimtab_pipeline.history.recorded_topics import RecordedTopics
from trimtab_strategies.counterfactual.recorded_cycle import CycleReader, RecordedCycle
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.shedding.trim.samples import SampleRing
from trimtab_strategies.usage import with_moves_in_flight


def recorded_cycles(loads: Iterable[ClusterLoad], topics: RecordedTopics | None = None) -> Iterator[RecordedCycle]:
    """The cycles of a recording, oldest first, each with the slopes that were learned by then (see `RecordedCycle`).

    topics: the recorded topics of bundles, if they are needed. Raises `ForeignFileError`.
    """
    ring, reader = SampleRing(), CycleReader()
    for load in loads:
        if (cycle := reader.read(ring.add(load))) is not None:
            if topics is None:
                yield replace(cycle, load=_landed(cycle.load))
            else:
                yield replace(cycle, load=topics.added(_landed(load)), sketches=topics.sketches)


def _landed(load: ClusterLoad) -> ClusterLoad:
    """The load that the policy saw: pending moves count as landed.

    No bundle is in flight, because a replay makes its own moves.
    """
    if not (load.bundles.in_flight.any() or (load.bundles.moving_from >= 0).any()):
        return load
    landed, m = with_moves_in_flight(load), len(load.bundles)
    idle, none = np.zeros(m, dtype=bool), np.full(m, -1, dtype=np.int64)
    bundles = replace(landed.bundles, in_flight=idle, moving_from=none, moving_share=np.zeros(m))
    return replace(landed, bundles=bundles)
