"""A plan saved to a file, edited, checked, carried out and rolled back, against the real API server."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy, eager
from run_verb import Said, Verb, run_verb
from static_sources import StaticSources
from trimtab_operator.cli import main
from trimtab_operator.cli.commands.plan_file import read_plan
from trimtab_operator.cli.common import CommandError

POLICY = {**eager(maxMovesInFlight=2), "mode": "DryRun"}


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Runs `trimtab` beside brokers that confirm what is desired of them; exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "200")

    async def run(env: PolicyEnvironment, *words: str, landing: bool = True) -> Said:
        sources = StaticSources(env)
        monkeypatch.setattr(
            "trimtab_operator.cli.commands.measured_policy.load_sources", lambda _history, _master: sources
        )

        async def meanwhile() -> None:
            if landing:
                env.confirm()

        return await run_verb(env, capsys, words, meanwhile)

    return run


async def saved(env: PolicyEnvironment, verb: Verb, file: Path) -> dict[str, Any]:
    """Save the plan of the policy, as if it were measured now; the content of the file."""
    code, out, err = await verb(env, "plan", "main", "-n", env.namespace, "--save", str(file))
    assert code == 0, err
    assert f"saved 4 moves; carry them out with: trimtab apply-plan {file}" in out
    return made_now(file)


def made_now(file: Path) -> dict[str, Any]:
    plan: dict[str, Any] = yaml.safe_load(file.read_text())
    return save(file, {**plan, "madeAt": now()})


def save(file: Path, plan: dict[str, Any]) -> dict[str, Any]:
    file.write_text(yaml.safe_dump(plan))
    return plan


def now(before: float = 0.0) -> str:
    return datetime.fromtimestamp(time.time() - before, UTC).isoformat()


def states(out: str) -> dict[str, str]:
    return {move["bundle"]: move["state"] for move in json.loads(out)["moves"]}


@pytest.mark.apiserver
def test_a_saved_plan_is_carried_out_and_rolled_back(run_policy: RunPolicy, verb: Verb, tmp_path: Path) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        file, back, before = tmp_path / "plan.yaml", tmp_path / "back.json", env.owners()
        plan = await saved(env, verb, file)
        assert (plan["namespace"], plan["policy"], len(plan["moves"])) == (env.namespace, "main", 4)
        wanted = {env.names[move["bundle"]]: move["destination"] for move in plan["moves"]}

        code, out, err = await verb(env, "apply-plan", str(file), "--save-rollback", str(back), "-o", "json")
        assert code == 0, err
        assert states(out) == dict.fromkeys(wanted, "landed")
        assert env.owners() == {**before, **wanted}

        code, out, _ = await verb(env, "apply-plan", str(file), "-o", "json")
        assert (code, set(states(out).values())) == (0, {"already there"}), "a repetition moves nothing"

        code, _, err = await verb(env, "apply-plan", str(back))
        assert code == 0, err
        assert env.owners() == before

        await verb(env, "apply-plan", str(file))
        code, _, err = await verb(env, "apply-plan", str(file), "--reverse")
        assert code == 0, err
        assert env.owners() == before

    run_policy(HOT, scenario, **POLICY)


@pytest.mark.apiserver
def test_an_edited_plan_moves_what_it_says_now(run_policy: RunPolicy, verb: Verb, tmp_path: Path) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        file, before = tmp_path / "plan.yaml", env.owners()
        plan = await saved(env, verb, file)
        name = env.names[plan["moves"][0]["bundle"]]
        save(file, {**plan, "moves": [{"bundle": name, "source": "a", "destination": "c"}]})

        code, out, err = await verb(env, "-o", "json", "apply-plan", str(file))

        assert (code, states(out)) == (0, {name: "landed"}), err
        assert env.owners() == {**before, name: "c"}

    run_policy(HOT, scenario, **POLICY)


@pytest.mark.apiserver
def test_a_move_that_no_longer_fits_is_refused_with_its_reason_and_nothing_moves(
    run_policy: RunPolicy, verb: Verb, tmp_path: Path
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        file = tmp_path / "plan.yaml"
        plan = await saved(env, verb, file)
        first, second, third, fourth = (env.names[move["bundle"]] for move in plan["moves"])
        moves = [{**move, "destination": "b"} for move in plan["moves"]]
        save(file, {**plan, "moves": [*moves, {"bundle": "public/a/0x00000000_0x00000001", "destination": "b"}]})
        env.give(first, "c")
        await env.land()
        env.rest.patch(env.path("bundles", second), {"spec": {"pinned": True}})
        env.give(third, "c")  # it is on its way
        await env.seen()
        before = env.versions("bundles")

        code, out, _ = await verb(env, "apply-plan", str(file), landing=False)

        assert code == 1
        assert "Conflict: it is on c now, and not on a any more" in out
        assert "Pinned: a person pinned it to a" in out
        assert "InFlight: it is on its way to c" in out
        assert "Conflict: the bundle was deleted" in out
        assert env.versions("bundles") == before, "not even the move that would do"

        await env.land()
        code, out, _ = await verb(env, "apply-plan", str(file), "--skip-refused", "--dry-run")
        assert (code, out.count("would patch"), out.count("would not move")) == (1, 1, 4)
        assert f"would not move {second} to b: refused: Pinned: a person pinned it to a" in out
        code, out, _ = await verb(env, "apply-plan", str(file), "--skip-refused", "--dry-run", "-o", "json")
        assert (len(json.loads(out)["writes"]), len(json.loads(out)["refused"])) == (1, 4)
        code, out, _ = await verb(env, "apply-plan", str(file), "--skip-refused", "-o", "json")
        assert code == 1
        assert states(out)[fourth] == "landed"
        assert sorted(states(out).values()) == ["landed", *["refused"] * 4]

    run_policy(HOT, scenario, **POLICY)


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spec": {"schedulable": False}}, "Unschedulable: broker b takes no bundles"),
        ({"status": {"ready": False}}, "NotReady: broker b is not ready"),
    ],
    ids=["drained", "not ready"],
)
def test_a_destination_that_takes_no_bundles_is_refused(
    change: dict[str, Any], reason: str, run_policy: RunPolicy, verb: Verb, tmp_path: Path
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        file = tmp_path / "plan.yaml"
        plan = await saved(env, verb, file)
        save(file, {**plan, "moves": [{**move, "destination": "b"} for move in plan["moves"]]})
        env.rest.patch(env.path("brokers", "b", "status" if "status" in change else ""), change)
        await env.seen()

        code, out, _ = await verb(env, "apply-plan", str(file))

        assert (code, out.count(reason)) == (1, 4)
        assert "b" not in {env.owners()[env.names[move["bundle"]]] for move in plan["moves"]}

    run_policy(HOT, scenario, **POLICY)


@pytest.mark.apiserver
def test_a_plan_that_is_too_old_is_refused_unless_its_age_is_accepted(
    run_policy: RunPolicy, verb: Verb, tmp_path: Path
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        file = tmp_path / "plan.yaml"
        save(file, {**(await saved(env, verb, file)), "madeAt": now(before=3600)})

        code, _, err = await verb(env, "apply-plan", str(file))
        assert code == 2
        assert "was made 1h ago, and may be at most 15m old (approval.expiresAfter of its policy)" in err

        code, out, err = await verb(env, "apply-plan", str(file), "--max-age", "2h", "--dry-run")
        assert code == 0, err
        assert out.count("would patch Bundle ") == 4, "a dry run shows all, though only two may be pending"
        assert set(env.owners().items()) == set(env.desired_owners().items())

    run_policy(HOT, scenario, **POLICY)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "must hold one MovePlan, and holds 0 documents"),
        ("kind: [", ":1: it is not YAML"),
        ("kind: Policy", "kind: Input should be 'MovePlan'"),
        ("{kind: MovePlan, namespace: x, policy: y}", "moves: Field required"),
        ("{kind: MovePlan, namespace: x, policy: y, moves: [{names: z}]}", "moves.0.bundle: Field required"),
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
    ("moves", "complaint"),
    [
        ([{"bundle": "x", "source": "a", "destination": "b"}] * 2, "moves[1]: x is moved twice"),
        ([{"bundle": "x", "source": "a", "destination": "a"}], "moves[0]: x would stay on a: leave it out"),
        ([{"bundle": "a/b/c", "source": "a", "destination": "b"}], "'a/b/c' is not a bundle"),
    ],
)
def test_moves_that_can_not_be_meant_are_told_before_the_cluster_is_asked(
    moves: list[dict[str, str]], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.yaml"
    save(file, {"kind": "MovePlan", "namespace": "x", "policy": "main", "moves": moves})
    assert main(["apply-plan", str(file)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_plan_is_for_its_own_namespace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.yaml"
    save(file, {"kind": "MovePlan", "namespace": "x", "policy": "main", "moves": []})
    assert main(["apply-plan", str(file), "-n", "y"]) == 2
    assert "the plan is for namespace x, and -n names y" in capsys.readouterr().err
