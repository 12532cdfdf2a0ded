"""Sentences about what a history does not have, and what a replay does not do, for its report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trimtab_operator.cli.common import length, written
from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.history.recording import Recording
from trimtab_strategies.model import some


def lacks(recording: Recording, begin: float, end: float, cycles: int) -> list[str]:
    """What the history lacks from `begin` to `end` (epoch s), a sentence each. cycles: that were replayed."""
    return [*_gaps(recording, begin, end), *_lost(recording, begin, end, cycles), *_facts(recording, begin, end)]


def budgets(policies: Iterable[str]) -> list[str]:
    """That disruption budgets are not replayed, if any of `policies` (names) has one."""
    if not (names := sorted(policies)):
        return []
    return [f"Disruption budgets are not replayed: {some(names)} may move more here than they would."]


def _gaps(recording: Recording, begin: float, end: float) -> Iterator[str]:
    found = [gap for gap in recording.summary.gaps if gap.begin >= begin and gap.end <= end]
    if found:
        longest = max(found, key=lambda gap: gap.end - gap.begin)
        span = f"{length(longest.end - longest.begin)} from {written(longest.begin)} on"
        gaps = "a gap" if len(found) == 1 else f"{len(found)} gaps, the longest"
        yield f"The history has {gaps} of {span}: what happened there is not known, and counts for no policy."


def _lost(recording: Recording, begin: float, end: float, cycles: int) -> Iterator[str]:
    there = len(recording.times(begin, end))
    if cycles < there:
        yield f"Left out: {there - cycles} of {there} cycles, whose brokers the history does not have."


def _facts(recording: Recording, begin: float, end: float) -> Iterator[str]:
    """What is not known of pins, isolation and the like."""
    try:
        known = recording.knows_bundles(begin)
        hidden = recording.hidden_isolation(begin, end)
    except ForeignFileError as error:
        yield f"Facts can't be read: {error}."
        return
    if not known:
        yield "The history does not say at its beginning which bundles were pinned: until it does, none is."
    if hidden:
        spaces_of = "1 namespace is" if hidden == 1 else f"{hidden} namespaces are"
        yield f"The isolation of {spaces_of} hidden with the names: in the replay their bundles may go anywhere."
