"""The pipeline on Spark: each stage is one SQL text in `sql`, each job one statement of them.

Nothing runs before the resulting frame is collected. ``samples`` and ``bundle_samples`` are scanned once in a job, as
each scan queries Prometheus: reports of shards therefore pass through all stages.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from pyspark.sql import DataFrame


def broker_load(samples: DataFrame, cycles: DataFrame, targets: DataFrame) -> DataFrame:
    """`columns.BROKER_SAMPLES` -> `relations.BROKER_LOAD`: rates of each signal, a row per broker, doubts.

    cycles, targets: `relations.CYCLES` and `relations.TARGETS`.
    """
    stages = {"signals": rule("rates"), "loads": rule("brokers")}
    return _statement(stages, rule("trust"), samples=samples, cycles=cycles, targets=targets)


def bundle_load(
    bundle_samples: DataFrame, cycles: DataFrame, times: DataFrame, state: DataFrame, ranges: DataFrame | None = None
) -> DataFrame:
    """`columns.BUNDLE_SAMPLES` -> `relations.BUNDLE_LOAD`: topics as bundles, then averages.

    cycles, times, state: `relations.CYCLES`, `relations.POD_TIMES` and `relations.STATE`. ranges: `relations.RANGES`;
    None where no topic is read.
    """
    frames = {"bundle_samples": bundle_samples, "cycles": cycles, "times": times, "state": state}
    if ranges is None:
        return _statement({"bundles": "select * from bundle_samples"}, rule("averages"), **frames)
    return _statement({"bundles": rule("topics")}, rule("averages"), **frames, ranges=ranges)


@cache
def rule(name: str) -> str:
    """The SQL text of a rule: ``rates``, ``brokers``, ``trust``, ``topics`` or ``averages``."""
    return (files("trimtab_pipeline.transform") / "sql" / f"{name}.sql").read_text()


def _statement(stages: dict[str, str], last: str, **frames: Any) -> DataFrame:
    """The SQL text `last`, which reads the `frames` and the `stages` by their names.

    The session's own views stay untouched, so that jobs of several threads do not meet.
    """
    bound = {name: f"select * from {{{name}}}" for name in frames}  # noqa: S608  (names of parameters)
    views = ",\n".join(f"{name} as (\n{text})" for name, text in (bound | stages).items())
    (session,) = {frame.sparkSession for frame in frames.values()}
    frame: DataFrame = session.sql(f"with {views}\nselect * from (\n{last})", **frames)
    return frame
