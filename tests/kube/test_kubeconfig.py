"""Which cluster and which user a kubeconfig selects, as in kubectl, and how Trimtab reports a broken one."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from trimtab_operator.kube.client import Api
from trimtab_operator.kube.connection import default_namespace
from trimtab_operator.kube.errors import ConnectionSettingsError
from trimtab_operator.kube.kubeconfig import Impersonation


@pytest.fixture(autouse=True)
def _outside_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def config(name: str, user: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    """A kubeconfig with one context. Its cluster, user and namespace have the same name."""
    return {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": name}}],
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}.example", **cluster}}],
        "users": [{"name": name, "user": {"token": name, **(user or {})}}],
    }


def written(folder: Path, *texts: str | dict[str, Any]) -> str:
    """The path of files with these texts, as in KUBECONFIG."""
    files = [folder / f"{number}.yaml" for number, _ in enumerate(texts)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text if isinstance(text, str) else json.dumps(text))
    return ":".join(map(str, files))


def reached(kubeconfig: str | None = None, context: str | None = None) -> tuple[str, str]:
    """The server, and the token after the credentials were read again."""

    async def scenario() -> tuple[str, str]:
        async with Api.connect(kubeconfig, context) as api:
            return api.host, (await api.credentials())["token"]

    return asyncio.run(scenario())


PROD, TEST = config("prod"), config("test")


@pytest.mark.parametrize(
    "texts",
    [(PROD, TEST), (PROD, {**TEST, "current-context": ""}), (PROD, ""), ("", PROD, "# nothing\n")],
    ids=["two", "none in the last", "empty last", "empty first"],
)
def test_the_connection_goes_to_the_cluster_of_the_namespace(
    texts: tuple[str | dict[str, Any], ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", written(tmp_path, *texts))
    assert default_namespace(None, None) == "prod"
    assert reached() == ("http://prod.example", "prod")


def test_a_context_of_any_file_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", written(tmp_path, PROD, TEST))
    assert reached(context="test") == ("http://test.example", "test")


@pytest.mark.parametrize("text", ["", config("x", server=5)], ids=["empty", "number as server"])
def test_a_broken_kubeconfig_is_named(text: str | dict[str, Any], tmp_path: Path) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConnectionSettingsError, match=file):
        reached(file)


NO_PEM = base64.b64encode(b"no PEM").decode()


@pytest.mark.parametrize(
    "broken",
    [
        config("x", **{"certificate-authority-data": NO_PEM}),
        config("x", {"client-certificate-data": NO_PEM, "client-key-data": NO_PEM}),
    ],
    ids=["authority", "client"],
)
def test_a_broken_certificate_is_told_with_its_kubeconfig(broken: dict[str, Any], tmp_path: Path) -> None:
    broken["clusters"][0]["cluster"]["server"] = "https://x.example"
    file = written(tmp_path, broken)
    with pytest.raises(ConnectionSettingsError, match=f"{file} can't be used .*: a certificate or key can't be read"):
        reached(file)


def impersonated(kubeconfig: str, acting_as: Impersonation | None = None) -> list[tuple[str, str]]:
    async def scenario() -> list[tuple[str, str]]:
        async with Api.connect(kubeconfig, acting_as=acting_as) as api:
            return [*api.impersonation]

    return asyncio.run(scenario())


def test_the_user_that_the_kubeconfig_acts_as_is_sent(tmp_path: Path) -> None:
    file = written(tmp_path, config("x", {"as": "viewer", "as-groups": ["a", "b"]}))
    groups = [("Impersonate-Group", "a"), ("Impersonate-Group", "b")]
    assert impersonated(file) == [("Impersonate-User", "viewer"), *groups]
    assert impersonated(file, Impersonation("other")) == [("Impersonate-User", "other")]
    assert impersonated(written(tmp_path, config("x"))) == []


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ({"as": "x", "as-uid": "7"}, "as-uid"),
        ({"as": "x", "as-user-extra": {"scopes": ["view"]}}, "as-user-extra"),
        ({"as-groups": ["a"]}, "as-groups, but not as"),
        ({"as": 5}, "as must be a text"),
        ({"as": "x", "as-groups": "a"}, "as-groups a list of texts"),
    ],
)
def test_an_identity_that_can_not_be_taken_is_refused(user: dict[str, Any], named: str, tmp_path: Path) -> None:
    file = written(tmp_path, config("x", user))
    with pytest.raises(ConnectionSettingsError, match=named):
        impersonated(file)
    assert impersonated(file, Impersonation("other")) == [("Impersonate-User", "other")]
