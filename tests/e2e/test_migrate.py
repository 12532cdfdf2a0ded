"""`trimtab migrate` on real brokers: its output can be applied, and runs as it is."""

from __future__ import annotations

import pytest
import yaml

from real_pulsar.settings import LoadManagerKind
from real_pulsar_cluster import RealPulsarCluster
from small_cluster import API, until
from trimtab_operator.cli import main

SHEDDERS = {LoadManagerKind.MODULAR: "ThresholdShedder", LoadManagerKind.EXTENSIBLE: "TransferShedder"}


def test_the_policy_of_a_running_cluster_is_applied_and_run(
    stage: RealPulsarCluster, load_manager: LoadManagerKind, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--admin-url", stage.admin.url, "--prometheus-url", stage.prometheus.url, "--name", "policy"]
    assert main(["migrate", *words]) == 0
    out = capsys.readouterr().out
    policy = yaml.safe_load(out)
    assert policy["spec"]["shedder"]["type"] == SHEDDERS[load_manager]
    assert "# loadBalancerSheddingEnabled is false" in out

    stage.rest.create(f"{API}/balancingpolicies", policy)

    def valid() -> bool:
        conditions = stage.rest.get(f"{API}/balancingpolicies/policy").get("status", {}).get("conditions", [])
        return any(c["type"] == "Valid" and c["status"] == "True" for c in conditions)

    until("a cycle of it", valid)
