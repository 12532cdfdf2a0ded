"""A preview calls the same functions as the operator's cycle: the same snapshot, the same plan, the same gate."""

from __future__ import annotations

import pytest

from plan_clusters import HOT_NONE_EMPTY
from policy_environment import PolicyEnvironment, RunPolicy
from strategy_testing.clusters import cluster
from trimtab_operator.loop.preview import Preview, preview
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.state.pulsar_link import Compared
from trimtab_strategies.model import Reason

pytestmark = pytest.mark.apiserver


async def previewed_and_done(env: PolicyEnvironment) -> tuple[Preview, int, str]:
    """A preview, then of the cycle after it the number of planned moves and the reason not to act."""
    foreseen = await preview(env.cluster, "main")
    await env.reconcile()
    return foreseen, env.status()["proposal"]["total"], env.condition("Acting")[1]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"mode": "DryRun"}, Reason.DRY_RUN),
        ({"mode": "Approve"}, Reason.NOT_APPROVED),
        ({"windows": [{"kind": "Deny", "start": "00:00", "duration": "24h"}]}, Reason.OUTSIDE_WINDOW),
    ],
    ids=["dry run", "approve", "outside window"],
)
def test_the_gate_is_that_of_the_cycle(run_policy: RunPolicy, spec: dict[str, object], reason: Reason) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        foreseen, total, acting = await previewed_and_done(env)

        assert foreseen.refusal is None
        assert foreseen.gate.restraint is not None
        assert (foreseen.gate.restraint.reason, str(reason)) == (reason, acting)
        assert len(foreseen.plan.moves) == total > 0

    run_policy(HOT_NONE_EMPTY, scenario, **spec)


def test_the_snapshot_is_complete_for_both(run_policy: RunPolicy) -> None:
    """Distrust is part of it: a broker that Pulsar contradicts is not trusted by a preview either."""

    async def scenario(env: PolicyEnvironment) -> None:
        env.cluster.link.spec = PulsarSpec(admin_url="http://pulsar:8080")
        env.cluster.link.cross_check.compared["a"] = Compared(shown=9000.0, reported=0.0, at=200.0, odd=4)

        foreseen = await preview(env.cluster, "main")

        load = foreseen.snapshot.load
        assert [load.brokers.trusted[load.brokers.index[broker]] for broker in "abc"] == [False, True, True]
        assert load.quality.doubts["a"].reason is Reason.UNTRUSTED

    run_policy(HOT_NONE_EMPTY, scenario)


def test_a_refusal_is_that_of_the_operator(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        foreseen = await preview(env.cluster, "main")
        await env.reconcile()

        assert foreseen.refusal is not None
        assert foreseen.refusal.reason is Reason.NO_BROKERS
        assert env.condition("Ready")[1] == "NoBrokers"

    run_policy(cluster(bundles=0), scenario)
