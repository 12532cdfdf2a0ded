"""What bundles that were cut out lately are believed to carry, until they are measured by their own names.

Without it a child counts as nothing at first: the broker it left would still be measured with its traffic, and give
others away for it; and the one it went to would look idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab_strategies.model import ClusterLoad, Split
from trimtab_strategies.model.load import FloatArray
from trimtab_strategies.splitting.boundaries import children
from trimtab_strategies.splitting.limits import Inside
from trimtab_strategies.topics import BundleName, parse_bundle

BELIEVED_FOR = 600.0
"""Seconds after which nothing is believed any more of a child that was still not measured."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A child's part of its parent's load. short, long: (4,) as in `Bundles`; until: seconds of the context's clock."""

    short: FloatArray
    long: FloatArray
    topics: float
    sessions: float
    until: float


def expected(splits: Sequence[Split], load: ClusterLoad, clock: float) -> dict[str, Expected]:
    """By Pulsar's spelling of each child of `splits`, its part of what `load` shows of its parent."""
    inside, found, bundles = Inside(load), dict[str, Expected](), load.bundles
    for split in splits:
        row = bundles.index[split.bundle]
        namespace, lower, upper = parse_bundle(split.bundle)
        shares = inside.shares(row, np.array(split.boundaries, dtype=np.int64)).tolist()
        for share, (left, right) in zip(shares, children(lower, upper, split.boundaries), strict=True):
            found[str(BundleName(namespace, left, right))] = Expected(
                short=bundles.short[row] * share,
                long=bundles.long[row] * share,
                topics=float(bundles.topics[row]) * share,
                sessions=float(bundles.sessions[row]) * share,
                until=clock + BELIEVED_FOR,
            )
    return found


def still_expected(known: Mapping[str, Expected], clock: float) -> dict[str, Expected]:
    """Of what is `known`, what is still believed."""
    return {name: part for name, part in known.items() if part.until > clock}


def with_expected(load: ClusterLoad, known: Mapping[str, Expected]) -> ClusterLoad:
    """The load in which bundles that were never measured carry what is `known` of them."""
    bundles = load.bundles
    rows = [(bundles.index[name], part) for name, part in known.items() if name in bundles.index]
    rows = [(row, part) for row, part in rows if not np.isfinite(bundles.short[row]).any()]
    if not rows:
        return load
    columns = {name: getattr(bundles, name).copy() for name in ("short", "long", "topics", "sessions")}
    for row, part in rows:
        for name, column in columns.items():
            column[row] = getattr(part, name)
    return replace(load, bundles=replace(bundles, **columns))
