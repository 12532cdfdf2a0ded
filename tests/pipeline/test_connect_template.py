"""The template of a Connect server names what the tested server is made of. It is not run here."""

from __future__ import annotations

from pathlib import Path

import yaml

from spark_servers import MAIN_CLASS

TEMPLATE = Path(__file__).parents[2] / "deploy/spark-connect-server.yaml"


def test_the_template_runs_the_server_that_is_tested_and_its_service_finds_it() -> None:
    application, service = yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8"))
    assert application["spec"]["mainClass"] == MAIN_CLASS
    port = application["spec"]["sparkConf"]["spark.connect.grpc.binding.port"]
    assert [str(entry["port"]) for entry in service["spec"]["ports"]] == [port]
    assert service["spec"]["selector"]["spark.operator/spark-app-name"] == application["metadata"]["name"]
