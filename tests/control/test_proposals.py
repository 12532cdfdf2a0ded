"""Mode Approve on a real API server: a proposal is offered, waits, and what was shown is what is carried out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faulty_api import until
from odd_sources import Slow
from policy_scene import Play, PolicyScene, eager
from split_scene import splits
from splitting_worlds import large
from trimtab_operator.control.shares import Claim
from trimtab_pipeline.source import SourceUnavailableError
from trimtab_strategies.testing import NOW, cluster, with_bundles
from trimtab_testbed.control_plane import ControlPlane

pytestmark = pytest.mark.apiserver

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)
APPROVE = {"mode": "Approve"}
LARGE = large({0: {"topics": 10, "throughput": 200}}, bundles={"a": [1] * 4, "b": [1]}, a=0.8, b=0.2, c=0.1)
DIVIDING: dict[str, Any] = {
    "shedder": {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}},
    "split": {"type": "BundleSplitterTask"},
}
"""A policy that divides bundles and moves none by itself."""


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


def test_progress_is_stored_now_and_then_and_not_at_each_landing(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await approved(scene)

        def version() -> str:
            path = f"/api/v1/namespaces/{scene.namespace}/configmaps/trimtab-proposal-main"
            found: str = scene.rest.get(path)["metadata"]["resourceVersion"]
            return found

        before = version()
        await scene.land()
        await scene.turn(after=0.5)
        assert (len(moved(scene)), version()) == (2, before)

        await scene.turn(after=2)
        assert version() != before
        assert progress(scene)["landed"] == 1

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


def test_a_landing_wakes_the_loop_for_the_next_move(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await approved(scene)
        scene.context.wakers["main"] = scene.loop.wake
        scene.loop.wake.clear()

        await scene.land()

        assert scene.loop.wake.is_set()

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_kubectl_waits_for_a_proposal_and_lists_its_state(play: Play, trimtab_crds: ControlPlane) -> None:
    async def story(scene: PolicyScene) -> None:
        await offered(scene)

        trimtab_crds.kubectl(
            "-n", scene.namespace, "wait", "bpol/main", "--for=condition=ProposalReady", "--timeout=5s"
        )
        listed = trimtab_crds.kubectl("-n", scene.namespace, "get", "bpol", "main").splitlines()

        assert "PROPOSAL" in listed[0]
        assert "ProposalReady" in listed[1]

    play(HOT, story, **APPROVE)


def test_moves_go_on_and_stop_is_heard_while_prometheus_is_slow(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab_operator.control.deciding.TEND_EVERY", 0.1)

    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        scene.source = slow = Slow(scene.load)
        measuring = asyncio.create_task(scene.cycle())
        await until("the cycle measures", lambda: scene.loop.context.clock() > NOW + 60)

        await scene.land()
        await until("the next move is written", lambda: len(moved(scene)) == 2)
        ask(scene, "stop")
        await until("it is stopped", lambda: proposal(scene)["state"] == "Stopped")
        await scene.land()
        slow.answer.set_exception(SourceUnavailableError("it is too slow"))
        await measuring

        assert len(moved(scene)) == 2 < found["total"]
        assert scene.condition("DataTrusted") == ("False", "SourceUnavailable")
        assert sum(count for _, count in scene.memory()["moves"]) == 2

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_what_was_approved_rests_when_an_older_policy_takes_over_in_the_middle_of_a_cycle(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab_operator.control.deciding.TEND_EVERY", 0.05)

    async def story(scene: PolicyScene) -> None:
        await approved(scene)
        scene.source = slow = Slow(scene.load)
        measuring = asyncio.create_task(scene.cycle())
        await until("the cycle measures", lambda: scene.loop.context.clock() > NOW + 60)
        scene.context.claims["older"] = Claim("older", "1970")
        scene.context.share_out()

        await scene.land()
        await asyncio.sleep(0.3)
        slow.answer.set_exception(SourceUnavailableError("it is too slow"))
        await measuring

        assert len(moved(scene)) == 1
        assert progress(scene)["failed"] == 0

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_nothing_is_ready_to_be_approved_while_an_older_policy_has_the_brokers(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)

        scene.context.claims["older"] = Claim("older", "1970")
        await scene.turn(after=2)
        assert scene.condition("ProposalReady") == ("False", "InvalidPolicy")

        scene.context.leave("older")
        await scene.turn(after=2)
        assert scene.condition("ProposalReady") == ("True", "ProposalReady")
        assert proposal(scene)["id"] == first["id"]

    play(HOT, story, **APPROVE)


def test_nothing_is_ready_to_be_approved_of_a_policy_that_can_not_be_run(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)

        scene.edit(interval="0s")
        scene.restart()
        await scene.turn(after=2)
        assert scene.condition("ProposalReady") == scene.condition("Valid") == ("False", "InvalidPolicy")

        scene.edit(interval="30s")
        await scene.turn(after=2)
        assert scene.condition("ProposalReady") == ("True", "ProposalReady")
        assert proposal(scene)["id"] != first["id"]

    play(HOT, story, **APPROVE)


# -- what withdraws a proposal --


def test_an_edited_policy_supersedes_its_proposal_and_offers_another(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)

        scene.edit(limits={"coolDown": "31m"})
        ask(scene, "approve", first["id"])
        await scene.turn(after=2)
        await scene.turn(after=2)

        assert moved(scene) == {}
        assert proposal(scene)["state"] == "ProposalReady"
        assert proposal(scene)["id"] != first["id"]
        status, message = command(scene)
        assert status == "False"
        assert first["id"] in message
        assert any(f"{first['id']} was superseded: the policy was edited" in note for _, note in scene.events())

    play(HOT, story, **APPROVE)


def test_after_an_edit_all_conditions_speak_of_the_policy_as_it_is(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.turn()
        scene.edit(interval="50s")
        await scene.turn(after=1)

        generation = scene.policy()["metadata"]["generation"]
        assert {c["observedGeneration"] for c in scene.status()["conditions"]} == {generation}

    play(cluster(bundles=2, a=0.5, b=0.5), story, **APPROVE)


def test_a_proposal_expires_and_can_not_be_approved_any_more(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)
        ask(scene, "approve", first["id"])

        await scene.turn(after=121)

        assert moved(scene) == {}
        assert annotations(scene) == {}
        status, message = command(scene)
        assert (status, f"proposal {first['id']} expired" in message) == ("False", True)
        assert proposal(scene)["state"] == "ProposalReady", "the cycle of the same turn offers a fresh one"
        assert proposal(scene)["id"] != first["id"]

    play(HOT, story, **APPROVE, approval={"expiresAfter": "2m"})


def test_a_broker_that_is_closed_supersedes_the_plan_and_another_one_is_offered_at_once(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)
        closed = first["moves"][0]["destination"]
        scene.rest.patch(scene.path("brokers", closed), {"spec": {"schedulable": False}})
        ask(scene, "approve", first["id"])

        await scene.turn(after=2)

        assert moved(scene) == {}
        assert command(scene)[0] == "False"
        assert proposal(scene)["state"] == "ProposalReady"
        assert proposal(scene)["id"] != first["id"]
        assert closed not in {move["destination"] for move in proposal(scene)["moves"]}

    play(HOT, story, **APPROVE)


@pytest.mark.parametrize("change", ["dies", "goes"])
def test_a_broker_that_is_lost_to_the_plan_supersedes_it(change: str, play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)
        lost = first["moves"][0]["destination"]
        path = scene.path("brokers", lost)
        if change == "dies":
            scene.rest.patch(f"{path}/status", {"status": {"ready": False}})
        else:
            scene.rest.delete(path)
        ask(scene, "approve", first["id"])

        await scene.turn(after=2)

        assert moved(scene) == {}
        assert proposal(scene)["state"] == "PendingProposal"
        assert (lost in proposal(scene)["message"], proposal(scene)["moves"]) == (True, [])
        assert command(scene)[0] == "False"
        assert sorted(reason for reason, _ in scene.events()) == ["PendingProposal", "ProposalReady", "Refused"]

    play(HOT, story, **APPROVE)


# -- what people ask for --


def test_refresh_replaces_the_proposal_by_one_of_what_is_seen_now(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)

        ask(scene, "refresh")
        await scene.turn(after=2)
        assert proposal(scene)["state"] == "PendingProposal"
        await scene.turn(after=1)

        assert annotations(scene) == {}
        assert proposal(scene)["state"] == "ProposalReady"
        assert proposal(scene)["id"] != first["id"]

    play(HOT, story, **APPROVE)


def test_stop_withdraws_a_waiting_proposal_until_somebody_refreshes(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)

        ask(scene, "stop")
        await scene.turn(after=2)
        await scene.cycle()
        assert (proposal(scene)["state"], proposal(scene)["total"]) == ("Stopped", 0)

        ask(scene, "approve", first["id"])
        await scene.turn(after=2)
        assert command(scene)[0] == "False"
        assert moved(scene) == {}

        ask(scene, "refresh")
        await scene.turn(after=2)
        await scene.turn(after=2)
        assert proposal(scene)["state"] == "ProposalReady"

    play(HOT, story, **APPROVE)


def test_stop_in_the_middle_writes_nothing_more_and_leaves_every_bundle_whole(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        assert len(moved(scene)) == 1 < found["total"]

        ask(scene, "stop")
        await scene.turn(after=2)
        assert proposal(scene)["state"] == "Stopped"
        assert (progress(scene)["inFlight"], progress(scene).get("finishedAt")) == (1, None)

        await scene.land()
        await scene.turn(after=2)
        await scene.turn(after=2)

        assert len(moved(scene)) == 1
        assert scene.owners() == scene.wishes()
        shown = progress(scene)
        assert (shown["landed"], shown["failed"], shown["inFlight"], shown["total"]) == (1, 0, 0, found["total"])
        assert shown["finishedAt"]
        assert proposal(scene)["state"] == "Stopped"

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


@pytest.mark.parametrize(
    ("spec", "word", "pinned", "complaint"),
    [
        (APPROVE, "aprove", None, "'aprove': write approve, refresh or stop"),
        (APPROVE, "approve", "0badc0de", "it is for proposal 0badc0de, and the one there is now is "),
        ({"mode": "DryRun"}, "approve", None, "spec.mode is DryRun: set it to Approve"),
        ({"mode": "Auto", "paused": True}, "stop", None, "spec.mode is Auto"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_command_that_can_not_be_taken_is_refused_with_what_to_do(
    spec: dict[str, Any], word: str, pinned: str | None, complaint: str, play: Play
) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.turn()

        ask(scene, word, pinned)
        await scene.turn(after=2)

        assert moved(scene) == {}
        assert annotations(scene) == {}
        assert command(scene)[0] == "False"
        assert complaint in command(scene)[1]
        assert [note for reason, note in scene.events() if reason == "Refused"] == [command(scene)[1]]

    play(HOT, story, **spec)


def test_a_paused_policy_takes_no_approval_and_holds_what_was_approved(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        scene.edit(paused=True)
        await scene.land()

        await scene.turn(after=2)
        assert len(moved(scene)) == 1 < found["total"]
        assert proposal(scene)["state"] == "Rebalancing"

        scene.edit(paused=False)
        await scene.turn(after=2)
        assert len(moved(scene)) == 2

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_leaving_the_mode_ends_what_was_approved_as_stop_does(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await approved(scene)

        scene.edit(mode="DryRun")
        await scene.land()
        await scene.turn(after=2)
        await scene.cycle()

        assert len(moved(scene)) == 1
        assert progress(scene)["finishedAt"]
        shown = proposal(scene)
        assert {"state", "id", "expiresAt"}.isdisjoint(shown)
        assert scene.condition("ProposalReady") == scene.condition("Rebalancing") == ("", "")

        scene.edit(mode="Approve")
        await scene.turn(after=2)
        assert proposal(scene)["state"] == "ProposalReady"

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


# -- each move is validated when it is written --


NAMESPACE_CHANGES: dict[str, dict[str, Any]] = {
    "Unbalanced": {"balanced": False},
    "Isolated": {"isolation": {"primary": ["a"]}},
}


async def blocked_by(scene: PolicyScene, move: dict[str, str], how: str) -> None:
    """Somebody changes what `move` rests on."""
    path = scene.path("bundles", move["bundle"])
    if how == "Pinned":
        scene.rest.patch(path, {"spec": {"pinned": True}})
    elif how == "Deleted":
        scene.rest.delete(path)
    elif how == "InFlight":
        scene.give(move["bundle"], "b" if move["destination"] == "c" else "c")
    elif how in NAMESPACE_CHANGES:
        space = scene.bundles()[move["bundle"]]["spec"]["topicNamespace"]
        spaces = scene.context.stores.topic_namespaces.items
        before = spaces[space].policy
        scene.rest.patch(scene.path("topicnamespaces", space), {"spec": NAMESPACE_CHANGES[how]})
        await until("the store shows it", lambda: spaces[space].policy != before)
    elif how == "NotReady":
        scene.rest.patch(scene.path("brokers", move["destination"], "status"), {"status": {"ready": False}})


@pytest.mark.parametrize(("how", "reason"), [("Pinned", "Pinned"), ("Deleted", "Conflict"), ("InFlight", "InFlight")])
def test_a_bundle_that_changed_meanwhile_costs_its_own_move_alone(how: str, reason: str, play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        first, *others = found["moves"]
        await blocked_by(scene, first, how)
        ask(scene, "approve", found["id"])

        await scene.turn(after=2)
        await scene.land()
        await scene.turn(after=2)

        assert {name: owner for name, owner in moved(scene).items() if name != first["bundle"]} == {
            move["bundle"]: move["destination"] for move in others
        }
        [failure] = progress(scene)["failures"]
        assert (failure["bundle"], failure["reason"]) == (first["bundle"], reason)
        assert (proposal(scene)["state"], progress(scene)["percent"]) == ("NotReady", 100)
        assert [note for r, note in scene.events() if r == reason and first["bundle"] in note and "not moved" in note]

    play(HOT, story, **APPROVE)


def test_a_bundle_that_a_person_moved_and_that_landed_there_is_left_there(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        first = found["moves"][0]
        elsewhere = "b" if first["destination"] == "c" else "c"
        scene.give(first["bundle"], elsewhere)
        await scene.land()
        ask(scene, "approve", found["id"])

        await scene.turn(after=2)
        await scene.turn(after=2)

        assert scene.wishes()[first["bundle"]] == elsewhere
        [failure] = progress(scene)["failures"]
        assert failure["reason"] == "Conflict"
        assert f"it is on {elsewhere} now, and not on a any more" in failure["detail"]

    play(HOT, story, **APPROVE)


@pytest.mark.parametrize(
    ("how", "reason"), [("Unbalanced", "Excluded"), ("Isolated", "Isolation"), ("NotReady", "NotReady")]
)
def test_what_changes_in_the_middle_refuses_the_moves_that_are_left(how: str, reason: str, play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        [(written, _)] = moved(scene).items()
        await scene.land()
        await blocked_by(scene, found["moves"][1], how)
        refused = {
            m["bundle"]
            for m in found["moves"]
            if how in NAMESPACE_CHANGES or m["destination"] == found["moves"][1]["destination"]
        }

        for _ in found["moves"]:
            await scene.turn(after=2)
            await scene.land()
        await scene.turn(after=2)

        failures = progress(scene)["failures"]
        assert {failure["reason"] for failure in failures} == {reason}
        assert {failure["bundle"] for failure in failures} == refused - {written}
        assert any(reason == "NotReady" and found["id"] in note for reason, note in scene.events())
        assert set(moved(scene)) == {m["bundle"] for m in found["moves"]} - (refused - {written})

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_the_hours_moves_are_counted_while_a_proposal_is_carried_out(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        scene.edit(mode="Auto")  # a person is impatient, and turns back
        await scene.turn(after=2)
        spent = len(moved(scene))
        assert spent == found["total"] == 2
        await scene.land()
        scene.edit(mode="Approve")

        await scene.turn(after=2)

        assert proposal(scene)["state"] == "PendingProposal"
        assert scene.status()["lastCycle"]["heldBack"]["HourCap"] >= 1

    play(HOT, story, **eager(maxMovesPerHour=2, coolDown="1s") | APPROVE)


def test_a_move_that_nobody_confirms_is_withdrawn_and_counts_as_failed(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        assert len(moved(scene)) == found["total"] == 1

        await scene.turn(after=31)
        await scene.land()
        await scene.turn(after=2)

        assert moved(scene) == {}
        [failure] = progress(scene)["failures"]
        assert failure["reason"] == "TimedOut"
        assert proposal(scene)["state"] == "NotReady"

    play(HOT, story, **eager(maxMovesPerCycle=1, moveTimeout="30s") | APPROVE)


# -- the operator dies --


def test_a_waiting_proposal_survives_the_operator(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)

        scene.restart()
        await scene.turn(after=2)
        assert proposal(scene) == found

        ask(scene, "approve", found["id"])
        await scene.turn(after=2)
        assert moved(scene) == destinations(found)

    play(HOT, story, **APPROVE)


def test_an_execution_goes_on_where_the_operator_died(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        await scene.land()

        for _ in range(found["total"]):
            scene.restart()
            await scene.turn(after=2)
            await scene.land()
        scene.restart()
        await scene.turn(after=2)

        assert moved(scene) == destinations(found)
        assert (progress(scene)["landed"], progress(scene)["failed"]) == (found["total"], 0)
        assert any(reason == "Ready" and found["id"] in note for reason, note in scene.events())
        written = [
            b["metadata"]["generation"] for b in scene.bundles().values() if b["metadata"]["name"] in moved(scene)
        ]
        assert set(written) == {2}, "no move was written twice"

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_a_move_that_was_written_and_not_noted_is_not_written_again(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        for move in found["moves"]:  # as the operator does, which dies before it stores that
            scene.give(move["bundle"], move["destination"])
        ask(scene, "approve", found["id"])

        scene.restart()
        await scene.turn(after=2)
        await scene.land()
        await scene.turn(after=2)

        assert proposal(scene)["state"] == "Ready"
        assert {b["metadata"]["generation"] for b in scene.bundles().values()} == {1, 2}

    play(HOT, story, **APPROVE)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"binaryData": {"proposal.json.gz": "AAAA"}},
        {"binaryData": {"proposal.json.gz": None}},
        {"data": {"state.json": "{}"}},
    ],
    ids=["no gzip", "no proposal", "no state"],
)
def test_a_proposal_that_somebody_spoilt_is_begun_anew_and_told(spoilt: dict[str, Any], play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await offered(scene)
        path = f"/api/v1/namespaces/{scene.namespace}/configmaps/trimtab-proposal-main"
        scene.rest.patch(path, spoilt)

        scene.restart()
        await scene.cycle()

        assert proposal(scene)["state"] == "ProposalReady"
        assert any("begins without a proposal" in note for reason, note in scene.events() if reason == "InternalError")

    play(HOT, story, **APPROVE)


# -- splits --


def test_splits_are_offered_and_asked_for_once_approved(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        assert (found["total"], found["totalSplits"]) == (0, 1)
        [shown] = found["splits"]
        assert splits(scene) == {}

        ask(scene, "approve", found["id"])
        await scene.turn(after=2)

        [made] = splits(scene).values()
        assert made["spec"]["bundle"] == shown["bundle"]
        assert made["spec"]["boundaries"] == shown["boundaries"]
        assert (progress(scene)["landed"], proposal(scene)["state"]) == (1, "Ready")

    play(LARGE, story, **APPROVE, **DIVIDING)


def test_a_split_of_a_bundle_that_moved_meanwhile_is_not_asked_for(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        scene.give(found["splits"][0]["bundle"], "b")
        await scene.land()

        ask(scene, "approve", found["id"])
        await scene.turn(after=2)

        assert splits(scene) == {}
        [failure] = progress(scene)["failures"]
        assert (failure["reason"], failure["bundle"]) == ("Conflict", found["splits"][0]["bundle"])

    play(LARGE, story, **APPROVE, **DIVIDING)
