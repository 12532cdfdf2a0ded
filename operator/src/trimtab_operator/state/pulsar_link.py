"""`PulsarLink`: what policies know about the Pulsar cluster, and whether Prometheus shows the same brokers.

`pulsar.bridge` writes it and policies read it: one mutable object for all policies.

The cross-check finds a Prometheus that scrapes another cluster, or shows old data. It compares the message rate that
Prometheus shows for a broker with the broker's own statistics, a few brokers at a time. Both rates are averages over a
minute, but not of the same minute, so only a large factor that lasts for minutes counts.
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
"""Factor between the two message rates above which a comparison counts as odd."""


LEAST = 20.0
"""msg/s added to both rates, because the two rates of an idle broker may differ by any factor. Prometheus also counts
the system's own topics, which the broker's statistics leave out."""


ROUNDS = 4
"""Number of comparisons in a row that must be odd before a broker is not trusted."""


LASTING = 180.0
"""Seconds for which all comparisons must have been odd, besides `ROUNDS`, before a broker is not trusted. Prometheus
shows a former owner for up to one more scrape."""


FRESH = 20.0
"""Seconds after which a sample of Prometheus is too old for a comparison."""


_ENOUGH = 3
"""Number of brokers that must have been compared before a majority of wrong ones makes all brokers untrusted."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison of a broker: msg/s in and out, `shown` by Prometheus and `reported` by the broker.

    at: monotonic seconds. odd: number of comparisons in a row that were odd. since: when the first of these odd ones
    was made. sample: number of the sample of Prometheus.
    """

    shown: float
    reported: float
    at: float = 0.0
    odd: int = 0
    since: float = 0.0
    sample: int = 0

    @property
    def ratio(self) -> float:
        """Ratio of the rate shown to the rate reported; 1 when they agree."""
        return (self.shown + LEAST) / (self.reported + LEAST)

    @property
    def differs(self) -> bool:
        """Whether the rates differ by more than `FACTOR`, either way."""
        return not 1 / FACTOR <= self.ratio <= FACTOR

    @property
    def wrong(self) -> bool:
        """Whether the rates have differed for so long that the broker is not trusted."""
        return self.odd >= ROUNDS and self.at - self.since >= LASTING

    def __str__(self) -> str:
        return f"Prometheus shows {self.shown:.0f} msg/s in and out, and the broker reports {self.reported:.0f}"

    def then(self, new: Compared) -> Compared:
        """The comparison `new` after this one. One sample of Prometheus counts once, however often it is compared."""
        if not new.differs:
            return new
        since = self.since if self.odd else new.at
        return replace(new, odd=self.odd + (new.sample != self.sample), since=since)


@dataclass(slots=True)
class CrossCheck:
    """All comparisons so far.

    shown: broker -> msg/s in and out in the last sample of Prometheus. sample: number of that sample. at: time of that
    sample, in monotonic seconds. compared: broker -> its last comparison.
    """

    shown: dict[str, float] = field(default_factory=dict)
    sample: int = 0
    at: float = float("-inf")
    compared: dict[str, Compared] = field(default_factory=dict)

    def update(self, load: ClusterLoad, clock: float) -> None:
        """Record the message rates of the brokers in a new sample of Prometheus."""
        self.sample, self.at = self.sample + 1, clock
        rates = load.brokers.traffic[:, [RATE_IN, RATE_OUT]].sum(axis=1)
        for name, rate, age in zip(load.brokers.names, rates.tolist(), load.brokers.age.tolist(), strict=True):
            self.shown.pop(name, None)
            if np.isfinite(rate) and np.isfinite(age):
                self.shown[name] = rate

    def fresh(self, clock: float) -> bool:
        """Whether the last sample is recent enough to compare with current statistics."""
        return clock - self.at <= FRESH

    def compare(self, broker: str, reported: float, clock: float) -> Compared | None:
        """Compare with the rate that a broker reports (msg/s in and out); None if Prometheus has none for it."""
        if (shown := self.shown.get(broker)) is None:
            self.compared.pop(broker, None)
            return None
        new = Compared(shown, reported, at=clock, sample=self.sample)
        self.compared[broker] = self.compared.get(broker, Compared(shown, shown)).then(new)
        return self.compared[broker]

    def forget(self, brokers: Mapping[str, object]) -> None:
        """Drop brokers that are not among these."""
        self.shown = {name: shown for name, shown in self.shown.items() if name in brokers}
        self.compared = {name: compared for name, compared in self.compared.items() if name in brokers}

    @property
    def worst(self) -> float:
        """The largest factor by which any broker's two figures differ, 1 or more."""
        return max((max(c.ratio, 1 / c.ratio) for c in self.compared.values()), default=1.0)


