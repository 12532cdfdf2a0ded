"""The SQL rules and the numpy stages give the same tables, whatever the samples are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from pyspark.sql import DataFrame, SparkSession

import drawn_relations as drawn
from trimtab_pipeline.columns import BROKER_SAMPLES, BUNDLE_SAMPLES, TRAFFIC
from trimtab_pipeline.transform import frames
from trimtab_pipeline.transform.averages import averaged
from trimtab_pipeline.transform.brokers import broker_loads, expected_samples, joined
from trimtab_pipeline.transform.rates import broker_signals
from trimtab_pipeline.transform.relations import BROKER_LOAD, BUNDLE_LOAD, Cycle, table
from trimtab_pipeline.transform.topics import summed
from trimtab_pipeline.transform.trust import _KINDS, judged

pytestmark = pytest.mark.spark

CLOSE = 1e-12
SEEDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=60, unique=True)
FEW = settings(
    max_examples=4,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking would take a Spark job each
    suppress_health_check=list(HealthCheck),
)


def framed(session: SparkSession, schema: pa.Schema, tables: Iterable[pa.Table]) -> DataFrame:
    return session.createDataFrame(pa.concat_tables([schema.empty_table(), *tables]))


def key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row.get(name)) for name in ("policy", "broker", "bundle", "pod", "shard", "report", "topics"))


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    assert found.column_names == expected.column_names
    rows = [sorted(one.to_pylist(), key=lambda row: (*key(row), row["rate_in"] or 0.0)) for one in (found, expected)]
    assert [key(row) for row in rows[0]] == [key(row) for row in rows[1]]
    for ours, theirs in zip(*rows, strict=True):
        different = {name: (ours[name], theirs[name]) for name in ours if not same(ours[name], theirs[name])}
        assert not different, key(ours)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        assert not math.isnan(one)
        assert not math.isnan(other)
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)
    return bool(one == other)


def numpy_brokers(one: drawn.Brokers) -> pa.Table:
    signals = broker_signals(one.samples, one.cycle)
    return judged(broker_loads(signals, one.targets, one.cycle), one.cycle)


def numpy_bundles(one: drawn.Bundles) -> pa.Table:
    return averaged(summed(one.samples, one.ranges, one.times), one.times, one.state, one.cycle)


def cycles(session: SparkSession, drawn_policies: Sequence[drawn.Brokers | drawn.Bundles]) -> DataFrame:
    return session.createDataFrame(table([one.cycle for one in drawn_policies]))


@FEW
@given(seeds=SEEDS)
def test_brokers_are_judged_alike(session: SparkSession, seeds: list[int]) -> None:
    policies = [drawn.brokers(seed, f"p{seed}") for seed in seeds]
    samples = framed(session, BROKER_SAMPLES, (one.samples for one in policies))
    expected = session.createDataFrame(expected_samples(pa.concat_tables(one.targets for one in policies)))
    loads = frames.broker_load(samples.unionAll(expected), cycles(session, policies)).toArrow()
    ours = (loads.filter(pc.equal(loads["policy"], one.cycle.policy)) for one in policies)
    found = pa.concat_tables(joined(rows, one.targets) for rows, one in zip(ours, policies, strict=True))
    assert_same(found, pa.concat_tables([BROKER_LOAD.empty_table(), *map(numpy_brokers, policies)]))


@FEW
@given(seeds=SEEDS)
def test_bundles_are_averaged_alike(session: SparkSession, seeds: list[int]) -> None:
    policies = [drawn.bundles(seed, f"p{seed}") for seed in seeds]
    found = frames.bundle_load(
        framed(session, BUNDLE_SAMPLES, (one.samples for one in policies)),
        cycles(session, policies),
        session.createDataFrame(pa.concat_tables(one.times for one in policies)),
        session.createDataFrame(pa.concat_tables(one.state for one in policies)),
        session.createDataFrame(pa.concat_tables(one.ranges.table(one.cycle.policy) for one in policies)),
    ).toArrow()
    assert_same(found, pa.concat_tables([BUNDLE_LOAD.empty_table(), *map(numpy_bundles, policies)]))
    for one in policies:
        assert_newest(found.filter(pc.equal(found["policy"], one.cycle.policy)), one)


def assert_newest(found: pa.Table, one: drawn.Bundles) -> None:
    """The rates are this cycle's samples: the same as without averages, and none of a bundle that was not measured."""
    samples = summed(one.samples, one.ranges, one.times)
    samples = samples.filter(samples["bundle"].is_valid())
    measured = pc.is_in(found["bundle"], value_set=samples["bundle"].combine_chunks())
    remembered = found.filter(pc.and_(found["bundle"].is_valid(), pc.invert(measured)))
    assert all(remembered[name].null_count == len(remembered) for name in TRAFFIC)
    names = ("bundle", "pod", *TRAFFIC)
    ours, theirs = (
        [tuple(row.values()) for row in rows.select(names).to_pylist()] for rows in (found.filter(measured), samples)
    )
    for row, other in zip(sorted(ours, key=repr), sorted(theirs, key=repr), strict=True):
        assert row[:2] == other[:2]
        assert all(map(same, row[2:], other[2:]))


def test_every_doubt_is_drawn() -> None:
    policies = [drawn.brokers(seed, "p") for seed in range(1000)]
    found = {code for one in policies for code in numpy_brokers(one)["doubt"].to_pylist()}
    assert found == {None, *_KINDS}


def test_a_cycle_of_a_policy_is_a_row_of_the_relation() -> None:
    one = drawn.brokers(1, "p").cycle
    assert Cycle(**table([one]).to_pylist()[0]) == one
