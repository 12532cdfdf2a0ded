"""The cycles of a recording, with what each bundle would cost on each broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from trimtab_pipeline.history.recorded_topics import RecordedTopics
from trimtab_strategies.counterfactual.recorded import CycleReader, RecordedCycle
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.shedding.trim.samples import SampleRing


def recorded_cycles(loads: Iterable[ClusterLoad], topics: RecordedTopics | None = None) -> Iterator[RecordedCycle]:
    """The cycles of a recording, oldest first, with the slopes that were learned by then.

    topics: what is known of the inside of bundles, if that is of interest. Raises `ForeignFileError`.
    """
    ring, reader = SampleRing(), CycleReader()
    for load in loads:
        if (cycle := reader.read(ring.add(load))) is not None:
            yield cycle if topics is None else replace(cycle, load=topics.added(load), sketches=topics.sketches)