def distrust(load: ClusterLoad, check: CrossCheck) -> ClusterLoad:
    """Mark brokers as untrusted if their figures have differed for too long; all brokers, if most compared ones have.

    No bundle moves from or to an untrusted broker. With too few trusted brokers nothing moves.
    """
    wrong = {name: compared for name, compared in check.compared.items() if compared.wrong}
    if not wrong:
        return load
    texts = {name: str(compared) for name, compared in wrong.items()}
    enough = min(_ENOUGH, len(load.brokers.names))
    if len(check.compared) >= enough and 2 * len(wrong) > len(check.compared):
        name, compared = next(iter(wrong.items()))
        other = f"it may show another cluster: for {name}, {compared}"
        texts = {broker: texts.get(broker, other) for broker in load.brokers.names}
    doubts = {name: Doubt(Reason.UNTRUSTED, text) for name, text in texts.items()}
    trusted = load.brokers.trusted & ~np.isin(load.brokers.names, list(doubts))
    quality = replace(load.quality, doubts={**doubts, **load.quality.doubts})
    return replace(load, brokers=replace(load.brokers, trusted=trusted), quality=quality)


NOT_ASKED = "no request has been sent to the cluster yet"
"""Initial value of `PulsarLink.problem`."""


@dataclass(frozen=True, slots=True)
class OwnBalancerState:
    """Whether Trimtab is the only balancer of the cluster.

    disabled: whether Pulsar's own shedding and automatic split are off on every broker; None until verified.
    text: the finding in words, with the remedy.
    """

    disabled: bool | None = None
    text: str = "the brokers' configuration has not been read yet"


@dataclass(slots=True)
class PulsarLink:
    """The connection to the Pulsar cluster.

    spec: the cluster that the policy `policy` names; all other policies must name the same one. None without a
    connection: then the brokers watch the Bundle objects and move the bundles themselves.
    ids: name of a Broker object -> id in Pulsar (``host:webPort``), for each active broker. None until Pulsar has
    answered: until then it is not known which brokers are alive.
    problem: why Pulsar, or its metadata store, can't be reached at the moment; empty when it can.
    own_balancer: whether Pulsar's own balancer is off.
    switched_off: whether Trimtab has switched off settings whose former values a ConfigMap keeps; None: unknown.
    found: a copy of these former values, if this process wrote or read them: a user may delete the ConfigMap too early.
    elsewhere: whether the former values belong to another cluster, and must be restored there first.
    steering: lock that is held while Pulsar's own balancer is checked or switched.
    suspects: namespaces (``tenant/name``) that may differ from their objects, and are read next.
    urls: name of a Broker object -> URL of its statistics; only while a policy needs them.
    credentials: the current credentials for those URLs.
    cross_check: whether Prometheus shows the brokers that Pulsar has.
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
        """Set the cluster, or None. A change drops what was known of the former cluster."""
        if spec != self.spec:
            self.ids, self.own_balancer, self.cross_check = None, OwnBalancerState(), CrossCheck()
            self.elsewhere = False
            self.problem = NOT_ASKED if spec is not None else ""
        self.spec, self.policy = spec, policy

    def keep(self, found: FoundSettings | None) -> None:
        """Set the settings of this cluster that must be restored later; None: there are none."""
        self.switched_off = found is not None and bool(found.overrides)
        self.found, self.elsewhere = found, False

    def withhold(self) -> None:
        """Drop the URLs of the brokers, and the credentials for them."""
        self.urls, self.credentials = {}, NO_CREDENTIALS

    @property
    def linked(self) -> bool:
        """Whether a Pulsar cluster is connected."""
        return self.spec is not None
