"""What a policy can get out of Secrets: those of its own namespace that were released for that, as values."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from plan_clusters import LEVEL_OF_THREE
from policy_environment import PolicyEnvironment, RunPolicy
from trimtab_testbed.servers.certificates import Authority
from trimtab_testbed.servers.kube_rest import KubeApiError

pytestmark = pytest.mark.apiserver

CANARY = "canary-4b1c77"
URL = "http://prometheus.monitoring.svc:9090"


def source(**auth: Any) -> dict[str, Any]:
    return {"prometheus": {"url": URL, "auth": auth}}


def token(secret: str = "prometheus") -> dict[str, Any]:  # the name of a Secret
    return {"bearerToken": {"secretKeyRef": {"name": secret, "key": "token"}}}


def put(env: PolicyEnvironment, labels: Mapping[str, str], namespace: str = "", **entries: str) -> None:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in entries.items()}
    meta = {"name": "prometheus", "labels": dict(labels)}
    path = f"/api/v1/namespaces/{namespace or env.namespace}/secrets"
    env.rest.create(path, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})


def everything(env: PolicyEnvironment) -> str:
    """All that was written to the API server, except Secrets."""
    kinds = ("balancingpolicies", "brokers", "bundles", "topicnamespaces")
    ours = [env.rest.get(env.path(kind)) for kind in kinds]
    core = [env.rest.get(f"/api/v1/namespaces/{env.namespace}/{kind}") for kind in ("configmaps", "events")]
    return str([*ours, *core])


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"trimtab.dev/credentials": "false"},
        {"trimtab.dev/credentials": "True"},
        {"trimtab.dev/credentials": ""},
        {"trimtab.dev/credential": "true"},
    ],
    ids=str,
)
def test_a_secret_that_no_one_released_is_neither_kept_nor_reported_nor_used(
    labels: dict[str, str], run_policy: RunPolicy
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        put(env, labels, token=CANARY)
        await env.reconcile()
        assert env.condition("Valid") == ("False", "InvalidPolicy")
        assert "is not released for this: label it trimtab.dev/credentials=true" in env.message("Valid")
        assert CANARY not in everything(env)
        assert env.loop.sources._known is None
        assert not env.cluster.sources.settings  # type: ignore[attr-defined]

    run_policy(LEVEL_OF_THREE, scenario, source=source(**token()))


def test_a_release_that_is_taken_back_counts_from_the_next_cycle(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        put(env, {"trimtab.dev/credentials": "true"}, token=CANARY)
        await env.reconcile()
        assert env.condition("Valid") == ("True", "Valid")
        path = f"/api/v1/namespaces/{env.namespace}/secrets/prometheus"
        env.rest.patch(path, {"metadata": {"labels": {"trimtab.dev/credentials": None}}})
        await env.cycle()
        assert env.condition("Valid") == ("False", "InvalidPolicy")
        assert (env.loop.sources._source, env.loop.sources._known) == (None, None)

    run_policy(LEVEL_OF_THREE, scenario, source=source(**token()))


@pytest.mark.parametrize("name", ["other/prometheus", "../other/secrets/prometheus", "prometheus?x=", "Prometheus", ""])
def test_the_api_server_refuses_names_that_could_lead_to_another_namespace(name: str, run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        with pytest.raises(KubeApiError, match=r"auth\.bearerToken\.secret"):
            env.create_policy("other", source=source(**token(name)))

    run_policy(LEVEL_OF_THREE, scenario)


def test_a_secret_of_another_namespace_is_not_found(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.rest.create_namespace(other := f"{env.namespace}-other")
        put(env, {"trimtab.dev/credentials": "true"}, other, token=CANARY)
        await env.reconcile()
        assert f"Secret prometheus does not exist in namespace {env.namespace}" in env.message("Valid")

    run_policy(LEVEL_OF_THREE, scenario, source=source(**token()))


@pytest.mark.parametrize("part", ["ca", "certificate", "key"])
def test_a_secret_that_names_a_file_of_the_operator_means_nothing(part: str, run_policy: RunPolicy) -> None:
    """Else a policy could have the operator prove itself by its own key to a server of the policy's choice."""

    async def scenario(env: PolicyEnvironment) -> None:
        pem = "-----BEGIN X-----"
        values = dict.fromkeys(("ca", "certificate", "key"), pem) | {part: env.kubeconfig}
        put(env, {"trimtab.dev/credentials": "true"}, **values)
        await env.reconcile()
        assert f"auth.tls.{part}: Secret prometheus, key {part}: its value is no PEM text" in env.message("Valid")
        assert env.kubeconfig not in everything(env)

    tls = {name: {"secretKeyRef": {"name": "prometheus", "key": name}} for name in ("ca", "certificate", "key")}
    run_policy(LEVEL_OF_THREE, scenario, source=source(tls=tls))


AUTHORITY = {"ca": {"configMapKeyRef": {"name": "authorities", "key": "ca.crt"}}}


def put_map(env: PolicyEnvironment, **entries: str) -> None:
    data = {key.replace("_", "."): value for key, value in entries.items()}
    path = f"/api/v1/namespaces/{env.namespace}/configmaps"
    env.rest.create(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "authorities"}, "data": data})


def test_authorities_in_a_config_map_are_trusted_without_a_label(run_policy: RunPolicy, tmp_path: Path) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        trusted = Authority(tmp_path / "authority").certificate.read_text()
        put_map(env, ca_crt=trusted)
        await env.reconcile()
        assert env.condition("Valid") == ("True", "Valid")
        (settings,) = env.cluster.sources.settings.values()  # type: ignore[attr-defined]
        assert settings.credentials.ca == trusted.strip()

    run_policy(LEVEL_OF_THREE, scenario, source=source(tls=AUTHORITY))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (None, " does not exist in namespace"),
        ({"bundle_pem": "-----BEGIN X-----"}, " has no key ca.crt; there are bundle.pem"),
        ({"ca_crt": "/etc/ssl/certs/ca.pem"}, ", key ca.crt: its value is no PEM text"),
        ({"ca_crt": " "}, ", key ca.crt: its value is empty"),
    ],
    ids=["missing", "other key", "file name", "empty"],
)
def test_authorities_that_are_not_there_are_named(
    entries: dict[str, str] | None, said: str, run_policy: RunPolicy
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        if entries is not None:
            put_map(env, **entries)
        await env.reconcile()
        assert env.condition("Valid") == ("False", "InvalidPolicy")
        assert f"auth.tls.ca: ConfigMap authorities{said}" in env.message("Valid")

    run_policy(LEVEL_OF_THREE, scenario, source=source(tls=AUTHORITY))
