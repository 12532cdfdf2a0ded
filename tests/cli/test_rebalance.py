"""`trimtab rebalance --from BROKER`, and `unload` without a broker: planned under the guard, then made by hand."""

from __future__ import annotations

import io
import json
import sys

import pytest

from plan_clusters import HOT, LEVEL
from policy_environment import PolicyEnvironment, RunPolicy, eager
from run_verb import Said, Verb, run_verb
from static_sources import StaticSources

pytestmark = pytest.mark.apiserver

DRY_RUN = {"mode": "DryRun"}
"""People's moves are made in every mode."""


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Runs `trimtab` beside brokers that confirm what is desired of them; exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "160")

    async def run(env: PolicyEnvironment, name: str, *words: str, landing: bool = True) -> Said:
        sources = StaticSources(env)
        monkeypatch.setattr(
            "trimtab_operator.cli.commands.measured_policy.load_sources", lambda _history, _master: sources
        )

        async def meanwhile() -> None:
            if landing:
                env.confirm()

        return await run_verb(env, capsys, [name, *words, "-n", env.namespace], meanwhile)

    return run


def test_a_broker_gives_away_what_it_has_above_the_average(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        before = env.owners()

        code, out, err = await verb(env, "rebalance", "--from", "a", "--yes")

        assert code == 0, err
        assert out.startswith("a gives away 4 bundles\nCPU of the brokers: 20 % to 80 %, then 40 % to 40 %")
        gone = {name for name, owner in env.owners().items() if owner != before[name]}
        assert len(gone) == 4
        assert {before[name] for name in gone} == {"a"}
        assert out.count("landed") == 4
        for name in gone:
            assert "assignment" not in env.bundles()[name]["spec"], "it is a person's desired owner"

    run_policy(HOT, scenario, **eager() | DRY_RUN)


def test_only_as_many_moves_are_pending_as_the_policy_allows(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        words = ("rebalance", "--from", "a", "-y", "--timeout", "1", "-o", "json")
        code, out, _ = await verb(env, *words, landing=False)

        assert code == 1, "no broker confirms anything"
        made = [move["state"] for move in json.loads(out)["made"]]
        assert made == ["failed", "failed", "not started", "not started"]
        wished = [name for name, owner in env.desired_owners().items() if owner != env.owners()[name]]
        assert len(wished) == 2

    run_policy(HOT, scenario, **eager(maxMovesInFlight=2) | DRY_RUN)


def test_a_dry_run_shows_the_plan_and_every_write(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        before = env.versions("bundles")

        code, out, _ = await verb(env, "rebalance", "--from", "a", "--dry-run=server", landing=False)

        assert code == 0
        assert "a gives away 4 bundles" in out
        assert out.count("would patch Bundle ") == 4, "not only the first that may be pending"
        assert env.versions("bundles") == before

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | DRY_RUN)


def test_without_a_terminal_it_wants_to_be_confirmed(
    run_policy: RunPolicy, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
        code, _, err = await verb(env, "rebalance", "--from", "a", landing=False)
        assert (code, "add --yes, or --dry-run" in err) == (2, True)
        assert set(env.owners().items()) == set(env.desired_owners().items())

    run_policy(HOT, scenario, **DRY_RUN)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_a_person_is_asked_before_anything_moves(
    answer: str, code: int, run_policy: RunPolicy, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    async def scenario(env: PolicyEnvironment) -> None:
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        before = env.owners()

        ended, _, err = await verb(env, "rebalance", "--from", "a")

        assert ended == code
        assert "make 4 moves? [y/N]" in err
        assert (env.owners() != before) == (code == 0)

    run_policy(HOT, scenario, **eager() | DRY_RUN)


def test_a_broker_that_is_not_busier_than_the_others_keeps_all(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        code, out, _ = await verb(env, "rebalance", "--from", "b", "--yes")

        assert code == 1
        assert out.startswith("b can give nothing away")
        assert "Balanced" in out

        code, _, err = await verb(env, "rebalance", "--from", "z", "--yes")
        assert (code, "no Broker z in namespace" in err) == (2, True)

    run_policy(LEVEL, scenario, **DRY_RUN)


def test_a_move_without_a_broker_goes_where_the_placement_chooses(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        full = env.load.bundles.names[0]
        name = env.names[full]

        code, out, err = await verb(env, "move", full, "--wait")

        assert code == 0, err
        assert env.owners()[name] in {"b", "c"}
        assert out == f"{name} is on {env.owners()[name]}\n"

    run_policy(HOT, scenario, **eager() | DRY_RUN)


def test_a_move_says_why_no_broker_is_better(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        name = env.names[env.load.bundles.names[0]]
        env.rest.patch(env.path("bundles", name), {"spec": {"pinned": True}})

        code, _, err = await verb(env, "move", name)

        assert code == 2
        assert err.startswith(f"trimtab: no better broker for {name} than a: ")
        assert "Pinned" in err
        assert "name a broker to move it in any case" in err
        assert err.count("\n") == 1

    run_policy(HOT, scenario, **eager() | DRY_RUN)


def test_nothing_is_moved_while_the_operator_cant_ask_pulsar(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        linked = {
            "type": "Linked",
            "status": "False",
            "reason": "SourceUnavailable",
            "message": "connection refused",
            "lastTransitionTime": "2026-11-21T15:00:00Z",
        }
        status = {"status": {"conditions": [linked]}}
        env.rest.patch(env.path("balancingpolicies", "main", "status"), status)

        for words in (("rebalance", "--from", "a", "--yes"), ("move", env.load.bundles.names[0])):
            code, _, err = await verb(env, *words)
            assert code == 2
            assert "the operator can't ask Pulsar to move bundles (Linked is False)" in err
            assert "SourceUnavailable: connection refused" in err
        assert env.owners() == env.desired_owners()

    run_policy(HOT, scenario, **eager() | DRY_RUN)
