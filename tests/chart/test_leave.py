"""An upgrade that takes a namespace out of `watchNamespaces`: nothing that was switched off there stays off."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart import Runner
from pulsar_settings import defaults, settings_brokers
from restored_namespace import FINALIZER, AbandonedNamespace
from scoped_release import OPERATOR, ScopedRelease
from trimtab_operator.pulsar.client.dynamic_config import SPLITTING
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]


@pytest.fixture
def release(
    release_plane: ControlPlane, online: Runner, prometheus_binary: Path, tmp_path: Path
) -> Iterator[ScopedRelease]:
    spaces = ("orders", "payments")
    with ScopedRelease(release_plane, online, prometheus_binary, tmp_path / "stage", spaces) as stage:
        stage.install(watchNamespaces=list(spaces))
        yield stage


def test_the_balancer_of_a_namespace_that_leaves_is_restored(release: ScopedRelease) -> None:
    with settings_brokers(defaults()) as brokers:
        left = AbandonedNamespace(release.plane, "payments", brokers)
        with pytest.raises(subprocess.CalledProcessError, match="upgrade"):
            release.upgrade(watchNamespaces=["orders"], allowUrls=["http://pulsar.example.com"])
        assert "not restored" in release.jobs.outputs[-1]
        release.upgrade(watchNamespaces=["orders"])
        assert brokers.dynamic == {SPLITTING: "TRUE"}, "the second upgrade knows what the first could not do"
    assert left.mode() == "DryRun"
    assert all(FINALIZER not in names for names in left.finalizers())
    assert [request for request in release.requests() if request[3] == 403] == []
    roles = release.rest.get("/apis/rbac.authorization.k8s.io/v1/namespaces/payments/roles")["items"]
    assert roles == release.rest.get(f"/apis/batch/v1/namespaces/{OPERATOR}/jobs")["items"] == []

    ran = len(release.jobs.codes)
    release.upgrade(watchNamespaces=["orders"])
    assert len(release.jobs.codes) == ran, "there is nothing to do"


def test_a_namespace_that_was_deleted_does_not_stop_an_upgrade(release: ScopedRelease) -> None:
    release.rest.delete("/api/v1/namespaces/payments")
    release.upgrade(watchNamespaces=["orders"])
    assert release.jobs.codes == []
