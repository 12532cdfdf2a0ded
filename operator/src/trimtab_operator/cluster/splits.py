"""`SplitRecord`: what the operator keeps of a BundleSplit object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.cluster.status import epoch
from trimtab_operator.resources.bundle_split import BundleSplitSpec, BundleSplitStatus, Phase

FINISHED = frozenset({Phase.COMPLETED, Phase.FAILED})
"""Phases after which nothing happens any more."""


@dataclass(frozen=True, slots=True)
class SplitRecord:
    """One BundleSplit at one resourceVersion.

    created, finished_at: epoch seconds, NaN never. conditions: as its status has them.
    owned: whether another object owns it, so that it goes when that goes.
    """

    name: str
    uid: str
    generation: int
    resource_version: str
    created: float
    finished_at: float
    owned: bool
    spec: BundleSplitSpec
    status: BundleSplitStatus
    conditions: tuple[Mapping[str, Any], ...]

    @property
    def finished(self) -> bool:
        """Whether it is Completed or Failed."""
        return self.status.phase in FINISHED

    @property
    def begun(self) -> bool:
        """Whether it was accepted, and has not ended."""
        return self.status.phase is Phase.SPLITTING


def split_record(raw: Mapping[str, Any]) -> SplitRecord:
    """The record of a BundleSplit object as the API server returns it."""
    meta, status = raw["metadata"], raw.get("status") or {}
    return SplitRecord(
        name=meta["name"],
        uid=meta["uid"],
        generation=meta["generation"],
        resource_version=meta["resourceVersion"],
        created=epoch(meta.get("creationTimestamp")),
        finished_at=epoch(status.get("finishedAt")),
        owned=bool(meta.get("ownerReferences")),
        spec=BundleSplitSpec.model_validate(raw["spec"]),
        status=BundleSplitStatus.model_validate(status),
        conditions=tuple(status.get("conditions") or ()),
    )
