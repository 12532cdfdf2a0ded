"""The pipeline on Spark: each stage is one SQL text in `sql`.

Nothing runs before the resulting frame is collected. A job scans ``samples`` and ``bundle_samples`` only once, because
each scan queries Prometheus. So the reports of shards pass through all stages.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from pyspark.sql import DataFrame


def broker_load(samples: DataFrame, cycles: DataFrame) -> DataFrame:
    """`columns.BROKER_SAMPLES` -> `relations.SIGNAL_LOADS`: the value of each signal, limits, doubts.

    samples: the measured ones, and `brokers.expected_samples`. cycles: `relations.CYCLES`.
    """
    signals = applied("rates", samples=samples, cycles=cycles)
    loads = applied("brokers", signals=signals, cycles=cycles)
    return applied("trust", loads=loads, cycles=cycles)


def bundle_load(
    bundle_samples: DataFrame, cycles: DataFrame, times: DataFrame, state: DataFrame, ranges: DataFrame | None = None
) -> DataFrame:
    """`columns.BUNDLE_SAMPLES` -> `relations.BUNDLE_LOAD`: topics as bundles, then averages.

    cycles, times, state: `relations.CYCLES`, `relations.POD_TIMES` and `relations.STATE`. ranges: `relations.RANGES`;
    None if no topics are read.
    """
    bundles = bundle_samples
    if ranges is not None:
        bundles = applied("topics", bundle_samples=bundle_samples, ranges=ranges, times=times)
    return applied("averages", bundles=bundles, cycles=cycles, times=times, state=state)


def applied(name: str, **frames: DataFrame) -> DataFrame:
    """The rule `name` (``rates``, ``brokers``, ``trust``, ``topics`` or ``averages``) on the frames that it reads."""
    (session,) = {frame.sparkSession for frame in frames.values()}
    arguments: dict[str, Any] = dict(frames)
    result: DataFrame = session.sql(rule(name), **arguments)
    return result


@cache
def rule(name: str) -> str:
    """The SQL text of a rule. It names the frames that it reads in braces, as `SparkSession.sql` takes them."""
    return (files("trimtab_pipeline.transform") / "sql" / f"{name}.sql").read_text()
