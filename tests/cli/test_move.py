"""`trimtab move`: without a broker the placement chooses, and `--wait` says why a move did not land."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, cast

import pytest

from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy, eager
from run_verb import Said, Verb, run_verb
from static_sources import StaticSources
from trimtab_operator.cli.commands import move
from trimtab_operator.kube.client import Api, ApiError, ApiUnavailableError, NotFoundError, RefusedError

DRY_RUN = {"mode": "DryRun"}
"""People's moves are made in every mode."""


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Runs `trimtab` beside brokers that confirm what is desired of them; exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "160")

    async def run(env: PolicyEnvironment, name: str, *words: str) -> Said:
        sources = StaticSources(env)
        monkeypatch.setattr(
            "trimtab_operator.cli.commands.measured_policy.load_sources", lambda _history, _master: sources
        )

        async def meanwhile() -> None:
            env.confirm()

        return await run_verb(env, capsys, [name, *words, "-n", env.namespace], meanwhile)

    return run


@pytest.mark.apiserver
def test_a_move_without_a_broker_goes_where_the_placement_chooses(run_policy: RunPolicy, verb: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        full = env.load.bundles.names[0]
        name = env.names[full]

        code, out, err = await verb(env, "move", full, "--wait")

        assert code == 0, err
        assert env.owners()[name] in {"b", "c"}
        assert out == f"{name} is on {env.owners()[name]}\n"

    run_policy(HOT, scenario, **eager() | DRY_RUN)


@pytest.mark.apiserver
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


@pytest.mark.apiserver
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

        code, _, err = await verb(env, "move", env.load.bundles.names[0])
        assert code == 2
        assert "the operator can't ask Pulsar to move bundles (Linked is False)" in err
        assert "SourceUnavailable: connection refused" in err
        assert env.owners() == env.desired_owners()

    run_policy(HOT, scenario, **eager() | DRY_RUN)


class _Bundle:
    """A bundle that moves from p to q. Each request gets the next of the `answers`: an error, or the owner."""

    def __init__(self, *answers: ApiError | str) -> None:
        self._answers = list(answers)

    async def get(self, _ref: object, _namespace: str, _name: str) -> dict[str, Any]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return {"spec": {"owner": answer}, "status": {"owner": answer}}


GONE, CUT = NotFoundError("no b-1", status=404, reason="NotFound"), ApiUnavailableError("connection reset")


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (("q",), ""),
        ((CUT, CUT, "q"), ""),
        ((CUT,), "it was written, and its owner can't be read: connection reset"),
        (
            (RefusedError("403 forbidden", status=403), "q"),
            "it was written, and its owner can't be read: 403 forbidden",
        ),
        ((GONE,), "it was written, and the bundle was deleted meanwhile"),
        (("p",), "another client set its owner to p meanwhile"),
    ],
)
def test_a_move_that_is_waited_for_lands_or_says_why_not(
    answers: tuple[ApiError | str, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "POLL", 0.001)
    arguments, bundle = argparse.Namespace(namespace="prod", timeout=0.05), cast("Api", _Bundle(*answers))

    assert asyncio.run(move._why_not_landed(bundle, arguments, move.HandMove("b-1", "p", "q"))) == why
