"""Tells replicas from different things with the same name, among several series about one pod.

Two replicas of Prometheus, or two scrape jobs, see the same counter or gauge at slightly different times. Two clusters
in one store, or a kubelet that still reports a pod that it has lost, show different ones. Only the values tell these
cases apart. Series are compared while both have samples, so one that has ended, such as that of a container before its
restart, is compared with none. Some servers still show such a container for minutes, with the values that it had at its
end: a series that has not changed since another one began was replaced by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_strategies.model import some
from trimtab_strategies.model.cluster_load import FloatArray

_SKEW = 30.0
"""Seconds by which one scrape may see an older value than another: kubelets measure containers at intervals."""
_LIVE = 2.5  # longest time between samples that a series may lack its newest ones and still count as live
_ALIKE = 0.05  # ratio: values that differ less are the same
_EXACT = 1e-6  # ratio by which stores round values
_MOST = 0.5  # ratio of samples that replicas have in common; a restart between them hides some
_PAIR = 2  # samples that are enough to compare ranges; means need more
_NAMED = 4  # values that a text names
_LOCAL = (
    *("instance", "job", "node", "nodename", "kubernetes_node", "host", "hostname", "endpoint", "service"),
    *(
        "id",
        "name",
        "image",
        "uid",
        "container_id",
        "host_ip",
        "pod_ip",
        "metrics_path",
        "prometheus_replica",
        "replica",
    ),
)
"""Labels that name one thing of a cluster or one scrape: a matcher of such a label would suit only some brokers."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One of several series with the same name. points: (k, 2) times and values, oldest first; not empty."""

    labels: Mapping[str, str]
    points: FloatArray


def apart(copies: Sequence[Copy], *, counter: bool) -> list[list[Copy]]:
    """The live `copies` in groups: those of a group may be replicas, those of different groups are not."""
    known = [Copy(one.labels, rows) for one in copies if len(rows := one.points[np.isfinite(one.points[:, 1])])]
    newest = max((one.points[-1, 0] for one in known), default=0.0)
    differ = _counters_differ if counter else _gauges_differ
    groups: list[list[Copy]] = []
    for one in known:
        if newest - one.points[-1, 0] > max(_LIVE * _interval(one.points), _SKEW):
            continue
        same = [
            group
            for group in groups
            if not any(differ(one.points, other.points) for other in group if _both(one, other))
        ]
        if same:
            same[0].append(one)
        else:
            groups.append([one])
    return groups


def replaced(copies: Sequence[Copy], *, counter: bool) -> list[bool]:
    """Which of the `copies` have not changed since another one began that is no replica of theirs."""
    differ = _counters_differ if counter else _gauges_differ
    return [
        any(_stopped_at(one.points, other.points) and differ(one.points, other.points) for other in copies)
        for one in copies
    ]


def _stopped_at(one: FloatArray, other: FloatArray) -> bool:
    """Whether `one` has samples from before `other` began, one value since then, and none from after `other`."""
    begin, end = other[[0, -1], 0]
    since = one[np.searchsorted(one[:, 0], begin) :]
    before, lasts = one[0, 0] < begin - _LIVE * _interval(one), one[-1, 0] <= end + _LIVE * _interval(other)
    return bool(before and lasts and len(since) and np.ptp(since[:, 1]) == 0)


def _both(one: Copy, other: Copy) -> bool:
    """Whether both have had samples at the same time."""
    return bool(max(one.points[0, 0], other.points[0, 0]) <= min(one.points[-1, 0], other.points[-1, 0]))


def _interval(points: FloatArray) -> float:
    """Usual seconds between samples; 0 if there is only one."""
    return float(np.median(np.diff(points[:, 0]))) if len(points) > 1 else 0.0


def _counters_differ(a: FloatArray, b: FloatArray) -> bool:
    """Whether neither counter has had most of the other's values at about their time."""
    slack = max(_SKEW, 2 * _interval(a), 2 * _interval(b))
    return max(_share_had(a, b, slack), _share_had(b, a, slack)) < _MOST


def _share_had(counter: FloatArray, samples: FloatArray, slack: float) -> float:
    """Ratio of the `samples` whose values `counter` may have had within `slack` seconds, of those at its time."""
    times, values = counter.T
    at, seen = samples[(samples[:, 0] >= times[0]) & (samples[:, 0] <= times[-1] + slack)].T
    if not len(at):
        return 1.0
    begin, end = at - slack, at + slack
    near = (times >= begin[:, None]) & (times <= end[:, None])
    edges = np.interp([begin, end], times, values)
    rising = slack * max(0.0, float((values[-1] - values[0]) / max(times[-1] - times[0], 1.0)))
    low = np.fmin(edges.min(axis=0), np.where(near, values, np.inf).min(axis=1)) - rising * (begin < times[0])
    high = np.fmax(edges.max(axis=0), np.where(near, values, -np.inf).max(axis=1)) + rising * (end > times[-1])
    return float(np.mean((low * (1 - _EXACT) <= seen) & (seen <= high * (1 + _EXACT) + _EXACT)))


def _gauges_differ(a: FloatArray, b: FloatArray) -> bool:
    """Whether two gauges have no value in common while both have samples, or different means for their spread."""
    begin = max(a[0, 0], b[0, 0])
    a, b = (points[points[:, 0] >= begin, 1] for points in (a, b))
    few = min(len(a), len(b))
    if few < _PAIR:
        return False
    both = np.concatenate([a, b])
    size, spread = float(np.abs(both).max()), float(np.ptp(both))
    if max(a.min() - b.max(), b.min() - a.max()) > _ALIKE * size:
        return True
    return few > _PAIR and abs(float(a.mean() - b.mean())) > 2 * spread / few + _ALIKE * size


def differing(found: Iterable[tuple[str, Sequence[Sequence[Copy]]]]) -> str:
    """What is wrong with series about one pod that are no replicas, and which matcher helps; empty if nothing is.

    found: for each signal, its name for users and its groups (`apart`).
    """
    signals = {name: groups for name, groups in found if len(groups) > 1}
    if not signals:
        return ""
    told = [_telling_labels(groups) for groups in signals.values()]
    common = {name: values for name, values in told[0].items() if all(name in labels for labels in told)} or told[0]
    shown = f"different series claim to be its {', '.join(signals)}, and their values are not those of replicas"
    if not common:
        return f"{shown}; no label tells them apart: see what writes them into the source"
    label, values = next(iter(common.items()))
    differ = f"{shown}: they differ in the label {label} ({some([value or '(none)' for value in values], _NAMED)})"
    if label in _LOCAL:
        return f"{differ}; see which of them has the pod, and why the source still gets the other"
    example = next(value for value in values if value)
    return f"{differ}; name the right one in source.prometheus.matchers, such as {label}: {example} (--matcher)"


def _telling_labels(groups: Sequence[Sequence[Copy]]) -> dict[str, tuple[str, ...]]:
    """Labels with another value in each group, and these values; labels that suit a matcher come first."""
    names = sorted({name for group in groups for one in group for name in one.labels})
    values = {name: [{one.labels.get(name, "") for one in group} for group in groups] for name in names}
    telling = {
        name: tuple(sorted(set[str]().union(*theirs)))
        for name, theirs in values.items()
        if all(len(one) == 1 for one in theirs) and len(set[str]().union(*theirs)) == len(groups)
    }
    return dict(sorted(telling.items(), key=lambda item: (item[0] in _LOCAL, item[0])))
