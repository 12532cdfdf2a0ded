"""Decisions of TransferShedder on a generated cluster, in a short form."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab_strategies.model import ClusterLoad, Reason
from trimtab_strategies.protocols import Shedding
from trimtab_strategies.shedding.transfer.shedder import TransferShedder, TransferShedderParams

APART = {"bundles": {"a": [1, 2, 3, 4], "b": [1, 1]}, "a": 0.9, "b": 0.1}
"""One broker far above the other, its bundles a0 < a1 < a2 < a3."""


def shedder(**params: Any) -> TransferShedder:
    """A TransferShedder that acts in the first cycle unless `params` say otherwise."""
    return TransferShedder(TransferShedderParams(**{"hit_count": 1, **params}))


def shed(picture: ClusterLoad, memory: dict[str, Any] | None = None, **params: Any) -> Shedding:
    return shedder(**params).shed(picture, np.ones(len(picture.bundles), dtype=bool), memory or {})


def moves(shedding: Shedding) -> list[tuple[int, list[int], int, list[int]]]:
    """Source, bundles, destination and returned bundles of each decision."""
    return [(u.broker, u.bundles.tolist(), u.destination, u.returned.tolist()) for u in shedding.unloads]


def why(shedding: Shedding) -> Reason:
    assert not shedding.unloads
    (held_back,) = shedding.held_back
    return held_back.reason
