"""What Spark computes in a cycle, as SQL text: fresh samples joined with the last state.

Texts rather than DataFrame calls: a statement costs one round trip to the JVM instead of some hundred, and reads like
the rule it is. Each cycle makes a new plan, since Spark answers a plan it has run before from its own shuffle files.

Averages are exponential and know time: after `dt` seconds without a sample a new one counts
``alpha = 1 - exp(-dt / tau)``, so a missed cycle, a restart or another interval needs no special case. A first sample
is its own average. Pulsar counts samples instead (10 short, 1000 long), so its averages depend on how often they are
recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from trimtab_pipeline.queries import Table

TRAFFIC = ("rate_in", "rate_out", "throughput_in", "throughput_out")
"""Measured traffic columns, in the order of `trimtab_strategies.model.TRAFFIC`."""
SHORT = tuple(f"short_{name}" for name in TRAFFIC)
LONG = tuple(f"long_{name}" for name in TRAFFIC)
RESOURCES = ("cpu", "cpu_limit", "memory", "memory_limit", "direct_memory", "network_in", "network_out")
"""Measured usage and limits of a broker; null where a preset does not measure them."""
TIMES = ("resource_time", "traffic_time")
"""Epoch seconds of a broker's newest samples: of its usage, and of its own traffic metrics."""


def _schema(names: Iterable[str], numbers: Iterable[str]) -> pa.Schema:
    return pa.schema([*((name, pa.string()) for name in names), *((name, pa.float64()) for name in numbers)])


BUNDLE_STATE = _schema(("bundle", "pod"), (*TRAFFIC, "topics", "sessions", *SHORT, *LONG, "seen"))
"""Columns of the bundles' history: what was measured (null: not this time), averages, ``seen`` (epoch s)."""
BROKER_STATE = _schema(("pod",), (*RESOURCES, *TRAFFIC, *TIMES))
"""Columns of the brokers' history: what was measured, and the times of the newest samples ever seen."""
_HORIZON = 3.0  # long time constants after which a state says nothing any more


def horizon(long_tau: float) -> float:
    """Seconds after which a state, or a bundle that is no longer measured, is forgotten."""
    return _HORIZON * long_tau


def bundle_sql(at: float, short_tau: float, long_tau: float) -> str:
    """Statement over ``{samples}`` and ``{state}`` that yields the next `BUNDLE_STATE`, and the report rows.

    Bundles that were not measured this time keep their averages until the horizon. `at` is the evaluation time.
    """
    taus = {"short": short_tau, "long": long_tau}
    averages = [_average(f"{term}_{name}", name, at, tau) for term, tau in taus.items() for name in TRAFFIC]
    columns = (
        "coalesce(w.bundle, s.bundle) as bundle",
        "coalesce(w.pod, s.pod) as pod",
        *(f"w.{name}" for name in TRAFFIC),
        "coalesce(w.topics, s.topics) as topics",
        "coalesce(w.producers + w.consumers, s.sessions) as sessions",
        *averages,
        f"if(w.bundle is null, s.seen, {at!r}D) as seen",
        "w.report",
    )
    return _join(columns, "bundle", f"s.seen >= {at - horizon(long_tau)!r}D")


def broker_sql(table: Table, at: float, long_tau: float) -> str:
    """Statement over ``{samples}`` and ``{state}`` that yields the next `BROKER_STATE`, and the report rows."""
    measured = (f"w.{name}" if name in table.columns else f"cast(null as double) as {name}" for name in RESOURCES)
    times = (f"coalesce(w.{name}, s.{name}) as {name}" for name in TIMES)
    columns = ("coalesce(w.pod, s.pod) as pod", *measured, *(f"w.{name}" for name in TRAFFIC), *times, "w.report")
    return _join(columns, "pod", f"greatest(s.resource_time, s.traffic_time) >= {at - horizon(long_tau)!r}D")


def _average(column: str, sample: str, at: float, tau: float) -> str:
    """An average's next value: the old one without a sample, the sample without an old one, else a step towards it."""
    step = f"s.{column} + (1D - exp((s.seen - {at!r}D) / {tau!r}D)) * (w.{sample} - s.{column})"
    return f"coalesce({step}, w.{sample}, s.{column}) as {column}"


def _join(columns: Iterable[str], key: str, remembered: str) -> str:
    """Samples and state side by side; state without a sample stays while `remembered` holds."""
    return (  # numbers are written by us, names are constants: nothing of a user's gets into the text
        f"select /*+ SHUFFLE_HASH(s) */ {', '.join(columns)} "  # noqa: S608
        f"from {{samples}} w full outer join {{state}} s on w.{key} = s.{key} "
        f"where w.{key} is not null or w.report is not null or {remembered}"
    )
