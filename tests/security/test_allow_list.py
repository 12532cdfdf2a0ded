"""A policy that names a server the administrator did not list: told in a condition, and never asked."""

from __future__ import annotations

from typing import Any

import pytest

from policy_scene import Play, PolicyScene, refit
from trimtab_operator.cli import main
from trimtab_operator.resources.urls import AllowedUrls
from trimtab_strategies.testing import cluster
from trimtab_testbed.servers.kube_rest import KubeApiError

pytestmark = pytest.mark.apiserver

LEVEL = cluster(bundles=2, a=0.5, b=0.5, c=0.5)
STRANGER = "http://metrics.example.com:9090"
TOKEN = {"bearerToken": {"secret": "prometheus", "key": "token"}}


def source(url: str, **auth: Any) -> dict[str, Any]:
    return {"prometheus": {"url": url, **({"auth": auth} if auth else {})}}


def opened(scene: PolicyScene) -> dict[str, str]:
    """URL of each source that was opened, by policy."""
    return {name: found.url for name, found in scene.context.sources.settings.items()}  # type: ignore[attr-defined]


def told(scene: PolicyScene) -> str:
    (message,) = (c["message"] for c in scene.status()["conditions"] if c["type"] == "Valid")
    return str(message)


def test_a_stranger_is_not_asked_and_the_condition_names_url_list_and_flag(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        assert scene.condition("Valid") == ("False", "InvalidPolicy")
        assert scene.condition("Ready") == ("False", "InvalidPolicy")
        assert told(scene).startswith(f"spec.source.prometheus.url: {STRANGER} is not among the URLs")
        assert "*.svc, *.svc.cluster.local" in told(scene)
        assert "--allow-url metrics.example.com:9090" in told(scene)
        assert not opened(scene)

    play(LEVEL, story, source=source(STRANGER))


def test_a_stranger_is_refused_before_any_secret_is_searched_for(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        assert STRANGER in told(scene)
        assert "Secret prometheus does not exist" not in told(scene)

    play(LEVEL, story, source=source(STRANGER, **TOKEN))


def test_a_policy_that_turns_to_a_stranger_lets_go_of_its_source_and_recovers_by_an_edit(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        assert scene.condition("Valid") == ("True", "Valid")
        scene.edit(source=source(STRANGER))
        await scene.reconcile()
        assert scene.condition("Valid") == ("False", "InvalidPolicy")
        assert scene.loop.sources._source is None
        scene.edit(source=source("http://prometheus.monitoring.svc"))
        await scene.reconcile()
        assert scene.condition("Valid") == ("True", "Valid")
        assert opened(scene) == {f"{scene.namespace}/main": "http://prometheus.monitoring.svc"}

    play(LEVEL, story, source=source("http://prometheus"))


def test_what_the_administrator_listed_is_asked(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        refit(scene.context, urls=AllowedUrls.of(["metrics.example.com:9090"]))
        await scene.reconcile()
        assert opened(scene) == {f"{scene.namespace}/main": STRANGER}

    play(LEVEL, story, source=source(STRANGER))


def test_a_person_who_looks_connects_anywhere_but_sends_no_secret_there(play: Play) -> None:
    """As `trimtab plan` does: the connection is the person's own, the Secret is not."""

    async def story(scene: PolicyScene) -> None:
        refit(scene.context, urls=AllowedUrls.of((), strangers=True))
        await scene.reconcile()
        assert opened(scene) == {f"{scene.namespace}/main": STRANGER}
        scene.edit(source=source(STRANGER, **TOKEN))
        await scene.reconcile()
        assert "not among the URLs that may be sent a Secret" in told(scene)
        assert scene.loop.sources._source is None

    play(LEVEL, story, source=source(STRANGER))


@pytest.mark.parametrize(
    "url", ["http://a@b.svc", "http://a.svc?x=", "http://a.svc#x", "http://a.svc\\x", "ftp://a.svc"]
)
def test_the_api_server_refuses_what_is_no_base_url(url: str, play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        with pytest.raises(KubeApiError, match=r"spec\.source\.prometheus\.url"):
            scene.create_policy("other", source=source(url))

    play(LEVEL, story)


@pytest.mark.parametrize("name", ["Host", "transfer-encoding", "Content-Length"])
def test_the_api_server_refuses_headers_that_lead_a_request_elsewhere(name: str, play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        header = {"name": name, "value": "admin.example.com"}
        with pytest.raises(KubeApiError, match="the framing of a request"):
            scene.create_policy("other", source=source("http://prometheus", headers=[header]))

    play(LEVEL, story)


@pytest.mark.parametrize("verb", [["run"], ["plan", "main"], ["observe", "--policy", "main"]], ids=str)
def test_a_pattern_that_is_none_is_a_usage_error(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb, "-n", "messaging", "--allow-url", "http://a/b"]) == 2
    assert "trimtab: --allow-url 'http://a/b' must look like *.svc" in capsys.readouterr().err
