"""Trust in samples: the closed list of why samples are not used, and a verdict on each broker.

A broker is trusted when its part of the source answered, its newest samples are recent and not from the future, each
resource that this cluster measures is known, with its limit, and possible, and its samples neither stopped nor leave
too much of the window of a rate uncovered. Only the first problem is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from trimtab_pipeline.api import PrometheusSettings, Topology
from trimtab_pipeline.columns import CHECKS
from trimtab_pipeline.transform.rates import ENOUGH
from trimtab_strategies.model import RESOURCES, Doubt, Reason, counted, some
from trimtab_strategies.model.cluster_load import CPU, MEMORY, BoolArray, FloatArray

_ABOVE = 1.0  # ratio of the limit: worth counting
_NAMED = 3  # brokers that a note names
_LATE = 1.5  # intervals of a resource's own samples after which they have stopped
_BUSY = 5.0  # seconds by which a busy machine may be late, however short the intervals are
_BLIND = 3.0  # part of the window that may be without samples at its end, however short their intervals are


class Drop(StrEnum):
    """Why samples were not used, or were changed: the causes in `DataQuality.dropped`. The comments name the unit."""

    NAN = "NaN"  # samples that are not a number
    INFINITE = "Infinite"  # samples
    NEGATIVE = "Negative"  # negative samples of a quantity that can't be negative
    ABOVE_LIMIT = "AboveLimit"  # resources of brokers; used up to `Trust.above_limit`
    NO_LIMIT = "NoLimit"  # resources of brokers that have usage but no known limit
    DUPLICATE = "Duplicate"  # series, rows of bundles, or brokers on one pod, that are there more than once
    UNKNOWN = "Unknown"  # bundles or topics that no resource knows
    GAP = "Gap"  # brokers with too few samples for a rate
    RESET = "Reset"  # brokers whose counters were reset too often
    CLOCK_SKEW = "ClockSkew"  # brokers with samples from the future
    DISAPPEARED = "Disappeared"  # brokers that are no longer measured
    OUT_DATED = "OutDated"  # brokers and bundles whose newest sample is too old


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence about n brokers.

    usage, limit: (n, 5). age: (n,) seconds. answered: (n,) whether its part of the source did; checks: (n, 4) columns
    `CHECKS`, NaN unknown. sampled_age, interval, cover: (n, 5) seconds since the newest sample of each resource,
    between its samples, and covered of the window of a rate; NaN unknown.
    """

    usage: FloatArray
    limit: FloatArray
    age: FloatArray
    answered: BoolArray
    checks: Mapping[str, FloatArray]
    sampled_age: FloatArray
    interval: FloatArray
    cover: FloatArray

    @property
    def present(self) -> BoolArray:
        """Brokers with any measurement."""
        present: BoolArray = self.answered & ~np.isnan(self.usage).all(axis=1)
        return present


@dataclass(slots=True)
class Doubts:
    """The first doubt about each broker, and the counts of dropped samples.

    found: by name. dropped: by `Drop`. notes: oddities that do not make data doubtful.
    """

    names: tuple[str, ...]
    dropped: Counter[str]
    found: dict[str, Doubt] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def trusted(self) -> BoolArray:
        """(mask, n) brokers without a doubt."""
        return np.array([name not in self.found for name in self.names], bool)

    def add(self, rows: BoolArray, reason: Reason, text: Callable[[int], str], drop: Drop | None = None) -> None:
        """Add a doubt about these rows (mask), which counts as `drop` where it is the first."""
        for row in np.flatnonzero(rows & self.trusted).tolist():
            self.found[self.names[row]] = Doubt(reason, text(row))
            if drop is not None:
                self.dropped[drop] += 1

    def note(self, rows: BoolArray, text: str) -> None:
        """Add a note about these rows."""
        if names := [self.names[row] for row in np.flatnonzero(rows)]:
            self.notes.append(f"{some(names, _NAMED)}: {text}")


