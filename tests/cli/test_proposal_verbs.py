"""The verbs by which people answer a policy, and move, drain and split by hand, against the real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import yaml

from plan_clusters import HOT, LEVEL
from policy_scene import Play, PolicyScene, eager, played
from trimtab_operator.cli import main
from trimtab_operator.cli.commands.status_table import as_data, print_one
from trimtab_strategies.testing import cluster
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

APPROVE = {"mode": "Approve"}
NONE = "there is no BalancingPolicy in namespace"

Said = tuple[int, str, str]
Verb = Callable[..., Awaitable[Said]]


@pytest.fixture
def play(trimtab_crds: ControlPlane, kube_namespace: str) -> Play:
    return partial(played, trimtab_crds, kube_namespace)


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Runs `trimtab` beside the operator's loop, which goes on turning; exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "160")

    async def run(scene: PolicyScene, name: str, *words: str, landing: bool = True) -> Said:
        capsys.readouterr()
        whole = [name, *words, "-n", scene.namespace, "--kubeconfig", scene.kubeconfig]
        running = asyncio.create_task(asyncio.to_thread(main, whole))
        while not running.done():
            await scene.reconcile(after=0.5)
            if landing:
                await scene.land()
            await asyncio.sleep(0.02)
        shown = capsys.readouterr()
        return await running, shown.out, shown.err

    return run


def wished(scene: PolicyScene) -> dict[str, str]:
    """Moves of the proposal that is shown."""
    return {move["bundle"]: move["destination"] for move in scene.status()["proposal"]["moves"]}


def moved(scene: PolicyScene) -> int:
    return sum(found["metadata"]["generation"] > 1 for found in scene.bundles().values())


# -- status --


def test_status_of_one_policy_shows_what_it_proposes_and_how_to_approve_it(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.hold_lease()
        await scene.reconcile()
        proposal = scene.status()["proposal"]

        code, out, _ = await verb(scene, "status", "main")

        assert code == 0
        assert f"Proposal: ProposalReady {proposal['id']}" in out
        assert f"trimtab approve main -n {scene.namespace} --proposal {proposal['id']}" in out
        assert all(bundle in out for bundle in wished(scene))
        assert "interrupts" in out
        assert f"Moves ({proposal['total']})" in out

    play(HOT, story, **APPROVE)


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_status_is_data_where_that_is_asked_for(
    output: str, read: Callable[[str], Any], play: Play, verb: Verb
) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        one = read((await verb(scene, "status", "main", "-o", output))[1])
        every = read((await verb(scene, "status", "-o", output))[1])

        assert one["proposal"] == scene.status()["proposal"]
        assert (one["mode"], one["paused"]) == ("Approve", False)
        assert [policy["policy"] for policy in every] == ["main"]

    play(HOT, story, **APPROVE)


def test_status_says_whether_plans_are_acted_upon_and_shows_trouble_while_it_lasts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def condition(kind: str, status: str) -> dict[str, str]:
        return {"type": kind, "status": status, "reason": f"Why{kind}", "message": "words"}

    told = [condition(kind, "False") for kind in ("Ready", "Acting", "Flapping", "RightSized")]
    policy = {
        "metadata": {"name": "main"},
        "spec": {},
        "status": {"conditions": [*told, condition("CompetingBalancer", "True")]},
    }
    print_one(as_data(policy))

    shown = capsys.readouterr().out
    assert all(f"Why{word}: words" in shown for word in ("Ready", "Acting", "CompetingBalancer", "RightSized"))
    assert "Flapping" not in shown


def test_status_of_a_level_cluster_proposes_nothing_and_shows_it_as_it_is(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        _, out, _ = await verb(scene, "status", "main")

        assert "Proposal: none, nothing would move" in out
        assert "Now" in out
        assert "After" not in out

    play(LEVEL, story)


def test_a_condition_goes_on_below_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ready = {"type": "Ready", "status": "False", "reason": "Because", "message": "word " * 20}
    print_one(as_data({"metadata": {"name": "main"}, "spec": {}, "status": {"conditions": [ready]}}))

    _, first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("  Ready        False   Because: word")
    assert second.startswith(" " * 23 + "word")


def test_status_of_all_policies_is_a_row_each_and_a_finding_where_one_is_not_ready(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.hold_lease()
        await scene.reconcile()
        fine, out, _ = await verb(scene, "status")
        assert (fine, "main" in out) == (0, True)

        scene.edit(brokers={"names": ["nobody"]})
        await scene.reconcile()
        code, out, _ = await verb(scene, "status")

        assert code == 1
        assert "main: UnknownBroker: spec.brokers" in out

    play(LEVEL, story)


def test_a_namespace_without_a_policy_is_told(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "-n", kube_namespace, "--kubeconfig", str(trimtab_crds.kubeconfig)]) == 0
    assert capsys.readouterr().out == f"{NONE} {kube_namespace}; -A looks at all namespaces\n"

    named = ["status", "mian", "-A", "--kubeconfig", str(trimtab_crds.kubeconfig)]
    assert main(named) == 2
    assert capsys.readouterr().err.startswith("trimtab: no BalancingPolicy mian in any namespace; ")


# -- approve, refresh, stop --


def test_approve_carries_out_what_is_shown_and_waits_until_it_has_landed(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        asked = wished(scene)

        code, out, err = await verb(scene, "approve", "main", "--wait")

        assert code == 0, err
        assert f"100 %: {len(asked)} of {len(asked)} landed, 0 in flight" in out
        assert "is carried out" in err
        assert {name: owner for name, owner in scene.owners().items() if name in asked} == asked

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_approve_is_a_finding_when_a_move_fails(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        first = next(iter(wished(scene)))
        scene.rest.patch(scene.path("bundles", first), {"spec": {"pinned": True}})

        code, _, err = await verb(scene, "approve", "main", "--wait")

        assert code == 1
        assert f"the first that failed: {first}: Pinned" in err

    play(HOT, story, **APPROVE)


def test_approve_of_another_proposal_than_the_one_shown_is_refused(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        shown = scene.status()["proposal"]["id"]

        code, out, err = await verb(scene, "approve", "main", "--proposal", "0badc0de")

        assert (code, out) == (1, "")
        assert f"it is for proposal 0badc0de, and the one there is now is {shown}" in err
        assert moved(scene) == 0

    play(HOT, story, **APPROVE)


def test_approve_with_nothing_to_approve_says_so(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        code, _, err = await verb(scene, "approve", "main")

        assert code == 1
        assert "there is no proposal now" in err

    play(LEVEL, story, **APPROVE)


def test_refresh_and_stop_are_answered_and_printed_as_data(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        first = scene.status()["proposal"]["id"]

        code, _, err = await verb(scene, "refresh", "main")
        assert code == 0, err
        await scene.reconcile(after=1)
        assert scene.status()["proposal"]["id"] not in {None, first}

        code, out, _ = await verb(scene, "stop", "main", "-o", "json")
        assert code == 0
        answer = json.loads(out)
        assert (answer["taken"], answer["proposal"]["state"]) == (True, "Stopped")

        code, _, err = await verb(scene, "approve", "main")
        assert code == 1
        assert "refresh" in err

    play(HOT, story, **APPROVE)


def test_a_command_that_nobody_takes_is_told_after_the_time_out(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    async def story(scene: PolicyScene) -> None:
        words = ["stop", "main", "-n", scene.namespace, "--kubeconfig", scene.kubeconfig, "--timeout", "0.2"]
        assert await asyncio.to_thread(main, words) == 1
        assert "no answer within 0.2 s: is the operator running?" in capsys.readouterr().err

    play(LEVEL, story, **APPROVE)


# -- pause, resume --


def test_pause_and_resume_hold_decisions_and_let_them_go_on(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        code, out, _ = await verb(scene, "pause", "main", landing=False)
        assert code == 0
        assert f"trimtab resume main -n {scene.namespace}" in out
        await scene.cycle()
        assert scene.condition("Ready") == ("False", "Paused")

        code, _, _ = await verb(scene, "resume", "main")
        assert code == 0
        await scene.cycle()
        assert scene.condition("Ready")[0] == "True"

    play(LEVEL, story)


def test_resume_says_that_the_spec_pauses_as_well(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        code, _, err = await verb(scene, "resume", "main")

        assert code == 1
        assert "spec.paused is true" in err

    play(LEVEL, story, paused=True)


# -- by hand --


def test_a_bundle_is_moved_by_either_of_its_names(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        full, other = scene.load.bundles.names[:2]

        code, out, _ = await verb(scene, "move", full, "b", "--wait")
        assert (code, out) == (0, f"{scene.names[full]} is on b\n")

        code, out, _ = await verb(scene, "move", scene.names[other], "b")
        assert (code, out) == (0, f"{scene.names[other]}: a -> b is wished\n")

        before = scene.versions("bundles")
        code, out, _ = await verb(scene, "move", scene.names[full], "b", landing=False)
        assert (code, out) == (0, f"{scene.names[full]} is on b already\n")
        assert scene.versions("bundles") == before
        await scene.land()
        assert (scene.owners()[scene.names[full]], scene.owners()[scene.names[other]]) == ("b", "b")

    play(LEVEL, story)


def test_a_move_that_nobody_confirms_is_a_finding(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        name = scene.names[scene.load.bundles.names[0]]

        code, out, err = await verb(scene, "move", name, "b", "--wait", "--timeout", "0.5", landing=False)

        assert (code, out) == (1, "")
        assert "b did not confirm it within 0.5 s" in err

    play(LEVEL, story)


MISTAKES = {
    "move nothing b": "no Bundle nothing in namespace",
    "move public/a/7 b": "'public/a/7' is not a bundle",
    "move FIRST z": "no Broker z in namespace",
    "move FIRST closed": "takes no bundles (spec.schedulable is false); name another one, or add --force",
    "move FIRST dead": "broker dead is not ready",
    "drain z": "there are: a, b, closed, dead",
    "split FIRST --at 0x0": "--at 0x0 must be a hash strictly between 0x00000000 and 0x80000000",
    "split FIRST --at 0x90000000": "the bundle's range, such as 0x40000000",
    "split FIRST --at x": "--at x must be a hash",
    "approve other": "no BalancingPolicy other in namespace",
    "pause other": "there are: main",
}


def test_a_mistake_is_one_line_that_says_what_there_is(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        first = scene.names[scene.load.bundles.names[0]]
        scene.rest.patch(scene.path("brokers", "closed"), {"spec": {"schedulable": False}})
        scene.rest.patch(scene.path("brokers", "dead", "status"), {"status": {"ready": False}})

        for words, complaint in MISTAKES.items():
            code, out, err = await verb(scene, *words.replace("FIRST", first).split(), landing=False)

            assert (code, out) == (2, ""), words
            assert err.startswith("trimtab: "), words
            assert err.count("\n") == 1, words
            assert complaint in err, words

    play(cluster(bundles=2, a=0.5, b=0.5, closed=0.5, dead=0.5), story)


def test_a_broker_is_drained_and_opened_again(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        def takes() -> bool:
            found: bool = scene.rest.get(scene.path("brokers", "a"))["spec"].get("schedulable", True)
            return found

        code, out, _ = await verb(scene, "drain", "a")
        assert (code, "a takes no bundles any more" in out, takes()) == (0, True, False)
        assert out.endswith(f": kubectl wait broker/a -n {scene.namespace} --for=condition=Drained --timeout=10m\n")

        code, _, _ = await verb(scene, "drain", "a", "--undo")
        assert (code, takes()) == (0, True)

    play(LEVEL, story, mode="DryRun")


def test_a_split_is_asked_for_by_an_object(play: Play, verb: Verb) -> None:
    async def story(scene: PolicyScene) -> None:
        ways: list[tuple[list[str], dict[str, Any]]] = [
            ([], {"algorithm": "range_equally_divide"}),
            (["--by", "topic_count_equally_divide"], {"algorithm": "topic_count_equally_divide"}),
            (["--at", "0x50000000", "0x48000000"], {"boundaries": ["0x48000000", "0x50000000"]}),
        ]
        for (options, spec), full in zip(ways, scene.load.bundles.names, strict=False):
            name = scene.names[full]

            code, out, _ = await verb(scene, "split", name, *options, landing=False)

            assert (code, f"BundleSplit {name} is made" in out) == (0, True)
            made = scene.rest.get(scene.path("bundlesplits", name))["spec"]
            assert {"bundle": name, **spec}.items() <= made.items()

        code, _, err = await verb(scene, "split", name, landing=False)
        assert (code, "there is a BundleSplit" in err) == (2, True)

    play(LEVEL, story)
