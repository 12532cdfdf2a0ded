"""The settings and the time of a policy's cycle, as a row that every rule reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Self

import pyarrow as pa

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.transform.relations import CYCLES

_HORIZON = 3.0  # long time constants after which a state no longer matters


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle of `policy` at `at` (epoch seconds); the other fields are those of `PrometheusSettings` and `Trust`.

    by_samples: whether averages count samples, as Pulsar's do. percent: whether usage is in percent, so that limits are
    100. horizon: seconds after which a state, or a bundle that is no longer measured, is dropped.
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