def doubts_about(evidence: Evidence, topology: Topology, settings: PrometheusSettings, dropped: Counter[str]) -> Doubts:
    """The doubts about brokers (rows as in `topology`); `dropped` counts."""
    doubts = Doubts(topology.brokers, dropped)
    _absent(doubts, evidence, topology, settings)
    _oddly_sampled(doubts, evidence, settings)
    _badly_covered(doubts, evidence, settings.window)
    _impossible(doubts, evidence, settings)
    return doubts


def measured_resources(evidence: Evidence) -> BoolArray:
    """(5,) resources that are measured anywhere. CPU and memory always count: if one is measured nowhere, no broker is
    trusted. Otherwise a full broker would look empty as soon as its memory is not measured."""
    measured: BoolArray = np.asarray(~np.isnan(evidence.usage[evidence.present]).all(axis=0))
    measured[[CPU, MEMORY]] = True
    return measured


def _absent(doubts: Doubts, evidence: Evidence, topology: Topology, settings: PrometheusSettings) -> None:
    """Doubt brokers that did not answer, share a pod, were never measured, are no longer measured, or are too old."""
    present, age = evidence.present, evidence.age
    doubts.add(~evidence.answered, Reason.PARTIAL_DATA, lambda _: "its part of the source did not answer")
    pods = np.array(topology.pods, object)
    _, which, count = np.unique(pods, return_inverse=True, return_counts=True)
    shared = (count[which] > 1) & (pods != "")
    doubts.add(shared, Reason.UNTRUSTED, lambda row: f"another broker names its pod {pods[row]}, too", Drop.DUPLICATE)
    doubts.add(~present & ~np.isfinite(age), Reason.NO_LOAD_DATA, lambda _: "never measured")
    bound = f"older than {settings.max_age:g} s (source.prometheus.maxAge)"
    gone = "not measured any more"
    doubts.add(
        ~present, Reason.OUT_DATED_DATA, lambda row: f"{gone}; newest sample {age[row]:.0f} s old", Drop.DISAPPEARED
    )
    doubts.add(
        ~np.isfinite(age), Reason.NO_LOAD_DATA, lambda _: "the time of its samples, or of its traffic, is unknown"
    )
    doubts.add(
        age > settings.max_age,
        Reason.OUT_DATED_DATA,
        lambda row: f"newest sample {age[row]:.0f} s old, {bound}",
        Drop.OUT_DATED,
    )


def _oddly_sampled(doubts: Doubts, evidence: Evidence, settings: PrometheusSettings) -> None:
    """Doubt brokers whose samples are from the future, too few, or reset all the time; note duplicates."""
    trust = settings.trust
    samples, resets, copies, ahead = (evidence.checks[name] for name in CHECKS)
    doubts.add(
        ahead > 0,
        Reason.UNTRUSTED,
        lambda _: (
            f"has samples more than {trust.max_clock_skew:g} s in the future (trust.maxClockSkew); set the clocks"
        ),
        Drop.CLOCK_SKEW,
    )
    doubts.add(
        resets > trust.max_resets,
        Reason.UNTRUSTED,
        lambda row: f"{resets[row]:.0f} counter resets in {settings.window:g} s, more than trust.maxResets",
        Drop.RESET,
    )
    doubts.note(
        (resets > 0) & doubts.trusted, "counters were reset within the window of the rates, which take account of it"
    )
    few = np.nan_to_num(samples) < trust.min_samples
    doubts.add(
        few & ~np.isnan(samples).all(),  # without an answer no query was sent
        Reason.UNTRUSTED,
        lambda row: (
            f"{counted(int(np.nan_to_num(samples[row])), 'sample')} of CPU in {settings.window:g} s, "
            f"{trust.min_samples} make a rate (trust.minSamples)"
        ),
        Drop.GAP,
    )
    if few.all() and np.nan_to_num(samples).any():
        doubts.notes.append(_unreachable(float(np.nanmax(samples)), settings))
    twice = copies > 1
    doubts.note(
        twice,
        "the same series is there more than once (two replicas of the server, or two scrape jobs); the newest counts",
    )
    if extra := int((copies[twice] - 1).sum()):
        doubts.dropped[Drop.DUPLICATE] += extra


