"""Profiles: how heavy each subscription is, averaged over time, and when it was last moved.

Idea. What consumers report jumps; a balance must not. So weights follow the reports through an average that forgets by
elapsed time, not by number of reports. Formula. weight' = r * a + weight * (1 - a) with a = 1 - exp(-elapsed / window)
and r the largest report of any active consumer. A subscription that nobody reports is forgotten, one that appears
later starts at 0 and ramps up; only into an empty store the first report is taken as it is.

Source. Hermes 2.21.0, profiles of the weighted balancer, with equal results to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trimtab_strategies.params import Compatibility
from trimtab_strategies.weights.work import NEVER, UNKNOWN_PROFILE, InvalidWorkError, NodeLoad, Profile


@dataclass(frozen=True, slots=True)
class Profiles:
    """Profiles by subscription, and when they were last brought up to date (ms)."""

    of: Mapping[str, Profile] = field(default_factory=dict)
    updated: float = NEVER


NO_PROFILES = Profiles()
"""An empty store."""


def smoothing(elapsed: float, window: float) -> float:
    """Share (0-1) that a new value gets after `elapsed` ms (backwards counts as none) in a window of `window` ms.

    Raises `InvalidWorkError` when the window is not above 0.
    """
    if not window > 0:
        raise InvalidWorkError(f"a window is {window} ms: it must be above 0")
    return 1 - math.exp(-max(elapsed, 0) / window)


def blended(before: float, value: float, alpha: float) -> float:
    """One step of the average: `alpha` (0-1) of the new value, the rest of the one before."""
    return value * alpha + before * (1 - alpha)


def averages(samples: Iterable[tuple[float, float]], window: float) -> list[float]:
    """The average after each (instant ms, value); the first is the value itself."""
    found: list[float] = []
    last = NEVER
    for now, value in samples:
        found.append(blended(found[-1], value, smoothing(_since(last, now), window)) if found else value)
        last = now
    return found


def _since(last: float, now: float) -> float:
    return math.inf if last == NEVER else now - last


def rebuilt(
    before: Profiles,
    loads: Mapping[str, NodeLoad],
    now: float,
    window: float,
    compatibility: Compatibility = Compatibility.JAVA,
) -> Profiles:
    """The profiles after the reports (`loads`) of the active consumers; `window` is in ms.

    Corrected: a subscription that is new to the store starts at its first report, and one that nobody reports (it is
    on its way between two consumers) keeps what is known of it.
    """
    corrected = compatibility is Compatibility.CORRECTED
    alpha = smoothing(_since(before.updated, now), window)
    found = dict(before.of) if corrected else {}
    for name, report in largest_reports(loads).items():
        known = before.of.get(name)
        start = report if corrected and known is None else (known or UNKNOWN_PROFILE).weight
        found[name] = Profile(blended(start, report, alpha), (known or UNKNOWN_PROFILE).last_rebalance)
    return Profiles(found, now)


def largest_reports(loads: Mapping[str, NodeLoad]) -> dict[str, float]:
    """By subscription the most operations/s that any consumer reports, at least 0."""
    found: dict[str, float] = {}
    for load in loads.values():
        for name, ops in load.ops.items():
            found[name] = max(found.get(name, 0.0), ops)
    return found


def stamped(profiles: Profiles, moved: Iterable[str], now: float) -> Profiles:
    """The profiles with `now` (ms) as last rebalance of the subscriptions that moved; who has no profile gets none."""
    stamps = {name: Profile(profiles.of[name].weight, now) for name in moved if name in profiles.of}
    return Profiles({**profiles.of, **stamps}, profiles.updated)
