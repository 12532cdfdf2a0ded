"""The first decision of a policy with Trim, on what a real Prometheus has known for minutes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from policy_environment import PolicyEnvironment, RunPolicy, refit
from recorded_past import RecordedPast
from strategy_testing.clusters import cluster
from trimtab_operator.loop.preview import preview
from trimtab_operator.observe import recent_samples
from trimtab_operator.observe.recent_samples import PAST_MINUTES
from trimtab_operator.resources.urls import AllowedUrls
from trimtab_pipeline.factory import direct_sources
from trimtab_strategies.model import CPU

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus]

NOW = 1_750_000_000.0
SCRAPE, CORES, BUNDLES = 10, 4.0, 20
HOT, COLD = 0.8, 0.2
LOAD = cluster(bundles=BUNDLES, cold=COLD, hot=HOT)
"""The cluster in this moment."""


def recorded(namespace: str, lasted: float) -> RecordedPast:
    """Twenty minutes of both brokers, level until the difference began `lasted` minutes ago."""
    past = RecordedPast(namespace)
    seconds, messages = dict.fromkeys(LOAD.brokers.names, 0.0), dict.fromkeys(LOAD.brokers.names, 0.0)
    for time in range(-20 * 60, 1, SCRAPE):
        for row, name in enumerate(LOAD.brokers.names):
            use = (COLD, HOT)[row] if time > -60 * lasted else (HOT + COLD) / 2
            rate = 10_000 * use
            seconds[name] += CORES * use * SCRAPE
            messages[name] += rate * SCRAPE
            past.broker(name, NOW - 1 + time, seconds[name], messages[name], rate)
            for bundle, owner in zip(LOAD.bundles.names, LOAD.bundles.owner.tolist(), strict=True):
                if owner == row:
                    past.bundle(bundle, name, NOW - 1 + time, rate / BUNDLES)
    return past


@pytest.mark.parametrize(
    ("lasted", "minutes", "plans"),
    [(10.0, PAST_MINUTES, True), (7.0, PAST_MINUTES, True), (1.5, PAST_MINUTES, False), (10.0, 0, False)],
    ids=["ten minutes", "seven minutes", "just begun", "the past is not measured"],
)
def test_the_first_cycle_moves_what_has_lasted_and_waits_for_what_has_just_begun(
    run_policy: RunPolicy,
    kube_namespace: str,
    prometheus_binary: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    lasted: float,
    minutes: int,
    plans: bool,
) -> None:
    monkeypatch.setattr(recent_samples, "PAST_MINUTES", minutes)
    monkeypatch.setattr(recent_samples, "WAIT", 60.0)  # the machine may be slow
    with recorded(kube_namespace, lasted).served(prometheus_binary, tmp_path / "server") as server:

        async def scenario(env: PolicyEnvironment) -> None:
            sources = direct_sources(tmp_path / "history")
            refit(env.cluster, sources=sources, urls=AllowedUrls.of(["127.0.0.1"]))
            env.clock = NOW
            env.edit(source={"prometheus": {"url": server.url}})

            first = await preview(env.cluster, "main")

            assert first.snapshot.load.brokers.usage[:, CPU] == pytest.approx([CORES * COLD, CORES * HOT], rel=0.01)
            assert not first.snapshot.load.quality.doubts
            assert first.snapshot.load.recent is not None
            assert len(first.snapshot.load.recent) == minutes + 1
            assert bool(first.plan.moves) is plans
            await asyncio.to_thread(sources.close)

        run_policy(LOAD, scenario, mode="DryRun", shedder={"type": "Trim"}, placement={"type": "Trim"})
