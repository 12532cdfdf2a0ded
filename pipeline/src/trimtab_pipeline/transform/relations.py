"""The relations (tables) that the stages of the pipeline exchange, each of one policy, and the settings of a cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import BROKER_STATE, BUNDLE_STATE, TRAFFIC, USAGE

LIMITS = tuple(f"limit_{name}" for name in USAGE)
"""For each resource in `USAGE`: the limit that counts as 100 %, null if unknown."""
DECLARED = tuple(f"{name}_declared" for name in USAGE)
"""For each resource in `USAGE`: the capacity that a user declared, null if there is none."""

UNSURE = tuple(f"{name}_unsure" for name in USAGE)
"""For each resource in `USAGE`: by how much estimates of it differ, null if it is no rate of a counter."""


def _fields(kind: pa.DataType, *names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, kind) for name in names]


TARGETS = pa.schema(
    [
        ("shard", pa.int32()),
        *_fields(pa.string(), "broker", "pod"),
        *_fields(pa.float64(), *DECLARED, "last_resource_time", "last_traffic_time", "started"),
        ("chosen", pa.list_(pa.string())),
    ]
)
"""A row per broker of a topology. ``shard``: null for a broker without a pod. ``last_...``: times
(epoch s) in the last state, null if unknown or older than the horizon. ``started``: when the newest container of the
pod started (epoch s), null if unknown. ``chosen``: resources whose limit a user chose, so that usage may exceed it."""

SIGNALS = pa.schema(
    [
        *_fields(pa.string(), "pod", "signal"),
        *_fields(pa.float64(), "value", "time", "interval", "cover", "unsure", "still"),
        *_fields(pa.float64(), "samples", "resets", "copies"),
    ]
)
"""A row per pod and signal.

``value``: units of a gauge, units/s of a counter. ``time``: epoch s of the newest sample. ``interval``: longest time
between samples (s) if none is missing. ``cover``: covered seconds of the window, null for a gauge. ``unsure``:
units/s by which estimates of the rate differ, null for a gauge. ``still``: seconds for which a counter has not changed
beyond what is usual, null for a gauge. ``samples``: number
in the window. ``resets``: number in the window, null for a gauge. ``copies``: number of series of the same part."""

BROKER_LOAD = pa.schema(
    [
        ("shard", pa.int32()),
        ("broker", pa.string()),
        *BROKER_STATE,
        *_fields(pa.float64(), *LIMITS, *UNSURE, "still", "age", "behind", "started"),
        *_fields(pa.bool_(), "answered", "present"),
        ("apart", pa.string()),
        ("unclear", pa.bool_()),
        ("chosen", pa.list_(pa.string())),
        ("doubts", pa.list_(pa.string())),
        ("doubt", pa.string()),
    ]
)
"""A row per broker of a topology.

``still``: seconds for which its counter of CPU has not changed beyond what is usual, null if unknown. ``age``: seconds
since its newest samples (since the oldest of them, if resources and traffic differ), null if a time is unknown.
``behind``: seconds by which samples of usage steadily come later than those of traffic, because of the clock that gives
them their times. ``started``, ``chosen``: as in `TARGETS`. ``answered``: whether its shard got an answer. ``present``:
whether any of its resources is measured. ``apart``: what is wrong with several series about its pod
(`transform.copies`), or null. ``unclear``: whether its use of the network is unknown, because it is unclear which
devices count. ``doubts``: codes of `trust`, the most important first. ``doubt``: the first of them that counts, null if
the broker is trusted."""

BUNDLE_SUMS = pa.schema(
    [
        *_fields(pa.string(), "bundle", "pod"),
        *_fields(pa.float64(), *TRAFFIC, "topics", "sessions"),
        ("summed", pa.bool_()),
    ]
)
"""A row per bundle and pod that reports it: msg/s, bytes/s, numbers of topics and clients.

``summed``: whether the row is the sum of topics, not the bundle's own metrics. ``pod``: empty if the bundle is idle. A
row without bundle and pod adds up the topics outside all bundles."""

POD_TIMES = pa.schema(
    [("shard", pa.int32()), ("pod", pa.string()), ("traffic_time", pa.float64()), ("young", pa.bool_())]
)
"""A row per pod. ``traffic_time``: epoch s of its newest traffic sample; if null, the cycle's time counts. ``young``:
whether its metrics are recent. If they are not, a bundle without a topic need not be idle."""

BUNDLE_LOAD = BUNDLE_STATE
"""The bundles after a cycle, the measured ones first. In a row without bundle, ``topics`` is the number of topics
outside all bundles."""


_HORIZON = 3.0  # multiple of the long time constant; older states no longer matter


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle of `policy` at `at` (epoch seconds); the other fields are those of `PrometheusSettings` and `Trust`.

    by_samples: whether averages count samples, as Pulsar's do. percent: whether usage is in percent; all limits are
    then 100. horizon: seconds after which a state, or a bundle that is no longer measured, is dropped.
    """

    policy: str
    at: float
    window: float
    max_age: float
    short_tau: float
    long_tau: float
    by_samples: bool
    above_limit: float
    max_resets: float
    max_clock_skew: float
    min_samples: float
    nic_speed: float
    percent: bool
    horizon: float

    @classmethod
    def of(cls, policy: str, settings: PrometheusSettings, at: float) -> Self:
        """The cycle of `policy` (``namespace/name``) at `at` (epoch seconds)."""
        trust = settings.trust
        return cls(
            policy=policy,
            at=at,
            window=settings.window,
            max_age=settings.max_age,
            short_tau=settings.short_tau,
            long_tau=settings.long_tau,
            by_samples=settings.averages == "samples",
            above_limit=trust.above_limit,
            max_resets=trust.max_resets,
            max_clock_skew=trust.max_clock_skew,
            min_samples=trust.min_samples,
            nic_speed=settings.nic_speed,
            percent=settings.resources == "pulsar",
            horizon=horizon(settings.long_tau),
        )


def horizon(long_tau: float) -> float:
    """Seconds after which a state, or a bundle that is no longer measured, is dropped."""
    return _HORIZON * long_tau
