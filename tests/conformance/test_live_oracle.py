"""On new random scenarios in every run, we decide as Pulsar's own classes do.

``TRIMTAB_SEED=N`` starts with the scenario of that seed, which a failure names. ``TRIMTAB_SECONDS=N`` sets the time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from random import SystemRandom

import pytest

from conformance.replay import ALGORITHMS
from differential import compare
from pulsar_oracle import Oracle
from pulsar_scenarios import GENERATORS

pytestmark = pytest.mark.long

SECONDS = float(os.environ.get("TRIMTAB_SECONDS") or 8)
"""Seconds for all algorithms together: every run adds to the scenarios of earlier ones."""

FEWEST = 10
"""Fewest scenarios of each algorithm, however slow the machine is."""

MOST_EXCUSED = 0.05
"""Largest share of an algorithm's scenarios that may depend on the order of Java's hash maps."""


@pytest.fixture(scope="module")
def seed() -> int:
    """The first seed: the environment's, or a new one."""
    return int(os.environ.get("TRIMTAB_SEED") or SystemRandom().randrange(10**12))


def seeds_for(seconds: float, first: int) -> Iterator[int]:
    """Seeds from the first on, until the time is over."""
    end = time.monotonic() + seconds
    seed = first
    while time.monotonic() < end or seed < first + FEWEST:
        yield seed
        seed += 1


def test_every_algorithm_can_be_compared() -> None:
    assert len(GENERATORS) == 19
    assert set(GENERATORS) <= set(ALGORITHMS)


@pytest.mark.parametrize("algorithm", GENERATORS)
def test_fresh_scenarios_are_decided_as_in_java(algorithm: str, seed: int, oracle: Oracle) -> None:
    found = compare(algorithm, seeds_for(SECONDS / len(GENERATORS), seed), oracle.ask)

    assert not found.differences, str(found)
    assert found.excused <= 2 + MOST_EXCUSED * found.asked, str(found)
