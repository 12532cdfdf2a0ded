"""The cycles of a recording, with what each bundle would cost on each broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trimtab_strategies.counterfactual.recorded import CycleReader, RecordedCycle
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.shedding.trim.samples import SampleRing


def recorded_cycles(loads: Iterable[ClusterLoad]) -> Iterator[RecordedCycle]:
    """The cycles of a recording, oldest first, with the slopes that were learned by then."""
    ring, reader = SampleRing(), CycleReader()
    for load in loads:
        if (cycle := reader.read(ring.add(load))) is not None:
            yield cycle
