"""`trimtab restore`: the way out, with an operator or without one, against the real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from faulty_api import FaultyApi
from manifests import policy, topic_namespace
from pulsar_settings import SettingsBrokers, defaults, settings_brokers
from small_cluster import until
from trimtab_operator.cli import main
from trimtab_operator.pulsar.client.dynamic_config import SHEDDING, SPLITTING, FoundSettings
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError

pytestmark = pytest.mark.apiserver

FINALIZER = "trimtab.dev/finalizer"
HERE = ["--allow-url", "http://127.0.0.1:*"]
"""What the operator has for brokers on this machine."""


class Environment:
    """What an operator left behind that died: switches off, finalizers on."""

    def __init__(self, plane: ControlPlane, namespace: str, brokers: SettingsBrokers) -> None:
        self.rest, self.namespace, self.brokers = plane.rest, namespace, brokers
        self.words = ["restore", "-n", namespace, "--kubeconfig", str(plane.kubeconfig), *HERE]
        found = FoundSettings(self.spec()).noting([SHEDDING, SPLITTING], {SPLITTING: "TRUE"})
        brokers.dynamic.update({SHEDDING: "false", SPLITTING: "false"})
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trimtab-pulsar-found"}}
        self.rest.create(self.maps, {**config_map, "data": {"found.json": found.to_json()}})
        self.policy("main", [FINALIZER, "example.com/theirs"])
        self._create("topicnamespaces", topic_namespace("public-default"), [FINALIZER, "example.com/theirs"])

    def spec(self) -> PulsarSpec:
        """How Pulsar was asked: with a token if its brokers want one."""
        if not self.brokers.token:
            return PulsarSpec(admin_url=self.brokers.url)
        meta = {"name": "pulsar", "labels": {"trimtab.dev/credentials": "true"}}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": self.brokers.token}}
        self.rest.create(f"/api/v1/namespaces/{self.namespace}/secrets", body)
        auth = {"token": {"secret": "pulsar", "key": "token"}}
        return PulsarSpec.model_validate({"adminUrl": self.brokers.url, "auth": auth})

    @property
    def maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    def path(self, plural: str, name: str = "") -> str:
        return f"/apis/trimtab.dev/v1alpha1/namespaces/{self.namespace}/{plural}/{name}".rstrip("/")

    def policy(self, name: str, finalizers: list[str], **labels: str) -> None:
        """A policy that has Pulsar's own balancing off."""
        pulsar = {"adminUrl": self.brokers.url, "ownBalancing": "SwitchOff"}
        manifest = policy(name, mode="Auto", actuator="Pulsar", pulsar=pulsar)
        manifest["metadata"]["labels"] = labels
        self._create("balancingpolicies", manifest, finalizers)

    def _create(self, plural: str, manifest: dict[str, Any], finalizers: list[str]) -> None:
        manifest["metadata"]["finalizers"] = finalizers
        self.rest.create(self.path(plural), manifest)

    def finalizers(self) -> list[list[str]]:
        objects = [("balancingpolicies", "main"), ("topicnamespaces", "public-default")]
        return [self.rest.get(self.path(*names))["metadata"]["finalizers"] for names in objects]

    def mode(self) -> str:
        return str(self.rest.get(self.path("balancingpolicies", "main"))["spec"]["mode"])

    def operate(self, lasts: int) -> None:
        """A Deployment of two, and the Lease of a leader that was killed: it holds for so many seconds more."""
        labels = {"app": "trimtab"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "operator", "image": "trimtab"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        meta = {"metadata": {"name": "trimtab"}}
        self.rest.create(self.deployments, {"apiVersion": "apps/v1", "kind": "Deployment", **meta, "spec": spec})
        held = {"holderIdentity": "trimtab-0", "leaseDurationSeconds": lasts}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **meta, "spec": held}
        self.rest.create(self.leases, lease)

    @property
    def leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def deployments(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments"

    def replicas(self) -> int:
        return int(self.rest.get(f"{self.deployments}/trimtab")["spec"]["replicas"])

    @property
    def found(self) -> str:
        return f"{self.maps}/trimtab-pulsar-found"

    def kept(self) -> bool:
        try:
            self.rest.get(self.found)
        except KubeApiError:
            return False
        return True


def test_everything_is_put_back_and_released_once(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults(), defaults()) as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)

        assert main([*env.words, "--dry-run"]) == 0
        said = capsys.readouterr().out
        assert f"would be done: Pulsar: {SPLITTING} = TRUE, as before" in said
        assert "would be done: policy main: mode Auto becomes DryRun" in said
        assert brokers.dynamic == {SHEDDING: "false", SPLITTING: "false"}
        assert (env.kept(), env.mode(), env.finalizers()[0][0]) == (True, "Auto", FINALIZER)

        assert main(env.words) == 0
        assert brokers.dynamic == {SPLITTING: "TRUE"}
        assert env.finalizers() == [["example.com/theirs"]] * 2
        assert (env.kept(), env.mode()) == (False, "DryRun")
        assert "BalancingPolicy main: finalizer removed" in capsys.readouterr().out

        brokers.dynamic[SHEDDING] = "false"  # a person's, from now on
        assert main(env.words) == 0
        nothing, look = capsys.readouterr().out.splitlines()
        assert look == "Pulsar: give --admin-url to check its switches"
        assert main([*env.words, "--admin-url", brokers.url]) == 0
        nothing, off = capsys.readouterr().out.splitlines()
        assert nothing == "Pulsar: nothing was switched off, or it was restored already"
        assert off.startswith(f"Pulsar: {SHEDDING} is false by dynamic configuration, set by an unknown client")
        assert off.endswith(f"remove it with pulsar-admin brokers delete-dynamic-config --config {SHEDDING}")
        assert brokers.dynamic == {SPLITTING: "TRUE", SHEDDING: "false"}


