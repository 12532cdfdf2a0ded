"""What Spark computes in a cycle, as SQL text: fresh samples joined with the last state.

Texts rather than DataFrame calls: a statement costs one round trip to the JVM instead of some hundred, and reads like
the rule it is. Each cycle makes a new plan, since Spark answers a plan it has run before from its own shuffle files.
But the text stays the same, the evaluation time being a column, so that Spark compiles it once.

Averages are exponential and know time: after `dt` seconds without a sample a new one counts
``alpha = 1 - exp(-dt / tau)``, so a missed cycle, a restart or another interval needs no special case. Time is that of
the samples: one that Prometheus shows again, since there is no newer one, counts nothing. A first sample is its own
average.

Pulsar counts samples instead (10 short, 1000 long), so its averages depend on how often they are recomputed. For those
who want its decisions there is `samples_sql`: one sample a cycle, whatever the time. A bundle that was never seen
begins with Pulsar's default statistics as its first sample, to which the measured one is then added.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from trimtab_pipeline.queries import CHECKS, RESOURCES, TIMES, TRAFFIC
from trimtab_strategies.averages import LONG_WINDOW, SHORT_WINDOW, UNSEEN

SHORT = tuple(f"short_{name}" for name in TRAFFIC)
LONG = tuple(f"long_{name}" for name in TRAFFIC)
_HORIZON = 3.0  # long time constants after which a state says nothing any more


def _schema(names: Iterable[str], numbers: Iterable[str]) -> pa.Schema:
    return pa.schema([*((name, pa.string()) for name in names), *((name, pa.float64()) for name in numbers)])


BUNDLE_STATE = _schema(("bundle", "pod"), (*TRAFFIC, "topics", "sessions", *SHORT, *LONG, "seen", "time", "count"))
"""Columns of the bundles' history: what was measured (null: not this time), averages, ``seen`` (epoch s of the cycle
that measured it last), ``time`` (epoch s of the newest sample of which all traffic was good), ``count`` (of such ones,
up to Pulsar's long window)."""
BROKER_STATE = _schema(("pod",), (*RESOURCES, *TRAFFIC, *TIMES, *CHECKS))
"""Columns of the brokers' history: what was measured, the times of the newest samples ever seen, and the checks."""


def horizon(long_tau: float) -> float:
    """Seconds after which a state, or a bundle that is no longer measured, is forgotten."""
    return _HORIZON * long_tau


def bundle_sql(short_tau: float, long_tau: float) -> str:
    """Statement over ``{samples}`` and ``{state}`` that yields the next `BUNDLE_STATE`, averaged by time.

    short_tau, long_tau: time constants, seconds.
    """
    taus = {"short": short_tau, "long": long_tau}
    return _statement(_by_time(f"{term}_{name}", name, tau) for term, tau in taus.items() for name in TRAFFIC)


def samples_sql() -> str:
    """The same with Pulsar's averages."""
    windows = {"short": SHORT_WINDOW, "long": LONG_WINDOW}
    first = dict(zip(TRAFFIC, UNSEEN.tolist(), strict=True))
    return _statement(
        _by_samples(f"{term}_{name}", name, window, first[name]) for term, window in windows.items() for name in TRAFFIC
    )


def _statement(averages: Iterable[str]) -> str:
    """Bundles that were not measured this time keep their averages. What is no bundle among the samples (columns
    ``broker``, ``report`` and ``inside`` of `datasource.SCHEMA`) comes through as it is."""
    all_good = " + ".join(f"w.{name}" for name in TRAFFIC) + " is not null"
    columns = (
        "coalesce(w.bundle, s.bundle) as bundle",
        "coalesce(w.pod, s.pod) as pod",
        *(f"w.{name}" for name in TRAFFIC),
        "coalesce(w.topics, s.topics) as topics",
        "coalesce(w.producers + w.consumers, s.sessions) as sessions",
        *averages,
        "coalesce(w.at, s.seen) as seen",
        f"coalesce(if({all_good}, greatest(w.time, s.time), null), s.time) as time",
        f"if({all_good}, {_count(LONG_WINDOW)}, s.count) as count",
        "w.broker",
        "w.report",
        "w.inside",
    )
    return (  # time constants are numbers, names are constants: no text of a user's gets in
        f"select /*+ SHUFFLE_HASH(s) */ {', '.join(columns)} "  # noqa: S608
        "from {samples} w full outer join {state} s on w.bundle = s.bundle"
    )


def _by_time(column: str, sample: str, tau: float) -> str:
    """An average's next value: the old one without a sample, the sample without an old one, else a step towards it."""
    step = f"s.{column} + (1D - exp(least(s.time - w.time, 0D) / {float(tau)!r}D)) * (w.{sample} - s.{column})"
    return f"coalesce({step}, w.{sample}, s.{column}) as {column}"


def _by_samples(column: str, sample: str, window: int, first: float) -> str:
    """The same in a window of so many samples: each counts alike until it is full."""
    count = _count(window)
    step = f"(({count} - 1D) * coalesce(s.{column}, {float(first)!r}D) + w.{sample}) / {count}"
    return f"coalesce({step}, s.{column}) as {column}"


def _count(window: int) -> str:
    """Samples in a window after one more; the default statistics were the first."""
    return f"least(coalesce(s.count, 1D) + 1D, {float(window)!r}D)"
