"""A plan saved to a file, edited, approved, carried out by the operator and undone, against the real API server."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from plan_clusters import HOT, LEVEL
from policy_environment import PolicyEnvironment, RunPolicy, eager
from run_verb import Said, Verb, run_verb
from static_sources import StaticSources
from trimtab_operator.cli import main
from trimtab_operator.cli.commands.plan_file import read_plan
from trimtab_operator.cli.common import CommandError

POLICY = {**eager(maxMovesInFlight=2), "mode": "Approve"}


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Runs `trimtab` beside the operator's loop and brokers that confirm; exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "200")

    async def run(env: PolicyEnvironment, *words: str) -> Said:
        sources = StaticSources(env)
        monkeypatch.setattr(
            "trimtab_operator.cli.commands.measured_policy.load_sources", lambda _history, _master: sources
        )

        async def meanwhile() -> None:
            await env.reconcile(after=0.5)
            await env.land()

        return await run_verb(env, capsys, words, meanwhile)

    return run


def content(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


def save(file: Path, plan: dict[str, Any]) -> dict[str, Any]:
    file.write_text(yaml.safe_dump(plan))
    return plan


async def saved(env: PolicyEnvironment, verb: Verb, file: Path, *words: str) -> dict[str, Any]:
    """Save a plan of the policy; the content of the file."""
    code, out, err = await verb(env, "plan", "main", "-n", env.namespace, "--save", str(file), *words)
    assert code == 0, err
    assert f"saved 4 moves; carry them out with: trimtab approve -f {file}" in out
    return content(file)


@pytest.mark.apiserver
@pytest.mark.parametrize("mode", ["Approve", "Auto"])
def test_a_saved_plan_is_carried_out_by_the_operator_and_undone(
    mode: str, run_policy: RunPolicy, verb: Verb, tmp_path: Path
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        file, before = tmp_path / "plan.json", env.owners()
        plan = await saved(env, verb, file)
        assert (plan["namespace"], plan["policy"], len(plan["moves"])) == (env.namespace, "main", 4)
        wanted = {env.names[move["bundle"]]: move["destination"] for move in plan["moves"]}
        still = {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}, "thresholdShedder": None}
        env.edit(mode=mode, shedder=still)  # its cycles plan nothing
        env.wall_step = time.time() - env.clock

        code, out, err = await verb(env, "approve", "-f", str(file), "--wait")
        assert code == 0, err
        assert out == "main: 100 %: 4 of 4 landed, 0 in flight\n"
        assert env.owners() == {**before, **wanted}
        assert env.status()["progress"]["approvedBy"] == "admin"

        code, out, err = await verb(env, "approve", "-f", str(file), "--undo", "--wait", "-o", "json")
        assert code == 0, err
        assert json.loads(out)["progress"]["landed"] == 4
        assert env.owners() == before

    run_policy(HOT, scenario, **eager(maxMovesInFlight=2) | {"mode": "DryRun"})


@pytest.mark.apiserver
def test_a_plan_relieves_one_broker(run_policy: RunPolicy, verb: Verb, tmp_path: Path) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        plan = await saved(env, verb, tmp_path / "plan.yaml", "--from", "a")
        assert {move["source"] for move in plan["moves"]} == {"a"}
        assert {move["destination"] for move in plan["moves"]} == {"b", "c"}

        code, out, err = await verb(env, "plan", "-n", env.namespace, "--from", "b", "--exit-code")
        assert (code, err) == (0, "")
        assert "Balanced" in out

        code, _, err = await verb(env, "plan", "-n", env.namespace, "--from", "z")
        assert (code, "no Broker z in namespace" in err) == (2, True)

    run_policy(HOT, scenario, **POLICY)


@pytest.mark.apiserver
def test_an_edited_plan_moves_what_it_says_now(run_policy: RunPolicy, verb: Verb, tmp_path: Path) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        file, before = tmp_path / "plan.yaml", env.owners()
        plan = await saved(env, verb, file)
        name = env.names[plan["moves"][0]["bundle"]]
        del plan["madeAt"]
        save(file, {**plan, "moves": [{"bundle": name, "source": "a", "destination": "c"}]})

        code, _, err = await verb(env, "-n", env.namespace, "approve", "main", "-f", str(file), "--wait")

        assert code == 0, err
        assert env.owners() == {**before, name: "c"}

    run_policy(HOT, scenario, **POLICY)


@pytest.mark.apiserver
def test_a_policy_in_mode_dry_run_refuses_a_plan_and_says_how_to_allow_it(
    run_policy: RunPolicy, verb: Verb, tmp_path: Path
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        file = tmp_path / "plan.yaml"
        move = {"bundle": env.load.bundles.names[0], "source": "a", "destination": "b"}
        save(file, {"kind": "MovePlan", "namespace": env.namespace, "policy": "main", "moves": [move]})

        code, _, err = await verb(env, "approve", "-f", str(file))

        assert code == 1
        assert "spec.mode is DryRun: it only shows what it would do; set it to Approve or Auto" in err
        assert env.owners() == env.desired_owners()

    run_policy(LEVEL, scenario, mode="DryRun")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "must hold one MovePlan, and holds 0 documents"),
        ("kind: [", ":1: it is not YAML"),
        ("kind: Policy", "kind: Input should be 'MovePlan'"),
        ("{kind: MovePlan, namespace: x, policy: y}", "moves: Field required"),
        ("{kind: MovePlan, namespace: x, policy: y, moves: [{names: z}]}", "moves.0.bundle: Field required"),
        (
            "{kind: MovePlan, namespace: x, policy: y, moves: [{bundle: z, source: a}]}",
            "moves.0.destination: Field required",
        ),
        ("{kind: MovePlan, namespace: x, policy: y, madeAt: soon, moves: []}", "madeAt: Input should be a valid date"),
        ("{kind: MovePlan, namespace: x, policy: y, moves: [], force: true}", "force: Extra inputs"),
    ],
)
def test_a_file_that_is_no_plan_is_told_by_its_field(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    with pytest.raises(CommandError) as told:
        read_plan(str(file))
    assert str(told.value).startswith(str(file))
    assert complaint in str(told.value)


@pytest.mark.parametrize(
    ("moves", "words", "complaint"),
    [
        ([{"bundle": "x", "source": "a", "destination": "b"}] * 2, (), "moves[1]: x is moved twice"),
        ([{"bundle": "x", "source": "a", "destination": "a"}], (), "moves[0]: x would stay on a: leave it out"),
        ([{"bundle": "a/b/c", "source": "a", "destination": "b"}], (), "'a/b/c' is not a bundle"),
        ([{"bundle": "x", "destination": "b"}], ("--undo",), "the plan can't be undone for x, which had no owner"),
        ([], ("-n", "y"), "the plan is for namespace x, and you named y: leave it out"),
        ([], ("other",), "the plan is for policy main, and you named other: leave it out"),
    ],
)
def test_what_can_not_be_meant_is_told_before_the_cluster_is_asked(
    moves: list[dict[str, str]],
    words: tuple[str, ...],
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "plan.yaml"
    save(file, {"kind": "MovePlan", "namespace": "x", "policy": "main", "moves": moves})
    assert main(["approve", "-f", str(file), *words]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--undo"], ["main", "--undo"]])
def test_an_approval_is_of_a_policy_or_of_a_plan(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["approve", *words]) == 2
    assert "name the policy whose proposal to approve, or a saved plan with -f FILE" in capsys.readouterr().err
