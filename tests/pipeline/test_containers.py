"""Which rows of cAdvisor are the broker's, and which limit applies: the layouts that clusters really have."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from observed_load import observed
from page_server import PageServer, scraped
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.prometheus.containers import NO_NAMES, Containers
from trimtab_pipeline.prometheus.discovery import topology_from_metrics
from trimtab_pipeline.prometheus.sample_batches import RawSeries, total_or_parts
from trimtab_strategies.model import CPU, MEMORY, ClusterLoad, LimitOrigin
from trimtab_testbed.servers.prometheus import PrometheusServer, Target

GIB, INTERVAL, WINDOW = 2.0**30, 0.5, 4.0
_CPU, _MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
_SLICE = "/kubepods.slice/kubepods-pod7.slice"

LAYOUTS: Mapping[str, tuple[Mapping[str, float], str]] = {
    "chart": ({"pulsar-broker": 1.5, "": 1.6}, "pulsar-broker"),
    "mesh": ({"istio-proxy": 0.2, "pulsar-broker": 1.5, "": 1.8}, "pulsar-broker"),
    "told": ({"main": 1.5, "agent": 0.1, "": 1.7}, "main"),
    "k3s": ({"": 1.5}, ""),
    "sandbox": ({"/cri-1": 1.4, "": 1.5, "/cri-2": 0.1}, ""),
    "cores": ({"broker": 1.5, "": 1.6}, "broker"),
    "usual": ({"broker": 1.5, "": 1.6, "POD": 0.01}, "broker"),
}
"""Namespace -> cores in use by label ``container`` (a name that begins with / is a cgroup without that label), and the
name in kube-state-metrics and in the brokers' own metrics. The broker uses 1.5 of 2 cores everywhere. In ``cores``, the
kubelet shows the total and each core."""


def page() -> str:
    """All layouts, a pod ``b`` in a namespace each."""
    return "\n".join(row for space in LAYOUTS for row in _pod(space)) + "\n"


def _pod(space: str) -> Iterator[str]:
    rows, name = LAYOUTS[space]
    now = time.time()
    where = f'namespace="{space}",pod="b"'
    for label, cores in rows.items():
        container, cgroup = ("", _SLICE + label) if label.startswith("/") else (label, f"{_SLICE}/{label}".rstrip("/"))
        labels = f'{where},container="{container}",id="{cgroup}"'
        total, each = (',cpu="total"', ("cpu00", "cpu01")) if space == "cores" else ("", ())
        yield f"{_CPU}{{{labels}{total}}} {cores * (now - 1.7e9)}"
        yield from (f'{_CPU}{{{labels},cpu="{core}"}} {cores / len(each) * (now - 1.7e9)}' for core in each)
        yield f"{_MEMORY}{{{labels}}} {cores * GIB}"
    for container, cpu in {name or "broker": 2, "agent": 64, "istio-proxy": 64}.items():
        limit = f'kube_pod_container_resource_limits{{{where},container="{container}"'
        yield f'{limit},resource="cpu"}} {cpu}'
        yield f'{limit},resource="memory"}} {cpu * GIB}'
    own = f',container="{name}"' if space == "told" else ""  # a scrape configuration of the Prometheus Operator
    yield f"pulsar_broker_rate_in{{{where}{own}}} 5"


def look(url: str, space: str, container: str = "") -> ClusterLoad:
    """The brokers of a namespace, with nothing but their metrics."""
    at = round(time.time(), 3)
    settings = PrometheusSettings(url, space, window=WINDOW, container=container)
    return observed(settings, topology_from_metrics(settings, at), at).load


@pytest.mark.prometheus
def test_a_broker_is_read_from_its_own_rows_in_every_layout_or_the_containers_are_named(
    prometheus_binary: Path, tmp_path: Path
) -> None:
    with PageServer(page) as pages, PrometheusServer(prometheus_binary, tmp_path, scrape_interval=INTERVAL) as server:
        server.set_targets([Target(pages.address)])
        scraped(pages, 20)
        found = {space: look(server.url, space) for space in LAYOUTS}
        wrong = look(server.url, "mesh", container="broker")
    for space, load in found.items():
        assert load.brokers.trusted.all(), (space, load.quality)
        assert load.brokers.usage[0, CPU] / load.brokers.limit[0, CPU] == pytest.approx(0.75, abs=0.03), space
        assert load.brokers.usage[0, MEMORY] == 1.5 * GIB, space
        assert not load.quality.notes, space
    assert not wrong.brokers.trusted.any()
    (note,) = wrong.quality.notes
    assert note == (
        "b: there are metrics of the containers istio-proxy, pulsar-broker, and none of broker; "
        "set source.prometheus.container (--container) to the broker's"
    )


QUOTA = 'container_spec_cpu_quota{namespace="ns",pod="b",container="broker"} 200000'
PERIOD = 'container_spec_cpu_period{namespace="ns",pod="b",container="broker"} 100000'
WANTED = 'kube_pod_container_resource_limits{namespace="ns",pod="b",container="broker",resource="cpu"} 4'
REQUESTED = 'kube_pod_container_resource_requests{namespace="ns",pod="b",container="broker",resource="cpu"} 0.2'
ON_NODE = (
    'kube_pod_info{namespace="ns",pod="b",node="n"} 1\nkube_node_status_allocatable{node="n",resource="cpu"} 8\n'
    'kube_node_status_allocatable{node="n",resource="memory"} 9e9'
)


@pytest.mark.prometheus
def test_the_limit_in_force_counts_then_the_wanted_one_then_the_node_and_never_a_request(
    prometheus_binary: Path, tmp_path: Path
) -> None:
    shown = [WANTED, REQUESTED, QUOTA, PERIOD, ON_NODE]

    def served() -> str:
        rows = [f'{name}{{namespace="ns",pod="b",container="broker"}} {time.time()}' for name in (_CPU, _MEMORY)]
        return "\n".join([*rows, 'pulsar_broker_rate_in{namespace="ns",pod="b"} 5', *shown]) + "\n"

    found = []
    with PageServer(served) as pages, PrometheusServer(prometheus_binary, tmp_path, scrape_interval=INTERVAL) as server:
        server.set_targets([Target(pages.address)])
        for gone in ((), (QUOTA, PERIOD), (WANTED,), (ON_NODE,)):
            shown[:] = [row for row in shown if row not in gone]
            scraped(pages, 5)
            found.append(_limit(server.url))
        shown[:] = [WANTED, ON_NODE]
        scraped(pages, 5)
        found.append(_limit(server.url, unlimited=True))
    assert found == [
        (2.0, LimitOrigin.METRICS),
        (4.0, LimitOrigin.METRICS),
        (8.0, LimitOrigin.NODE),
        (None, None),
        (8.0, LimitOrigin.NODE),  # the pod has no limit, so the metric is about another pod of that name
    ]


def _limit(url: str, *, unlimited: bool = False) -> tuple[float | None, LimitOrigin | None]:
    at, settings = round(time.time(), 3), PrometheusSettings(url, "ns", window=WINDOW)
    world = topology_from_metrics(settings, at)
    load = observed(settings, replace(world, unlimited={"cpu": ("b",)} if unlimited else {}), at).load
    limit = load.brokers.limit[0, CPU]
    return None if np.isnan(limit) else float(limit), load.quality.limits.get("b", {}).get("cpu")


@pytest.mark.parametrize(
    ("found", "wanted", "given", "chosen"),
    [
        (("a", "b", ""), "b", "", "b"),
        (("a", ""), "b", "", "a"),
        (("a", "c", ""), "b", "", ""),
        (("a", "c"), "b", "", None),
        (("a", ""), "b", "b", None),
        (("", ""), "b", "b", ""),
        (("broker", "a"), "", "", "broker"),
    ],
)
def test_whatever_rows_exist_are_used_unless_a_user_named_others(
    found: tuple[str, ...], wanted: str, given: str, chosen: str | None
) -> None:
    names = {"p": wanted} if wanted else {}
    assert replace(NO_NAMES, names=names, given=given).chosen("p", found) == chosen


def test_a_name_that_a_user_gave_counts_for_all_pods() -> None:
    assert Containers({"p": "own"}, given="mine").of("p") == "mine"
    assert Containers({"p": "own"}).of("p") == "own"
    assert Containers({"p": "own"}).of("q") == "broker"


@pytest.mark.parametrize(
    ("total", "cores", "counted"),
    [
        (100.0, 100.0, ["", "m"]),
        (100.0, 90.0, ["", "m"]),
        (90.0, 100.0, ["0", "1", "m"]),
        (None, 100.0, ["0", "1", "m"]),
    ],
)
def test_a_total_and_its_parts_are_not_added_up(total: float | None, cores: float, counted: list[str]) -> None:
    """What has the newest sample counts, so that what has ended does not."""
    lasts = {"": total, "0": cores, "1": cores}
    cpu = [
        RawSeries("cpu", "counter", "a", part, np.array([[last, 1.0]]))
        for part, last in lasts.items()
        if last is not None
    ]
    memory = RawSeries("memory", "gauge", "a", "m", np.array([[50.0, 1.0]]))
    assert [one.part for one in total_or_parts([*cpu, memory])] == counted
