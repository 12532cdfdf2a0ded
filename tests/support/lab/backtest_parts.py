"""Parts of backtests: a history with changing load, and policies that differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from recorded_history import POLICY, RecordedHistory
from trim_world import World, spread
from trimtab_lab.backtest.replay import HistoryReplay, LiveReplay, PolicyReplay
from trimtab_lab.simulation.deciders import UnderTrimtab
from trimtab_operator.state.settings import Settings
from trimtab_pipeline.history.recording import Recording


def write_wandering(root: Path) -> None:
    """Write ten hours of three brokers, with a cycle every two minutes. The load wanders from broker to broker."""
    history, random = RecordedHistory(root), np.random.default_rng(5)
    world = World.of(spread(70, 20, 1), spread(25, 20, 2), spread(25, 20, 3))
    first = world.load.copy()
    for cycle in range(300):
        turn = 2 * np.pi * (cycle / 150 + world.owner / 3)
        world.load = first * (1 + 0.4 * np.sin(turn))
        history.cycle(world.cluster(random.normal(1, 0.05, len(world.load))))
        world.now += 120


def policy(name: str, **trim: Any) -> PolicyReplay:
    """A policy of Trim with these parameters."""
    source = {"prometheus": {"url": "http://prometheus.monitoring.svc:9090"}}
    spec = {"source": source, "shedder": {"type": "Trim", "trim": trim}}
    settings = Settings.of({"metadata": {"name": name, "namespace": "messaging"}, "spec": spec})
    return PolicyReplay(name, UnderTrimtab(settings.pair, settings.limits), settings.interval)


def replays() -> list[HistoryReplay]:
    """The replay of a policy for each of three values of `worth`, and the replay of what really happened."""
    return [*(policy(f"worth={each}", worth=each) for each in (100, 300, 900)), LiveReplay()]


def new_policy(folder: Path) -> str:
    """Write a file with a policy; returns its path."""
    file = folder / "policy.yaml"
    file.write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: BalancingPolicy\nmetadata: {name: new}\n"
        "spec: {source: {prometheus: {url: 'http://prometheus:9090'}}}\n"
    )
    return str(file)


def end_of(folder: Path) -> float:
    """Epoch seconds of the newest cycle."""
    return Recording(str(folder), POLICY).summary.end


def same(one: HistoryReplay, other: HistoryReplay) -> bool:
    """Whether both replays have equal results, bit for bit."""
    ours, theirs = one.trace, other.trace
    equal = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(ours.usage, theirs.usage, strict=True))
    return equal and (ours.times, ours.changes, ours.measured) == (theirs.times, theirs.changes, theirs.measured)
