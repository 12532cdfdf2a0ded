"""What the verbs say of a policy in mode Shadow, against the real API server."""

from __future__ import annotations

import pytest

from plan_clusters import HOT_NONE_EMPTY
from policy_environment import WINDOW, PolicyEnvironment, RunPolicy, eager
from run_verb import Said, Verb, run_verb
from trimtab_operator.cli.commands.plan_table import as_data, print_tables
from trimtab_operator.cli.tables import console
from trimtab_operator.loop.preview import preview
from trimtab_strategies.model import counted

pytestmark = pytest.mark.apiserver

SHADOW = {**eager(), "mode": "Shadow"}


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Verb:
    """Runs a verb against the environment; exit code, output and errors."""

    async def run(env: PolicyEnvironment, *words: str) -> Said:
        return await run_verb(env, capsys, [*words, "-n", env.namespace])

    return run


async def with_shadow(env: PolicyEnvironment) -> None:
    """The policy `main` has decided, and so has the shadow `beside`."""
    await env.cycle()
    shadow = env.add_policy("beside", **SHADOW)
    env.clock += WINDOW
    await env.seen()
    await shadow.reconcile()


def test_status_shows_all_policies_and_the_comparison_of_the_shadow(run_policy: RunPolicy, ask: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await with_shadow(env)

        _, table, _ = await ask(env, "status")
        _, one, _ = await ask(env, "status", "beside")

        assert "Shadow : acting" in table
        assert "Compared with main since " in one
        assert "ShadowBetter Unknown TooEarly: 0 whole days of 7 compared with main" in one

    run_policy(HOT_NONE_EMPTY, scenario)


def test_explain_and_why_not_answer_for_the_policy_that_acts(run_policy: RunPolicy, ask: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await with_shadow(env)

        code, out, _ = await ask(env, "explain", "broker", "a")

        assert code == 0
        assert out.startswith("a gives ")
        assert "beside" not in out

    run_policy(HOT_NONE_EMPTY, scenario)


def test_explain_among_shadows_alone_says_where_to_look(run_policy: RunPolicy, ask: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        code, _, error = await ask(env, "why-not", "a")

        assert code == 2
        assert "policies in mode Shadow only, which decide about virtual bundles: see them with trimtab status" in error

    run_policy(HOT_NONE_EMPTY, scenario, **SHADOW)


def test_plan_says_that_only_virtual_bundles_move(run_policy: RunPolicy, capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.add_policy("fresh", **SHADOW)

        foreseen = await preview(env.cluster, "fresh")

        print_tables(console("never"), "fresh", foreseen)
        assert foreseen.plan.moves
        told = f"fresh would make {counted(len(foreseen.plan.moves), 'move')}, and moves virtual bundles only"
        assert told in capsys.readouterr().out
        data = as_data("fresh", foreseen)
        assert (data["mode"], data["restraint"]["reason"]) == ("Shadow", "Shadow")

    run_policy(HOT_NONE_EMPTY, scenario, mode="DryRun")
