"""Runs a policy's strategies on a snapshot, in a thread. The random seed is the evaluation time.

A strategy has a stored state, its memory. A defect in the memory would make every later decision fail, so a decision
that fails is tried once more without memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from trimtab_operator.observe.snapshot import Snapshot
from trimtab_operator.state.settings import PolicyRun
from trimtab_strategies.model import Decision, Memory, Reason
from trimtab_strategies.planner.decide import assign, chance, decide

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision. dropped: the error for which the memory was dropped; empty if it was kept."""

    decision: Decision
    dropped: str = ""


async def decide_plan(snapshot: Snapshot, run: PolicyRun) -> Decided:
    """The moves and splits that the policy's strategies plan for `snapshot`."""
    settings, now, rng = run.settings, snapshot.load.now, _rng(snapshot)
    moved = run.state.moved_last_hour(now)
    plan = partial(decide, moved_last_hour=moved, drains=snapshot.drains)
    return await _decided(run, lambda memory: plan(snapshot.load, settings.pair, settings.limits, memory, rng()))


async def assign_owners(snapshot: Snapshot, names: Sequence[str], reason: Reason, run: PolicyRun) -> Decided:
    """Owners for the bundles `names` (in Pulsar's spelling), which have none."""
    settings, rng = run.settings, _rng(snapshot)
    rows = np.array([snapshot.load.bundles.index[name] for name in names], dtype=np.int64)
    pair, limits = settings.pair, settings.limits
    plan = partial(assign, reason=reason, selection=pair.selection, restarted=snapshot.drains.restarted)
    return await _decided(run, lambda memory: plan(snapshot.load, rows, pair.placement, limits, memory, rng()))


async def _decided(run: PolicyRun, plan: Callable[[Memory], Decision]) -> Decided:
    try:
        return Decided(await asyncio.to_thread(plan, run.memory))
    except Exception as error:
        if run.memory == Memory():
            raise
        log.exception("policy %s: the decision with its memory failed, trying without", run.settings.name)
        return Decided(await asyncio.to_thread(plan, Memory()), f"{type(error).__name__}: {error}")


def _rng(snapshot: Snapshot) -> Callable[[], np.random.Generator]:
    return lambda: chance(snapshot.load.now)
