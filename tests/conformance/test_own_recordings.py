"""Recordings made here: we decide as recorded, and the oracle still gives the same answers."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from conformance.replay import replay
from pulsar_oracle import Oracle
from pulsar_recorder import FOLDER, recordings
from pulsar_scenarios import GENERATORS
from recordings import lines

RECORDED = 100
FIRST_SEED = 1000
MOST_UNDECIDED = 5


@pytest.mark.parametrize("algorithm", GENERATORS)
def test_every_recorded_decision_is_matched(algorithm: str) -> None:
    report = replay(lines(FOLDER / f"{algorithm}.jsonl.gz"))

    tally = report.tallies[algorithm]
    assert report.ok, report.lines()[:10]
    assert tally.total == RECORDED
    assert tally.undecided <= MOST_UNDECIDED


@pytest.mark.parametrize("algorithm", GENERATORS)
def test_the_recorder_writes_the_same_again(algorithm: str, oracle: Oracle) -> None:
    recorded = [json.loads(line) for line in islice(lines(FOLDER / f"{algorithm}.jsonl.gz"), 3)]

    assert list(recordings(oracle, algorithm, range(FIRST_SEED, FIRST_SEED + 3))) == recorded
