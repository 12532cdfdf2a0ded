"""Presets are data; these are the rules they keep."""

from __future__ import annotations

import re

import pytest

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.prometheus.queries import (
    BUNDLES,
    RESOURCE_PRESETS,
    Series,
    UnknownPresetError,
    asked_late,
    brokers,
    render,
    render_series,
)

SETTINGS = PrometheusSettings("http://x", "pulsar", window=45)


@pytest.mark.parametrize("preset", RESOURCE_PRESETS)
def test_every_query_asks_for_these_pods_of_this_namespace_alone(preset: str) -> None:
    for table in (brokers(preset), BUNDLES):
        for promql in render(table, SETTINGS, ["a-0", "a-1"]).values():
            assert re.search(r'\{namespace="pulsar",pod=~"a-0\|a-1"', promql)


@pytest.mark.parametrize("preset", RESOURCE_PRESETS)
def test_every_query_fixes_its_labels(preset: str) -> None:
    for table in (brokers(preset), BUNDLES):
        for promql in render(table, SETTINGS, ["a"]).values():
            assert promql.startswith(f"max by ({', '.join(table.keys)}) (")


@pytest.mark.parametrize("preset", RESOURCE_PRESETS)
def test_every_query_fills_a_column(preset: str) -> None:
    for table in (brokers(preset), BUNDLES):
        assert set(table.queries) <= set(table.columns)


def test_rates_use_the_window_and_the_container_is_named() -> None:
    throttled = render(brokers("kubernetes"), SETTINGS, ["a"])["throttled"]
    throttling = 'rate(container_cpu_cfs_throttled_periods_total{namespace="pulsar",pod=~"a",container="broker"}[45s])'
    assert throttled.startswith(f"max by (pod) ({throttling} / ")


def test_usage_is_asked_for_as_raw_samples_of_five_windows() -> None:
    series = render_series(brokers("kubernetes"), SETTINGS, ["a"])
    where = 'namespace="pulsar",pod=~"a",container="broker"'
    assert series["cpu"] == Series(f"container_cpu_usage_seconds_total{{{where}}}[225s]", counts=True)
    assert series["memory"] == Series(f"container_memory_working_set_bytes{{{where}}}[225s]")
    assert not any(one.counts for one in render_series(brokers("pulsar"), SETTINGS, ["a"]).values())


@pytest.mark.parametrize("preset", RESOURCE_PRESETS)
def test_raw_samples_are_asked_for_of_these_pods_alone_and_fill_a_column(preset: str) -> None:
    table = brokers(preset)
    assert set(table.sampled) <= set(table.columns)
    for one in render_series(table, SETTINGS, ["a-0", "a-1"]).values():
        assert re.search(r'\{namespace="pulsar",pod=~"a-0\|a-1"', one.promql)


def test_a_window_below_a_second_is_written_in_milliseconds() -> None:
    settings = PrometheusSettings("http://x", "pulsar", window=1.5)
    assert "[1500ms]" in render(brokers("kubernetes"), settings, ["a"])["throttled"]


def test_the_namespace_label_of_brokers_can_be_another_one() -> None:
    settings = PrometheusSettings("http://x", "pulsar", namespace_label="kubernetes_namespace")
    table = brokers("kubernetes")
    assert '{kubernetes_namespace="pulsar",pod' in render(table, settings, ["a"])["rate_in"]
    assert '{namespace="pulsar",pod' in render(table, settings, ["a"])["throttled"]


def test_names_are_taken_literally() -> None:
    promql = render(BUNDLES, SETTINGS, ["a.b", 'c"d|e'])["rate_in"]
    assert r'pod=~"a\\.b|c\"d\\|e"' in promql


@pytest.mark.parametrize(
    ("length", "late", "left"),
    [("570s", 0.2, "569s"), ("569500ms", 10.0, "559500ms"), ("300s", 900.0, "1s")],
)
def test_what_is_asked_late_looks_less_far_ahead(length: str, late: float, left: str) -> None:
    asked = f"max by (pod) (count_over_time(x[{length}] offset -600s) or count_over_time(y[{length}] offset -600s))"
    assert asked_late(asked, late) == asked.replace(length, left)


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownPresetError, match=r"'guess'.*kubernetes, pulsar"):
        brokers("guess")
