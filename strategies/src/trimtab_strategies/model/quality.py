"""How reliable a snapshot is: what was missing, whom to doubt, and where the limits of the brokers come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trimtab_strategies.model.reason import Reason


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a broker's data is not trusted: a reason for programs, and a text with figures for people."""

    reason: Reason
    text: str


class LimitOrigin(StrEnum):
    """Where the limit of a broker's CPU or memory comes from."""

    CAPACITY = "spec.capacity of the Broker"
    CONTAINER = "the container's limit"
    RESIZED = "the container's limit in force, while a resize is pending"
    POD = "the pod's limit"
    NODE = "what the node can allocate, because the pod has no limit"
    METRICS = "the limit in the metrics"
    QUERY = "the policy's own query"


@dataclass(frozen=True)
class DataQuality:
    """How reliable the snapshot is.

    dropped:  number of unused samples by cause, as the load source names it (``NaN``, ``AboveLimit``, ...).
    missing_brokers, missing_bundles: number of those that exist in the cluster, but not in the source.
    failed:   (shard or query, error text) of every part of the source that did not answer.
    warnings: the source's own warnings about its answer (``warnings`` of Prometheus: partial data).
    doubts:   broker -> why it is not trusted, where that is known.
    notes:    oddities that do not make the data partial (a duplicate series, a clock that differs).
    limits:   broker -> resource -> origin of its limit, where that is known. A source in percent has none.
    """

    dropped: Mapping[str, int] = field(default_factory=dict)
    missing_brokers: int = 0
    missing_bundles: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    doubts: Mapping[str, Doubt] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    limits: Mapping[str, Mapping[str, LimitOrigin]] = field(default_factory=dict)

    @property
    def partial(self) -> bool:
        """Whether some part of the source did not answer, or warned that its answer is incomplete."""
        return bool(self.failed or self.warnings)
