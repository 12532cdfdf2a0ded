"""What the brokers' pods say: their container, the limits in force, and why a broker can't be measured."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import records
from chart_pods import RESOURCES, chart_pod, chart_record
from strategy_testing.clusters import cluster
from trimtab_operator.kube.broker_records import NodeRecord, PodRecord, node_record, pod_at, pod_record
from trimtab_operator.kube.pod_limits import DEFAULT_CONTAINER
from trimtab_operator.observe.limits import PodFacts, limit_lines, pod_facts, with_facts
from trimtab_operator.observe.topology import ClusterRecords, topology
from trimtab_pipeline.api import PrometheusSettings
from trimtab_strategies.model import CPU, MEMORY, DataQuality, Doubt, LimitOrigin, Reason

GIB = 2.0**30
NAME = "pulsar-broker-0"
FOUR, TWO = ({"cpu": cpu, "memory": "4Gi"} for cpu in ("4", "2"))


def facts(pod: PodRecord, node: NodeRecord | None = None, capacity: Any = None, **settings: Any) -> PodFacts:
    chosen = PrometheusSettings("http://p", "ns", **settings)
    ours = [records.broker(NAME, capacity=capacity or {})]
    return pod_facts(ours, {pod.name: pod}, {node.name: node} if node else {}, chosen)


def reported(**resources: Any) -> dict[str, Any]:
    """The status of a pod whose broker's container reports these fields."""
    return {"containerStatuses": [{"name": "pulsar-broker", **resources}]}


@pytest.mark.parametrize(
    ("changes", "cpu", "origin"),
    [
        ({"resources": {"limits": FOUR}}, 4.0, LimitOrigin.CONTAINER),
        ({"resources": {"limits": {"cpu": "1500m"}}}, 1.5, LimitOrigin.CONTAINER),
        ({"resources": {"limits": {"cpu": "2e1"}}}, 20.0, LimitOrigin.CONTAINER),
        ({}, math.nan, LimitOrigin.NODE),  # a request is no limit
        ({"resources": {}}, math.nan, LimitOrigin.NODE),
        ({"containers": [{"name": "b"}], "resources": {"limits": FOUR}}, math.nan, LimitOrigin.NODE),
        ({"resources": {"limits": FOUR}, "status": reported(resources={"limits": TWO})}, 2.0, LimitOrigin.RESIZED),
        ({"resources": {"limits": FOUR}, "status": reported(resources={"limits": FOUR})}, 4.0, LimitOrigin.CONTAINER),
        ({"resources": {"limits": FOUR}, "status": reported(resources={})}, 4.0, LimitOrigin.CONTAINER),
        ({"resources": {"limits": FOUR}, "status": reported(resources=RESOURCES)}, math.nan, LimitOrigin.NODE),
        (
            {"resources": {"limits": FOUR, "requests": FOUR}, "status": reported(allocatedResources=TWO)},
            2.0,
            LimitOrigin.RESIZED,
        ),
        (
            {"resources": {"limits": FOUR, **RESOURCES}, "status": reported(allocatedResources=RESOURCES["requests"])},
            4.0,
            LimitOrigin.CONTAINER,
        ),
    ],
)
def test_the_limit_in_force_counts(changes: dict[str, Any], cpu: float, origin: LimitOrigin) -> None:
    found = facts(chart_record(**changes)).limits[NAME]["cpu"]
    assert found.value == pytest.approx(cpu, nan_ok=True)
    assert found.origin is origin


def of_pod(pod: dict[str, Any], limits: Any, enacted: Any = None) -> dict[str, Any]:
    """The pod with limits of the pod as a whole; enacted: those in its status."""
    pod["spec"]["resources"] = {"limits": limits}
    if enacted:
        pod["status"]["resources"] = {"limits": enacted}
    return pod


def test_limits_of_the_pod_as_a_whole_count_and_the_lowest_one_wins() -> None:
    alone = facts(pod_record(of_pod(chart_pod(), FOUR))).limits[NAME]
    assert (alone["cpu"].value, alone["cpu"].origin) == (4.0, LimitOrigin.POD)
    both = facts(pod_record(of_pod(chart_pod(resources={"limits": TWO}), FOUR))).limits[NAME]
    assert (both["cpu"].value, both["cpu"].origin) == (2.0, LimitOrigin.CONTAINER)
    resized = facts(pod_record(of_pod(chart_pod(), FOUR, TWO))).limits[NAME]
    assert (resized["cpu"].value, resized["cpu"].origin) == (2.0, LimitOrigin.POD)


def test_without_a_limit_the_node_counts_if_it_is_known_and_else_the_source_looks_for_it() -> None:
    node = node_record(
        {"metadata": {"name": "node-0"}, "status": {"allocatable": {"cpu": "7900m", "memory": "30Gi", "pods": "110"}}}
    )
    known = facts(chart_record(), node)
    assert known.limits[NAME]["cpu"].value == pytest.approx(7.9)
    assert not known.unlimited
    assert facts(chart_record()).unlimited == {"cpu": (NAME,), "memory": (NAME,)}
    assert not facts(chart_record(), resources="pulsar").limits  # in percent
    own = facts(chart_record(), queries=(("cpu_limit", "max by (pod) (x)"),))
    assert own.unlimited == {"memory": (NAME,)}


