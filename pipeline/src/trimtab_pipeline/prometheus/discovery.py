"""A topology from metrics alone: the brokers and bundles that Prometheus knows.

It is for a cluster that Trimtab does not manage yet. Otherwise the Kubernetes objects define the topology.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import PrometheusSettings, SourceUnavailableError, Topology
from trimtab_pipeline.prometheus.client import PrometheusClient, PrometheusError
from trimtab_pipeline.prometheus.containers import USUAL
from trimtab_pipeline.prometheus.mislabelled import traffic_elsewhere, traffic_note
from trimtab_pipeline.prometheus.queries import broker_selector, container_selector
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.transform.topic_to_bundle import is_bundle

_BROKERS = "max by (pod, container) (pulsar_broker_rate_in{{{}}})"
_CONTAINERS = "max by (pod, container) (container_memory_working_set_bytes{{{}}})"
_BUNDLES = "max by (bundle, pod) (pulsar_bundle_msg_rate_in{{{}}})"


def topology_from_metrics(settings: PrometheusSettings, at: float) -> Topology:
    """The brokers and bundles with metrics at `at` (epoch s). A broker has the name of its pod.

    A bundle belongs to the pod that reports it; if two pods do, to the one with more messages. Invalid bundle names are
    skipped. The broker's container is the one that its own metrics name, or the pod's only one, or the only one whose
    name has the word broker.
    Raises `SourceUnavailableError` when the server does not answer, or no broker has metrics.
    """
    selector = broker_selector(settings)
    try:
        with _server(settings) as server:
            brokers = server.query(_BROKERS.format(selector), at)
            bundles = server.query(_BUNDLES.format(selector), at)
            named = settings.container or settings.resources != "kubernetes"
            rows = brokers if named else server.query(_CONTAINERS.format(container_selector(settings)), at)
            odd = server.query(traffic_elsewhere(settings), at) if "" in brokers.label("pod").to_pylist() else None
    except PrometheusError as error:
        raise SourceUnavailableError(f"nothing could be measured: {error}") from error
    pods = sorted({*brokers.label("pod").to_pylist(), *bundles.label("pod").to_pylist()} - {""})
    if not pods and odd is not None:
        raise SourceUnavailableError(f"{settings.url} knows no broker in {selector}: {traffic_note(odd)}")
    if not pods:
        raise SourceUnavailableError(
            f"{settings.url} knows no broker in {selector}: no pulsar_broker_rate_in, no pulsar_bundle_msg_rate_in; "
            "check the namespace, and which label holds it"
        )
    topology = _topology(
        pods, pa.table({"bundle": bundles.label("bundle"), "pod": bundles.label("pod"), "rate": bundles.values})
    )
    own, there = _by_pod(brokers), _by_pod(rows)
    return replace(topology, containers=tuple(_container(own.get(pod, set()), there.get(pod, set())) for pod in pods))


def _by_pod(rows: Samples) -> dict[str, set[str]]:
    """The labels ``container`` of each pod."""
    found: dict[str, set[str]] = defaultdict(set)
    for pod, name in zip(rows.label("pod").to_pylist(), rows.label("container").to_pylist(), strict=True):
        found[pod].add(name)
    return found


def _container(own: set[str], there: set[str]) -> str:
    """The broker's container; empty if unclear. own: labels of its own metrics. there: containers of its pod."""
    for names in (own & there, there, {name for name in there if USUAL in name}):
        if len(names - {""}) == 1:
            return next(iter(names - {""}))
    return ""


def _server(settings: PrometheusSettings) -> PrometheusClient:
    return PrometheusClient(
        settings.url,
        settings.timeout,
        settings.credentials,
        method=settings.method,
        partial_response=settings.partial_response,
        parameters=settings.parameters,
    )


def _topology(pods: list[str], rows: pa.Table) -> Topology:
    rates = rows.filter(pc.not_equal(rows["pod"], "")).sort_by("rate").to_pylist()  # the highest rate comes last
    owner = {row["bundle"]: row["pod"] for row in rates if is_bundle(row["bundle"])}
    bundles = tuple(sorted(owner))
    namespaces = tuple(sorted({name.rpartition("/")[0] for name in bundles}))
    n, m = len(pods), len(bundles)
    broker = {pod: row for row, pod in enumerate(pods)}
    home = {name: row for row, name in enumerate(namespaces)}
    return Topology(
        brokers=tuple(pods),
        pods=tuple(pods),
        declared_limit=np.full((n, 5), np.nan),
        ready=np.ones(n, bool),
        schedulable=np.ones(n, bool),
        namespaces=namespaces,
        bundles=bundles,
        namespace=np.array([home[name.rpartition("/")[0]] for name in bundles], np.int64),
        owner=np.array([broker[owner[name]] for name in bundles], np.int64),
        last_unload=np.full(m, np.nan),
        pinned=np.zeros(m, bool),
        in_flight=np.zeros(m, bool),
        moving_from=np.full(m, -1, np.int64),
        moving_share=np.zeros(m),
    )
