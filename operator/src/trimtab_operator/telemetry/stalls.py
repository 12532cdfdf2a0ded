"""How late the event loop comes to its tasks: what blocks it delays the Lease, the watches and every policy."""

from __future__ import annotations

import asyncio

from trimtab_operator.telemetry.metrics import Metrics

EVERY = 0.5
"""Seconds between two looks."""


async def watch_event_loop(metrics: Metrics, every: float = EVERY) -> None:
    """Observe the delay every so many seconds, forever. A loop that stands still is told of once it goes on."""
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + every
        await asyncio.sleep(every)
        metrics.loop_delay.observe(max(0.0, clock() - due))
