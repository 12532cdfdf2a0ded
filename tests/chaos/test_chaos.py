"""A whole cluster with random faults for a quarter of a minute each: the invariants hold.

`make chaos` does the same for any length of time. README.md lists the faults and the invariants.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from chaos_round import Outcome, play
from chaos_schedule import Schedule, draw
from trimtab_testbed.programs.find import KubeBinaries

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.long, pytest.mark.timeout(420)]

KNOWN = 922
"""Seed of a round that kills the leader, its JVM, the API server, Prometheus and a broker, and splits a bundle."""


def played(binaries: KubeBinaries, prometheus: Path, folder: Path, schedule: Schedule) -> Outcome:
    """Play a round; the seed is in the output of a failed test."""
    print(schedule)  # noqa: T201  shown when the test fails
    return play(binaries, prometheus, folder / "round", schedule)


@pytest.mark.spark
def test_a_measured_cluster_in_which_everything_breaks_keeps_its_invariants_and_settles(
    kube_binaries: KubeBinaries, prometheus_binary: Path, tmp_path: Path
) -> None:
    outcome = played(kube_binaries, prometheus_binary, tmp_path, draw(KNOWN, 20.0, measured=True))

    assert not outcome.broken, outcome.report()
    assert outcome.begun == list(outcome.schedule.events)
    assert outcome.writes


def test_a_fresh_seed_keeps_the_invariants_and_settles(
    kube_binaries: KubeBinaries, prometheus_binary: Path, tmp_path: Path
) -> None:
    schedule = draw(secrets.randbelow(10**9), 12.0, measured=False)

    outcome = played(kube_binaries, prometheus_binary, tmp_path, schedule)

    assert not outcome.broken, outcome.report()
    assert outcome.writes
