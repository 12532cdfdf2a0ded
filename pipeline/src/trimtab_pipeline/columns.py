"""The columns of the tables that the pipeline's stages take and return."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

TRAFFIC = ("rate_in", "rate_out", "throughput_in", "throughput_out")
"""Traffic columns of bundles and of brokers, in the order of `trimtab_strategies.model.TRAFFIC`."""
RESOURCES = (
    *("cpu", "cpu_limit", "memory", "memory_limit", "direct_memory"),
    *("network_in", "network_out", "network_limit", "throttled"),
)
"""Usage and limits of a broker; a preset may leave some out. ``throttled`` is the ratio 0-1 of periods in which the CPU
limit throttled it: for display only."""
TIMES = ("resource_time", "traffic_time")
"""Epoch seconds of a broker's newest samples: of its usage, and of its own traffic metrics."""

CHECKS = ("samples", "resets", "copies", "ahead")
"""Checks of a broker's samples; null where unknown. ``samples``: number of CPU samples in the window of the rates.
``resets``: number of resets of its counters in that window. ``copies``: number of series for the same thing, 1 without
duplicates. ``ahead``: number of samples that are ahead of the evaluation time by more than clocks may differ."""
USAGE = ("cpu", "memory", "direct_memory", "network_in", "network_out")
"""Measured usage columns, in the order of `trimtab_strategies.model.RESOURCES`."""
LIMITED = ("cpu", "memory")
"""Columns of `USAGE`, the first ones, that a container or a pod may have a limit of."""
SAMPLED_TIME, SAMPLED_INTERVAL, SAMPLED_COVER = (
    tuple(f"{name}_{what}" for name in USAGE) for what in ("time", "interval", "cover")
)
"""For each resource in `USAGE`: epoch seconds of its newest sample, seconds between its samples, and, for a counter,
how many seconds of the window its samples cover. Null where unknown."""
SAMPLED = (*SAMPLED_TIME, *SAMPLED_INTERVAL, *SAMPLED_COVER)
SHORT = tuple(f"short_{name}" for name in TRAFFIC)
LONG = tuple(f"long_{name}" for name in TRAFFIC)


def _schema(names: Iterable[str], numbers: Iterable[str]) -> pa.Schema:
    return pa.schema([*((name, pa.string()) for name in names), *((name, pa.float64()) for name in numbers)])


BUNDLE_STATE = _schema(("bundle", "pod"), (*TRAFFIC, "topics", "sessions", *SHORT, *LONG, "seen", "time", "count"))
"""Columns of the state of bundles: measured values (null if this cycle has none), averages, ``seen`` (epoch s of the
last cycle that measured it), ``time`` (epoch s of the newest sample with valid traffic), ``count`` (number of such
samples, up to Pulsar's long window)."""
BROKER_STATE = _schema(("pod",), (*RESOURCES, *TRAFFIC, *TIMES, *CHECKS, *SAMPLED))
"""Columns of the state of brokers: measured values, the times of the newest known samples, the checks, and the sampling
of each resource."""


INSIDE = pa.struct(
    [
        *((name, pa.string()) for name in ("topic", "bundle", "pod")),
        *((name, pa.float64()) for name in ("place", *TRAFFIC)),
    ]
)
"""A topic of a hot bundle: full name, bundle, reporting pod, hash of its name, traffic."""

BROKER_SAMPLES = pa.schema(
    [
        ("policy", pa.string()),
        ("shard", pa.int32()),
        *((name, pa.string()) for name in ("pod", "signal", "kind", "part", "series")),
        ("time", pa.float64()),
        ("value", pa.float64()),
        ("report", pa.string()),
    ]
)
"""Raw samples about brokers, a row each.

``signal``: a name of `RESOURCES`, `TRAFFIC`, `TIMES` or `CHECKS`. ``kind`` is one of these:
``counter``, ``gauge``: raw samples. ``value``: the answer to an instant query.
``rated``: raw samples of a counter, only to know which time they cover. A user's query yields its rate, as a row of the
kind ``value``.
``expected``: no value. There is such a row for each signal that a broker may report, so that a missing one is noticed.
``part``: name of a part (a network interface, a core) of a signal that is the sum of its parts; empty if it has none.
``series``: identifies each copy of the same part (replicas, scrape jobs, a restarted container).
``time``: epoch s, null in rows of the kind ``value``.
The last row of a shard has only ``policy``, ``shard`` and ``report``, a JSON object (`prometheus.shard_reader`)."""
BUNDLE_SAMPLES = pa.schema(
    [
        ("policy", pa.string()),
        ("shard", pa.int32()),
        *((name, pa.string()) for name in ("bundle", "topic", "pod")),
        *((name, pa.float64()) for name in (*TRAFFIC, "topics", "producers", "consumers")),
        ("report", pa.string()),
    ]
)
"""Traffic of a bundle or of a topic, as one pod reports it: msg/s, bytes/s, numbers of topics and clients.
For a topic, ``topic`` is its full name, and ``topics`` is null.
The last row of a shard is its report, as in `BROKER_SAMPLES`."""
