"""Further effects of real clusters: each is an option of a scenario, off unless it is given.

The constants of `Reconnect` and `Batching` come from real brokers of Pulsar 4, limited to 0.3 cores each. The gap and
its spread are the medians of ten runs on a busy machine; on an idle one the gap is 0.5 s (docs/side-by-side.md). The
constants of CPU come from these runs, and from a run that was also simulated (docs/calibration.md). Tests compare the
constants with the recorded figures. The other defaults are assumptions.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trimtab_lab.simulation.scenario_fields import Positive, Ratio, ScenarioPart

_Seconds = Annotated[float, Field(ge=0, le=600)]


class Reconnect(ScenarioPart):
    """A bundle that moves is without a broker for some seconds. Afterwards clients send the backlog."""

    gap: _Seconds = 0.8
    """Median seconds without an owner."""
    spread: Annotated[float, Field(ge=0, le=3)] = 0.4
    """Standard deviation of the logarithm of that time."""
    catch_up: Annotated[float, Field(ge=0, le=10)] = 0.5
    """Extra traffic until the backlog is gone, as a ratio of the bundle's traffic; 0: missed messages are lost."""
    give_up: Ratio = 0
    """Ratio of the backlog that clients drop each round."""


class ColdCache(ScenarioPart):
    """A bundle costs its new owner more CPU until the cache is warm."""

    cost: Annotated[float, Field(ge=0, le=10)] = 0.5
    """Ratio of extra CPU in the first minute; it falls linearly to 0."""
    minutes: Annotated[int, Field(ge=1, le=120)] = 4
    """Minutes until the cache is warm."""


class Knee(ScenarioPart):
    """CPU rises faster than traffic on a busy machine: garbage collection and queues."""

    at: Annotated[float, Field(gt=0, lt=1)] = 0.7
    """Ratio of usage above which further traffic costs more."""
    factor: Annotated[float, Field(ge=1, le=10)] = 1.5
    """How many times as much CPU further traffic then costs."""


class Batching(ScenarioPart):
    """CPU rises more slowly than traffic: a busy broker handles messages in batches. An idle broker uses CPU, too."""

    exponent: Annotated[float, Field(ge=0.3, le=1)] = 0.65
    """CPU follows this power of traffic (a ratio of what fills the machine): 1 is linear; measured 0.6 to 0.7."""
    idle: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    """Ratio of the machine that a broker without load takes: measured 0.1, which was 0.03 of 0.3 cores."""
    growth: Annotated[float, Field(ge=0.1, le=1)] = 1
    """A bundle's work follows this power of its traffic (a ratio of its traffic in the first round): 1 is linear;
    measured 0.2 for one topic."""


class Failures(ScenarioPart):
    """Moves that go wrong."""

    lost: Ratio = 0.03
    """Ratio of moves that have no effect: the bundle stays with its owner."""
    elsewhere: Ratio = 0.02
    """Ratio of moves that end on a broker other than the chosen one."""


class Realism(ScenarioPart):
    """The options that a scenario may switch on."""

    reconnect: Reconnect | None = None
    """Gap and backlog of bundles that move."""
    cold_cache: ColdCache | None = None
    """Cost of a bundle that has just moved."""
    batching: Batching | None = None
    """CPU of a broker with little load."""
    knee: Knee | None = None
    """CPU of a busy machine."""
    failures: Failures | None = None
    """Moves that go wrong."""
    client_cpu: Annotated[float, Field(ge=0, le=100)] = 0
    """Core-seconds that each client costs its new broker when it arrives."""
    message_price: Annotated[float, Field(ge=0, le=1e6)] = 0
    """Bytes/s of traffic that cost as much CPU as one message a second."""
    latency: Positive = 5
    """Milliseconds (99th percentile) of a publish on an idle broker. It grows with usage like the delay of a queue."""
