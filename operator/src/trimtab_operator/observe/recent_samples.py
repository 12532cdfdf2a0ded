"""Recent samples: what was measured in the last minutes, added to each snapshot of a policy.

Each policy has one ring of samples, in memory. After a restart or a change of leader, the operator rebuilds it from the
policy's history, without the bundles and brokers that are gone. It asks the source for the last minutes that the
history lacks. So even at a first start, a strategy knows which differences have lasted. The first cycle waits a few
seconds for these minutes. Minutes that arrive later are in the ring from the next cycle on. A minute that can't be
measured has no row.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future

from trimtab_operator.state.cluster import ClusterState, KeptSamples
from trimtab_operator.state.settings import Settings
from trimtab_pipeline.api import LoadSources, RecallsSamples, SourceUnavailableError
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.shedding.trim.samples import NEW_ROW, REPLAYED, CycleSamples, SampleRing

log = logging.getLogger(__name__)

SET_BACK = 60.0
"""Seconds that the newest sample of a ring may be ahead of the clock; if it is further ahead, a new ring begins. A ring
adds nothing until the clock has passed the time of its newest sample."""

PAST_MINUTES = REPLAYED - 1
"""Minutes to measure before the first cycle. With that cycle, they are the rows that Trim replays."""

WAIT = 5.0
"""Seconds for which the first cycle waits for past minutes."""

BUDGET = 60.0
"""Seconds after which no further minute is measured."""

MeasurePast = Callable[[float], Future[CycleSamples | None]]
"""Measures the policy's cluster at a past time (epoch seconds), as `MeasuresPast.observe_past`."""


async def with_recent(
    cluster: ClusterState, settings: Settings, load: ClusterLoad, past: MeasurePast | None = None
) -> ClusterLoad:
    """`load` with `recent` set; its newest samples are those of `load`.

    past: measures past minutes, if the source can.
    """
    kept = await _kept(cluster, settings, load.now, past)
    found = sorted(kept.past, key=lambda one: one.time)
    kept.past.clear()
    return await asyncio.to_thread(_added, kept.ring, found, load)


def _added(ring: SampleRing, past: list[CycleSamples], load: ClusterLoad) -> ClusterLoad:
    ring.fill(past)
    return ring.add(load)


async def _kept(cluster: ClusterState, settings: Settings, now: float, past: MeasurePast | None) -> KeptSamples:
    """The ring of the policy. It is a new one if the source has changed, or if the clock was set back."""
    rings, prometheus = cluster.policies.samples, settings.prometheus
    source = prometheus.url, prometheus.resources, prometheus.queries
    kept, policy = rings.get(settings.name), f"{cluster.namespace}/{settings.name}"
    if kept is not None and kept.source == source and kept.ring.newest - now <= SET_BACK:
        return kept
    if kept is None:
        ring = await asyncio.to_thread(_rebuilt, cluster.sources, policy, now)
    else:
        kept.close()
        ring = SampleRing()
    rings[settings.name] = kept = _measuring(policy, source, ring, now, past)
    if kept.measuring is not None:
        await asyncio.wait([kept.measuring], timeout=WAIT)
    return kept


def _measuring(
    policy: str, source: tuple[object, ...], ring: SampleRing, now: float, past: MeasurePast | None
) -> KeptSamples:
    """The ring, and a task that measures the last minutes that it lacks, the newest first."""
    times = [at for ago in range(1, PAST_MINUTES + 1) if (at := now - 60.0 * ago) >= ring.newest + NEW_ROW]
    if past is None or not times:
        return KeptSamples(source, ring)
    found: list[CycleSamples] = []
    return KeptSamples(source, ring, found, asyncio.create_task(_measure(policy, past, times, found)))


async def _measure(policy: str, past: MeasurePast, times: list[float], found: list[CycleSamples]) -> None:
    """Add to `found` what was sampled at `times`. A failure ends the task, and the remaining minutes stay empty."""
    count = 0
    try:
        async with asyncio.timeout(BUDGET):
            for at in times:
                if (samples := await asyncio.wrap_future(past(at))) is not None:
                    found.append(samples)
                    count += 1
    except TimeoutError:
        log.warning("policy %s: recent samples: %d past minutes were measured in %g s", policy, count, BUDGET)
    except SourceUnavailableError as error:
        log.warning("policy %s: recent samples: the past can't be measured, so they begin now: %s", policy, error)
    except Exception:  # an error here must not stop a cycle: only the past is lost
        log.exception("policy %s: recent samples: the past can't be measured, so they begin now", policy)
    else:
        log.info("policy %s: recent samples: %d past minutes measured", policy, count)


def _rebuilt(sources: LoadSources, policy: str, now: float) -> SampleRing:
    """A ring from the history of `policy` (``namespace/name``) before `now` (epoch seconds)."""
    ring = SampleRing()
    if not isinstance(sources, RecallsSamples):
        return ring
    try:
        ring = SampleRing.of(sources.recall_samples(policy, now - ring.span, now))
    except (OSError, ValueError) as error:
        log.warning("policy %s: the history can't be read, so the recent samples begin now: %s", policy, error)
    except Exception:  # a damaged history must not stop a cycle: only the past is lost
        log.exception("policy %s: the history can't be read, so the recent samples begin now", policy)
    else:
        log.info("policy %s: recent samples: %d minutes from the history", policy, len(ring))
    return ring