def test_the_topology_carries_container_and_limit_and_a_declared_capacity_wins() -> None:
    pod, ours = chart_record(resources={"limits": FOUR}), records.broker(NAME, capacity={"memory": GIB})
    shown = facts(pod)
    rows, _ = topology(ClusterRecords([ours], (), {}, (), 0.0, facts=shown), window=60)
    assert rows.containers == ("pulsar-broker",)
    assert rows.declared_limit[0, [CPU, MEMORY]].tolist() == [4.0, GIB]
    load = with_facts(cluster(**{NAME: 0.5}), shown, {NAME: ours})
    assert load.quality.limits[NAME] == {"cpu": LimitOrigin.CONTAINER, "memory": LimitOrigin.CAPACITY}


@pytest.mark.parametrize(
    ("names", "annotation", "chosen"),
    [
        (["pulsar-broker"], None, "pulsar-broker"),
        (["pulsar-broker", "fluent-bit"], None, "pulsar-broker"),
        (["istio-proxy", "pulsar-broker"], "pulsar-broker", "pulsar-broker"),
        (["fluent-bit", "broker"], None, "broker"),
        (["a", "b"], "gone", "a"),
    ],
)
def test_the_main_container_of_a_pod_is_the_broker(names: list[str], annotation: str | None, chosen: str) -> None:
    pod = chart_pod(containers=[{"name": name} for name in names])
    pod["metadata"]["annotations"] = {DEFAULT_CONTAINER: annotation} if annotation else {}
    assert facts(pod_record(pod)).containers == {NAME: chosen}


def test_a_container_that_no_pod_has_is_named_with_those_that_there_are() -> None:
    found = facts(chart_record(containers=[{"name": "pulsar-broker"}, {"name": "agent"}]), container="broker")
    load = with_facts(cluster(**{NAME: 0.5}), found, {NAME: records.broker(NAME)})
    assert not load.brokers.trusted.any()
    assert load.quality.doubts[NAME] == Doubt(
        Reason.NO_LOAD_DATA,
        f"its pod {NAME} has no container broker, but pulsar-broker, agent; "
        "correct spec.source.prometheus.container, or leave it out",
    )


def test_a_broker_without_a_pod_is_told_so_unless_it_is_measured_all_the_same() -> None:
    lost = records.broker("10-1-0-7-8080", pod="", address="10.1.0.99:8080")
    found = pod_facts([lost], {NAME: chart_record()}, {}, PrometheusSettings("http://p", "ns"))
    measured = cluster(**{lost.name: 0.5})
    assert with_facts(measured, found, {lost.name: lost}).brokers.trusted.all()
    never = replace(measured, brokers=replace(measured.brokers, trusted=np.array([False])))
    doubt = with_facts(never, found, {lost.name: lost}).quality.doubts[lost.name]
    assert doubt.text.startswith("no pod is at its address 10.1.0.99:8080")
    assert "spec.pod" in doubt.text


def test_lines_say_what_counts_as_a_hundred_percent() -> None:
    same = {"cpu": LimitOrigin.CONTAINER, "memory": LimitOrigin.CONTAINER}
    quality = DataQuality(limits={"a": same, "b": {**same, "cpu": LimitOrigin.NODE}})
    assert limit_lines(quality) == [
        "100 % of cpu is the container's limit (a)",
        "100 % of cpu is what the node can allocate, because the pod has no limit (b)",
        "100 % of memory is the container's limit",
    ]


PODS = {
    "pulsar-broker-0": chart_record(0),
    "six": records.pod("six", addresses=("fd00::7",)),
    "host-a": records.pod("host-a", addresses=("10.0.0.3",), shares_host=True),
    "host-b": records.pod("host-b", addresses=("10.0.0.3",), shares_host=True),
    "going": records.pod("going", addresses=("10.1.0.9",), deleted=True),
    "after": records.pod("after", addresses=("10.1.0.9",)),
}


@pytest.mark.parametrize(
    ("address", "likely", "pod"),
    [
        ("10.1.0.7:8080", (), "pulsar-broker-0"),
        ("[fd00:0:0::7]:8080", (), "six"),
        ("10.0.0.3:8080", (), ""),
        ("10.0.0.3:8080", ("host-b",), "host-b"),
        ("10.0.0.3:8080", ("host-a", "host-b"), ""),
        ("10.1.0.9:8080", (), "after"),
        ("pulsar-broker-0.pulsar-broker.messaging.svc:8080", (), "pulsar-broker-0"),
        ("elsewhere.example:8080", (), ""),
        ("10.9.9.9:8080", (), ""),
        ("", (), ""),
    ],
)
def test_a_pod_is_found_by_its_addresses_if_only_one_has_it(address: str, likely: tuple[str, ...], pod: str) -> None:
    assert pod_at(address, PODS, likely) == pod


def test_addresses_of_a_pod_are_its_own_and_on_the_hosts_network_those_of_the_node() -> None:
    both = {"podIPs": [{"ip": "10.1.0.7"}, {"ip": "fd00::7"}]}
    assert chart_record(status=both).addresses == ("10.1.0.7", "fd00::7")
    assert chart_record(hostNetwork=True).addresses == ("10.1.0.7", "10.0.0.3")
