"""Notes on samples of brokers: oddities that do not make data doubtful."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from trimtab_pipeline.columns import SAMPLED_INTERVAL
from trimtab_pipeline.transform.arrays import floats
from trimtab_pipeline.transform.relations import Cycle
from trimtab_pipeline.transform.trust import allowed_age
from trimtab_strategies.model import counted, some
from trimtab_strategies.model.cluster_load import CPU, BoolArray

_NAMED = 3  # brokers that a note names
_EARLY = ("partial", "shared_pod", "never", "gone", "time_unknown", "old", "apart", "ahead", "restarted", "resets")
"""Doubts about a broker that make a note about its resets superfluous."""


def notes(loads: pa.Table, cycle: Cycle) -> list[str]:
    """The notes on `relations.BROKER_LOAD`."""
    names, samples = loads["broker"].to_pylist(), floats(loads, "samples")
    late = np.array([code not in _EARLY for code in loads["doubt"].to_pylist()], bool)
    found = _note(
        names,
        (floats(loads, "resets") > 0) & late,
        "counters were reset within the window of the rates, which take account of it",
    )
    behind = floats(loads, "behind")
    delayed = behind > allowed_age(floats(loads, SAMPLED_INTERVAL[CPU]), cycle.window)
    found += _note(
        names,
        delayed,
        f"samples of usage keep coming, but {np.max(behind, initial=0.0, where=delayed):.0f} s later than those of "
        "traffic: the clock that gives them their times (the kubelet's) is behind; set it",
    )
    if (np.nan_to_num(samples) < cycle.min_samples).all() and np.nan_to_num(samples).any():
        found.append(_unreachable(float(np.nanmax(samples)), cycle))
    return found + _note(
        names,
        (floats(loads, "copies") > 1) & loads["apart"].is_null().to_numpy(zero_copy_only=False),
        "the same series exists more than once (two replicas of the server, or two scrape jobs); the newest counts",
    )


def _note(names: Sequence[str], rows: BoolArray, text: str) -> list[str]:
    concerned = [names[row] for row in np.flatnonzero(rows).tolist()]
    return [f"{some(concerned, _NAMED)}: {text}"] if concerned else []


def _unreachable(most: float, cycle: Cycle) -> str:
    """What to correct if no broker has enough samples in the window. most: the largest number that a broker has."""
    least, window = f"{cycle.min_samples:g}", cycle.window
    if most < 1:
        return (
            f"no broker has a whole sample of CPU in {window:g} s (the most is {most:g}), and a rate needs {least} "
            "(trust.minSamples); correct the query of samples, which must count them"
        )
    whole = int(most)
    return (
        f"no broker has more than {counted(whole, 'sample')} of CPU in {window:g} s; if that lasts, they are scraped "
        f"every {window / whole:.0f} s or so, and trust.minSamples {least} can't be met: lower it to 3/4 of window / "
        "scrape interval, or widen the source's window"
    )
