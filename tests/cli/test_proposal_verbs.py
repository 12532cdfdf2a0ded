"""The verbs by which people answer a policy, and move, drain and split by hand, against the real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from plan_clusters import HOT, LEVEL
from policy_environment import PolicyEnvironment, RunPolicy, eager
from run_verb import Said, Verb, run_verb
from strategy_testing.clusters import cluster
from trimtab_operator.cli import main
from trimtab_operator.cli.commands.status_table import as_data, print_one
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

APPROVE = {"mode": "Approve"}
NONE = "there is no BalancingPolicy in namespace"


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Runs `trimtab` beside the operator's loop, which goes on turning; exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "160")

    async def run(env: PolicyEnvironment, name: str, *words: str, landing: bool = True) -> Said:
        async def meanwhile() -> None:
            await env.reconcile(after=0.5)
            if landing:
                await env.land()

        return await run_verb(env, capsys, [name, *words, "-n", env.namespace], meanwhile)

    return run


def moving(env: PolicyEnvironment) -> dict[str, str]:
    """Moves of the proposal that is shown."""
    return {move["bundle"]: move["destination"] for move in env.status()["proposal"]["moves"]}


def moved(env: PolicyEnvironment) -> int:
    return sum(found["metadata"]["generation"] > 1 for found in env.bundles().values())


# -- status --


def test_status_of_one_policy_shows_what_it_proposes_and_how_to_approve_it(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.hold_lease()
        await env.reconcile()
        proposal = env.status()["proposal"]

        code, out, _ = await verb(env, "status", "main")

        assert code == 0
        assert f"Proposal: ProposalReady {proposal['id']}" in out
        assert f"trimtab approve main -n {env.namespace} --proposal {proposal['id']}" in out
        assert all(bundle in out for bundle in moving(env))
        assert "interrupts" in out
        assert f"Moves ({proposal['total']})" in out

    run_policy(HOT, scenario, **APPROVE)


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_status_is_data_where_that_is_asked_for(
    output: str, read: Callable[[str], Any], run_policy: RunPolicy, verb: Verb
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        one = read((await verb(env, "status", "main", "-o", output))[1])
        every = read((await verb(env, "status", "-o", output))[1])

        assert one["proposal"] == env.status()["proposal"]
        assert (one["mode"], one["paused"]) == ("Approve", False)
        assert [policy["policy"] for policy in every] == ["main"]

    run_policy(HOT, scenario, **APPROVE)


def test_status_says_whether_plans_are_acted_upon_and_shows_trouble_while_it_lasts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def condition(kind: str, status: str) -> dict[str, str]:
        return {"type": kind, "status": status, "reason": f"Why{kind}", "message": "words"}

    told = [condition(kind, "False") for kind in ("Ready", "Acting", "RightSized")]
    policy = {
        "metadata": {"name": "main"},
        "spec": {},
        "status": {
            "conditions": [*told, *(condition(kind, "True") for kind in ("CompetingBalancer", "HistoryWritable"))]
        },
    }
    print_one(as_data(policy))

    shown = capsys.readouterr().out
    assert all(f"Why{word}: words" in shown for word in ("Ready", "Acting", "CompetingBalancer", "RightSized"))
    assert "HistoryWritable" not in shown


def test_status_of_a_level_cluster_proposes_nothing_and_shows_it_as_it_is(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        _, out, _ = await verb(env, "status", "main")

        assert "Proposal: none, nothing would move" in out
        assert "Now" in out
        assert "After" not in out

    run_policy(LEVEL, scenario)


def test_a_condition_goes_on_below_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ready = {"type": "Ready", "status": "False", "reason": "Because", "message": "word " * 20}
    print_one(as_data({"metadata": {"name": "main"}, "spec": {}, "status": {"conditions": [ready]}}))

    _, first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("  Ready        False   Because: word")
    assert second.startswith(" " * 23 + "word")


def test_status_of_all_policies_is_a_row_each_and_a_finding_where_one_is_not_ready(
    run_policy: RunPolicy, verb: Verb
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.hold_lease()
        await env.reconcile()
        fine, out, _ = await verb(env, "status")
        assert (fine, "main" in out) == (0, True)

        env.edit(brokers={"names": ["nobody"]})
        await env.reconcile()
        code, out, _ = await verb(env, "status")

        assert code == 1
        assert "main: UnknownBroker: spec.brokers" in out

    run_policy(LEVEL, scenario)


def test_a_namespace_without_a_policy_is_told(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "-n", kube_namespace, "--kubeconfig", str(trimtab_crds.kubeconfig)]) == 0
    assert capsys.readouterr().out == f"{NONE} {kube_namespace}; -A shows all namespaces\n"

    named = ["status", "mian", "-A", "--kubeconfig", str(trimtab_crds.kubeconfig)]
    assert main(named) == 2
    assert capsys.readouterr().err.startswith("trimtab: no BalancingPolicy mian in any namespace; ")


# -- approve, refresh, stop --


def test_approve_carries_out_what_is_shown_and_waits_until_it_has_landed(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        asked = moving(env)

        code, out, err = await verb(env, "approve", "main", "--wait")

        assert code == 0, err
        assert f"100 %: {len(asked)} of {len(asked)} landed, 0 in flight" in out
        assert "is carried out" in err
        assert "100 %" not in err, "the end is printed once"
        assert {name: owner for name, owner in env.owners().items() if name in asked} == asked

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_approve_is_a_finding_when_a_move_fails(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        first = next(iter(moving(env)))
        env.rest.patch(env.path("bundles", first), {"spec": {"pinned": True}})

        code, _, err = await verb(env, "approve", "main", "--wait")

        assert code == 1
        assert f"first failure: {first}: Pinned" in err

    run_policy(HOT, scenario, **APPROVE)


def test_approve_of_another_proposal_than_the_one_shown_is_refused(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        shown = env.status()["proposal"]["id"]

        code, out, err = await verb(env, "approve", "main", "--proposal", "0badc0de")

        assert (code, out) == (1, "")
        assert f"it is for proposal 0badc0de, and the current one is {shown}" in err
        assert moved(env) == 0

    run_policy(HOT, scenario, **APPROVE)


def test_approve_with_nothing_to_approve_says_so(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        code, _, err = await verb(env, "approve", "main")

        assert code == 1
        assert "there is no proposal now" in err

    run_policy(LEVEL, scenario, **APPROVE)


def test_refresh_and_stop_are_answered_and_printed_as_data(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        first = env.status()["proposal"]["id"]

        code, _, err = await verb(env, "refresh", "main")
        assert code == 0, err
        await env.reconcile(after=1)
        assert env.status()["proposal"]["id"] not in {None, first}

        code, out, _ = await verb(env, "stop", "main", "-o", "json")
        assert code == 0
        answer = json.loads(out)
        assert (answer["taken"], answer["proposal"]["state"]) == (True, "Stopped")

        code, _, err = await verb(env, "approve", "main")
        assert code == 1
        assert "refresh" in err

    run_policy(HOT, scenario, **APPROVE)


def test_a_command_that_nobody_takes_is_told_after_the_time_out(
    run_policy: RunPolicy, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        words = ["stop", "main", "-n", env.namespace, "--kubeconfig", env.kubeconfig, "--timeout", "0.2"]
        assert await asyncio.to_thread(main, words) == 1
        assert "no answer within 0.2 s: is the operator running?" in capsys.readouterr().err

        assert await asyncio.to_thread(main, ["approve", *words[1:]]) == 2
        assert "the operator has not yet read the command stop for main: wait" in capsys.readouterr().err

        assert await asyncio.to_thread(main, words) == 1
        assert "no answer within 0.2 s" in capsys.readouterr().err

    run_policy(LEVEL, scenario, **APPROVE)


# -- pause, resume --


def test_pause_and_resume_hold_decisions_and_let_them_go_on(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        code, out, _ = await verb(env, "pause", "main", landing=False)
        assert code == 0
        assert f"trimtab resume main -n {env.namespace}" in out
        await env.cycle()
        assert env.condition("Ready") == ("False", "Paused")

        code, _, _ = await verb(env, "resume", "main")
        assert code == 0
        await env.cycle()
        assert env.condition("Ready")[0] == "True"

    run_policy(LEVEL, scenario)


def test_resume_says_that_the_spec_pauses_as_well(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        code, _, err = await verb(env, "resume", "main")

        assert code == 1
        assert "spec.paused is true" in err

    run_policy(LEVEL, scenario, paused=True)


# -- by hand --


def test_a_bundle_is_moved_by_either_of_its_names(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        full, other = env.load.bundles.names[:2]

        code, out, _ = await verb(env, "move", full, "b", "--wait")
        assert (code, out) == (0, f"{env.names[full]} is on b\n")

        code, out, _ = await verb(env, "move", env.names[other], "b")
        assert (code, out) == (0, f"{env.names[other]}: move a -> b requested\n")

        await env.land()
        before = env.versions("bundles")
        code, out, _ = await verb(env, "move", env.names[full], "b", landing=False)
        assert (code, out) == (0, f"{env.names[full]} is on b already\n")
        assert env.versions("bundles") == before
        assert (env.owners()[env.names[full]], env.owners()[env.names[other]]) == ("b", "b")

    run_policy(LEVEL, scenario)


def test_a_move_that_nobody_confirms_is_a_finding(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        name = env.names[env.load.bundles.names[0]]

        code, out, err = await verb(env, "move", name, "b", "--wait", "--timeout", "0.5", landing=False)

        assert (code, out) == (1, "")
        assert "b did not confirm it within 0.5 s" in err

    run_policy(LEVEL, scenario)


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


def test_a_mistake_is_one_line_that_says_what_there_is(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = env.names[env.load.bundles.names[0]]
        env.rest.patch(env.path("brokers", "closed"), {"spec": {"schedulable": False}})
        env.rest.patch(env.path("brokers", "dead", "status"), {"status": {"ready": False}})

        for words, complaint in MISTAKES.items():
            code, out, err = await verb(env, *words.replace("FIRST", first).split(), landing=False)

            assert (code, out) == (2, ""), words
            assert err.startswith("trimtab: "), words
            assert err.count("\n") == 1, words
            assert complaint in err, words

    run_policy(cluster(bundles=2, a=0.5, b=0.5, closed=0.5, dead=0.5), scenario)


def test_a_broker_is_drained_and_opened_again(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        def takes() -> bool:
            found: bool = env.rest.get(env.path("brokers", "a"))["spec"].get("schedulable", True)
            return found

        code, out, _ = await verb(env, "drain", "a")
        assert (code, "a is not schedulable any more" in out, takes()) == (0, True, False)
        assert out.endswith(f": kubectl wait broker/a -n {env.namespace} --for=condition=Drained --timeout=10m\n")

        code, _, _ = await verb(env, "undrain", "a")
        assert (code, takes()) == (0, True)

    run_policy(LEVEL, scenario, mode="DryRun")


def test_a_split_is_asked_for_by_an_object(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        ways: list[tuple[list[str], dict[str, Any]]] = [
            ([], {"algorithm": "range_equally_divide"}),
            (["--by", "topic_count_equally_divide"], {"algorithm": "topic_count_equally_divide"}),
            (["--at", "0x50000000", "0x48000000"], {"boundaries": ["0x48000000", "0x50000000"]}),
        ]
        for (options, spec), full in zip(ways, env.load.bundles.names, strict=False):
            name = env.names[full]

            code, out, _ = await verb(env, "split", name, *options, landing=False)

            assert (code, f"BundleSplit {name} is created" in out) == (0, True)
            made = env.rest.get(env.path("bundlesplits", name))["spec"]
            assert {"bundle": name, **spec}.items() <= made.items()

        code, _, err = await verb(env, "split", name, landing=False)
        assert (code, "there is a BundleSplit" in err) == (2, True)

    run_policy(LEVEL, scenario)
