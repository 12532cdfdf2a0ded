"""Spark beside the operator: the rendered container is a Spark Connect server that the operator can use."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from chart import Runner, one
from kubelet import command_of
from small_cluster import until
from trimtab_pipeline.factory import spark_sources
from trimtab_testbed.servers.processes import Server, free_ports


def test_java_s_temporary_folder_is_writable_on_the_read_only_root(offline: Runner) -> None:
    pod = one(offline.rendered({"spark": {"mode": "sidecar"}}), "Deployment")["spec"]["template"]["spec"]
    spark = pod["containers"][1]
    assert spark["securityContext"]["readOnlyRootFilesystem"]
    assert "/tmp" in {mount["mountPath"] for mount in spark["volumeMounts"]}  # spark-submit ignores TMPDIR


@pytest.mark.connect
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_operator_can_use_the_server_beside_it(offline: Runner, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    values = {"spark": {"mode": "sidecar", "cores": 1, "memory": "500m", "sidecar": {"port": port}}}
    pod = one(offline.rendered(values), "Deployment")["spec"]["template"]["spec"]
    operator, spark = pod["containers"]
    (master,) = (word.partition("=")[2] for word in operator["args"] if word.startswith("--spark="))
    with tempfile.TemporaryDirectory(prefix="pod-") as volumes:
        words, environment = command_of(spark, Path(volumes))
        server = Server(words, log=Path(volumes, "spark-scratch", "server.log"), name="spark", env=environment)
        server.start()
        try:
            probe = spark["startupProbe"]["exec"]["command"]
            until("its probe succeeds", lambda: succeeds(server, probe, environment), within=280, every=1)
            sources = spark_sources(tmp_path / "history", master=master)
            try:
                sources.warm_up().result(250)
            finally:
                sources.close()
        finally:
            server.stop()


def succeeds(server: Server, probe: list[str], environment: Mapping[str, str]) -> bool:
    """Whether the command of a probe ends well; the server must run meanwhile."""
    server.check()
    return subprocess.run(probe, env=environment, capture_output=True, check=False).returncode == 0
