"""When the next cycle is due: at a fixed rate, a random part of the interval late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trimtab_operator.loop.schedule import JITTER, Schedule


@pytest.mark.parametrize(
    ("beat", "now", "expected"),
    [(100.0, 100.0, 160.0), (100.0, 130.0, 160.0), (100.0, 175.0, 235.0), (100.0, 90.0, 150.0)],
    ids=["on time", "a slow cycle", "missed ones", "an early one"],
)
def test_the_rate_is_fixed(beat: float, now: float, expected: float) -> None:
    cluster: Any = SimpleNamespace(clock=lambda: now, chance=lambda: 0.5)
    schedule = Schedule(cluster, beat=beat)

    schedule.next(60.0)

    assert schedule.due == expected + 60.0 * JITTER / 2
    assert schedule.beat == expected, "being late does not add up"
