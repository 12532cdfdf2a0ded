"""Runs a verb of `trimtab` on the environment of a policy, as people run it while an operator runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from policy_environment import PolicyEnvironment
from trimtab_operator.cli import main

Said = tuple[int, str, str]
"""Exit code, output and errors."""

Verb = Callable[..., Awaitable[Said]]


async def run_verb(
    env: PolicyEnvironment,
    capsys: pytest.CaptureFixture[str],
    words: Sequence[str],
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> Said:
    """Run `trimtab` with `words` in a thread. meanwhile: called repeatedly until the verb is done."""
    capsys.readouterr()
    running = asyncio.create_task(asyncio.to_thread(main, [*words, "--kubeconfig", env.kubeconfig]))
    while meanwhile is not None and not running.done():
        await meanwhile()
        await asyncio.sleep(0.02)
    code = await running
    shown = capsys.readouterr()
    return code, shown.out, shown.err
