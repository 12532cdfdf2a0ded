"""Trust in samples: all reasons why samples are not used, a verdict on each broker, and its text for users.

`doubted` finds what is wrong with each broker, from its own samples. `judged` compares all brokers of a policy: what is
wrong with a resource that none of them has does not count. `doubt_of` has the text of each doubt.

A broker is trusted when all of this holds. Only the first problem is reported, as a code.
- The queries about its shard got an answer.
- Its newest samples are recent, and not from the future.
- If several series claim to be the same, they are replicas.
- No container of its pod has just started. This is not required if the broker reports its usage itself.
- Its usage of each resource that this cluster measures is known and possible, and the limit of the resource is known.
- Its samples have not stopped, and cover enough of the window of a rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab_pipeline.columns import LIMITED, SAMPLED_COVER, SAMPLED_INTERVAL, SAMPLED_TIME, TRAFFIC, USAGE
from trimtab_pipeline.transform.arrays import block, floats
from trimtab_pipeline.transform.rates import ENOUGH
from trimtab_pipeline.transform.relations import LIMITS, UNSURE, Cycle
from trimtab_strategies.model import RESOURCES, Doubt, Reason, counted
from trimtab_strategies.model.cluster_load import CPU, MEMORY, NETWORK_IN, NETWORK_OUT, BoolArray, FloatArray

_LATE = 1.5  # intervals of a resource's own samples after which they count as stopped
_BUSY = 5.0  # samples up to this age (seconds) never count as stopped, because a busy machine may send them late
_BLIND = 3.0  # up to 1/3 of the window may lack samples at its end, however short the intervals are
_NETWORK = [NETWORK_IN, NETWORK_OUT]
_MOST = 1.1  # ratio of an enforced limit that measured usage may reach, because samples do not begin at the same time
_THROTTLED = 0.5  # ratio of throttled periods from which usage must be high, too
_USED = 0.75  # ratio of the usage that throttling proves which must be measured
_UNSURE = 0.025  # ratio of the limit by which estimates of usage may differ
_ABOVE = 1.0  # ratio of the limit above which usage is counted as `AboveLimit`
Row = Mapping[str, Any]


class Drop(StrEnum):
    """Why samples were not used, or were changed: the causes in `DataQuality.dropped`. Comments say what is counted."""

    NAN = "NaN"  # samples that are not a number
    INFINITE = "Infinite"  # infinite samples
    NEGATIVE = "Negative"  # negative samples of a quantity that can't be negative
    ABOVE_LIMIT = "AboveLimit"  # resources of brokers with usage above their limit; trusted up to `Trust.above_limit`
    NO_LIMIT = "NoLimit"  # resources of brokers that have usage but no known limit
    DUPLICATE = "Duplicate"  # series or rows of bundles that exist more than once, brokers that share a pod
    UNKNOWN = "Unknown"  # bundles without a Bundle object, topics outside all bundles
    UNKNOWN_NAME = "UnknownName"  # topics whose names are of an unknown kind
    GAP = "Gap"  # brokers with too few samples for a rate
    RESET = "Reset"  # brokers whose counters were reset too often
    RESTARTED = "Restarted"  # brokers whose containers have just started
    CLOCK_SKEW = "ClockSkew"  # brokers with samples from the future
    DISAPPEARED = "Disappeared"  # brokers that are no longer measured
    OUT_DATED = "OutDated"  # brokers and bundles whose newest sample is too old


def doubted(loads: pa.Table, cycle: Cycle) -> pa.Table:
    """`relations.BROKER_LOAD` with the doubts about each broker. loads: all brokers of one or more shards."""
    doubts = _absent(loads, cycle) | _oddly_sampled(loads, cycle)
    for check in (_badly_covered, _impossible):
        for resource in range(len(USAGE)):
            doubts |= check(loads, resource, cycle)
    doubts |= _contradicted(loads, cycle)
    rows = zip(*(applies.tolist() for applies in doubts.values()), strict=True)
    codes = [[code for code, applies in zip(doubts, row, strict=True) if applies] for row in rows]
    return _replaced(loads, doubts=codes)


def unanswered(loads: pa.Table) -> pa.Table:
    """`relations.BROKER_LOAD` of a shard whose bundles could not be read."""
    return _replaced(loads, answered=[False] * len(loads), doubts=[["partial"]] * len(loads))


def judged(loads: pa.Table) -> pa.Table:
    """`relations.BROKER_LOAD` of all brokers of a policy, with the first doubt about each that counts.

    A doubt about a resource counts if any of the brokers has that resource. If the samples of CPU are known of no
    broker, their query was not sent.
    """
    measured = measured_resources(loads)
    ignored = {code for code, resource in _ABOUT.items() if not measured[resource]}
    if np.isnan(floats(loads, "samples")).all():
        ignored.add("few_samples")
    first = (next((code for code in codes if code not in ignored), None) for codes in loads["doubts"].to_pylist())
    return _replaced(loads, doubt=list(first))


def _replaced(loads: pa.Table, **columns: list[Any]) -> pa.Table:
    for name, values in columns.items():
        at = loads.schema.get_field_index(name)
        loads = loads.set_column(at, loads.schema.field(at), pa.array(values, loads.schema.field(at).type))
    return loads


def measured_resources(loads: pa.Table) -> BoolArray:
    """(5,) resources in `USAGE` that are measured on any of the present brokers in `relations.BROKER_LOAD`.

    If it is unclear of one broker which network devices count, its network can't be compared with that of the others.

    CPU and memory always count: if one is measured nowhere, no broker is trusted. Otherwise a broker with full memory
    would seem to have room as soon as memory is measured nowhere.
    """
    present, unclear = (loads[name].to_numpy(zero_copy_only=False).astype(bool) for name in ("present", "unclear"))
    measured: BoolArray = np.asarray(~np.isnan(block(loads, USAGE)[present]).all(axis=0))
    measured[[NETWORK_IN, NETWORK_OUT]] &= not unclear.any()
    measured[[CPU, MEMORY]] = True
    return measured


def allowed_age(interval: FloatArray, window: float) -> FloatArray:
    """Seconds after which samples with these intervals (seconds, NaN if unknown) count as stopped."""
    usual = np.where(np.isnan(interval), window / 2, interval)
    return np.fmax(_LATE * usual, max(window / _BLIND, _BUSY))


def _absent(loads: pa.Table, cycle: Cycle) -> dict[str, BoolArray]:
    """Brokers whose shard got no answer, that share a pod, or whose data is missing, too old or of unknown age."""
    answered, present = (loads[name].to_numpy().astype(bool) for name in ("answered", "present"))
    age = floats(loads, "age")
    return {
        "partial": ~answered,
        "shared_pod": _sharing(loads["pod"]),
        "never": ~present & np.isnan(age),
        "gone": ~present,
        "time_unknown": np.isnan(age),
        "old": age > cycle.max_age,
        "apart": loads["apart"].is_valid().to_numpy(zero_copy_only=False),
    }


def _sharing(pods: pa.ChunkedArray) -> BoolArray:
    """(n,) whether several brokers name the same pod."""
    names = np.array(pods.to_pylist(), object)
    _, which, count = np.unique(names, return_inverse=True, return_counts=True)
    sharing: BoolArray = (count[which] > 1) & (names != "")
    return sharing


def _oddly_sampled(loads: pa.Table, cycle: Cycle) -> dict[str, BoolArray]:
    """Brokers with samples from the future, too few samples, a restarted container, or too many counter resets.

    A counter does not show every restart: if the broker restarts between two samples, the newer sample may already be
    above the older one. A start in the near future counts, too, because it comes from a wrong clock.
    """
    samples, since = floats(loads, "samples"), np.abs(cycle.at - floats(loads, "started"))
    return {
        "ahead": floats(loads, "ahead") > 0,
        "restarted": (since < cycle.window) & (not cycle.percent),
        "resets": floats(loads, "resets") > cycle.max_resets,
        "few_samples": np.nan_to_num(samples) < cycle.min_samples,
    }


def _badly_covered(loads: pa.Table, column: int, cycle: Cycle) -> dict[str, BoolArray]:
    """Brokers whose samples of the resource `column` stopped, or cover too little of the window for a rate."""
    age = np.maximum(cycle.at - floats(loads, SAMPLED_TIME[column]) - np.nan_to_num(floats(loads, "behind")), 0.0)
    bound = allowed_age(floats(loads, SAMPLED_INTERVAL[column]), cycle.window)
    covered = floats(loads, SAMPLED_COVER[column])
    name = USAGE[column]
    return {f"stopped_{name}": age > bound, f"cover_{name}": covered < ENOUGH * cycle.window}


def _contradicted(loads: pa.Table, cycle: Cycle) -> dict[str, BoolArray]:
    """Brokers whose usage contradicts a limit that the kernel enforces: another limit is in force, or it is another's.

    Nothing uses much more than its limit. A broker that serves traffic uses CPU. A broker that is throttled in a share
    of its periods has used up its limit in each of them, so its usage is about that share of the limit, or more.
    """
    usage, limit, throttled = (floats(loads, name) for name in ("cpu", "limit_cpu", "throttled"))
    enforced = {name: ~_chosen(loads, name) & (not cycle.percent) for name in LIMITED}
    over = {f"over_{name}": floats(loads, name) > _MOST * floats(loads, f"limit_{name}") for name in LIMITED}
    slowed = (throttled >= _THROTTLED) & (usage < _USED * throttled * limit)
    doubts = {code: enforced[code.removeprefix("over_")] & applies for code, applies in over.items()}
    served = np.nansum(block(loads, TRAFFIC[:2]), axis=1) > 0
    hung = served & (floats(loads, "still") > 0)
    card, used, limits = floats(loads, "network_limit")[:, None], block(loads, USAGE), block(loads, LIMITS)
    doubts["over_network"] = ((used > _MOST * card) & (limits == card))[:, _NETWORK].any(axis=1)
    return doubts | {"throttled": enforced["cpu"] & slowed, "still": hung}


def _chosen(loads: pa.Table, resource: str) -> BoolArray:
    """(n,) whether a user chose the limit of `resource`."""
    return np.array([resource in (found or ()) for found in loads["chosen"].to_pylist()], bool)


def _impossible(loads: pa.Table, column: int, cycle: Cycle) -> dict[str, BoolArray]:
    """Brokers whose usage of the resource `column` has no limit, is unknown, or is impossible."""
    usage, limit, name = floats(loads, USAGE[column]), floats(loads, LIMITS[column]), USAGE[column]
    return {
        f"no_limit_{name}": ~(limit > 0) & ~np.isnan(usage),
        f"unknown_{name}": np.isnan(usage),
        f"above_{name}": usage > cycle.above_limit * limit,
        f"unsure_{name}": floats(loads, UNSURE[column]) > _UNSURE * limit,
    }


@dataclass(frozen=True, slots=True)
class _Kind:
    """A doubt. reason: what strategies see. drop: the cause that it is counted as. text: makes its text for users."""

    reason: Reason
    text: Callable[[Row, Cycle], str]
    drop: Drop | None = None


def doubt_of(row: Row, cycle: Cycle) -> Doubt:
    """The doubt about a broker, a row of `relations.BROKER_LOAD` with a code in ``doubt``."""
    kind = _KINDS[row["doubt"]]
    return Doubt(kind.reason, kind.text(row, cycle))


def dropped(loads: pa.Table) -> Counter[str]:
    """Number of brokers, resources and series of `relations.BROKER_LOAD`, unused or above a limit, by `Drop`."""
    drops = (_KINDS[code].drop for code in loads["doubt"].drop_null().to_pylist())
    counts = Counter(str(drop) for drop in drops if drop is not None)
    usage, limit = (block(loads, names)[loads["present"].to_numpy().astype(bool)] for names in (USAGE, LIMITS))
    copies = floats(loads, "copies")
    counts[Drop.NO_LIMIT] += int((~(limit > 0) & ~np.isnan(usage)).sum())
    counts[Drop.ABOVE_LIMIT] += int((usage / np.where(limit > 0, limit, np.nan) > _ABOVE).sum())
    counts[Drop.DUPLICATE] += int((copies[copies > 1] - 1).sum())
    return +counts


def _restarted(row: Row, cycle: Cycle) -> str:
    since = max(0.0, cycle.at - row["started"])
    return f"a container of its pod started {since:.0f} s ago, and a rate covers {cycle.window:g} s"


def _few_samples(row: Row, cycle: Cycle) -> str:
    samples = counted(int(row["samples"] or 0), "sample")
    return f"{samples} of CPU in {cycle.window:g} s, a rate needs {cycle.min_samples:g} (trust.minSamples)"


def _stopped(name: str, resource: str) -> Callable[[Row, Cycle], str]:
    def text(row: Row, cycle: Cycle) -> str:
        age, interval = max(cycle.at - row[f"{name}_time"], 0.0), row[f"{name}_interval"]
        bound = float(allowed_age(np.array(interval, np.float64), cycle.window))
        usual = "" if interval is None else f", and they came every {interval:.3g} s"
        return f"newest sample of {resource} {age:.0f} s old{usual}: older than {bound:.3g} s; is it scraped?"

    return text


def _covers_little(name: str, resource: str) -> Callable[[Row, Cycle], str]:
    def text(row: Row, cycle: Cycle) -> str:
        cover, window = row[f"{name}_cover"], cycle.window
        return (
            f"its samples of {resource} cover {cover:.3g} s of {window:g} s, a rate needs {ENOUGH * window:.3g} s; "
            "wait, or widen the source's window if that lasts"
        )

    return text


def _above(name: str, resource: str) -> Callable[[Row, Cycle], str]:
    def text(row: Row, cycle: Cycle) -> str:
        ratio = row[name] / row[f"limit_{name}"]
        return f"its {resource} is {ratio:.0%} of the limit, more than {cycle.above_limit:g} times (trust.aboveLimit)"

    return text


def _over(name: str) -> Callable[[Row, Cycle], str]:
    def text(row: Row, _cycle: Cycle) -> str:
        ratio = row[name] / row[f"limit_{name}"]
        return (
            f"its {name} is {ratio:.0%} of a limit that it can't exceed: another limit is in force, or it is that of "
            "another pod; set spec.capacity of the Broker if you know the limit"
        )

    return text


def _slowed(row: Row, _cycle: Cycle) -> str:
    return (
        f"its CPU is throttled in {row['throttled']:.0%} of the periods at {row['cpu'] / row['limit_cpu']:.0%} of the "
        "limit: a lower limit is in force; is a resize pending?"
    )


def _unsure(name: str, resource: str) -> Callable[[Row, Cycle], str]:
    def text(row: Row, _cycle: Cycle) -> str:
        ratio = row[f"{name}_unsure"] / row[f"limit_{name}"]
        return (
            f"its {resource} is known only to {ratio:.0%} of the limit, because its counter falls or stands still for "
            "a while: values come late; see how the source merges replicas, or widen its window"
        )

    return text


def _says(text: str) -> Callable[[Row, Cycle], str]:
    """Makes a text from `text`, which may name columns of the row and fields of the cycle."""
    return lambda row, cycle: text.format(row=row, cycle=cycle)


def _of_resource(name: str, resource: str) -> dict[str, _Kind]:
    """The doubts about a resource. name: the resource's column. resource: the resource's name for users."""
    return {
        f"stopped_{name}": _Kind(Reason.OUT_DATED_DATA, _stopped(name, resource), Drop.OUT_DATED),
        f"cover_{name}": _Kind(Reason.UNTRUSTED, _covers_little(name, resource), Drop.GAP),
        f"no_limit_{name}": _Kind(Reason.UNTRUSTED, _says(f"its limit of {resource} is unknown")),
        f"unknown_{name}": _Kind(Reason.UNTRUSTED, _says(f"its {resource} is unknown")),
        f"above_{name}": _Kind(Reason.UNTRUSTED, _above(name, resource)),
        f"unsure_{name}": _Kind(Reason.UNTRUSTED, _unsure(name, resource), Drop.GAP),
    }


_KINDS = {
    "partial": _Kind(Reason.PARTIAL_DATA, _says("the query for its group of brokers got no answer")),
    "shared_pod": _Kind(Reason.UNTRUSTED, _says("another broker names its pod {row[pod]}, too"), Drop.DUPLICATE),
    "never": _Kind(Reason.NO_LOAD_DATA, _says("never measured")),
    "gone": _Kind(
        Reason.OUT_DATED_DATA, _says("not measured any more; newest sample {row[age]:.0f} s old"), Drop.DISAPPEARED
    ),
    "time_unknown": _Kind(Reason.NO_LOAD_DATA, _says("the time of its samples, or of its traffic, is unknown")),
    "old": _Kind(
        Reason.OUT_DATED_DATA,
        _says("newest sample {row[age]:.0f} s old, older than {cycle.max_age:g} s (source.prometheus.maxAge)"),
        Drop.OUT_DATED,
    ),
    "apart": _Kind(Reason.UNTRUSTED, _says("{row[apart]}"), Drop.DUPLICATE),
    "ahead": _Kind(
        Reason.UNTRUSTED,
        _says("has samples more than {cycle.max_clock_skew:g} s in the future (trust.maxClockSkew); set the clocks"),
        Drop.CLOCK_SKEW,
    ),
    "restarted": _Kind(Reason.UNTRUSTED, _restarted, Drop.RESTARTED),
    "resets": _Kind(
        Reason.UNTRUSTED,
        _says("{row[resets]:.0f} counter resets in {cycle.window:g} s, more than trust.maxResets"),
        Drop.RESET,
    ),
    "few_samples": _Kind(Reason.UNTRUSTED, _few_samples, Drop.GAP),
}
_KINDS |= {f"over_{name}": _Kind(Reason.UNTRUSTED, _over(name)) for name in LIMITED}
_CARD = "its network usage is more than its card of {row[network_limit]:g} bytes/s can carry: does a counter wrap?"
_KINDS["over_network"] = _Kind(Reason.UNTRUSTED, _says(_CARD))
_STILL = (
    "it serves traffic, but its counter of CPU stood still {row[still]:.0f} s longer than usual; its exporter hangs"
)
_KINDS["still"] = _Kind(Reason.OUT_DATED_DATA, _says(_STILL), Drop.OUT_DATED)
_KINDS["throttled"] = _Kind(Reason.UNTRUSTED, _slowed)
_ABOUT: dict[str, int] = {}
"""Position in `USAGE` of the resource that a doubt is about."""
for _position, (_name, _resource) in enumerate(zip(USAGE, RESOURCES, strict=True)):
    _kinds = _of_resource(_name, _resource)
    _KINDS |= _kinds
    _ABOUT |= dict.fromkeys(_kinds, _position)
