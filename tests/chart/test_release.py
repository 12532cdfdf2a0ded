"""A release from its first day to its last, with a real Helm, a real API server, and the operator as it is rendered."""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart import CHART, IMAGE, NAMESPACE, RELEASE, Manifest, Runner, combinations, operator_container
from chart_cluster import API, ChartCluster
from pulsar_settings import defaults, settings_brokers
from small_cluster import until
from trimtab_operator.pulsar.client.dynamic_config import SHEDDING, SPLITTING, FoundSettings
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError, KubeRest

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]  # an installation of many parts, on shared cores

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLICIES = "balancingpolicies.trimtab.dev"
TOKEN = "s3cret"


@pytest.fixture
def release(
    release_plane: ControlPlane, online: Runner, prometheus_binary: Path, tmp_path: Path
) -> Iterator[ChartCluster]:
    """An installed release with Spark in the operator's pod, as by default, and with brokers and a Prometheus."""
    with ChartCluster(release_plane, online, prometheus_binary, tmp_path / "stage") as stage:
        yield stage


@pytest.mark.prometheus
@pytest.mark.spark
def test_a_release_balances_is_changed_and_leaves_nothing_switched_off(release: ChartCluster) -> None:
    release.start_operator()
    assert release.spread() > 20
    release.apply_policy()
    until("the brokers are level", lambda: release.spread() < 15 and release.settled(), within=250)
    assert release.denied() == []
    assert "Succeeded" in release.test()
    assert "leads" in release.jobs.outputs.pop()

    release.upgrade(log={"verbose": True})
    assert "--verbose" in operator_container([release.deployment()])["args"]
    release.rollback(1)
    assert "--verbose" not in operator_container([release.deployment()])["args"]
    assert "finalizers" not in release.policy()["metadata"], "nothing is switched off"

    release.rest.patch(f"{API}/balancingpolicies/policy", {"spec": {"paused": True}})
    until("the pause has begun", lambda: "Paused" in str(release.policy()["status"]), within=120)
    until("nothing is under way", release.settled, within=120)
    owners = release.owners()
    with settings_brokers(defaults(), token=TOKEN) as brokers:
        switch_off(release.rest, brokers.url, brokers.dynamic)
        said = release.uninstall()
        assert brokers.dynamic == {SPLITTING: "TRUE"}
    (output,) = release.jobs.outputs
    assert release.jobs.codes == [0, 0], output
    assert "no operator leads now" in output, output
    assert "kept" in said
    assert release.operator is not None
    assert release.operator.returncode == 0, release.operator.log_tail()

    assert release.owners() == owners
    for kind in ("balancingpolicies", "topicnamespaces"):
        assert not any(item["metadata"].get("finalizers") for item in release.rest.get(f"{API}/{kind}")["items"])
    assert left_behind(release.rest) == []
    assert release.denied() == []
    kinds = ("topicnamespaces", "balancingpolicies")
    unused = {("trimtab.dev", kind, "patch") for kind in kinds}  # nothing was switched off, so none has a finalizer
    assert restorer_granted(release.helm) == restorer_asked(release.plane) | unused

    release.install()  # users who come back find it as it was
    assert release.policy()["spec"]["mode"] == "Auto"


def test_an_uninstall_that_can_not_ask_pulsar_fails_and_changes_no_more(
    release_plane: ControlPlane, online: Runner, prometheus_binary: Path, tmp_path: Path
) -> None:
    stage = ChartCluster(release_plane, online, prometheus_binary, tmp_path / "stage")
    stage.install()  # and nothing else: nothing balances
    with settings_brokers(defaults()) as brokers:
        gone = brokers.url
    switch_off(stage.rest, gone, {})
    with pytest.raises(subprocess.CalledProcessError) as failure:
        stage.uninstall("--timeout", "240s")
    assert "trimtab-restore" in failure.value.output or "pre-delete" in failure.value.output, failure.value.output
    assert "Pulsar: not restored" in stage.jobs.outputs[0]
    assert "not stopped" in stage.jobs.outputs[0]
    assert stage.deployment()["spec"]["replicas"] == 2

    stage.rest.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/trimtab-pulsar-found")  # as docs/migrate.md has it
    stage.uninstall("--timeout", "240s")
    assert left_behind(stage.rest) == []