@contextmanager
def locked(env: Environment) -> Iterator[None]:
    """Meanwhile the spec of policies that Git manages can't be changed, as an administrator may have it."""
    root, name = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicy", f"git-{env.namespace}"
    rule = {"apiGroups": ["trimtab.dev"], "apiVersions": ["*"], "operations": ["UPDATE"]}
    only_here = {"matchLabels": {"kubernetes.io/metadata.name": env.namespace}}
    matched = {
        "namespaceSelector": only_here,
        "objectSelector": {"matchLabels": {"managed-by": "git"}},
        "resourceRules": [{**rule, "resources": ["balancingpolicies"]}],
    }
    refused = {"expression": "object.spec == oldObject.spec", "message": "change it in Git", "reason": "Forbidden"}
    meta = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    spec = {"matchConstraints": matched, "validations": [refused]}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    env.rest.create(f"{root[:-1]}ies", {**meta, "kind": "ValidatingAdmissionPolicy", "spec": spec})
    env.rest.create(f"{root}bindings", {**meta, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound})
    until("the lock holds", lambda: _refused(env))
    try:
        yield
    finally:
        env.rest.delete(f"{root}bindings/{name}")
        env.rest.delete(f"{root[:-1]}ies/{name}")


def _refused(env: Environment) -> bool:
    try:
        env.rest.patch(f"{env.path('balancingpolicies', 'kept')}?dryRun=All", {"spec": {"mode": "DryRun"}})
    except KubeApiError:
        return True
    return False


def through(plane: ControlPlane, env: Environment, folder: Path, told: Callable[[str, str], None], *more: str) -> int:
    """The exit code, where `told` is called with method and path of each request before the API server gets it."""

    async def scenario() -> int:
        async with FaultyApi(plane, folder) as proxy:
            proxy.told = told
            words = ["restore", "-n", env.namespace, "--kubeconfig", str(proxy.kubeconfig), *HERE, *more]
            return await asyncio.to_thread(main, words)

    return asyncio.run(scenario())


