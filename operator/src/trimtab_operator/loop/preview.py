"""Preview: what a policy measures and would do, without a write. `trimtab plan` and `trimtab observe` use it.

It calls the functions of a cycle up to the gate, in the same order (see `loop.cycle`). It knows less than the operator:
it does not connect to Pulsar, so it can't compare Prometheus with the brokers' own message rates. It also starts
without the expected loads of recent splits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trimtab_operator.actuators import DryRunActuator
from trimtab_operator.decide import decide_plan
from trimtab_operator.kube.client import POLICIES
from trimtab_operator.loop.gates import Gate, gate, refused_by_guard
from trimtab_operator.loop.policy_phase import REFUSED, facts_of, phase_of
from trimtab_operator.observe.load_source import SourceProvider
from trimtab_operator.observe.snapshot import Snapshot, observe
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.policies import Claim
from trimtab_operator.state.settings import InvalidPolicyError, PolicyRun, Settings, claim_of
from trimtab_operator.state.strategy_state import PolicyStateStore
from trimtab_strategies.model import ClusterLoad, HeldBack, Plan
from trimtab_strategies.protocols import Shedder

SYNC_WITHIN = 60.0
"""Seconds to wait for the stores before giving up."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The snapshot, and the plan made from it.

    refusal: why the cycle would move nothing, whatever the plan is; None when it would apply the plan. gate: how the
    plan would be applied.
    """

    settings: Settings
    snapshot: Snapshot
    plan: Plan
    refusal: HeldBack | None
    gate: Gate


async def preview(
    cluster: ClusterState, policy: str, instead: Mapping[str, Any] | None = None, shedder: Shedder | None = None
) -> Preview:
    """Run one cycle of `policy` up to the gate.

    instead: a BalancingPolicy object (as JSON) that replaces the one of that name in the cluster, if there is one.
    shedder: replaces the policy's own shedder; nothing is split then.
    A policy that is paused, or names brokers that do not exist, still gets a plan. `refusal` says why nothing moves.
    Raises `NotFoundError` (no such policy), `InvalidPolicyError`, `SourceUnavailableError`, `TimeoutError` (the stores
    did not become complete) and `ApiError`.
    """
    run = await _policy_run(cluster, policy, instead)
    phase = phase_of(facts_of(cluster, run.settings, run.state))
    refused = phase.held if phase.action in REFUSED else None
    snapshot = await observe(cluster, run)
    plan = (await decide_plan(snapshot, _shedding_by(shedder, run))).decision.plan
    return Preview(run.settings, snapshot, plan, refused or refused_by_guard(plan), gate(cluster, run))


def _shedding_by(shedder: Shedder | None, run: PolicyRun) -> PolicyRun:
    if shedder is None:
        return run
    pair = replace(run.settings.pair, shedder=shedder, splitter=None)
    return replace(run, settings=replace(run.settings, pair=pair))


async def measured_load(cluster: ClusterState, policy: str) -> ClusterLoad:
    """Measure the cluster of `policy` once, and decide nothing. Raises what `preview` raises."""
    run = await _policy_run(cluster, policy)
    return (await observe(cluster, run)).load


async def _synced(cluster: ClusterState) -> None:
    """Wait until the stores are complete. Raises `TimeoutError`."""
    async with asyncio.timeout(SYNC_WITHIN):
        for store in cluster.stores.all():
            await store.synced.wait()


async def _share_out(cluster: ClusterState, settings: Settings) -> None:
    """Assign brokers to all policies of the namespace. Policies that can't be run keep theirs."""
    async for page in cluster.api.list(POLICIES, cluster.namespace):
        for policy in page.items:
            try:
                claim: Claim | None = Settings.of(policy).claim
            except InvalidPolicyError:
                claim = claim_of(policy)
            if claim is not None:
                cluster.policies.claims[claim.policy] = claim
    cluster.policies.claims[settings.name] = settings.claim
    cluster.share_out()


async def _policy_run(cluster: ClusterState, policy: str, instead: Mapping[str, Any] | None = None) -> PolicyRun:
    """A run of the policy that writes nothing. Waits until the stores are complete."""
    found = await cluster.api.get(POLICIES, cluster.namespace, policy) if instead is None else instead
    settings = Settings.of(found)
    await _synced(cluster)
    await _share_out(cluster, settings)
    uid = found["metadata"]["uid"]
    state = await PolicyStateStore(cluster.api, cluster.namespace, policy, uid).load()
    source = await SourceProvider(cluster, policy).source(settings)
    return PolicyRun(settings, DryRunActuator(), source, state)
