"""While somebody else may balance the Pulsar cluster, a policy only says so."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest

from policy_scene import Play, PolicyScene, played
from trimtab_operator.control.link import Link, OneHand
from trimtab_operator.control.one_hand import steered, two_hands
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_strategies.testing import cluster
from trimtab_testbed.control_plane import ControlPlane

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)
PULSAR = {"actuator": "Pulsar", "pulsar": {"adminUrl": "http://pulsar:8080"}}
SPEC = PulsarSpec(admin_url="http://pulsar:8080")


@pytest.fixture
def play(trimtab_crds: ControlPlane, kube_namespace: str) -> Play:
    return partial(played, trimtab_crds, kube_namespace)


def seen(scene: PolicyScene, hand: OneHand) -> None:
    """What the bridge knows once it has looked."""
    link = scene.context.link
    link.lead_to(SPEC, "main")
    link.problem, link.hand = "", hand
    link.ids = {name: f"{name}:8080" for name in ("a", "b", "c")}


def wished_elsewhere(scene: PolicyScene) -> int:
    return sum(bundle["metadata"]["generation"] > 1 for bundle in scene.bundles().values())


@pytest.mark.parametrize(
    ("held", "condition"),
    [(True, ("True", "OneHand")), (False, ("False", "TwoHands")), (None, ("Unknown", "NotVerified"))],
)
def test_the_condition_says_who_balances(held: bool | None, condition: tuple[str, str]) -> None:  # noqa: FBT001
    link = Link(spec=SPEC, hand=OneHand(held, "so it is"))
    (found,) = steered([], link, 3, 0.0)
    assert (found["status"], found["reason"]) == condition
    assert two_hands(link) == ("" if held else "so it is")


def test_without_pulsar_nothing_is_said() -> None:
    told = steered([], Link(spec=SPEC), 1, 0.0)
    assert steered(told, Link(), 2, 0.0) == []
    assert two_hands(Link()) == ""


@pytest.mark.apiserver
def test_nothing_moves_while_two_hands_are_on_the_wheel(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        seen(scene, OneHand(held=False, text="shedding is on at a"))
        await scene.cycle()
        assert wished_elsewhere(scene) == 0
        assert scene.condition("OneHand") == ("False", "TwoHands")
        assert scene.condition("Acting") == ("False", "TwoHands")
        assert ("TwoHands", "OneHand: shedding is on at a") in scene.events()

        seen(scene, OneHand(held=True, text="off"))
        await scene.cycle()
        assert wished_elsewhere(scene)
        assert scene.condition("OneHand") == ("True", "OneHand")

    play(HOT, story, **PULSAR)


@pytest.mark.apiserver
def test_an_approval_is_refused_and_an_approved_move_is_not_begun(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        seen(scene, OneHand(held=False, text="shedding is on at a"))
        await scene.cycle()
        assert scene.condition("ProposalReady")[0] == "True"

        def approve() -> None:
            body = {"metadata": {"annotations": {"trimtab.dev/rebalance": "approve"}}}
            scene.rest.patch(scene.path("balancingpolicies", "main"), body)

        approve()
        await scene.turn(after=1)
        assert scene.condition("CommandTaken")[0] == "False"
        assert "shedding is on at a" in json.dumps(scene.status()["conditions"])
        assert wished_elsewhere(scene) == 0

        seen(scene, OneHand(held=True, text="off"))
        approve()
        await scene.turn(after=1)
        assert scene.condition("CommandTaken")[0] == "True"
        begun = wished_elsewhere(scene)
        assert begun

        seen(scene, OneHand(held=False, text="somebody switched it on"))
        await asyncio.sleep(0)
        await scene.land()
        await scene.turn(after=1)
        assert wished_elsewhere(scene) == begun

    play(HOT, story, mode="Approve", limits={"maxMovesInFlight": 1}, **PULSAR)
