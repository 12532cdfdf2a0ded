"""`trimtab restore` and Pulsar: which server it asks, with which token, and what it does where none answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsar_settings import defaults, settings_brokers
from restored_namespace import HERE, AbandonedNamespace
from trimtab_operator.cli import main
from trimtab_operator.pulsar.client.dynamic_config import SHEDDING, SPLITTING
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("patterns", [[], ["--allow-url", "*.example.com"]])
def test_a_url_that_the_operator_refuses_gets_no_request(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str], patterns: list[str]
) -> None:
    with settings_brokers(defaults(), token="s3cret") as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
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
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
        assert main([*env.words, "--allow-url", "ftp://x"]) == 2
        assert "'ftp://x' must look like *.svc" in capsys.readouterr().err
        assert (env.mode(), env.kept()) == ("Auto", True)


@pytest.mark.parametrize("mode", ["DryRun", "Auto"])
def test_a_server_that_only_a_policy_names_gets_no_request(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    with settings_brokers(defaults(), token="s3cret") as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
        env.rest.delete(env.found)
        pulsar = {"adminUrl": brokers.url, "auth": {"token": {"secretKeyRef": {"name": "pulsar", "key": "token"}}}}
        env.rest.patch(env.path("balancingpolicies", "main"), {"spec": {"mode": mode, "pulsar": pulsar}})
        assert main(env.words) == 0
        assert "give --admin-url to check its switches" in capsys.readouterr().out
        assert brokers.asked == []


def test_another_url_and_token_may_be_named(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    (tmp_path / "token").write_text("s3cret")
    with settings_brokers(defaults(), token="s3cret") as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
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
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
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
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
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
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
    env.rest.delete(env.found)
    assert main([*env.words, "--admin-url", brokers.url]) == 0
    assert "Pulsar: can't read whether its own balancer is on: " in capsys.readouterr().out
    assert env.finalizers() == [["example.com/theirs"]] * 2


def test_a_pulsar_that_is_gone_holds_no_finalizer(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
    assert main(env.words) == 1
    assert "Pulsar: not restored: " in capsys.readouterr().out
    assert env.finalizers() == [["example.com/theirs"]] * 2
    assert env.kept()
