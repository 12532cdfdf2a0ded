"""What a policy sees and would do, found out without writing anything: behind `trimtab plan` and `trimtab observe`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from trimtab_operator.actuators import DryRunActuator
from trimtab_operator.decide import decide_plan
from trimtab_operator.kube.client import POLICIES
from trimtab_operator.loop.gates import overlapping, refused_by_guard, refused_cycle
from trimtab_operator.observe.load_source import SourceProvider
from trimtab_operator.observe.snapshot import Snapshot, Stopwatch, snapshot
from trimtab_operator.observe.topology import cluster_records
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.policies import Claim
from trimtab_operator.state.settings import InvalidPolicyError, PolicyRun, Settings, claim_of
from trimtab_operator.state.strategy_state import PolicyStateStore
from trimtab_strategies.model import ClusterLoad, HeldBack, Plan

SYNC_WITHIN = 60.0
"""Seconds to wait for the stores before giving up."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The picture, the plan made from it, and the seconds each phase took.

    refusal: why the cycle would move nothing, whatever the plan says; None when it would act on it.
    """

    settings: Settings
    seen: Snapshot
    plan: Plan
    refusal: HeldBack | None
    seconds: dict[str, float]


async def preview(context: ClusterState, policy: str, instead: Mapping[str, Any] | None = None) -> Preview:
    """Run one cycle of `policy` up to the decision.

    instead: a BalancingPolicy object (as JSON) that stands in for the one of that name in the cluster, if there is one.
    A policy that is paused, or names brokers that do not exist, is planned for all the same: `refusal` says so.
    Raises `NotFoundError` (no such policy), `InvalidPolicyError`, `SourceUnavailableError`, `TimeoutError` (the stores
    did not become complete) and `ApiError`.
    """
    watch = Stopwatch()
    async with _turn(context, policy, instead) as run:
        settings = run.settings
        seen = await snapshot(cluster_records(context, settings), run, context.now(), watch)
    decided = (await decide_plan(seen, run, watch)).plan
    refusal = (
        overlapping(context, policy)
        or refused_cycle(context, settings)
        or refused_by_guard(decided.held_back, moves=bool(decided.moves))
    )
    return Preview(settings, seen, decided, refusal, watch.seconds)


async def observe(context: ClusterState, policy: str) -> ClusterLoad:
    """Measure the cluster of `policy` once, and decide nothing. Raises what `preview` raises."""
    async with _turn(context, policy) as run:
        return (await snapshot(cluster_records(context, run.settings), run, context.now(), Stopwatch())).load


async def _share_out(context: ClusterState, settings: Settings) -> None:
    """Who looks after which brokers, with all policies of the namespace. Those that can't be run keep theirs."""
    async for page in context.api.list(POLICIES, context.namespace):
        for policy in page.items:
            try:
                claim: Claim | None = Settings.of(policy).claim
            except InvalidPolicyError:
                claim = claim_of(policy)
            if claim is not None:
                context.claims[claim.policy] = claim
    context.claims[settings.name] = settings.claim
    context.share_out()


@asynccontextmanager
async def _turn(
    context: ClusterState, policy: str, instead: Mapping[str, Any] | None = None
) -> AsyncIterator[PolicyRun]:
    """A turn of the policy that writes nothing, once the stores are complete."""
    found = await context.api.get(POLICIES, context.namespace, policy) if instead is None else instead
    settings = Settings.of(found)
    async with asyncio.timeout(SYNC_WITHIN):
        for store in context.stores.all():
            await store.synced.wait()
    await _share_out(context, settings)
    remembered = await PolicyStateStore(context.api, context.namespace, policy, found["metadata"]["uid"]).load()
    sourcing = SourceProvider(context, policy)
    try:
        yield PolicyRun(settings, DryRunActuator(), await sourcing.source(settings), remembered)
    finally:
        sourcing.close()