def test_an_upgrade_brings_a_new_field_and_a_rollback_leaves_its_objects(
    release_plane: ControlPlane, online: Runner, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    shutil.copytree(CHART, older)
    without_windows(older / "files" / "crds" / f"trimtab.dev_{POLICIES.partition('.')[0]}.yaml")
    words = ("--namespace", NAMESPACE, "--set", f"restore.enabled=false,image.repository={IMAGE}")
    rest = release_plane.rest
    policies = f"{API}/balancingpolicies"
    online.run("install", RELEASE, older, "--create-namespace", *words)
    until("policies are served", lambda: answers(rest, policies), within=120)
    assert kept_size(rest) < 400_000, "an object of the API server has at most 1 MB"
    rest.create(policies, policy("old"))
    with pytest.raises(KubeApiError, match="windows"):
        rest.create(policies, policy("new", windows=WINDOWS))

    online.run("upgrade", RELEASE, CHART, *words)
    until("the new field is served", lambda: creates(rest, policies, policy("new", windows=WINDOWS)), 120)
    assert rest.get(f"{policies}/old")["spec"]["mode"] == "DryRun"
    assert rest.get(f"{policies}/new")["spec"]["windows"] == WINDOWS

    online.run("rollback", RELEASE, "1", "--namespace", NAMESPACE)
    until("the field is gone", lambda: "windows" not in rest.get(f"{policies}/new")["spec"], 120)
    online.run("rollback", RELEASE, "2", "--namespace", NAMESPACE)
    until("what was stored is there again", lambda: rest.get(f"{policies}/new")["spec"].get("windows") == WINDOWS, 120)


def test_policies_out_of_values_come_with_the_first_installation_and_follow_the_values(
    release_plane: ControlPlane, online: Runner, prometheus_binary: Path, tmp_path: Path
) -> None:
    stage = ChartCluster(release_plane, online, prometheus_binary, tmp_path / "stage")
    policies = combinations()["with-a-policy"]["policies"]
    balance = f"{API}/balancingpolicies/balance"
    stage.install(policies=policies)
    assert stage.jobs.outputs == ["policy balance: applied\n"]
    assert stage.rest.get(balance)["spec"]["mode"] == "DryRun"
    assert stage.denied() == []

    changed = [{"name": "balance", "spec": {**policies[0]["spec"], "mode": "Approve"}}]
    stage.upgrade(policies=changed)
    assert stage.rest.get(balance)["spec"]["mode"] == "Approve"
    of_a_parent = policy("of-a-parent-chart")
    of_a_parent["metadata"]["labels"] = {
        "app.kubernetes.io/name": "pulsar",
        "app.kubernetes.io/instance": RELEASE,
        "app.kubernetes.io/managed-by": "Helm",
    }
    for other in (policy("of-a-person"), of_a_parent):
        stage.rest.create(f"{API}/balancingpolicies", other)
    stage.upgrade(policies=[])
    assert not answers(stage.rest, balance)
    assert stage.jobs.outputs[-1] == "policy balance: deleted\n"
    stage.upgrade(policies=[])
    assert len(stage.jobs.outputs) == 3, "there is nothing to do"
    stage.rollback(1)
    assert stage.rest.get(balance)["spec"]["mode"] == "DryRun"
    assert answers(stage.rest, f"{API}/balancingpolicies/of-a-person")
    assert answers(stage.rest, f"{API}/balancingpolicies/of-a-parent-chart")
    stage.uninstall("--timeout", "240s")
    assert left_behind(stage.rest) == []


# -- what the tests look at, and with --

WINDOWS = [{"kind": "Deny", "days": [], "start": "09:00", "duration": "1h", "timeZone": "Europe/Berlin"}]


def policy(name: str, **spec: Any) -> Manifest:
    """A dry run with all defaults."""
    base = {
        "mode": "DryRun",
        "source": {"prometheus": {"url": "http://prometheus.monitoring.svc:9090"}},
        "shedder": {"type": "ThresholdShedder"},
        "placement": {"type": "LeastResourceUsageWithWeight"},
    }
    meta = {"name": name}
    return {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BalancingPolicy", "metadata": meta, "spec": {**base, **spec}}


def kept_size(rest: KubeRest) -> int:
    """Letters of the largest Secret in which Helm keeps a release."""
    secrets = rest.get(f"/api/v1/namespaces/{NAMESPACE}/secrets")["items"]
    return max(len(secret["data"]["release"]) for secret in secrets if secret["type"] == "helm.sh/release.v1")


def without_windows(file: Path) -> None:
    """Make the kind one of a version that did not know the field yet."""
    head, crd = file.read_text().partition("\n")[0], yaml.safe_load(file.read_text())
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["windows"]
    file.write_text(f"{head}\n{yaml.safe_dump(crd, sort_keys=False)}")


def answers(rest: KubeRest, path: str) -> bool:
    """Whether the collection is served."""
    try:
        rest.get(path)
    except KubeApiError:
        return False
    return True


def creates(rest: KubeRest, path: str, body: Manifest) -> bool:
    """Whether the server has taken the object."""
    try:
        rest.create(path, body)
    except KubeApiError:
        return False
    return True


def switch_off(rest: KubeRest, url: str, dynamic: dict[str, str]) -> None:
    """Pulsar's own balancing is off, as an operator leaves it that was asked to."""
    dynamic.update({SHEDDING: "false", SPLITTING: "false"})
    namespace = f"/api/v1/namespaces/{NAMESPACE}"
    labels = {"trimtab.dev/credentials": "true"}
    token = base64.b64encode(TOKEN.encode()).decode()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pulsar", "labels": labels}}
    rest.create(f"{namespace}/secrets", {**secret, "data": {"token": token}})
    auth = {"token": {"secretKeyRef": {"name": "pulsar", "key": "token"}}}
    spec = PulsarSpec.model_validate({"adminUrl": url, "auth": auth})
    found = FoundSettings(spec).noting([SHEDDING, SPLITTING], {SPLITTING: "TRUE"})
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trimtab-pulsar-found"}}
    rest.create(f"{namespace}/configmaps", {**config_map, "data": {"found.json": found.to_json()}})


def left_behind(rest: KubeRest) -> list[str]:
    """What Helm made and is still there, but for the kinds, which are kept."""
    namespace = f"namespaces/{NAMESPACE}"
    collections = [
        *(f"/api/v1/{namespace}/{kind}" for kind in ("serviceaccounts", "services", "configmaps")),
        *(f"/apis/apps/v1/{namespace}/{kind}" for kind in ("deployments",)),
        *(f"/apis/batch/v1/{namespace}/{kind}" for kind in ("jobs",)),
        *(f"/apis/policy/v1/{namespace}/{kind}" for kind in ("poddisruptionbudgets",)),
        *(f"/apis/rbac.authorization.k8s.io/v1/{namespace}/{kind}" for kind in ("roles", "rolebindings")),
        *(f"/apis/rbac.authorization.k8s.io/v1/{kind}" for kind in ("clusterroles", "clusterrolebindings")),
    ]
    assert len(rest.get(CRDS)["items"]) == 5
    return [
        f"{path}/{item['metadata']['name']}"
        for path in collections
        for item in rest.get(path)["items"]
        if item["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "trimtab"
        and not item["metadata"].get("deletionTimestamp")
    ]


Right = tuple[str, str, str]


def restorer_granted(runner: Runner) -> set[Right]:
    """(group, resource, verb) of each right of the hook."""
    roles = [m for m in runner.rendered() if m["kind"] == "Role" and m["metadata"]["name"].endswith("-restore")]
    rules = [rule for role in roles for rule in role["rules"]]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def restorer_asked(plane: ControlPlane) -> set[Right]:
    """The same of what it asked of the API server."""
    found = set()
    for event in plane.audit_events():
        reference = event.get("objectRef")
        if event["user"]["username"] == f"system:serviceaccount:{NAMESPACE}:{RELEASE}-restore" and reference:
            resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
            found.add((reference.get("apiGroup", ""), resource, event["verb"]))
    return found
