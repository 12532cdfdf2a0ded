"""`PulsarLink`: what policies know of the Pulsar cluster, and whether Prometheus shows the same brokers.

The bridge writes it, policies read it. It is one mutable object for all policies.

The cross-check: a Prometheus that scrapes another cluster, or shows old data, looks like any other. So a broker's
message rate is compared with the broker's own statistics, a few brokers at a time. Both average the same minute, but
not the same moment. So only a large factor that lasts for minutes counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab_operator.pulsar.client.dynamic_config import FoundSettings
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_pipeline.api import NO_CREDENTIALS, Credentials
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
class CrossCheck:
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


def distrust(load: ClusterLoad, check: CrossCheck) -> ClusterLoad:
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


NOT_ASKED = "the cluster was not asked yet"
"""The problem that there is at first."""


@dataclass(frozen=True, slots=True)
class OwnBalancerState:
    """Whether Pulsar's own balancer is off, so that only Trimtab balances the cluster.

    disabled: whether Pulsar's own shedding and automatic split are off on every broker; None until verified.
    text: the finding in words, with the remedy.
    """

    disabled: bool | None = None
    text: str = "the brokers' configuration was not read yet"


@dataclass(slots=True)
class PulsarLink:
    """Nothing is linked at first: `spec` is None, and bundles are moved by brokers that watch the objects.

    spec:    the cluster that the policy `policy` names; all others must name the same.
    ids:     by name of a Broker object the id (``host:webPort``) by which Pulsar knows it, of the active ones.
             None until the cluster was seen: nothing is then known about who is alive.
    problem: why the cluster can't be asked at the moment, in words; empty when it can.
    own_balancer: whether Pulsar's own balancer is off.
    switched_off: whether Trimtab has switched off what a ConfigMap keeps, to be put back; None not yet known.
    found:   what that ConfigMap keeps, where this process wrote or read it: somebody may delete it before its time.
    elsewhere: whether that was found in another cluster than this one, where it is to be put back first.
    steering: held by who looks at, and switches, Pulsar's own balancing.
    suspects: namespaces (``tenant/name``) of which somebody found that they are not as the objects say: read next.
    urls:    by name of a Broker object where that one is asked for its own statistics; only while a policy wants them.
    credentials: what proves to brokers who asks for those, as of now.
    crosscheck: whether Prometheus shows the brokers that Pulsar has.
    """

    spec: PulsarSpec | None = None
    policy: str = ""
    ids: Mapping[str, str] | None = None
    problem: str = ""
    own_balancer: OwnBalancerState = field(default_factory=OwnBalancerState)
    switched_off: bool | None = None
    found: FoundSettings | None = None
    elsewhere: bool = False
    steering: asyncio.Lock = field(default_factory=asyncio.Lock)
    suspects: set[str] = field(default_factory=set)
    urls: Mapping[str, str] = field(default_factory=dict)
    credentials: Credentials = NO_CREDENTIALS
    cross_check: CrossCheck = field(default_factory=CrossCheck)

    def lead_to(self, spec: PulsarSpec | None, policy: str) -> None:
        """Name the cluster, or none. Nothing is known of another one than before."""
        if spec != self.spec:
            self.ids, self.own_balancer, self.cross_check = None, OwnBalancerState(), CrossCheck()
            self.elsewhere = False
            self.problem = NOT_ASKED if spec is not None else ""
        self.spec, self.policy = spec, policy

    def keep(self, found: FoundSettings | None) -> None:
        """Say what is kept of this cluster, to be put back; None: nothing is."""
        self.switched_off = found is not None and bool(found.overrides)
        self.found, self.elsewhere = found, False

    def withhold(self) -> None:
        """Say no more where brokers are asked, nor by whom."""
        self.urls, self.credentials = {}, NO_CREDENTIALS

    @property
    def linked(self) -> bool:
        """Whether a Pulsar cluster carries the wishes out."""
        return self.spec is not None