def test_a_policy_that_may_not_be_changed_holds_nothing_else_up(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
        env.policy("kept", [FINALIZER], **{"managed-by": "git"})
        with locked(env):
            assert main(env.words) == 1
        said = capsys.readouterr().out
        assert "policy kept: can't be set to DryRun, so an operator would switch it off again: " in said
        assert "change it in Git" in said
        assert brokers.dynamic == {SPLITTING: "TRUE"}
        assert (env.kept(), env.mode()) == (False, "DryRun")
        assert env.finalizers() == [["example.com/theirs"]] * 2


def test_a_policy_that_is_deleted_meanwhile_is_passed_over(
    trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
        env.policy("going", [])
        path = env.path("balancingpolicies", "going")

        def told(method: str, asked: str) -> None:
            if (method, asked) == ("PATCH", path):
                env.rest.delete(path)

        assert through(trimtab_crds, env, tmp_path, told) == 0
        assert brokers.dynamic == {SPLITTING: "TRUE"}
        assert env.finalizers() == [["example.com/theirs"]] * 2


@pytest.mark.parametrize(("times", "code"), [(3, 0), (100, 1)])
def test_an_object_that_somebody_else_writes_meanwhile_is_read_again(
    trimtab_crds: ControlPlane,
    kube_namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    times: int,
    code: int,
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
        env.rest.patch(env.path("balancingpolicies", "main"), {"spec": {"mode": "DryRun"}})
        path, written = env.path("balancingpolicies", "main"), list[str]()

        def told(method: str, asked: str) -> None:
            if (method, asked) == ("PATCH", path) and len(written) < times:
                written.append(asked)
                env.rest.patch(path, {"metadata": {"labels": {"written": str(len(written))}}})

        assert through(trimtab_crds, env, tmp_path, told) == code
        on_policy, on_namespace = env.finalizers()
    assert on_namespace == ["example.com/theirs"]
    assert (FINALIZER in on_policy) == bool(code)
    said = capsys.readouterr().out
    assert ("BalancingPolicy main: finalizer not removed: " in said) == bool(code)
    assert ("BalancingPolicy main: finalizer removed" in said) == (not code)
    assert len(written) < 10


@pytest.mark.parametrize("patterns", [[], ["--allow-url", "*.example.com"]])
def test_a_url_that_the_operator_refuses_gets_no_request(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str], patterns: list[str]
) -> None:
    with settings_brokers(defaults(), token="s3cret") as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
        assert main([word for word in env.words if word not in HERE] + patterns) == 1
        said = capsys.readouterr().out
        assert f"Pulsar: not restored: {brokers.url} is not among the URLs" in said
        assert f"--allow-url {brokers.ids[0]}" in said
        assert brokers.asked == []
        assert env.kept()

        assert main(env.words) == 0
        assert set(brokers.asked) == {"Bearer s3cret"}
        assert brokers.dynamic == {SPLITTING: "TRUE"}


def test_a_pattern_that_is_none_is_refused_before_anything_is_done(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
        assert main([*env.words, "--allow-url", "ftp://x"]) == 2
        assert "'ftp://x' must look like *.svc" in capsys.readouterr().err
        assert (env.mode(), env.kept()) == ("Auto", True)


@pytest.mark.parametrize("mode", ["DryRun", "Auto"])
def test_a_server_that_only_a_policy_names_gets_no_request(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    with settings_brokers(defaults(), token="s3cret") as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
        env.rest.delete(env.found)
        pulsar = {"adminUrl": brokers.url, "auth": {"token": {"secret": "pulsar", "key": "token"}}}
        env.rest.patch(env.path("balancingpolicies", "main"), {"spec": {"mode": mode, "pulsar": pulsar}})
        assert main(env.words) == 0
        assert "give --admin-url to check its switches" in capsys.readouterr().out
        assert brokers.asked == []


def test_another_url_and_token_may_be_named(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    (tmp_path / "token").write_text("s3cret")
    with settings_brokers(defaults(), token="s3cret") as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
        env.rest.delete(f"/api/v1/namespaces/{kube_namespace}/secrets/pulsar")

        assert main(env.words) == 1
        assert "Pulsar: not restored: " in capsys.readouterr().out
        assert env.kept()
        assert env.finalizers() == [["example.com/theirs"]] * 2

        token = ["--admin-url", brokers.url, "--token-file", str(tmp_path / "token")]
        assert main([*env.words, *token]) == 0
        assert not env.kept()
        assert brokers.dynamic == {SPLITTING: "TRUE"}


def test_a_configmap_that_names_another_setting_is_refused(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
        stored = json.loads(env.rest.get(env.found)["data"]["found.json"])
        stored["overrides"]["superUserRoles"] = "eve"
        env.rest.patch(env.found, {"data": {"found.json": json.dumps(stored)}})
        brokers.dynamic["superUserRoles"] = "false"  # as if it had been switched off
        before = dict(brokers.dynamic)

        assert main(env.words) == 1
        said = capsys.readouterr().out
        assert "Pulsar: not restored: ConfigMap trimtab-pulsar-found: it names superUserRoles, but Trimtab" in said
        assert "set the switches manually, and delete the ConfigMap" in said
        assert (brokers.dynamic, env.kept()) == (before, True)


def test_what_is_off_is_told_although_nothing_was_kept(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
        env.rest.delete(env.found)
        asking = [*env.words, "--admin-url", brokers.url]
        assert main([*asking, "--stop-deployment", "trimtab"]) == 0
        said = capsys.readouterr().out
        assert [said.count(f"delete-dynamic-config --config {switch}") for switch in (SHEDDING, SPLITTING)] == [1, 1]

        env.rest.patch(env.path("balancingpolicies", "main"), {"metadata": {"finalizers": []}})
        env.rest.delete(env.path("balancingpolicies", "main"))
        assert main(env.words) == 0
        said = capsys.readouterr().out
        assert "give --admin-url to check its switches" in said
        assert SHEDDING not in said

        assert main([*env.words, "--admin-url", brokers.url]) == 0
        assert f"delete-dynamic-config --config {SHEDDING}" in capsys.readouterr().out
        assert brokers.dynamic == {SHEDDING: "false", SPLITTING: "false"}


def test_a_pulsar_that_can_not_be_asked_holds_nothing_up_where_nothing_was_kept(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
    env.rest.delete(env.found)
    assert main([*env.words, "--admin-url", brokers.url]) == 0
    assert "Pulsar: can't read whether its own balancer is on: " in capsys.readouterr().out
    assert env.finalizers() == [["example.com/theirs"]] * 2


def test_a_pulsar_that_is_gone_holds_no_finalizer(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
    assert main(env.words) == 1
    assert "Pulsar: not restored: " in capsys.readouterr().out
    assert env.finalizers() == [["example.com/theirs"]] * 2
    assert env.kept()


def test_an_operator_is_ended_before_finalizers_are_released(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
        env.operate(lasts=1)
        assert main([*env.words, "--stop-deployment", "trimtab", "--dry-run"]) == 0
        assert env.replicas() == 2
        assert main([*env.words, "--stop-deployment", "trimtab"]) == 0
        assert env.replicas() == 0
        said = capsys.readouterr().out
        assert "would be done: Deployment trimtab: scaled to zero" in said
        assert said.index("no operator leads now") < said.rindex("finalizer removed")
        assert env.finalizers() == [["example.com/theirs"]] * 2

        assert main([*env.words, "--stop-deployment", "other"]) == 0
        assert "Deployment other: not found" in capsys.readouterr().out


def test_an_operator_that_goes_on_under_another_name_is_not_waited_for_for_ever(
    trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
        env.operate(lasts=1)
        lease, looks = f"{env.leases}/trimtab", list[str]()

        def renewed(method: str, asked: str) -> None:
            if (method, asked) == ("GET", lease) and len(looks) < 40:  # looks, twice a second
                looks.append(asked)
                env.rest.patch(lease, {"metadata": {"labels": {"renewal": str(len(looks))}}})

        assert through(trimtab_crds, env, tmp_path, renewed, "--stop-deployment", "other") == 1
        said = capsys.readouterr().out
    assert "trimtab-0 still holds Lease trimtab: has the Deployment another name, or was it scaled up again?" in said
    assert "no operator leads" not in said
    assert 5 <= len(looks) < 40
    assert (brokers.dynamic, env.finalizers()[0][0]) == ({SPLITTING: "TRUE"}, FINALIZER)


def test_an_operator_goes_on_where_pulsar_can_not_be_asked(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = Environment(trimtab_crds, kube_namespace, brokers)
    env.operate(lasts=1)
    assert main([*env.words, "--stop-deployment", "trimtab"]) == 1
    assert "Deployment trimtab: not stopped, as Pulsar's own balancer is not restored" in capsys.readouterr().out
    assert (env.replicas(), env.finalizers()[0][0]) == (2, FINALIZER)


def test_without_a_cluster_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "-n", "x", "--kubeconfig", "/nowhere"]) == 2
    assert "/nowhere" in capsys.readouterr().err
