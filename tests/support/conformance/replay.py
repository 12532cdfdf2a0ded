"""Replays recordings with every known algorithm, and counts how often our answer equals the recorded one.

An algorithm is a function from the recorded input to an answer in the recorded format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from conformance import hermes, pulsar_placements, pulsar_shedders, pulsar_transfer, shared_rules, splits
from conformance.hermes import SETTLED
from conformance.pulsar_clusters import Algorithm
from conformance.recording import InvalidRecordingError, RecordedScenario, read
from conformance.report import Report, Tally, first_difference, is_alternative

ALGORITHMS: Mapping[str, Algorithm] = {
    **shared_rules.BASE_ALGORITHMS,
    **pulsar_shedders.ALGORITHMS,
    **pulsar_placements.ALGORITHMS,
    **pulsar_transfer.ALGORITHMS,
    **splits.ALGORITHMS,
    **shared_rules.NAMING_ALGORITHMS,
    **hermes.ALGORITHMS,
}
"""The algorithms that can be replayed. Others in a recording are reported as not implemented."""


def replay(lines: Iterable[str]) -> Report:
    """Replay a recording, given as text lines. Raises `InvalidRecordingError` on a line that is not a scenario."""
    return replay_files({"": lines})


def replay_files(files: Mapping[str, Iterable[str]]) -> Report:
    """Replay several recordings: lines by name (for error texts). Counts add up per algorithm."""
    report = Report()
    for name, lines in files.items():
        for scenario in read(lines, name):
            tally = report.tallies.setdefault(
                scenario.algorithm, Tally(scenario.algorithm, scenario.algorithm in ALGORITHMS)
            )
            tally.total += 1
            if tally.implemented:
                _judge(scenario, tally)
    return report


def _judge(scenario: RecordedScenario, tally: Tally) -> None:
    """Count one scenario. It is undecided if it depends on map order and our answer is none of those recorded."""
    try:
        answer = ALGORITHMS[scenario.algorithm](scenario.input)
    except KeyError as error:
        raise InvalidRecordingError(f"{scenario.id} lacks the field {error}") from error
    if scenario.algorithm in SETTLED:
        expect, answer = SETTLED[scenario.algorithm](scenario.expect, answer)
        scenario = replace(scenario, expect=expect)
    mismatch = first_difference(scenario, answer)
    if mismatch is None or (scenario.order_sensitive == "yes" and is_alternative(scenario, answer)):
        tally.matched += 1
    elif scenario.order_sensitive == "yes":
        tally.undecided += 1
    else:
        tally.mismatches.append(mismatch)
