"""What users are told about brokers that are not trusted: a text for each code of `trust`, counts, and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab_pipeline.columns import USAGE
from trimtab_pipeline.transform.arrays import block, floats
from trimtab_pipeline.transform.cycle import Cycle
from trimtab_pipeline.transform.rates import ENOUGH
from trimtab_pipeline.transform.relations import LIMITS
from trimtab_pipeline.transform.trust import Drop, allowed_age
from trimtab_strategies.model import RESOURCES, Doubt, Reason, counted, some
from trimtab_strategies.model.cluster_load import BoolArray

_NAMED = 3  # brokers that a note names
_ABOVE = 1.0  # ratio of the limit: worth counting
_EARLY = ("partial", "shared_pod", "never", "gone", "time_unknown", "old", "ahead", "resets")
"""Doubts that count before the number of resets is noted."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A doubt. reason: as strategies see it. drop: as which cause it counts. text: of a row, in a cycle."""

    reason: Reason
    text: Callable[[Row, Cycle], str]
    drop: Drop | None = None


def doubt_of(row: Row, cycle: Cycle) -> Doubt:
    """The doubt about a broker, a row of `relations.BROKER_LOAD` with a code in ``doubt``."""
    return Doubt(_KINDS[row["doubt"]].reason, doubt_text(row["doubt"], row, cycle))


def doubt_text(code: str, row: Row, cycle: Cycle) -> str:
    """The doubt `code` about a broker, a row of `relations.BROKER_LOAD`, as a text for users."""
    return _KINDS[code].text(row, cycle)


def dropped(loads: pa.Table) -> Counter[str]:
    """Number of brokers, resources and series that are not used, by `Drop`; `relations.BROKER_LOAD`."""
    drops = (_KINDS[code].drop for code in loads["doubt"].drop_null().to_pylist())
    counts = Counter(str(drop) for drop in drops if drop is not None)
    usage, limit = (block(loads, names)[loads["present"].to_numpy().astype(bool)] for names in (USAGE, LIMITS))
    copies = floats(loads, "copies")
    counts[Drop.NO_LIMIT] += int((~(limit > 0) & ~np.isnan(usage)).sum())
    counts[Drop.ABOVE_LIMIT] += int((usage / np.where(limit > 0, limit, np.nan) > _ABOVE).sum())
    counts[Drop.DUPLICATE] += int((copies[copies > 1] - 1).sum())
    return +counts


def notes(loads: pa.Table, cycle: Cycle) -> list[str]:
    """Oddities of `relations.BROKER_LOAD` that do not make data doubtful."""
    names, samples = loads["broker"].to_pylist(), floats(loads, "samples")
    late = np.array([code not in _EARLY for code in loads["doubt"].to_pylist()], bool)
    found = _note(
        names,
        (floats(loads, "resets") > 0) & late,
        "counters were reset within the window of the rates, which take account of it",
    )
    if (np.nan_to_num(samples) < cycle.min_samples).all() and np.nan_to_num(samples).any():
        found.append(_unreachable(float(np.nanmax(samples)), cycle))
    return found + _note(
        names,
        floats(loads, "copies") > 1,
        "the same series is there more than once (two replicas of the server, or two scrape jobs); the newest counts",
    )


def _note(names: Sequence[str], rows: BoolArray, text: str) -> list[str]:
    concerned = [names[row] for row in np.flatnonzero(rows).tolist()]
    return [f"{some(concerned, _NAMED)}: {text}"] if concerned else []


def _unreachable(most: float, cycle: Cycle) -> str:
    """The fix when not even the best sampled broker, with `most` samples in the window, has enough of them."""
    least, window = f"{cycle.min_samples:g}", cycle.window
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


def _few_samples(row: Row, cycle: Cycle) -> str:
    samples = counted(int(row["samples"] or 0), "sample")
    return f"{samples} of CPU in {cycle.window:g} s, {cycle.min_samples:g} make a rate (trust.minSamples)"


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
            f"its samples of {resource} cover {cover:.3g} s of {window:g} s, {ENOUGH * window:.3g} s make a rate; "
            "wait, or widen the source's window if that lasts"
        )

    return text


def _above(name: str, resource: str) -> Callable[[Row, Cycle], str]:
    def text(row: Row, cycle: Cycle) -> str:
        ratio = row[name] / row[f"limit_{name}"]
        return f"its {resource} is {ratio:.0%} of the limit, more than {cycle.above_limit:g} times (trust.aboveLimit)"

    return text


def _says(text: str) -> Callable[[Row, Cycle], str]:
    """The same text about each row, which may name columns of the row and fields of the cycle."""
    return lambda row, cycle: text.format(row=row, cycle=cycle)


def _of_resource(name: str, resource: str) -> dict[str, _Kind]:
    """The doubts about a resource: the name of its column, and its name for users."""
    return {
        f"stopped_{name}": _Kind(Reason.OUT_DATED_DATA, _stopped(name, resource), Drop.OUT_DATED),
        f"cover_{name}": _Kind(Reason.UNTRUSTED, _covers_little(name, resource), Drop.GAP),
        f"no_limit_{name}": _Kind(Reason.UNTRUSTED, _says(f"its limit of {resource} is unknown")),
        f"unknown_{name}": _Kind(Reason.UNTRUSTED, _says(f"its {resource} is unknown")),
        f"above_{name}": _Kind(Reason.UNTRUSTED, _above(name, resource)),
    }


_KINDS = {
    "partial": _Kind(Reason.PARTIAL_DATA, _says("its part of the source did not answer")),
    "shared_pod": _Kind(Reason.UNTRUSTED, _says("another broker names its pod {row[pod]}, too"), Drop.DUPLICATE),
    "never": _Kind(Reason.NO_LOAD_DATA, _says("never measured")),
    "gone": _Kind(
        Reason.OUT_DATED_DATA,
        _says("not measured any more; newest sample {row[age]:.0f} s old"),
        Drop.DISAPPEARED,
    ),
    "time_unknown": _Kind(Reason.NO_LOAD_DATA, _says("the time of its samples, or of its traffic, is unknown")),
    "old": _Kind(
        Reason.OUT_DATED_DATA,
        _says("newest sample {row[age]:.0f} s old, older than {cycle.max_age:g} s (source.prometheus.maxAge)"),
        Drop.OUT_DATED,
    ),
    "ahead": _Kind(
        Reason.UNTRUSTED,
        _says("has samples more than {cycle.max_clock_skew:g} s in the future (trust.maxClockSkew); set the clocks"),
        Drop.CLOCK_SKEW,
    ),
    "resets": _Kind(
        Reason.UNTRUSTED,
        _says("{row[resets]:.0f} counter resets in {cycle.window:g} s, more than trust.maxResets"),
        Drop.RESET,
    ),
    "few_samples": _Kind(Reason.UNTRUSTED, _few_samples, Drop.GAP),
}
for _name, _resource in zip(USAGE, RESOURCES, strict=True):
    _KINDS |= _of_resource(_name, _resource)
