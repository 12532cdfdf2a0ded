"""`trimtab restore`: the way out, with an operator or without one, against the real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pulsar_settings import defaults, settings_brokers
from restored_namespace import FINALIZER, AbandonedNamespace, restore_through
from small_cluster import until
from trimtab_operator.cli import main
from trimtab_operator.cli.commands import restore
from trimtab_operator.pulsar.client.dynamic_config import SHEDDING, SPLITTING
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError

pytestmark = pytest.mark.apiserver


def test_everything_is_put_back_and_released_once(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults(), defaults()) as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)

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
def locked(env: AbandonedNamespace) -> Iterator[None]:
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


def _refused(env: AbandonedNamespace) -> bool:
    try:
        env.rest.patch(f"{env.path('balancingpolicies', 'kept')}?dryRun=All", {"spec": {"mode": "DryRun"}})
    except KubeApiError:
        return True
    return False


def test_a_policy_that_may_not_be_changed_holds_nothing_else_up(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
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
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
        env.policy("going", [])
        path = env.path("balancingpolicies", "going")

        def told(method: str, asked: str) -> None:
            if (method, asked) == ("PATCH", path):
                env.rest.delete(path)

        assert restore_through(trimtab_crds, env, tmp_path, told) == 0
        assert brokers.dynamic == {SPLITTING: "TRUE"}
        assert env.finalizers() == [["example.com/theirs"]] * 2


@pytest.mark.parametrize(("times", "code"), [(3, 0), (100, 1)])
def test_an_object_that_another_client_writes_meanwhile_is_read_again(
    trimtab_crds: ControlPlane,
    kube_namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    times: int,
    code: int,
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
        env.rest.patch(env.path("balancingpolicies", "main"), {"spec": {"mode": "DryRun"}})
        path, written = env.path("balancingpolicies", "main"), list[str]()

        def told(method: str, asked: str) -> None:
            if (method, asked) == ("PATCH", path) and len(written) < times:
                written.append(asked)
                env.rest.patch(path, {"metadata": {"labels": {"written": str(len(written))}}})

        assert restore_through(trimtab_crds, env, tmp_path, told) == code
        on_policy, on_namespace = env.finalizers()
    assert on_namespace == ["example.com/theirs"]
    assert (FINALIZER in on_policy) == bool(code)
    said = capsys.readouterr().out
    assert ("BalancingPolicy main: finalizer not removed: " in said) == bool(code)
    assert ("BalancingPolicy main: finalizer removed" in said) == (not code)
    assert len(written) < 10


def test_an_operator_is_ended_before_finalizers_are_released(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
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


def test_a_running_operator_restores_by_itself_before_this_command_does(
    trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the command restored first, an operator that has not seen DryRun yet would switch it off again."""
    with settings_brokers(defaults()) as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
        env.operate(lasts=600, renewed=time.time())
        looks = 0

        def told(method: str, asked: str) -> None:
            nonlocal looks
            looks += (method, asked) == ("GET", env.found)
            if looks == 3 and env.kept():
                assert env.mode() == "DryRun"
                assert brokers.dynamic == {SHEDDING: "false", SPLITTING: "false"}, "the operator's to restore"
                brokers.dynamic = {SPLITTING: "TRUE"}
                env.rest.delete(env.found)

        assert restore_through(trimtab_crds, env, tmp_path, told) == 0
        assert brokers.dynamic == {SPLITTING: "TRUE"}
        said = capsys.readouterr().out
        assert "Pulsar: restored by the operator, whose policies are in mode DryRun now" in said
        assert "nothing was switched off" not in said


def test_an_operator_that_will_undo_the_restore_is_told(
    trimtab_crds: ControlPlane,
    kube_namespace: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore, "_ITSELF_WITHIN", 0.5)
    with settings_brokers(defaults()) as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
        env.operate(lasts=600, renewed=time.time())
        assert main(env.words) == 0
        told = capsys.readouterr().out.splitlines()
        assert "BalancingPolicy main: finalizer removed" in told
        assert told[-1] == (
            f"the operator trimtab-0 still runs in namespace {kube_namespace} and may switch off again: "
            "stop it first with --stop-deployment NAME, or uninstall it"
        )

        assert main(env.words) == 0
        assert "still runs" not in capsys.readouterr().out, "no finalizer was removed"


def test_an_operator_that_goes_on_under_another_name_is_not_waited_for_for_ever(
    trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
        env.operate(lasts=1)
        lease, looks = f"{env.leases}/trimtab", list[str]()

        def renewed(method: str, asked: str) -> None:
            if (method, asked) == ("GET", lease) and len(looks) < 40:  # looks, twice a second
                looks.append(asked)
                env.rest.patch(lease, {"metadata": {"labels": {"renewal": str(len(looks))}}})

        assert restore_through(trimtab_crds, env, tmp_path, renewed, "--stop-deployment", "other") == 1
        said = capsys.readouterr().out
    assert (
        "trimtab-0 still holds Lease trimtab: does the Deployment have another name, or was it scaled up again?" in said
    )
    assert "no operator leads" not in said
    assert 5 <= len(looks) < 40
    assert (brokers.dynamic, env.finalizers()[0][0]) == ({SPLITTING: "TRUE"}, FINALIZER)


def test_an_operator_goes_on_where_pulsar_can_not_be_asked(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
    env.operate(lasts=1)
    assert main([*env.words, "--stop-deployment", "trimtab"]) == 1
    assert "Deployment trimtab: not stopped, as Pulsar's own balancer is not restored" in capsys.readouterr().out
    assert (env.replicas(), env.finalizers()[0][0]) == (2, FINALIZER)


def test_without_a_cluster_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "-n", "x", "--kubeconfig", "/nowhere"]) == 2
    assert "/nowhere" in capsys.readouterr().err
