"""When the next cycle is due: at a fixed rate, a random bit late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trimtab_operator.loop.policy_loop import JITTER, PolicyLoop


def loop_at(now: float, chance: float) -> Any:
    """A loop of which only the clock and its luck matter."""
    loop = object.__new__(PolicyLoop)
    loop.context = SimpleNamespace(clock=lambda: now, chance=lambda: chance)
    loop._beat = 0.0
    return loop


@pytest.mark.parametrize(
    ("beat", "now", "expected"),
    [(100.0, 100.0, 160.0), (100.0, 130.0, 160.0), (100.0, 175.0, 235.0), (100.0, 90.0, 150.0)],
    ids=["on time", "a slow cycle", "missed ones", "an early one"],
)
def test_the_rate_is_fixed(beat: float, now: float, expected: float) -> None:
    loop = loop_at(now, chance=0.5)
    loop._beat = beat

    due = loop._next_due(60.0)

    assert due == expected + 60.0 * JITTER / 2
    assert loop._beat == expected, "being late does not add up"
