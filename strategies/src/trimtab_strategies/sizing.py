"""Sizing advice: whether a cluster has about as many brokers as its load needs.

The load is the usage of the most used resource, over all brokers together: the sum of their usage, divided by the sum
of their limits. So a strong broker counts for more than a weak one. The advice is the number of average brokers that
would run at the target usage. A difference of one broker does not matter, and a single hour is no reason to add or
remove machines. So the usage is averaged, and a verdict is reported only when it holds for `patience` decisions in a
row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab_strategies.model import RESOURCES, ClusterLoad, Reason
from trimtab_strategies.usage import MOVING

HISTORY = 0.8
"""Ratio of the old average that one decision keeps."""

SLACK = 0.1
"""Tolerance, as a ratio of the target. With a target of 60 %, usage above 66 % is reported, and so is usage that would
stay below 54 % with one broker fewer."""

FEWEST = 3
"""Fewest brokers that remain after an advised removal: one may fail while another restarts."""


@dataclass(frozen=True, slots=True)
class SizingTarget:
    """Average usage that the brokers should have (ratio), and for how many decisions in a row a verdict must hold."""

    usage: float = 0.6
    patience: int = 10


@dataclass(frozen=True, slots=True)
class Sizing:
    """A cluster's size so far: its usage, and the advice.

    usage: average usage of the most used resource over all brokers (ratio), NaN at first. resource: the most used one
    in the last decision. brokers: number of brokers that the last decision counted. advised: number of brokers that the
    cluster should have.
    verdict: whether the last decision found it too small or too large; None: the size is right. streak: decisions in a
    row with that verdict. sure: whether `patience` decisions in a row ever agreed. said: the last verdict on which they
    agreed. wanted: number of brokers that an autoscaler should aim at; 0 if unknown. This number does not fall while
    a broker is not counted: a broker that restarts must not be scaled away.
    """

    usage: float = math.nan
    resource: str = ""
    brokers: int = 0
    advised: int = 0
    verdict: Reason | None = None
    streak: int = 0
    sure: bool = False
    said: Reason | None = None
    wanted: int = 0

    def after(self, load: ClusterLoad, aim: SizingTarget) -> Sizing:
        """The sizing after another decision on `load`; unchanged if fewer than half of the brokers are counted.

        Brokers are counted if they are ready, trusted and schedulable.
        """
        part = load.brokers.ready & load.brokers.trusted & load.brokers.schedulable
        if not part.any() or part.sum() * 2 < len(part):
            return self
        used, resource = most_used(load, part)
        usage = used if math.isnan(self.usage) else HISTORY * self.usage + (1 - HISTORY) * used
        brokers = int(part.sum())
        advised = max(1, math.ceil(round(brokers * usage / aim.usage, 6)))
        verdict = _verdict(usage, brokers, aim)
        streak = self.streak + 1 if verdict is self.verdict else 1
        agreed = streak >= aim.patience
        known = replace(self, usage=usage, resource=resource, brokers=brokers, verdict=verdict, streak=streak)
        advice = replace(known, advised=_bounded(advised, brokers, verdict), sure=self.sure or agreed)
        said = verdict if agreed else self.said
        number = advice.advised if verdict is said else brokers
        if not part.all():
            number = max(number, self.wanted)
        return replace(advice, said=said, wanted=number if advice.sure else 0)


def most_used(load: ClusterLoad, part: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[float, str]:
    """Usage (ratio of the sum of the limits) and name of the most used resource.

    Only resources whose usage moves with a bundle are compared. part: (n,) the brokers that are included. The usage is
    0 if nothing is known.
    """
    usage, limit = load.brokers.usage[part][:, MOVING], load.brokers.limit[part][:, MOVING]
    known = np.isfinite(usage) & np.isfinite(limit) & (limit > 0)
    sums = np.where(known, limit, 0).sum(axis=0)
    ratios = np.divide(np.where(known, usage, 0).sum(axis=0), sums, out=np.zeros(len(MOVING)), where=sums > 0)
    top = int(np.argmax(ratios))
    return float(ratios[top]), RESOURCES[MOVING[top]]


def _verdict(usage: float, brokers: int, aim: SizingTarget) -> Reason | None:
    if usage > aim.usage * (1 + SLACK):
        return Reason.TOO_SMALL
    spare = brokers > FEWEST and usage * brokers / (brokers - 1) < aim.usage * (1 - SLACK)
    return Reason.TOO_LARGE if spare else None


def _bounded(advised: int, brokers: int, verdict: Reason | None) -> int:
    if verdict is Reason.TOO_SMALL:
        return max(advised, brokers + 1)
    return min(max(advised, FEWEST), brokers - 1) if verdict is Reason.TOO_LARGE else brokers


UNASKED = Sizing(sure=True)
"""Value for a policy without advice."""
