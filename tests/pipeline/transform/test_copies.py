"""Several series about one pod: replicas are trusted, and different things with the same name are not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from pod_series import AT, PODS, counter, gauge, world
from raw_samples import Kept, believed
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.transform.copies import Copy, apart, differing, replaced
from trimtab_strategies.model import CPU, MEMORY, Reason
from trimtab_strategies.model.cluster_load import FloatArray


def copies(*series: FloatArray) -> list[Copy]:
    return [Copy({"cluster": f"c{n}"}, points) for n, points in enumerate(series)]


REPLICAS = {
    "two scrapes of a counter": (True, [counter(0.8), counter(0.8, phase=7)]),
    "a job that is scraped every minute": (True, [counter(0.8), counter(0.8, interval=60, phase=20)]),
    "a kubelet's own, older values": (True, [counter(0.8), counter(0.8, late=25)]),
    "a counter that stands still": (True, [counter(0, 7), counter(0, 7, phase=3)]),
    "a replica that died": (True, [counter(0.8), counter(0.8)[:12]]),
    "a value that a store rounded": (True, [counter(0.8, 1e9), counter(0.8, 1e9 + 1, phase=1)]),
    "a container before its restart": (True, [counter(0.8, 10)[-2:], counter(0.8, 1e5)[:-2]]),
    "memory of a busy heap": (False, [gauge(3, 5, 4, 6, 5, 3), gauge(5, 4, 6, 5, 3, 4, phase=7)]),
    "a load that begins": (False, [gauge(0, 0, 0, 0), gauge(0, 0, 0, 100, phase=-3)]),
    "a value that is no number": (False, [gauge(math.nan, 5), gauge(5, 5, phase=4)]),
    "only values that are no numbers": (True, [gauge(math.nan), gauge(math.nan)]),
}
APART = {
    "two clusters": (True, [counter(1.5), counter(0.3, 2e4)]),
    "two idle clusters": (True, [counter(0, 70), counter(0, 7)]),
    "the kubelet that lost the pod": (True, [counter(0.95, 300), counter(0.0, 9e4)]),
    "four series of two clusters": (
        True,
        [counter(1.5), counter(1.5, phase=6), counter(0.3, 2e4), counter(0.3, 2e4, phase=4)],
    ),
    "traffic of two clusters": (False, [gauge(1500, 1500, 1500), gauge(300, 300, 300)]),
    "noisy traffic of two clusters": (
        False,
        [gauge(*([70, 95] * 10)), gauge(*([50, 75] * 10))],
    ),
}


@pytest.mark.parametrize("case", REPLICAS)
def test_replicas_are_one_group(case: str) -> None:
    counts, series = REPLICAS[case]
    for order in (series, series[::-1]):
        assert len(apart(copies(*order), counter=counts)) <= 1


@pytest.mark.parametrize("case", APART)
def test_different_things_are_two_groups(case: str) -> None:
    counts, series = APART[case]
    for order in (series, series[::-1]):
        assert len(apart(copies(*order), counter=counts)) == 2


@settings(max_examples=100, deadline=None)
@given(
    rates=st.lists(st.sampled_from([0.0, 0.1, 1.0, 8.0]), min_size=20, max_size=20),
    intervals=st.tuples(st.sampled_from([5, 10, 15, 30, 60]), st.sampled_from([5, 10, 15, 30, 60])),
    phases=st.tuples(st.floats(0, 14), st.floats(0, 14)),
    resets=st.lists(st.integers(0, 299), max_size=2),
)
def test_replicas_of_any_counter_are_one_group(
    rates: list[float], intervals: tuple[int, int], phases: tuple[float, float], resets: list[int]
) -> None:
    """Both see the true counter, which changes every second and may restart, at moments of their own."""
    truth, value = [], 5e4
    for second in range(300):
        value = 0.0 if second in resets else value + rates[second % len(rates)]
        truth.append(value)
    seen = [
        np.array([[AT - 300 + t, truth[int(t)]] for t in np.arange(phase, 300, interval)])
        for interval, phase in zip(intervals, phases, strict=True)
    ]
    assert len(apart(copies(*seen), counter=True)) == 1


def test_the_label_of_the_clusters_is_named_and_not_that_of_the_replicas() -> None:
    series = {
        ("east", "a", "n1"): counter(1.5),
        ("east", "b", "n1"): counter(1.5, phase=6),
        ("west", "a", "n7"): counter(0.3, 2e4),
        ("west", "b", "n7"): counter(0.3, 2e4, phase=6),
    }
    labels = ("k8s_cluster", "prometheus_replica", "node")
    found = [Copy(dict(zip(labels, key, strict=True)), points) for key, points in series.items()]
    text = differing([("cpu", apart(found, counter=True))])
    assert "they differ in the label k8s_cluster (east, west)" in text
    assert "source.prometheus.matchers, such as k8s_cluster: east (--matcher)" in text
    assert "replica" not in text.partition("differ in")[2]


def test_a_kubelet_that_lost_the_pod_is_named_by_its_node() -> None:
    found = [Copy({"node": "n1"}, counter(0.9, 300)), Copy({"node": "n2"}, counter(0.0, 9e4))]
    text = differing([("cpu", apart(found, counter=True))])
    assert "they differ in the label node (n1, n2); see which of them has the pod" in text
    assert "matchers" not in text


def test_a_label_that_only_one_cluster_has_is_shown() -> None:
    found = [Copy({"cluster": "east"}, counter(0.9, 300)), Copy({}, counter(0.0, 9e4))]
    text = differing([("cpu", apart(found, counter=True))])
    assert "cluster ((none), east)" in text
    assert "such as cluster: east" in text


def test_without_a_label_that_tells_them_apart_that_is_said() -> None:
    found = [Copy({}, counter(0.9, 300)), Copy({}, counter(0.0, 9e4))]
    assert "no label tells them apart" in differing([("cpu", apart(found, counter=True))])


def frozen(points: FloatArray, since: float) -> FloatArray:
    """The samples of a series that shows its last value from `since` seconds before `AT` on."""
    at = np.minimum(points[:, 0], AT - since)
    return np.stack([points[:, 0], np.interp(at, points[:, 0], points[:, 1])], axis=1)


def test_a_series_that_stopped_when_another_began_was_replaced() -> None:
    old, new = frozen(counter(3.0), 90), counter(0.8, 70)[-5:]
    assert replaced(copies(old, new), counter=True) == [True, False]
    assert replaced(copies(gauge(*[9.0] * 20), gauge(*[2.0] * 5)), counter=False) == [True, False]


def test_a_series_that_goes_on_was_not_replaced_by_one_that_began_after_it_and_has_ended() -> None:
    """A scrape took another pod's page for this one's for a while. The pod itself is idle."""
    idle, taken = gauge(*[0.0] * 20), gauge(*[9.0] * 20)[8:14]
    assert replaced(copies(idle, taken), counter=False) == [False, False]


@pytest.mark.parametrize("series", [one for _, one in (*APART.values(), *REPLICAS.values())])
def test_neither_replicas_nor_other_clusters_are_replaced(series: list[FloatArray]) -> None:
    assert not any(replaced(copies(*series), counter=True))


# -- what is believed --


def test_a_container_that_is_still_shown_after_its_restart_does_not_count() -> None:
    """The kubelet shows its last values beside those of the new one, in each scrape."""
    kept = world()
    for line in list(kept.lines):
        if line.metric.startswith("container_"):
            kept.add(line.metric, frozen(line.points * [1, 9], 90).tolist(), **line.labels, id="old")
            line.points = line.points[-6:] - ([0, line.points[-7, 1]] if "total" in line.metric else [0, 0])
    load = believed(kept, PrometheusSettings("http://x", "ns"), PODS, AT)
    assert load.brokers.trusted.all(), load.quality
    np.testing.assert_allclose(load.brokers.usage[:, CPU], 1.5)
    assert load.brokers.usage[:, MEMORY].tolist() == [2e9, 2e9]


def test_two_clusters_with_brokers_of_the_same_names_are_not_trusted() -> None:
    load = believed(world(scale=0.2), PrometheusSettings("http://x", "ns"), PODS, AT)
    assert not load.brokers.trusted.any()
    assert {doubt.reason for doubt in load.quality.doubts.values()} == {Reason.UNTRUSTED}
    text = load.quality.doubts["b-0"].text
    assert "cpu, networkIn, networkOut, traffic" in text
    assert "they differ in the label cluster (east, west)" in text
    assert not [note for note in load.quality.notes if "two replicas" in note]


@pytest.mark.parametrize("kept", [world(), world(scale=1.0)], ids=["one cluster", "replicas"])
def test_one_cluster_and_its_replicas_are_trusted(kept: Kept) -> None:
    load = believed(kept, PrometheusSettings("http://x", "ns"), PODS, AT)
    assert load.brokers.trusted.all(), load.quality
    np.testing.assert_allclose(load.brokers.usage[:, CPU], 1.5)
