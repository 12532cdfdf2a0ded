"""Machines and tenants of a scenario: how many, how strong, how much traffic, and how it varies.

There are two kinds of change. Noise (`jitter`, `bursts`, `alternation`) is what a balancer should ignore: it is
served and measured, but does not count in the imbalance. A trend (`day`, `drift`, `steps`) is real: it counts.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field

from trimtab_lab.simulation.scenario_fields import (
    LIST,
    ONE,
    BrokerRows,
    Drawn,
    Factors,
    Loads,
    Minutes,
    Positive,
    Ratio,
    ScenarioPart,
    form,
)


class Machines(ScenarioPart):
    """A group of equal machines with one broker each."""

    count: Annotated[int, Field(ge=1, le=2000)]
    """Number of machines."""
    name: str = ""
    """Name of the group, for events."""
    cores: Annotated[float, Field(gt=0, le=1024)] = 16
    """CPU cores of each."""
    speed: Annotated[float, Field(gt=0, le=100)] = 1
    """Speed of a core: 1 is an ordinary core, which serves 64 MiB/s."""
    nic: Annotated[float, Field(gt=0, le=1000)] = 25
    """Gbit/s of the network in each direction."""
    usage: Loads = 0
    """Usage (ratio) of a broker's busiest resource by its bundles at the beginning, before `batching` and `knee` change
    it; 0: the brokers have no bundles."""
    bundles: Annotated[int, Field(ge=1, le=10000)] = 40
    """Bundles of each broker at the beginning."""
    zone: str = ""
    """Failure domain of the machines; empty: none."""


class Bursts(ScenarioPart):
    """Now and then all bundles of the tenant, or those of one broker, carry more for one round: noise."""

    chance: Ratio
    """Chance of a burst per round."""
    factor: Positive
    """Factor on the traffic of the bundles."""
    together: bool = False
    """Whether the tenant's bundles burst together; otherwise those of each broker do."""


class Alternation(ScenarioPart):
    """All bundles of a broker carry more, then less, then more again: noise. Each broker has its own phase."""

    high: Positive = 1.6
    """Factor on the traffic in the first part."""
    low: Annotated[float, Field(ge=0, le=100)] = 0.4
    """Factor on the traffic in the second part."""
    minutes: Annotated[int, Field(ge=1, le=120)] = 1
    """Length of each part."""


class DailyCycle(ScenarioPart):
    """Traffic rises and falls with the hour: a trend."""

    length: Annotated[int, Field(ge=2, le=20160)] = 1440
    """Minutes of a day."""
    swing: Ratio
    """Ratio by which the peak is above, and the bottom below, the mean."""
    peak: Ratio = 0.5
    """Time of the peak, as a ratio of the day."""
    weekend: Positive = 1
    """Factor on the last two of seven days."""


class Drift(ScenarioPart):
    """The bundles of each broker grow or shrink steadily until the last round: a trend."""

    to: Loads
    """Factor on the traffic of the bundles that a broker has at the beginning, reached in the last round."""
    walk: Annotated[float, Field(ge=0, le=0.2)] = 0
    """Standard deviation per minute of a random walk on the logarithm of each bundle's traffic."""


class Steps(ScenarioPart):
    """All traffic of the tenant abruptly changes to another level, and stays there for a while: a trend."""

    every: Minutes
    """The fewest and the most minutes from one change to the next. Each time is drawn between them."""
    factor: Factors
    """The smallest and the largest factor on the traffic. Each factor is drawn between them."""


class Tenant(ScenarioPart):
    """A namespace whose bundles are spread over the brokers."""

    name: Annotated[str, Field(pattern=r"^[\w.=-]+/[\w.=-]+$")] = "public/simulated"
    """Tenant and namespace, ``tenant/namespace``."""
    share: Annotated[Annotated[Ratio, ONE] | Annotated[tuple[Ratio, ...], LIST], Discriminator(form)] = 1
    """Ratio of each broker's bundles that belong to this tenant: one for all brokers, or one for each."""
    skew: Annotated[float, Field(ge=0, le=4)] = 0.8
    """Standard deviation of the logarithm of a bundle's traffic. With 0.8 the largest of 60 is six times the mean."""
    message: Drawn = 1024
    """Bytes of a message."""
    fanout: Drawn = 2
    """How often each message is read."""
    topics: Annotated[int, Field(ge=1, le=1000)] = 10
    """Topics of a bundle, between which it can be split. The logarithm of their traffic has a deviation of 0.5."""
    sessions: Annotated[float, Field(gt=0, le=1000)] = 20
    """Producers and consumers of an average bundle. They grow with the square root of traffic, times a lognormal
    factor."""
    jitter: Ratio = 0.15
    """Traffic of each bundle varies uniformly within this ratio: noise."""
    bursts: Bursts | None = None
    """Bursts that last for one round."""
    alternation: Alternation | None = None
    """Traffic that alternates between high and low."""
    day: DailyCycle | None = None
    """Traffic that follows the time of day."""
    drift: Drift | None = None
    """Traffic that changes slowly."""
    steps: Steps | None = None
    """Traffic that changes abruptly, for all bundles at the same time."""
    brokers: BrokerRows | None = None
    """Brokers (numbers, or a group's name) to which the tenant is isolated. Without them, it may be anywhere."""
    anti_affinity: str = ""
    """Name of the anti-affinity group of its namespace; empty: none."""
