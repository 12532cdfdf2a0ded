"""How late the event loop comes to its tasks: what blocks it delays the Lease, the watches and every policy."""

from __future__ import annotations

import asyncio

from trimtab_operator.telemetry.metrics import Metrics

EVERY = 0.5
"""Seconds between two looks."""


async def watch_event_loop(metrics: Metrics) -> None:
    """Observe the delay, forever. A loop that stands still for long is told of once it goes on."""
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + EVERY
        await asyncio.sleep(EVERY)
        metrics.loop_delay.observe(max(0.0, clock() - due))
