"""Presets are data; these are the rules they keep."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import LIMITED, RESOURCES, TIMES, TRAFFIC
from trimtab_pipeline.prometheus.broker_presets import RESOURCE_PRESETS, UnknownPresetError, preset
from trimtab_pipeline.prometheus.queries import BUNDLES, RawRead, asked_late, combined, raw_reads, render

SETTINGS = PrometheusSettings("http://x", "pulsar", window=45)


def raw(name: str, settings: PrometheusSettings = SETTINGS, pods: tuple[str, ...] = ("a",)) -> tuple[RawRead, ...]:
    """The queries of a preset for raw samples."""
    return raw_reads(preset(name).series, settings, pods)


def instant(name: str, pods: tuple[str, ...]) -> Iterator[str]:
    """The instant queries of a preset, and of bundles."""
    yield from render(preset(name).values, SETTINGS, pods).values()
    yield from render({"ahead": preset(name).ahead}, SETTINGS, pods).values()
    yield from render(BUNDLES.queries, SETTINGS, pods).values()


@pytest.mark.parametrize("name", RESOURCE_PRESETS)
def test_every_query_asks_for_these_pods_of_this_namespace_alone(name: str) -> None:
    asked = [*instant(name, ("a-0", "a-1")), *(one.promql for one in raw(name, pods=("a-0", "a-1")))]
    for promql in asked:
        assert re.search(r'[{,]namespace="pulsar",pod=~"a-\(0\|1\)"', promql)


@pytest.mark.parametrize("name", RESOURCE_PRESETS)
def test_every_instant_query_fixes_its_labels(name: str) -> None:
    for promql in render(BUNDLES.queries, SETTINGS, ["a"]).values():
        assert promql.startswith("max by (bundle, pod) (")
    for promql in render({**preset(name).values, "ahead": preset(name).ahead}, SETTINGS, ["a"]).values():
        assert promql.startswith("max by (pod) (")


@pytest.mark.parametrize("name", RESOURCE_PRESETS)
def test_every_query_fills_a_signal(name: str) -> None:
    given = preset(name)
    of_node = {f"{resource}_node" for resource in LIMITED}  # `settled_limits` makes limits of them
    assert {*given.values, *given.series} - of_node <= {*RESOURCES, *TRAFFIC, *TIMES}
    assert not set(given.values) & set(given.series)
    assert [signal for one in raw(name) for signal, _ in one.series.values()] == list(given.series)


def test_rates_use_the_window_and_the_container_is_named() -> None:
    throttled = render(preset("kubernetes").values, SETTINGS, ["a"])["throttled"]
    throttling = 'rate(container_cpu_cfs_throttled_periods_total{namespace="pulsar",pod=~"a",container="broker"}[45s])'
    assert throttled.startswith(f"max by (pod) ({throttling} / ")


def test_usage_is_asked_for_as_raw_samples_of_five_windows_by_one_query_per_selector() -> None:
    usage, network, traffic = raw("kubernetes")
    where = 'namespace="pulsar",pod=~"a"'
    names = "container_cpu_usage_seconds_total|container_memory_working_set_bytes"
    assert usage.promql == f'{{__name__=~"{names}",{where},container!="POD"}}[225s]'
    assert network.promql.startswith(
        '{__name__=~"container_network_receive_bytes_total|container_network_transmit_bytes_total",' + where
    )
    assert {series.kind for _, series in network.series.values()} == {"counter"}
    assert [series.kind for _, series in usage.series.values()] == ["counter", "gauge"]
    assert traffic.promql.endswith(f",{where}}}[300s]")
    assert not any(series.kind == "counter" for one in raw("pulsar") for _, series in one.series.values())


def test_traffic_is_read_as_far_back_as_a_server_shows_it() -> None:
    ranges = {settings.window: raw("pulsar", settings) for settings in map(_of_window, (30.0, 60.0, 120.0))}
    assert {window: [one.promql.rpartition("[")[2] for one in reads] for window, reads in ranges.items()} == {
        30.0: ["150s]", "300s]"],
        60.0: ["300s]"],
        120.0: ["600s]"],
    }


def _of_window(seconds: float) -> PrometheusSettings:
    return PrometheusSettings("http://x", "pulsar", window=seconds)


@pytest.mark.parametrize("interface", ["lo", "veth12", "cni0", "cali1"])
def test_traffic_of_virtual_interfaces_is_not_added_to_that_of_the_pod(interface: str) -> None:
    _, network, _ = raw("kubernetes")
    pattern = re.search(r'interface!~"([^"]*)"', network.promql)
    assert pattern is not None
    assert re.fullmatch(pattern[1], interface)
    assert not re.fullmatch(pattern[1], "eth0")


def test_single_values_are_asked_for_together_and_told_apart_by_a_label() -> None:
    assert combined({"cpu_limit": "max by (pod) (x)", "throttled": "max by (pod) (y)"}) == (
        'label_replace(max by (pod) (x), "signal", "cpu_limit", "", "") or '
        'label_replace(max by (pod) (y), "signal", "throttled", "", "")'
    )


def test_a_window_below_a_second_is_written_in_milliseconds() -> None:
    settings = PrometheusSettings("http://x", "pulsar", window=1.5)
    assert "[1500ms]" in render(preset("kubernetes").values, settings, ["a"])["throttled"]


def test_the_namespace_label_of_brokers_can_be_another_one() -> None:
    settings = PrometheusSettings("http://x", "pulsar", namespace_label="kubernetes_namespace")
    values = render(preset("kubernetes").values, settings, ["a"])
    assert '{kubernetes_namespace="pulsar",pod' in values["traffic_time"]
    assert '{namespace="pulsar",pod' in values["throttled"]
    assert ',kubernetes_namespace="pulsar",pod' in raw("kubernetes", settings)[2].promql


def test_names_are_taken_literally() -> None:
    promql = render(BUNDLES.queries, SETTINGS, ["a.b", 'c"d|e'])["rate_in"]
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
        preset("guess")
