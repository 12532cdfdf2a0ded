"""Decide: runs a policy's strategies on a snapshot, in a thread, seeded by the evaluation time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import numpy as np

from trimtab_operator.observe.snapshot import Snapshot, Stopwatch
from trimtab_operator.state.policy_run import PolicyRun
from trimtab_strategies.model import Decision, Reason
from trimtab_strategies.planner.decide import assign, decide


async def decide_plan(seen: Snapshot, run: PolicyRun, watch: Stopwatch) -> Decision:
    """What the policy's pair would do about what was seen."""
    settings, now = run.settings, seen.load.now
    moved = run.remembered.moved_last_hour(now)
    asked = partial(decide, moved_last_hour=moved, drains=seen.evacuation)
    with watch.phase("decide"):
        return await asyncio.to_thread(asked, seen.load, settings.pair, settings.limits, run.memory, _rng(now))


async def assign_owners(seen: Snapshot, names: Sequence[str], reason: Reason, run: PolicyRun) -> Decision:
    """Owners for the bundles `names` (Pulsar's spelling) that have none."""
    settings, now = run.settings, seen.load.now
    rows = np.array([seen.load.bundles.index[name] for name in names], dtype=np.int64)
    pair, limits, rng = settings.pair, settings.limits, _rng(now)
    asked = partial(assign, reason=reason, selection=pair.selection, restarted=seen.evacuation.restarted)
    return await asyncio.to_thread(asked, seen.load, rows, pair.placement, limits, run.memory, rng)


def _rng(now: float) -> np.random.Generator:
    """Seeded by the evaluation time, so that a cycle can be repeated from its history."""
    return np.random.default_rng(int(now * 1000))
