"""Load sources for tests of the loop: with a concurrent change, silent, delayed, counting, broken."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from static_sources import StaticSource
from trimtab_pipeline.api import Observation, Topology
from trimtab_strategies.model import ClusterLoad


class Meanwhile(StaticSource):
    """Makes a change by another client while the cluster is measured for the first time."""

    def __init__(self, load: ClusterLoad, act: Callable[[], object]) -> None:
        super().__init__(load)
        self._act: Callable[[], object] | None = act

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        act, self._act = self._act, None
        if act is not None:
            act()
        return super().observe(topology, at)


class Silent(StaticSource):
    """Never answers."""

    def observe(self, topology: Topology, at: float) -> Future[Observation]:  # noqa: ARG002  (a protocol)
        return Future()


class Slow(StaticSource):
    """Answers when the test resolves `answer`."""

    def __init__(self, load: ClusterLoad) -> None:
        super().__init__(load)
        self.answer: Future[Observation] = Future()

    def observe(self, topology: Topology, at: float) -> Future[Observation]:  # noqa: ARG002  (a protocol)
        return self.answer


class Counting(StaticSource):
    """Counts its calls."""

    def __init__(self, load: ClusterLoad) -> None:
        super().__init__(load)
        self.looks = 0

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        self.looks += 1
        return super().observe(topology, at)


class Broken(StaticSource):
    """Has a defect."""

    def observe(self, topology: Topology, at: float) -> Future[Observation]:  # noqa: ARG002  (a protocol)
        raise KeyError("cpu")
