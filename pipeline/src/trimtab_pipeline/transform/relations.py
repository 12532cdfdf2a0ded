"""The relations (tables) that the stages of the pipeline exchange, with the names that they have in the SQL texts.

`Cycle` is a row of `CYCLES`: the settings and the time of a policy's cycle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Self

import pyarrow as pa

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import BROKER_STATE, BUNDLE_STATE, USAGE

LIMITS = tuple(f"limit_{name}" for name in USAGE)
"""For each resource in `USAGE`: the limit that counts as 100 %, null if unknown."""
DECLARED = tuple(f"{name}_declared" for name in USAGE)
"""For each resource in `USAGE`: the capacity that a user declared, null if there is none."""


def _fields(kind: pa.DataType, *names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, kind) for name in names]


CYCLES = pa.schema(
    [
        ("policy", pa.string()),
        *_fields(pa.float64(), "at", "window", "max_age", "short_tau", "long_tau"),
        ("by_samples", pa.bool_()),
        *_fields(pa.float64(), "above_limit", "max_resets", "max_clock_skew", "min_samples", "nic_speed"),
        ("percent", pa.bool_()),
        ("horizon", pa.float64()),
    ]
)
"""``cycles``: a row per policy that is due, as in `Cycle`."""

TARGETS = pa.schema(
    [
        ("policy", pa.string()),
        ("shard", pa.int32()),
        *_fields(pa.string(), "broker", "pod"),
        *_fields(pa.float64(), *DECLARED, "last_resource_time", "last_traffic_time", "started"),
    ]
)
"""``targets``: a row per broker of a topology. ``shard``: null for a broker without a pod. ``last_...``: times
(epoch s) in the last state, null if unknown or older than the horizon. ``started``: when the newest container of the
pod started (epoch s), null if unknown."""

SIGNALS = pa.schema(
    [
        *_fields(pa.string(), "policy", "pod", "signal"),
        *_fields(pa.float64(), "value", "time", "interval", "cover", "samples", "resets", "copies"),
        ("report", pa.string()),
    ]
)
"""``signals``: a row per policy, pod and signal, and the reports of the shards.

``value``: units of a gauge, units/s of a counter. ``time``: epoch s of the newest sample. ``interval``: longest time
between samples (s) if none is missing. ``cover``: covered seconds of the window, null for a gauge. ``samples``: number
in the window. ``resets``: number in the window, null for a gauge. ``copies``: number of series of the same part."""

SIGNAL_LOADS = pa.schema(
    [
        *SIGNALS.remove(SIGNALS.get_field_index("report")),
        *_fields(pa.float64(), "limit", "age"),
        *_fields(pa.bool_(), "answered", "present"),
        *_fields(pa.string(), "doubt", "report"),
    ]
)
"""``loads``: the signals of the pods of a topology, and the reports of the shards.

``limit``: of a resource in `USAGE`, the value that counts as 100 %, or null. ``age`` to ``doubt``: of the pod, as
in `BROKER_LOAD`. Between ``brokers.sql`` and ``trust.sql`` the rows also have ``known`` (all values of the pod by
signal), ``is_usage`` (whether the signal is a resource in `USAGE`) and ``all_resets`` (the most resets of CPU or
network)."""

BROKER_LOAD = pa.schema(
    [
        ("policy", pa.string()),
        ("shard", pa.int32()),
        ("broker", pa.string()),
        *BROKER_STATE,
        *_fields(pa.float64(), *LIMITS, "age", "started"),
        *_fields(pa.bool_(), "answered", "present"),
        *_fields(pa.string(), "doubt", "report"),
    ]
)
"""A row per broker of a topology, and the reports of the shards.

``age``: seconds since its newest samples (since the oldest of them, if resources and traffic differ), null if a time is
unknown. ``started``: as in `TARGETS`. ``answered``: whether its shard got an answer. ``present``: whether any of its
resources is measured. ``doubt``: code of `trust`, null if the broker is trusted."""

RANGES = pa.schema(
    [
        *_fields(pa.string(), "policy", "namespace"),
        *_fields(pa.int32(), "cell", "cells"),
        *_fields(pa.int64(), "lower", "upper"),
        *_fields(pa.string(), "bundle", "owner"),
    ]
)
"""``ranges``: a row for each bundle and each cell of the hash ring that it touches.

A namespace's ring has ``cells`` equal cells. ``lower``, ``upper``: first hash of the bundle, and first hash after it.
``owner``: pod that should own it, or null."""

POD_TIMES = pa.schema(
    [
        ("policy", pa.string()),
        ("shard", pa.int32()),
        ("pod", pa.string()),
        ("traffic_time", pa.float64()),
        ("young", pa.bool_()),
    ]
)
"""``times``: a row per pod. ``traffic_time``: epoch s of its newest traffic sample; if null, the cycle's time counts.
``young``: whether its metrics are recent. If they are not, a bundle without a topic need not be idle."""

STATE = pa.schema([("policy", pa.string()), *BUNDLE_STATE])
"""``state``: the bundles of each policy after its last cycle."""

BUNDLE_LOAD = pa.schema([("policy", pa.string()), *BUNDLE_STATE, ("report", pa.string())])
"""The bundles after a cycle, and the reports of the shards. In a row without bundle and report, ``topics`` is the
number of topics outside all bundles."""


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


def table(cycles: Iterable[Cycle]) -> pa.Table:
    """The relation `CYCLES` of these cycles."""
    return pa.Table.from_pylist([asdict(cycle) for cycle in cycles], CYCLES)