def _badly_covered(doubts: Doubts, evidence: Evidence, window: float) -> None:
    """Doubt brokers whose samples of a resource stopped, or cover too little of the window (seconds) for a rate."""
    for column in np.flatnonzero(measured_resources(evidence)).tolist():
        resource, age, interval = RESOURCES[column], evidence.sampled_age[:, column], evidence.interval[:, column]
        bound = np.fmax(_LATE * np.where(np.isnan(interval), window / 2, interval), max(window / _BLIND, _BUSY))
        doubts.add(
            age > bound,
            Reason.OUT_DATED_DATA,
            _stopped(resource, age, interval, bound),
            Drop.OUT_DATED,
        )
        _covers_little(doubts, resource, evidence.cover[:, column], window)


def _stopped(resource: str, age: FloatArray, interval: FloatArray, bound: FloatArray) -> Callable[[int], str]:
    def text(row: int) -> str:
        usual = "" if np.isnan(interval[row]) else f", and they came every {interval[row]:.3g} s"
        return f"newest sample of {resource} {age[row]:.0f} s old{usual}: older than {bound[row]:.3g} s; is it scraped?"

    return text


def _covers_little(doubts: Doubts, resource: str, cover: FloatArray, window: float) -> None:
    doubts.add(
        cover < ENOUGH * window,
        Reason.UNTRUSTED,
        lambda row: (
            f"its samples of {resource} cover {cover[row]:.3g} s of {window:g} s, {ENOUGH * window:.3g} s make a rate; "
            "wait, or widen the source's window if that lasts"
        ),
        Drop.GAP,
    )


def _unreachable(most: float, settings: PrometheusSettings) -> str:
    """The fix when not even the best sampled broker, with `most` samples in the window, has enough of them."""
    least, window = settings.trust.min_samples, settings.window
    if most < 1:
        return (
            f"no broker has a whole sample of CPU in {window:g} s (the most is {most:g}), and {least} make a rate "
            "(trust.minSamples); correct the query of samples, which must count them"
        )
    whole = int(most)
    return (
        f"no broker has more than {counted(whole, 'sample')} of CPU in {window:g} s; if that lasts, they are scraped "
        f"every {window / whole:.0f} s or so, and trust.minSamples {least} can't be met: lower it to 3/4 of window / "
        "scrape interval, or widen the source's window"
    )


def _impossible(doubts: Doubts, evidence: Evidence, settings: PrometheusSettings) -> None:
    """Doubt brokers whose usage is unknown in a resource that others measure, has no limit, or is impossible."""
    usage, limit, present = evidence.usage, evidence.limit, evidence.present
    unlimited = ~(limit > 0) & ~np.isnan(usage)
    ratio = usage / np.where(limit > 0, limit, np.nan)
    for cause, cells in {Drop.NO_LIMIT: unlimited, Drop.ABOVE_LIMIT: ratio > _ABOVE}.items():
        if count := int(cells[present].sum()):
            doubts.dropped[cause] += count
    for column in np.flatnonzero(measured_resources(evidence)).tolist():
        _impossible_in(doubts, RESOURCES[column], unlimited[:, column], ratio[:, column], settings.trust.above_limit)


def _impossible_in(doubts: Doubts, resource: str, unlimited: BoolArray, ratio: FloatArray, above: float) -> None:
    doubts.add(unlimited, Reason.UNTRUSTED, lambda _: f"its limit of {resource} is unknown")
    doubts.add(np.isnan(ratio), Reason.UNTRUSTED, lambda _: f"its {resource} is unknown")
    doubts.add(
        ratio > above,
        Reason.UNTRUSTED,
        lambda row: f"its {resource} is {ratio[row]:.0%} of the limit, more than {above:g} times (trust.aboveLimit)",
    )
