"""A picture that was kept is the picture that was believed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from trimtab_pipeline.columns import BUNDLE_STATE
from trimtab_pipeline.history.snapshot_tables import broker_table, load_of, quality_table
from trimtab_strategies.model import Brokers, DataQuality

AT = 1_750_000_000.0
BUNDLE = "tenant/ns/0x00000000_0x80000000"
BROKERS = Brokers(
    names=("one", "two"),
    usage=np.array([[1.0, 2, 3, 4, 5], [np.nan] * 5]),
    limit=np.array([[10.0] * 5, [np.nan] * 5]),
    traffic=np.array([[6.0, 7, 8, 9], [np.nan] * 4]),
    age=np.array([3.0, np.inf]),
    ready=np.array([True, False]),
    schedulable=np.array([False, True]),
    trusted=np.array([True, False]),
)
QUALITY = DataQuality({"NaN": 4}, 1, 2, (("brokers a to b", "http://x: refused: why"),), ("store 3 is out",))


def bundles(pod: str = "pod-2") -> pa.Table:
    row = {name: float(k) for k, name in enumerate(BUNDLE_STATE.names)} | {"bundle": BUNDLE, "pod": pod}
    return pa.Table.from_pylist([row | {"short_rate_in": None}], schema=BUNDLE_STATE)


def test_what_was_trusted_comes_back_as_it_was() -> None:
    load = load_of(AT, bundles(), broker_table(BROKERS, ("pod-1", "pod-2")), quality_table(QUALITY))
    assert load.now == AT
    assert load.quality == QUALITY
    for name in ("names", "usage", "limit", "traffic", "age", "ready", "schedulable", "trusted"):
        np.testing.assert_array_equal(getattr(load.brokers, name), getattr(BROKERS, name), err_msg=name)


@pytest.mark.parametrize(("pod", "owner"), [("pod-2", 1), ("gone", -1)])
def test_a_bundle_belongs_to_the_broker_whose_pod_reported_it(pod: str, owner: int) -> None:
    load = load_of(AT, bundles(pod), broker_table(BROKERS, ("pod-1", "pod-2")), quality_table(DataQuality()))
    assert load.namespaces == ("tenant/ns",)
    assert load.bundles.names == (BUNDLE,)
    assert load.bundles.owner.tolist() == [owner]
    first = BUNDLE_STATE.names.index("short_rate_out")
    np.testing.assert_array_equal(load.bundles.short, [[np.nan, first, first + 1, first + 2]])
    assert load.quality == DataQuality()


def test_a_cluster_of_nothing_is_a_snapshot_too() -> None:
    nothing = load_of(AT, BUNDLE_STATE.empty_table(), broker_table(BROKERS, ("", "")), quality_table(DataQuality()))
    assert len(nothing.bundles) == 0
    assert nothing.bundles.long.shape == (0, 4)
