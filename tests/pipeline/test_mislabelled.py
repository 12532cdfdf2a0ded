"""Metrics whose pods stand in another label: the cause and the fix are told, not that series or limits are missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from observed_load import observed
from page_server import PageServer, scraped
from trimtab_pipeline.api import PrometheusSettings, SourceUnavailableError, Topology
from trimtab_pipeline.prometheus.discovery import topology_from_metrics
from trimtab_strategies.model import ClusterLoad
from trimtab_testbed.servers.prometheus import PrometheusServer, Target

INTERVAL, WINDOW, GIB = 0.5, 4.0, 2**30


def _page() -> str:
    return "\n".join(row for space in ("well", "nopod", "bare", "exported") for row in _pod(space)) + "\n"


def _pod(space: str) -> Iterator[str]:
    where = f'namespace="{space}",pod="b"'
    container = f'{where},container="broker"'
    yield f"container_cpu_usage_seconds_total{{{container}}} {1.5 * (time.time() - 1.7e9)}"
    yield f"container_memory_working_set_bytes{{{container}}} {GIB}"
    limit = container
    if space == "exported":
        own = 'namespace="monitoring",pod="kube-state-metrics-0",container="kube-state-metrics"'
        limit = f'{own},exported_namespace="exported",exported_pod="b",exported_container="broker"'
    yield f'kube_pod_container_resource_limits{{{limit},resource="cpu"}} 2'
    yield f'kube_pod_container_resource_limits{{{limit},resource="memory"}} {4 * GIB}'
    named = {"nopod": 'kubernetes_pod_name="b",', "bare": ""}.get(space, 'pod="b",')
    traffic = f'{{namespace="{space}",{named}cluster="pulsar"}} 5'
    yield from (f"pulsar_broker_{name}{traffic}" for name in ("rate_in", "rate_out", "throughput_in", "throughput_out"))


@pytest.mark.prometheus
def test_pods_in_another_label_are_told_with_the_label_and_the_fix(prometheus_binary: Path, tmp_path: Path) -> None:
    with PageServer(_page) as pages, PrometheusServer(prometheus_binary, tmp_path, scrape_interval=INTERVAL) as server:
        server.set_targets([Target(pages.address)])
        scraped(pages, 20)

        def look(space: str, world: Topology | None = None) -> ClusterLoad:
            at = round(time.time(), 3)
            settings = PrometheusSettings(server.url, space, window=WINDOW)
            return observed(settings, world or topology_from_metrics(settings, at), at).load

        well = look("well")
        refused = []
        for space in ("nopod", "bare"):
            with pytest.raises(SourceUnavailableError) as caught:
                look(space)
            refused.append(str(caught.value))
        at = round(time.time(), 3)
        world = topology_from_metrics(PrometheusSettings(server.url, "well", window=WINDOW), at)
        unlabelled, exported = look("nopod", replace(world)), look("exported")
        nowhere = look("nowhere", replace(world))

    assert well.brokers.trusted.all(), well.quality
    assert well.quality.notes == ()
    missing = "pulsar_broker_rate_in has no label pod, so it is known of no broker; "
    assert (
        refused[0]
        .partition(": ")[2]
        .endswith(
            f"{missing}rename kubernetes_pod_name (b) to pod in its scrape job (it has cluster, instance, job, "
            "kubernetes_pod_name, namespace)"
        )
    )
    assert f"{missing}add it from __meta_kubernetes_pod_name in its scrape job" in refused[1]
    assert any(note.startswith(missing) for note in unlabelled.quality.notes)
    assert not any("label pod" in note for note in nowhere.quality.notes)
    assert not exported.brokers.trusted.any()
    (note,) = exported.quality.notes
    assert note.startswith("kube_pod_container_resource_limits names b in exported_pod, and not in pod, so no limit")
    assert "set honor_labels: true" in note
