"""A snapshot that was kept is the snapshot that was trusted; what is rounded is close, and topics add up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from trimtab_pipeline.columns import BUNDLE_STATE, INSIDE, TRAFFIC
from trimtab_pipeline.history.sketch import sketched
from trimtab_pipeline.history.snapshot_tables import broker_table, load_of, quality_table, rounded
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
    assert load.bundles.newest.tolist() == [[float(BUNDLE_STATE.names.index(name)) for name in TRAFFIC]]
    assert load.quality == DataQuality()


def test_a_cluster_of_nothing_is_a_snapshot_too() -> None:
    nothing = load_of(AT, BUNDLE_STATE.empty_table(), broker_table(BROKERS, ("", "")), quality_table(DataQuality()))
    assert len(nothing.bundles) == 0
    assert nothing.bundles.long.shape == (0, 4)


@given(st.lists(st.floats(0, 2.0**40, width=32) | st.none(), max_size=20))
def test_rates_are_rounded_to_a_twentieth_of_a_percent(values: list[float | None]) -> None:
    found = rounded(pa.chunked_array([values], pa.float64())).to_pylist()
    for value, close in zip(values, found, strict=True):
        assert close == value if not value else close == pytest.approx(value, rel=5e-4, abs=1e-37)


def topics(bundle: str, places: list[int], load: list[float]) -> list[dict[str, object]]:
    rates = [dict.fromkeys(TRAFFIC, value) for value in load]
    return [
        {"topic": f"t{place}", "bundle": bundle, "pod": "a", "place": float(place), **rate}
        for place, rate in zip(places, rates, strict=True)
    ]


def test_a_sketch_holds_the_heaviest_topics_and_the_rest_by_sixteenths() -> None:
    lower, width = 0x40000000, 0x40000000 // 16
    places = [lower + k * width // 4 for k in range(40)]
    heavy = topics("t/n/0x40000000_0x80000000", places, [float(40 - k) for k in range(40)])
    light = topics("t/n/0x80000000_0xffffffff", [0x80000001], [5.0])
    other = topics("no range", [1], [1.0])
    rows = sketched(pa.Table.from_pylist([*light, *heavy, *other], pa.schema(list(INSIDE)))).to_pylist()
    single = [row for row in rows if row["width"] == 1]
    assert [row["place"] for row in single] == [*places[:16], 0x80000001]
    assert [row["rate_in"] for row in single] == [*(float(40 - k) for k in range(16)), 5.0]
    rest = [row for row in rows if row["width"] != 1]
    assert [(row["place"], row["width"], row["topics"]) for row in rest] == [
        (lower + part * width, width, 4) for part in range(4, 10)
    ]
    assert rest[0]["rate_out"] == 24 + 23 + 22 + 21


def test_a_sketch_of_no_topics_is_empty() -> None:
    assert len(sketched(pa.schema(list(INSIDE)).empty_table())) == 0
