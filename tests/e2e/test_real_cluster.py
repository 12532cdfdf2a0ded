"""The cluster itself: brokers, Prometheus and clients report the same figures."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from http import HTTPStatus

import pytest

from real_pulsar.clients import Flow, topics_of
from real_pulsar.cluster import PulsarCluster
from real_pulsar.rest import PulsarRest, PulsarRestError
from real_pulsar.settings import LoadManagerKind
from real_pulsar_cluster import RealPulsarCluster, only
from small_cluster import until


def _asked(stage: RealPulsarCluster, promql: str, label: str = "pod") -> dict[str, float]:
    query = urllib.parse.urlencode({"query": promql})
    with urllib.request.urlopen(f"{stage.prometheus.url}/api/v1/query?{query}", timeout=10) as answer:
        rows = json.load(answer)["data"]["result"]
    return {row["metric"].get(label, ""): float(row["value"][1]) for row in rows}


def test_brokers_run_the_load_manager_that_was_asked_for(
    pulsar_cluster: PulsarCluster, load_manager: LoadManagerKind
) -> None:
    rest = pulsar_cluster.rest()

    assert rest.runtime()["loadManagerClassName"] == load_manager.class_name
    assert rest.brokers() == set(pulsar_cluster.ids)


@only(LoadManagerKind.EXTENSIBLE)
def test_what_clients_send_is_what_prometheus_shows_where_it_is_served(stage: RealPulsarCluster) -> None:
    namespace = stage.new_namespace(4)
    bundle = stage.admin.bundles(namespace)[0]
    flows = [Flow(topic, 60) for topic in topics_of(bundle, 2)]
    stage.put(bundle, "pulsar-broker-1")
    query = f'sum by (pod) (pulsar_rate_in{{topic=~"persistent://{namespace}/.*"}})'

    with stage.traffic(flows) as traffic:
        until("its rate", lambda: 100 < _asked(stage, query).get("pulsar-broker-1", 0) < 140)
        cores = 'sum by (pod) (rate(container_cpu_usage_seconds_total{container="broker"}[10s]))'
        until("all brokers' CPU", lambda: set(_asked(stage, cores)) == set(stage.names))
        received = "sum by (pod) (rate(container_network_receive_bytes_total[10s]))"
        until("payload", lambda: _asked(stage, received).get("pulsar-broker-1", 0) > 30_000)
        assert stage.truth(namespace)[bundle] == "pulsar-broker-1"
        counts = traffic.drain()

    assert counts.errors == 0
    assert counts.acked == counts.sent <= counts.received


def test_a_move_is_seen_by_the_clients_and_by_the_witness(stage: RealPulsarCluster) -> None:
    namespace = stage.new_namespace(4)
    bundle = stage.admin.bundles(namespace)[2]
    topics = topics_of(bundle, 2)
    stage.put(bundle, "pulsar-broker-0")

    with stage.witness(namespace) as witness, stage.traffic(Flow(topic, 50) for topic in topics) as traffic:
        until("messages arrive", lambda: traffic.counts().received > 50)
        begin = time.time()
        stage.admin.unload(bundle, stage.id_of("pulsar-broker-2"))
        until("the witness sees it", lambda: witness.owner(bundle) == "pulsar-broker-2", within=10)
        until("messages arrive again", lambda: traffic.rate(topics[0], 1.0) > 20)
        gap = traffic.publish_gap(topics, begin, time.time())

    assert gap is not None
    assert 20 <= gap < 10_000
    assert len(witness.strays()) == 1, "its owner was never desired: it moved without the operator"


def test_a_guarded_broker_lets_in_who_shows_a_token(guarded_cluster: PulsarCluster) -> None:
    url, context = guarded_cluster.urls[0], guarded_cluster.guard.context
    assert guarded_cluster.rest().brokers() == set(guarded_cluster.ids)

    with pytest.raises(PulsarRestError) as error:
        PulsarRest(url, context=context).brokers()
    assert error.value.status == HTTPStatus.UNAUTHORIZED

    with pytest.raises(PulsarRestError) as error:
        PulsarRest(url, guarded_cluster.token("somebody"), context).runtime()
    assert error.value.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
