"""The bars of `trimtab simulate`: as many as the terminal has room for, hot brokers red, absent ones without a bar."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import numpy as np
import pytest
from rich.console import Console

from trimtab_lab.simulation import Orders, contender, named, played
from trimtab_lab.simulation.batch import Task
from trimtab_lab.simulation.live import LiveBars, bar, brokers
from trimtab_strategies.counterfactual.imbalance import busiest
from trimtab_strategies.model import ClusterLoad


@dataclass
class Recorder:
    """Keeps what a watcher sees."""

    seen: list[ClusterLoad] = field(default_factory=list)

    def see(self, cluster: ClusterLoad, orders: Orders) -> None:  # noqa: ARG002 - the clusters are enough
        self.seen.append(cluster)


def watched(scenario: str) -> list[ClusterLoad]:
    """The cluster of each round."""
    recorder = Recorder()
    played(named(scenario), contender("OverloadShedder/Pulsar"), 1, recorder)
    return recorder.seen


def test_a_watcher_sees_every_round_and_changes_nothing() -> None:
    who = contender("AvgShedder/Pulsar")
    recorder = Recorder()

    seen, alone = (played(named("two-hot"), who, 1, watcher).score for watcher in (recorder, None))
    assert len(recorder.seen) == named("two-hot").rounds
    assert seen == alone


def test_a_broker_that_is_away_has_no_figure() -> None:
    clusters = watched("lost-broker")

    assert not np.isnan(busiest(clusters[0].brokers)).any()
    assert np.isnan(busiest(clusters[10].brokers)).sum() == 1
    assert 40 < busiest(clusters[0].brokers).max() < 60


@pytest.mark.parametrize(("percent", "style"), [(20, "green"), (70, "yellow"), (84.9, "yellow"), (85, "red")])
def test_hot_brokers_are_red(percent: float, style: str) -> None:
    drawn = bar(percent)

    assert drawn.plain.count("█") == round(percent / 5)
    assert drawn.spans[0].style == style


def test_a_bar_of_nothing_is_empty() -> None:
    assert bar(float("nan")).plain == f"{'░' * 20}   ?  "


@pytest.mark.parametrize(("width", "height", "left"), [(200, 30, 0), (120, 20, 50), (40, 10, 100)])
def test_many_brokers_share_the_lines_of_the_terminal(width: int, height: int, left: int) -> None:
    screen = Console(file=io.StringIO(), width=width)
    cluster = watched("ten-join")[5]
    screen.print(brokers(cluster, width, height))

    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= height + 1
    assert sum(line.count("broker-") for line in lines) == 110 - left
    assert bool(left) == (f"and {left} more brokers" in lines[-1])


def test_the_picture_names_the_run_and_adds_up_its_moves() -> None:
    screen = Console(file=io.StringIO(), width=100, height=30, force_terminal=True)
    who = contender("AvgShedder/Pulsar")
    bars = LiveBars(screen, 3)
    with bars.shown():
        moves = played(named("two-hot"), who, 1, bars.begin(Task("two-hot", named("two-hot"), who, 1))).score.moves
        bars.count()

    printed = screen.file.getvalue()  # type: ignore[attr-defined]
    assert moves > 0
    assert "two-hot  AvgShedder/Pulsar  seed 1  minute 1 of 60  0 moves" in printed
    assert "0 of 3 runs done" in printed
