"""`trimtab observe --url`: who asks, and how; secrets come from files and are shown nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from guarded_server import Asked, GuardedServer
from static_sources import StaticSource, StaticSources
from strategy_testing.clusters import cluster
from trimtab_operator.cli import main
from trimtab_pipeline.api import Observation, SourceUnavailableError, Topology
from trimtab_testbed.servers.certificates import Authority

Captured = pytest.CaptureFixture[str]
TOKEN, PASSWORD = "tok-5f3a9c", "pass-wörd-77"
BUNDLE = "t/n/0x00000000_0xffffffff"
ASKED = "observe/metrics"


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> StaticSources:
    """What is measured once the Prometheus has been asked what there is."""
    made = StaticSources(StaticSource(cluster(a=0.5)))
    monkeypatch.setattr("trimtab_operator.cli.commands.measured_policy.load_sources", lambda _folder, _master: made)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str], str]:
    """Writes a file, returns its path."""

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def knowing(**headers: str) -> Callable[[Asked], tuple[int, str]]:
    """Answers with pod a and its bundle who sends these headers."""
    series = {"metric": {"pod": "a", "bundle": BUNDLE}, "value": [1.0, "5"]}
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": [series]}})

    def answer(asked: Asked) -> tuple[int, str]:
        sent = {name.replace("-", "_"): value for name, value in asked.headers.items()}
        return (200, body) if headers.items() <= sent.items() else (401, f"who are you, {asked.headers}?")

    return answer


def test_a_token_from_a_file_is_sent_and_reaches_the_tasks_by_its_file(
    sources: StaticSources, file: Callable[[str, str], str], capsys: Captured
) -> None:
    with GuardedServer(knowing(Authorization=f"Bearer {TOKEN}")) as server:
        token = file("token", f"{TOKEN}\n")
        assert main(["observe", "--url", server.url, "-n", "ns", "--bearer-token-file", token]) == 0
    assert sources.settings[ASKED].credentials.bearer_token_file == token
    assert TOKEN not in "".join(capsys.readouterr())


def test_a_connect_server_gets_the_token_as_it_has_not_got_the_file(
    sources: StaticSources, file: Callable[[str, str], str]
) -> None:
    words = ["--bearer-token-file", file("token", f"{TOKEN}\n"), "--spark", "sc://elsewhere"]
    with GuardedServer(knowing(Authorization=f"Bearer {TOKEN}")) as server:
        assert main(["observe", "--url", server.url, "-n", "ns", *words]) == 0
    assert sources.settings[ASKED].credentials.bearer_token == TOKEN


def test_a_user_a_password_and_a_tenant_are_sent(sources: StaticSources, file: Callable[[str, str], str]) -> None:
    sent = {"Authorization": "Basic bWU6cGFzcy13w7ZyZC03Nw==", "X_Scope_OrgID": "team-a"}
    words = ["--username", "me", "--password-file", file("password", f"{PASSWORD}\n"), "--tenant", "team-a"]
    with GuardedServer(knowing(**sent)) as server:
        assert main(["observe", "--url", server.url, "-n", "ns", *words]) == 0
    assert sources.settings[ASKED].credentials.password == PASSWORD


def test_a_wrong_token_is_told_without_it(
    sources: StaticSources, file: Callable[[str, str], str], capsys: Captured
) -> None:
    with GuardedServer(knowing(Authorization="Bearer another")) as server:
        words = ["--bearer-token-file", file("token", TOKEN), "--tenant", "team-secret"]
        assert main(["observe", "--url", server.url, "-n", "ns", *words]) == 2
    told = capsys.readouterr().err
    assert "401" in told
    assert "correct the source's credentials" in told
    assert TOKEN not in told
    assert not sources.settings


def test_an_authority_of_ones_own_and_a_certificate_are_taken_from_files(
    sources: StaticSources, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    tls, client = authority.server("one"), authority.client("me")
    words = [
        "--ca-file",
        str(authority.certificate),
        "--certificate-file",
        str(client[0]),
        "--key-file",
        str(client[1]),
    ]
    with GuardedServer(knowing(), tls=tls, clients=authority.certificate) as server:
        assert main(["observe", "--url", server.url, "-n", "ns", *words]) == 0
        assert main(["observe", "--url", server.url, "-n", "ns"]) == 2
    assert sources.settings[ASKED].credentials.ca == authority.certificate.read_text()


def test_matchers_and_parameters_are_in_every_query(sources: StaticSources) -> None:
    words = ["--matcher", "cluster=east", "--matcher", "site=a=b", "--parameter", "namespace=team-a"]
    with GuardedServer(knowing()) as server:
        assert main(["observe", "--url", server.url, "-n", "ns", *words]) == 0
        assert {asked.in_url["namespace"] for asked in server.asked} == {"team-a"}
        assert all('{namespace="ns",cluster="east",site="a=b"' in asked.parameters["query"] for asked in server.asked)
    told = sources.settings[ASKED]
    assert told.matchers == (("cluster", "east"), ("site", "a=b"))
    assert told.parameters == (("namespace", "team-a"),)


def test_what_a_cluster_calls_otherwise_can_be_said(sources: StaticSources) -> None:
    words = ["--namespace-label", "kubernetes_namespace", "--container", "pulsar", "--window", "5m", "--method", "GET"]
    with GuardedServer(knowing()) as server:
        assert main(["observe", "--url", server.url, "-n", "ns", *words]) == 0
        assert {asked.method for asked in server.asked} == {"GET"}
        assert all('{kubernetes_namespace="ns"}' in asked.parameters["query"] for asked in server.asked)
    told = sources.settings[ASKED]
    assert (told.namespace_label, told.container, told.window) == ("kubernetes_namespace", "pulsar", 300.0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--username", "me"], "--username goes with --password-file"),
        (["--password-file", "FILE"], "--username goes with --password-file"),
        (["--username", "me", "--password-file", "nowhere"], "--password-file nowhere can't be read: No such file"),
        (["--username", "me", "--password-file", "EMPTY"], "is empty"),
        (["--username", "m:e", "--password-file", "FILE"], "credentials of --url: the user name holds a colon"),
        (["--bearer-token-file", "nowhere"], "nowhere can't be read: No such file"),
        (["--bearer-token-file", "FILE", "--username", "me", "--password-file", "FILE"], "give one"),
        (["--key-file", "FILE"], "holds no PEM text"),
        (["--ca-file", "FILE"], "holds no PEM text"),
        (["--tenant", "a\nb"], "X-Scope-OrgID holds a line break"),
        (["--namespace-label", 'x="y",z'], "is not a label name"),
        (["--matcher", "a=x", "--matcher", "a=y"], "--matcher a is given more than once"),
        (["--parameter", f"a={TOKEN}", "--parameter", "a=x"], "--parameter a is given more than once"),
    ],
)
def test_what_cant_be_used_is_told_in_one_line(
    words: list[str], told: str, sources: StaticSources, file: Callable[[str, str], str], capsys: Captured
) -> None:
    paths = {"FILE": file("secret", TOKEN), "EMPTY": file("empty", "\n")}
    with GuardedServer(knowing(), tls=None) as server:
        words = [paths.get(word, word) for word in words]
        assert main(["observe", "--url", server.url, "-n", "ns", *words]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert told in shown.err
    assert TOKEN not in shown.err
    assert not sources.settings


@pytest.mark.parametrize(
    "option",
    [["--bearer-token-file", "x"], ["--resources", "pulsar"], ["--window", "1m"], ["--matcher", "a=b"]],
)
def test_how_a_url_is_asked_is_refused_where_there_is_none(option: list[str], capsys: Captured) -> None:
    assert main(["observe", "--policy", "main", "-n", "ns", *option]) == 2
    assert f"{option[0]} works only with --url" in capsys.readouterr().err


@pytest.mark.parametrize("length", ["0s", "soon", "-1m"])
def test_a_window_that_is_none_is_refused(length: str, capsys: Captured) -> None:
    assert main(["observe", "--url", "http://x", "-n", "ns", f"--window={length}"]) == 2
    assert "is not a duration" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--matcher", "cluster"], "'cluster' has no value: write LABEL=VALUE"),
        (["--matcher", "a-b=x"], "matcher 'a-b' is not a label name"),
        (["--matcher", "pod=x"], "matcher 'pod' is set by Trimtab"),
        (["--parameter", f"query={TOKEN}"], "parameter 'query' is set by Trimtab"),
        (["--parameter", f"a b={TOKEN}"], "parameter 'a b' is not a parameter's name"),
    ],
)
@pytest.mark.parametrize("verb", [["observe", "--url", "http://x"], ["plan"], ["migrate", "--admin-url", "http://x"]])
def test_a_matcher_or_parameter_that_is_none_is_refused_by_every_verb(
    verb: list[str], words: list[str], told: str, capsys: Captured
) -> None:
    assert main([*verb, *words]) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert TOKEN not in shown


class Failing(StaticSource):
    """Fails its second look, and ends with the third."""

    looks = 0

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        self.looks += 1
        if self.looks > 3:
            raise KeyboardInterrupt
        self.error = SourceUnavailableError("http://prometheus: answered 503") if self.looks == 2 else None
        return super().observe(topology, at)


def test_watching_survives_a_look_that_fails(
    sources: StaticSources, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    failing = StaticSources(Failing(cluster(a=0.5)))
    monkeypatch.setattr("trimtab_operator.cli.commands.measured_policy.load_sources", lambda _folder, _master: failing)
    with GuardedServer(knowing()) as server:
        assert main(["observe", "--url", server.url, "-n", "ns", "-o", "json", "--watch", "0.01"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert shown.err == "trimtab: http://prometheus: answered 503; trying again\n"
    assert not sources.settings


def test_where_no_bundle_reports_itself_that_is_told(sources: StaticSources, capsys: Captured) -> None:
    series = {"metric": {"pod": "a"}, "value": [1.0, "5"]}
    brokers = json.dumps({"status": "success", "data": {"resultType": "vector", "result": [series]}})
    none = '{"status":"success","data":{"resultType":"vector","result":[]}}'
    with GuardedServer(lambda asked: (200, none if "bundle" in asked.parameters["query"] else brokers)) as server:
        assert main(["observe", "--url", server.url, "-n", "ns"]) == 0
    assert "note: brokers report no bundles, as under Pulsar's extensible load manager" in capsys.readouterr().out
    assert sources.closed
