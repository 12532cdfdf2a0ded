"""A policy that names a server the administrator did not list: told in a condition, and never asked."""

from __future__ import annotations

from typing import Any

import pytest

from plan_clusters import LEVEL_OF_THREE
from policy_environment import PolicyEnvironment, RunPolicy, refit
from trimtab_operator.cli import main
from trimtab_operator.resources.urls import AllowedUrls
from trimtab_testbed.servers.kube_rest import KubeApiError

pytestmark = pytest.mark.apiserver

STRANGER = "http://metrics.example.com:9090"
TOKEN = {"bearerToken": {"secretKeyRef": {"name": "prometheus", "key": "token"}}}


def source(url: str, **auth: Any) -> dict[str, Any]:
    return {"prometheus": {"url": url, **({"auth": auth} if auth else {})}}


def opened(env: PolicyEnvironment) -> dict[str, str]:
    """URL of each source that was opened, by policy."""
    return {name: found.url for name, found in env.cluster.sources.settings.items()}  # type: ignore[attr-defined]


def test_a_stranger_is_not_asked_and_the_condition_names_url_list_and_flag(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert env.condition("Valid") == ("False", "InvalidPolicy")
        assert env.condition("Ready") == ("False", "InvalidPolicy")
        assert env.message("Valid").startswith(f"spec.source.prometheus.url: {STRANGER} is not among the URLs")
        assert "*.svc, *.svc.cluster.local" in env.message("Valid")
        assert "--allow-url metrics.example.com:9090" in env.message("Valid")
        assert not opened(env)

    run_policy(LEVEL_OF_THREE, scenario, source=source(STRANGER))


def test_a_stranger_is_refused_before_any_secret_is_searched_for(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert STRANGER in env.message("Valid")
        assert "Secret prometheus does not exist" not in env.message("Valid")

    run_policy(LEVEL_OF_THREE, scenario, source=source(STRANGER, **TOKEN))


def test_a_policy_that_turns_to_a_stranger_lets_go_of_its_source_and_recovers_by_an_edit(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert env.condition("Valid") == ("True", "Valid")
        env.edit(source=source(STRANGER))
        await env.reconcile()
        assert env.condition("Valid") == ("False", "InvalidPolicy")
        assert env.loop.sources._source is None
        env.edit(source=source("http://prometheus.monitoring.svc"))
        await env.reconcile()
        assert env.condition("Valid") == ("True", "Valid")
        assert opened(env) == {f"{env.namespace}/main": "http://prometheus.monitoring.svc"}

    run_policy(LEVEL_OF_THREE, scenario, source=source("http://prometheus"))


def test_what_the_administrator_listed_is_asked(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        refit(env.cluster, urls=AllowedUrls.of(["metrics.example.com:9090"]))
        await env.reconcile()
        assert opened(env) == {f"{env.namespace}/main": STRANGER}

    run_policy(LEVEL_OF_THREE, scenario, source=source(STRANGER))


def test_a_person_who_looks_connects_anywhere_but_sends_no_secret_there(run_policy: RunPolicy) -> None:
    """As `trimtab plan` does: the connection is the person's own, the Secret is not."""

    async def scenario(env: PolicyEnvironment) -> None:
        refit(env.cluster, urls=AllowedUrls.of((), strangers=True))
        await env.reconcile()
        assert opened(env) == {f"{env.namespace}/main": STRANGER}
        env.edit(source=source(STRANGER, **TOKEN))
        await env.reconcile()
        assert "not among the URLs that may be sent a Secret" in env.message("Valid")
        assert env.loop.sources._source is None

    run_policy(LEVEL_OF_THREE, scenario, source=source(STRANGER))


@pytest.mark.parametrize(
    "url", ["http://a@b.svc", "http://a.svc?x=", "http://a.svc#x", "http://a.svc\\x", "ftp://a.svc"]
)
def test_the_api_server_refuses_what_is_no_base_url(url: str, run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        with pytest.raises(KubeApiError, match=r"spec\.source\.prometheus\.url"):
            env.create_policy("other", source=source(url))

    run_policy(LEVEL_OF_THREE, scenario)


@pytest.mark.parametrize("name", ["Host", "transfer-encoding", "Content-Length"])
def test_the_api_server_refuses_headers_that_lead_a_request_elsewhere(name: str, run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        header = {"name": name, "value": "admin.example.com"}
        with pytest.raises(KubeApiError, match="the framing of a request"):
            env.create_policy("other", source=source("http://prometheus", headers=[header]))

    run_policy(LEVEL_OF_THREE, scenario)


@pytest.mark.parametrize("verb", [["run"], ["plan", "main"], ["observe", "--policy", "main"]], ids=str)
def test_a_pattern_that_is_none_is_a_usage_error(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb, "-n", "messaging", "--allow-url", "http://a/b"]) == 2
    assert "trimtab: --allow-url 'http://a/b' must look like *.svc" in capsys.readouterr().err
