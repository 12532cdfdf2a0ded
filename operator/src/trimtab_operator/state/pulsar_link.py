"""Whether Prometheus shows the brokers that Pulsar has: its messages against what brokers tell themselves. Pure.

A Prometheus that scrapes another cluster, or shows what was long ago, looks like any other. So what it says of a
broker's messages is compared with that broker's own statistics, a few brokers at a time. Both are averages over the
same minute, though not the same moment, and load changes: only what differs by a large factor, for minutes, counts, and
each look at Prometheus once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab_strategies.model import RATE_IN, RATE_OUT, ClusterLoad, Doubt, Reason

FACTOR = 3.0
"""Messages that differ by more are odd."""

LEAST = 20.0
"""msg/s added to either side: brokers that do next to nothing differ by any factor. The system's own topics are among
what Prometheus counts, and not among what is compared with."""

ROUNDS = 4
"""So many times in a row it must be odd."""

LASTING = 180.0
"""Seconds that this must go on: after a bundle has moved, Prometheus shows it where it was for up to a scrape more."""

FRESH = 20.0
"""Seconds after which what Prometheus showed is not compared any more with what is told now."""

_ENOUGH = 3
"""Brokers that must have been compared before the odd ones speak for the others."""


@dataclass(frozen=True, slots=True)
class Compared:
    """shown, told: msg/s in and out of a broker, by Prometheus and by itself. at: when, on the clock of the loop.

    odd: how often in a row they differed, since when. look: number of the look at Prometheus.
    """

    shown: float
    told: float
    at: float = 0.0
    odd: int = 0
    since: float = 0.0
    look: int = 0

    @property
    def ratio(self) -> float:
        """What is shown, of what is told; 1 when they agree."""
        return (self.shown + LEAST) / (self.told + LEAST)

    @property
    def differs(self) -> bool:
        """Whether by more than `FACTOR`, either way."""
        return not 1 / FACTOR <= self.ratio <= FACTOR

    @property
    def wrong(self) -> bool:
        """Whether that has been so for long."""
        return self.odd >= ROUNDS and self.at - self.since >= LASTING

    def __str__(self) -> str:
        return f"Prometheus shows {self.shown:.0f} msg/s in and out, and the broker tells of {self.told:.0f}"

    def then(self, new: Compared) -> Compared:
        """What `new` comes to after this one; of one look at Prometheus it counts once."""
        if not new.differs:
            return new
        since = self.since if self.odd else new.at
        return replace(new, odd=self.odd + (new.look != self.look), since=since)


@dataclass(slots=True)
class Crosscheck:
    """What was found so far. shown: by broker, msg/s in and out by Prometheus when it was looked at last, the look of
    number `look`, at `at` on the clock of the loop. compared: by broker.
    """

    shown: dict[str, float] = field(default_factory=dict)
    look: int = 0
    at: float = float("-inf")
    compared: dict[str, Compared] = field(default_factory=dict)

    def see(self, load: ClusterLoad, clock: float) -> None:
        """Take note of what Prometheus shows of the brokers now."""
        self.look, self.at = self.look + 1, clock
        rates = load.brokers.traffic[:, [RATE_IN, RATE_OUT]].sum(axis=1)
        for name, rate, age in zip(load.brokers.names, rates.tolist(), load.brokers.age.tolist(), strict=True):
            self.shown.pop(name, None)
            if np.isfinite(rate) and np.isfinite(age):
                self.shown[name] = rate

    def fresh(self, clock: float) -> bool:
        """Whether what Prometheus showed can be compared with what is told now."""
        return clock - self.at <= FRESH

    def compare(self, broker: str, told: float, clock: float) -> Compared | None:
        """Take note of what a broker tells (msg/s in and out); None where Prometheus shows nothing of it."""
        if (shown := self.shown.get(broker)) is None:
            self.compared.pop(broker, None)
            return None
        new = Compared(shown, told, at=clock, look=self.look)
        self.compared[broker] = self.compared.get(broker, Compared(shown, shown)).then(new)
        return self.compared[broker]

    def forget(self, brokers: Mapping[str, object]) -> None:
        """Keep nothing of brokers that are not among these."""
        self.shown = {name: shown for name, shown in self.shown.items() if name in brokers}
        self.compared = {name: compared for name, compared in self.compared.items() if name in brokers}

    @property
    def worst(self) -> float:
        """The largest factor by which any broker's two figures differ, 1 or more."""
        return max((max(c.ratio, 1 / c.ratio) for c in self.compared.values()), default=1.0)


def distrust(load: ClusterLoad, check: Crosscheck) -> ClusterLoad:
    """`load` with brokers untrusted whose figures have been wrong for long; all of them, when most were that are known.

    An untrusted broker neither gives nor takes; with too few that are trusted nothing moves (`minTrustedBrokers`).
    """
    wrong = {name: compared for name, compared in check.compared.items() if compared.wrong}
    if not wrong:
        return load
    texts = {name: str(compared) for name, compared in wrong.items()}
    enough = min(_ENOUGH, len(load.brokers.names))
    if len(check.compared) >= enough and 2 * len(wrong) > len(check.compared):
        name, compared = next(iter(wrong.items()))
        other = f"it may show another cluster: of {name}, {compared}"
        texts = {broker: texts.get(broker, other) for broker in load.brokers.names}
    doubts = {name: Doubt(Reason.UNTRUSTED, text) for name, text in texts.items()}
    trusted = load.brokers.trusted & ~np.isin(load.brokers.names, list(doubts))
    quality = replace(load.quality, doubts={**doubts, **load.quality.doubts})
    return replace(load, brokers=replace(load.brokers, trusted=trusted), quality=quality)
