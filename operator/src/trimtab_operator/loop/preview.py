"""What a policy sees and would do, found out without writing anything: behind `trimtab plan` and `trimtab observe`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from trimtab_operator.actuators.declarative import DryRunActuator
from trimtab_operator.cluster.api import POLICIES
from trimtab_operator.control.context import Context
from trimtab_operator.control.cycle import Look, Stopwatch, look, plan
from trimtab_operator.control.memory import MemoryStore
from trimtab_operator.control.refusal import overlapping, refused_by_guard, refused_cycle
from trimtab_operator.control.settings import InvalidPolicyError, Settings, claim_of
from trimtab_operator.control.shares import Claim
from trimtab_operator.control.sourcing import Sourcing
from trimtab_operator.control.turn import Turn
from trimtab_strategies.model import ClusterLoad, HeldBack, Plan

SYNC_WITHIN = 60.0
"""Seconds to wait for the stores before giving up."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The picture, the plan made from it, and the seconds each phase took.

    refusal: why the cycle would move nothing, whatever the plan says; None when it would act on it.
    """

    settings: Settings
    seen: Look
    plan: Plan
    refusal: HeldBack | None
    seconds: dict[str, float]


async def foresee(context: Context, policy: str, instead: Mapping[str, Any] | None = None) -> Foreseen:
    """Run one cycle of `policy` up to the decision.

    instead: a BalancingPolicy object (as JSON) that stands in for the one of that name in the cluster, if there is one.
    A policy that is paused, or names brokers that do not exist, is planned for all the same: `refusal` says so.
    Raises `NotFoundError` (no such policy), `InvalidPolicyError`, `SourceUnavailableError`, `TimeoutError` (the stores
    did not become complete) and `ApiError`.
    """
    watch = Stopwatch()
    async with _turn(context, policy, instead) as turn:
        settings = turn.settings
        seen = await look(context.picture(settings), turn, context.now(), watch)
    decided = (await plan(seen, turn, watch)).plan
    refusal = (
        overlapping(context, policy)
        or refused_cycle(context, settings)
        or refused_by_guard(decided.held_back, moves=bool(decided.moves))
    )
    return Foreseen(settings, seen, decided, refusal, watch.seconds)


async def observe(context: Context, policy: str) -> ClusterLoad:
    """Measure the cluster of `policy` once, and decide nothing. Raises what `foresee` raises."""
    async with _turn(context, policy) as turn:
        return (await look(context.picture(turn.settings), turn, context.now(), Stopwatch())).load


async def _share_out(context: Context, settings: Settings) -> None:
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
async def _turn(context: Context, policy: str, instead: Mapping[str, Any] | None = None) -> AsyncIterator[Turn]:
    """A turn of the policy that writes nothing, once the stores are complete."""
    found = await context.api.get(POLICIES, context.namespace, policy) if instead is None else instead
    settings = Settings.of(found)
    async with asyncio.timeout(SYNC_WITHIN):
        for store in context.stores.all():
            await store.synced.wait()
    await _share_out(context, settings)
    remembered = await MemoryStore(context.api, context.namespace, policy, found["metadata"]["uid"]).load()
    sourcing = Sourcing(context, policy)
    try:
        yield Turn(settings, DryRunActuator(), await sourcing.source(settings), remembered)
    finally:
        sourcing.close()
