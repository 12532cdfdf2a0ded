"""Recent samples: what was measured in the last minutes, added to each snapshot of a policy.

A policy has one ring, in memory. After a restart or a change of leader it is rebuilt from the policy's history, without
the bundles and brokers that are gone. Without a readable history it begins empty.
"""

from __future__ import annotations

import asyncio
import logging

from trimtab_operator.state.cluster import ClusterState, KeptSamples, SampleSource
from trimtab_operator.state.settings import Settings
from trimtab_pipeline.api import LoadSources, RecallsSamples
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.shedding.trim.samples import SampleRing

log = logging.getLogger(__name__)

SET_BACK = 60.0
"""Seconds that the newest sample may be ahead of the clock. A ring adds nothing until the clock has passed it."""


async def with_recent(cluster: ClusterState, settings: Settings, load: ClusterLoad) -> ClusterLoad:
    """`load` with its `recent`; its own samples are the newest."""
    ring = await _ring(cluster, settings, load.now)
    return await asyncio.to_thread(ring.add, load)


async def _ring(cluster: ClusterState, settings: Settings, now: float) -> SampleRing:
    """The ring of the policy. Another source begins a new one, and so does a clock that was set back."""
    rings, source = cluster.policies.samples, SampleSource.of(settings.prometheus)
    kept = rings.get(settings.name)
    if kept is None:
        policy = f"{cluster.namespace}/{settings.name}"
        kept = KeptSamples(source, await asyncio.to_thread(_rebuilt, cluster.sources, policy, now))
    elif kept.source != source or kept.ring.newest - now > SET_BACK:
        kept = KeptSamples(source, SampleRing())
    rings[settings.name] = kept
    return kept.ring


def _rebuilt(sources: LoadSources, policy: str, now: float) -> SampleRing:
    """A ring from the history of `policy` (``namespace/name``) before `now` (epoch seconds)."""
    ring = SampleRing()
    if not isinstance(sources, RecallsSamples):
        return ring
    try:
        ring = SampleRing.of(sources.recall_samples(policy, now - ring.span, now))
    except (OSError, ValueError) as error:
        log.warning("policy %s: the history can't be read, so the recent samples begin now: %s", policy, error)
    except Exception:  # damage of any kind costs the past, and no cycle
        log.exception("policy %s: the history can't be read, so the recent samples begin now", policy)
    else:
        log.info("policy %s: recent samples: %d minutes from the history", policy, len(ring))
    return ring
