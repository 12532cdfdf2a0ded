"""A preview calls the same functions as the operator's cycle: the same snapshot, the same plan, the same gate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policy_scene import Play, PolicyScene
from trimtab_operator.loop.preview import Preview, preview
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.state.pulsar_link import Compared
from trimtab_strategies.model import Reason
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

HOT = cluster(bundles={"a": [1] * 8, "b": [1], "c": [1]}, a=0.8, b=0.2, c=0.2)


async def previewed_and_done(scene: PolicyScene) -> tuple[Preview, int, str]:
    """A preview, then of the cycle after it the number of planned moves and the reason not to act."""
    foreseen = await preview(scene.context, "main")
    await scene.reconcile()
    return foreseen, scene.status()["proposal"]["total"], scene.condition("Acting")[1]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"mode": "DryRun"}, Reason.DRY_RUN),
        ({"mode": "Approve"}, Reason.NOT_APPROVED),
        ({"windows": [{"kind": "Deny", "start": "00:00", "duration": "24h"}]}, Reason.OUTSIDE_WINDOW),
    ],
    ids=["dry run", "approve", "outside window"],
)
def test_the_gate_is_that_of_the_cycle(play: Play, spec: dict[str, object], reason: Reason) -> None:
    async def story(scene: PolicyScene) -> None:
        foreseen, total, acting = await previewed_and_done(scene)

        assert foreseen.refusal is None
        assert foreseen.gate.restraint is not None
        assert (foreseen.gate.restraint.reason, str(reason)) == (reason, acting)
        assert len(foreseen.plan.moves) == total > 0

    play(HOT, story, **spec)


def test_the_snapshot_is_complete_for_both(play: Play) -> None:
    """Quarantine and distrust are part of it: a broker that Pulsar contradicts is not trusted by a preview either."""

    async def story(scene: PolicyScene) -> None:
        full, name = next(iter(scene.names.items()))
        state = await scene.loop.memory.recall()
        await scene.loop.memory.keep(replace(state, quarantine={name: scene.clock + 3600}))
        scene.context.link.spec = PulsarSpec(admin_url="http://pulsar:8080")
        scene.context.link.cross_check.compared["a"] = Compared(shown=9000.0, reported=0.0, at=200.0, odd=4)

        foreseen = await preview(scene.context, "main")

        load = foreseen.snapshot.load
        assert load.withheld == {full: Reason.QUARANTINED}
        assert [load.brokers.trusted[load.brokers.index[broker]] for broker in "abc"] == [False, True, True]
        assert load.quality.doubts["a"].reason is Reason.UNTRUSTED

    play(HOT, story)


def test_a_refusal_is_that_of_the_operator(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        foreseen = await preview(scene.context, "main")
        await scene.reconcile()

        assert foreseen.refusal is not None
        assert foreseen.refusal.reason is Reason.NO_BROKERS
        assert scene.condition("Ready")[1] == "NoBrokers"

    play(cluster(bundles=0), story)
