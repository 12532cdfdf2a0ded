"""Mode Approve on a real API server: a proposal is offered, waits, and what was shown is what is carried out."""

from __future__ import annotations

from typing import Any

import pytest

from policy_scene import Play, PolicyScene, eager
from trimtab_strategies.testing import cluster, with_bundles

pytestmark = pytest.mark.apiserver

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)
APPROVE = {"mode": "Approve"}


def ask(scene: PolicyScene, word: str, proposal: str | None = None) -> None:
    """What a person writes with kubectl annotate."""
    annotations = {"trimtab.dev/rebalance": word, "trimtab.dev/proposal": proposal}
    scene.rest.patch(scene.path("balancingpolicies", "main"), {"metadata": {"annotations": annotations}})


def annotations(scene: PolicyScene) -> dict[str, str]:
    found: dict[str, str] = scene.policy()["metadata"].get("annotations") or {}
    return found


def proposal(scene: PolicyScene) -> dict[str, Any]:
    found: dict[str, Any] = scene.status()["proposal"]
    return found


def progress(scene: PolicyScene) -> dict[str, Any]:
    found: dict[str, Any] = scene.status()["progress"]
    return found


def command(scene: PolicyScene) -> tuple[str, str]:
    """Status and message of what became of the last annotation."""
    [found] = [c for c in scene.status()["conditions"] if c["type"] == "CommandTaken"]
    return found["status"], found["message"]


async def offered(scene: PolicyScene) -> dict[str, Any]:
    """One cycle, and the proposal that it offers."""
    await scene.turn()
    assert proposal(scene)["state"] == "ProposalReady", proposal(scene)
    return proposal(scene)


async def approved(scene: PolicyScene) -> dict[str, Any]:
    """The same, approved, and its first moves written."""
    found = await offered(scene)
    ask(scene, "approve", found["id"])
    await scene.turn(after=2)
    return found


def destinations(found: dict[str, Any]) -> dict[str, str]:
    return {move["bundle"]: move["destination"] for move in found["moves"]}


def moved(scene: PolicyScene) -> dict[str, str]:
    """Bundle -> broker of those wished elsewhere than at first."""
    first = scene.load.bundles.owner.tolist()
    home = {
        scene.names[full]: scene.load.brokers.names[owner]
        for full, owner in zip(scene.load.bundles.names, first, strict=True)
    }
    return {name: owner for name, owner in scene.wishes().items() if owner != home[name]}


# -- offering --


def test_a_plan_is_offered_with_what_it_changes_and_costs_and_moves_nothing(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        before = scene.versions("bundles")

        found = await offered(scene)

        assert found["total"] == len(found["moves"]) > 0
        assert found["cpuBefore"]["highest"] > found["cpuAfter"]["highest"]
        assert {r["resource"] for r in found["ranges"]} >= {"cpu", "networkIn", "networkOut"}
        assert {b["broker"] for b in found["brokers"]} == {"a", "b", "c"}
        assert found["cost"] == {"connections": 60 * found["total"], "topics": 6 * found["total"], "unknown": 0}
        assert found["id"] in found["message"]
        assert scene.condition("ProposalReady") == ("True", "ProposalReady")
        assert scene.condition("Rebalancing") == ("False", "ProposalReady")
        assert scene.versions("bundles") == before
        assert scene.status()["lastCycle"]["heldBack"]["NotApproved"] == found["total"]
        assert [reason for reason, _ in scene.events()] == ["ProposalReady"]

    known = with_bundles(HOT, sessions=dict.fromkeys(range(9), 60.0), topics=dict.fromkeys(range(9), 6.0))
    play(known, story, **APPROVE)


def test_a_cost_that_is_not_known_is_said_to_be_unknown(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)

        assert found["cost"] == {"connections": 0, "topics": 0, "unknown": found["total"]}

    unknown = with_bundles(HOT, sessions=dict.fromkeys(range(9), float("nan")))
    play(unknown, story, **APPROVE)


def test_a_proposal_that_waits_stays_as_it_is_while_cycles_go_on(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        cycle = scene.status()["lastCycle"]["time"]

        await scene.cycle()
        await scene.cycle()

        assert scene.status()["lastCycle"]["time"] > cycle
        assert proposal(scene) == found
        assert len(scene.events()) == 1

    play(HOT, story, **APPROVE)


def test_nothing_is_offered_where_nothing_is_to_move(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.turn()
        await scene.cycle()

        assert proposal(scene)["state"] == "PendingProposal"
        assert scene.condition("ProposalReady") == ("False", "PendingProposal")
        assert scene.events() == []

    play(cluster(bundles=2, a=0.5, b=0.5), story, **APPROVE)


# -- approving --


def test_approving_carries_out_exactly_what_was_shown(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)

        assert annotations(scene) == {}
        assert command(scene)[0] == "True"
        assert proposal(scene)["state"] == "Rebalancing"
        assert scene.condition("Rebalancing") == ("True", "Rebalancing")
        assert moved(scene) == destinations(found)

        await scene.land()
        await scene.turn(after=2)

        assert proposal(scene)["state"] == "Ready"
        total = found["total"]
        assert (progress(scene)["landed"], progress(scene)["percent"], progress(scene)["failed"]) == (total, 100, 0)
        assert progress(scene)["finishedAt"]
        assert moved(scene) == destinations(found)
        assert scene.memory()["moves"][0][1] == total

    play(HOT, story, **APPROVE)


def test_only_so_many_moves_are_open_at_once(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        assert found["total"] >= 3
        open_at_once = []

        for done in range(found["total"]):
            open_at_once.append(len(moved(scene)) - done)
            await scene.land()
            await scene.turn(after=2)

        assert open_at_once == [1] * found["total"]
        assert proposal(scene)["state"] == "Ready"
        assert progress(scene)["done"] == found["total"]

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_the_rest_of_the_time_is_told_at_the_pace_so_far(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        await scene.land()
        await scene.turn(after=10)

        done, total = progress(scene)["done"], found["total"]
        assert (done, progress(scene)["inFlight"]) == (1, 1)
        assert progress(scene)["percent"] == 100 // total
        assert progress(scene)["timeLeft"] == f"{10 * (total - 1)}s"

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_the_next_plan_is_offered_once_the_last_one_is_done(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await approved(scene)
        await scene.land()
        await scene.turn(after=2)
        assert proposal(scene)["state"] == "Ready"

        await scene.turn(after=3600)

        again = proposal(scene)
        assert (again["state"], again["id"] != first["id"]) == ("ProposalReady", True)

    play(HOT, story, **eager(maxMovesPerCycle=1) | APPROVE)
