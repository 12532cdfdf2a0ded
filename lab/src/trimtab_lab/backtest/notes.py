"""Notes for the reader of a backtest, a sentence each: what its history lacks, and what its replays leave out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from trimtab_lab.backtest.history import ReplayWindow
from trimtab_lab.backtest.players import Players
from trimtab_lab.backtest.replay import EARLY, HistoryReplay, PolicyReplay
from trimtab_lab.backtest.trace import Trace
from trimtab_operator.cli.common import length, written
from trimtab_operator.resources.policy import Mode
from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.history.recording import RecordedPolicy, Recording
from trimtab_strategies.model import counted, some

_BEFORE = 900.0
"""A move off a broker counts as caused by the broker's loss if it was made at most so many seconds before the loss."""

_NEAR = 0.1  # ratio by which the interval in the replay may differ from the policy's without a note


def notes(window: ReplayWindow, players: Players, cycles: int) -> list[str]:
    """All notes. cycles: how many were replayed."""
    return [
        *_lost(window, cycles),
        *_specs(players.specs),
        *_emptied(players.live.trace),
        *notes_before(window, players.shown),
    ]


def notes_before(window: ReplayWindow, replays: Sequence[HistoryReplay]) -> list[str]:
    """The notes that are known before anything is replayed."""
    recording, begin, end = window.recording, window.begin, window.end
    policies = [one for one in replays if isinstance(one, PolicyReplay)]
    return [
        *_gaps(recording, begin, end),
        *_facts(recording, begin, end),
        *_splits(policies),
        *_intervals(policies, recording.summary.interval),
    ]


def _splits(policies: Sequence[PolicyReplay]) -> Iterator[str]:
    if names := [one.name for one in policies if one.lacks_splits]:
        yield f"Splits are left out: {some(names)} would make some. --splits on replays them."


def _intervals(policies: Sequence[PolicyReplay], step: float) -> Iterator[str]:
    """Note policies whose interval in the replay differs from their own: a replay decides in recorded cycles only.

    step: usual seconds from one cycle to the next.
    """
    found: dict[tuple[float, float], list[str]] = {}
    for one in policies:
        played = step * max(1, math.ceil(one.interval / step - EARLY))
        if abs(played - one.interval) > _NEAR * one.interval:
            found.setdefault((played, one.interval), []).append(one.name)
    for (played, wanted), names in found.items():
        decides = "decides" if len(names) == 1 else "decide"
        often = f"every {length(played)} here, not every {length(wanted)}"
        yield f"The history has a cycle every {length(step)}, so {some(names)} {decides} {often}."


def _gaps(recording: Recording, begin: float, end: float) -> Iterator[str]:
    gaps = recording.summary.gaps
    found = [(max(gap.begin, begin), min(gap.end, end)) for gap in gaps if gap.begin < end and gap.end > begin]
    if found:
        first, last = max(found, key=lambda gap: gap[1] - gap[0])
        span = f"{length(last - first)} from {written(first)} on"
        what = "a gap" if len(found) == 1 else f"{len(found)} gaps, the longest"
        yield f"The history has {what} of {span}: what happened there is not known, and counts for no policy."


def _lost(window: ReplayWindow, cycles: int) -> Iterator[str]:
    there = len(window.recording.times(window.begin, window.end))
    if cycles < there:
        yield f"Left out: {there - cycles} of {there} cycles, whose brokers the history does not have."


def _facts(recording: Recording, begin: float, end: float) -> Iterator[str]:
    """Note what is not known about pins and isolation."""
    try:
        known = recording.knows_bundles(begin)
        hidden = recording.hidden_isolation(begin, end)
    except ForeignFileError as error:
        yield f"Facts can't be read: {error}."
        return
    if not known:
        yield "The history does not say at its beginning which bundles were pinned: until it does, none is."
    if hidden:
        spaces_of = "1 namespace" if hidden == 1 else f"{hidden} namespaces"
        yield f"The isolation of {spaces_of} is hidden with the names: in the replay their bundles may go anywhere."


def _specs(specs: Sequence[RecordedPolicy]) -> Iterator[str]:
    if len(specs) > 1:
        since = some([f"{written(one.at)} ({mode_of(one)})" for one in specs])
        yield (
            f"The recorded policy was edited: {len(specs)} versions of it were in force, since {since}. "
            "Its replay and the check use the last one all the time."
        )


def mode_of(recorded: RecordedPolicy) -> str:
    """The mode of a recorded policy."""
    return str(recorded.spec.get("mode", Mode.DRY_RUN.value))


def _emptied(live: Trace) -> Iterator[str]:
    """Note real moves off a broker that was soon gone. A replay makes none: bundles stay until the broker is gone."""
    found = sum(
        any(name == one.source and 0 <= at - one.at <= _BEFORE for at, name in live.lost) for one in live.changes
    )
    if found:
        yield (
            f"{counted(found, 'real move')} left a broker in the {length(_BEFORE)} before it was gone. They count for "
            "live only: in a replay such bundles get new owners when the broker is gone, at no cost."
        )
