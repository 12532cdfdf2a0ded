"""A glance: the brokers alone, between two decisions.

It keeps the brokers' load in their status fresh, and tells when something happened that should not wait for the next
decision: a broker died, or crossed the overload line. Only the crossing counts. One that stays above the line was seen
by the last decision, which had its reasons to leave it there.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import numpy as np

from trimtab_operator.observe.topology import ClusterRecords, topology
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_strategies.model import RESOURCES, ClusterLoad, counted
from trimtab_strategies.usage import percent, weighted_maximum

GLANCE_WITHIN = 2.0
"""Seconds after which a glance is given up: the next one is soon, and upkeep waits for it meanwhile."""


async def refresh_brokers(picture: ClusterRecords, run: PolicyRun, at: float) -> ClusterLoad:
    """Measure the brokers of `picture` as of `at` (epoch s); there are no bundles in the answer.

    Raises `SourceUnavailableError`.
    """
    only_brokers = replace(picture, bundles=(), namespaces={}, pending_moves=())
    rows, _ = topology(only_brokers, window=run.settings.prometheus.window)
    try:
        async with asyncio.timeout(GLANCE_WITHIN):
            observation = await asyncio.wrap_future(run.source.observe_brokers(rows, at))
    except TimeoutError:
        raise SourceUnavailableError(f"the source did not tell of the brokers within {GLANCE_WITHIN:g} s") from None
    return observation.load


@dataclass(slots=True)
class BrokerWatch:
    """What was known of the brokers when they were looked at last, and when they are looked at next.

    due: on the clock of the loop. alive, busy: names of the brokers that were ready, and at or above the overload line.
    """

    due: float = 0.0
    alive: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()

    def next(self, settings: Settings, clock: float) -> None:
        """Look again after `brokerInterval`."""
        self.due = clock + settings.broker_interval

    def dead(self, picture: ClusterRecords) -> str:
        """Who died since the last look, in words; empty for nobody."""
        ready = {broker.name for broker in picture.brokers if broker.ready}
        died, self.alive = self.alive - ready, frozenset(ready)
        return f"{_named(died)} died" if died else ""

    def crossed(self, load: ClusterLoad, settings: Settings) -> str:
        """Who crossed the overload line since the last look, in words; empty for nobody."""
        busy = overloaded(load, settings)
        above, self.busy = busy - self.busy, busy
        return f"{_named(above)} crossed {settings.overload_line:.0%} of usage" if above else ""


def overloaded(load: ClusterLoad, settings: Settings) -> frozenset[str]:
    """The brokers that are trusted, and at or above the overload line, by the shedder's weights of the resources."""
    brokers = load.brokers
    usage = weighted_maximum(
        percent(brokers.usage, brokers.limit), settings.pair.weights, columns=range(len(RESOURCES))
    )
    rows = np.flatnonzero(brokers.trusted & brokers.ready & (usage >= settings.overload_line))
    return frozenset(brokers.names[row] for row in rows.tolist())


def _named(names: frozenset[str]) -> str:
    few = len(names) <= 3  # noqa: PLR2004  (as many as one reads)
    return ", ".join(sorted(names)) if few else counted(len(names), "broker")
