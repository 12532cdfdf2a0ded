"""`trimtab observe`: the snapshot from history, from a Prometheus alone, and from a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from fake_prometheus import FakePrometheus, add_broker, add_bundle
from kept_histories import LOAD, keep
from policy_environment import PolicyEnvironment
from static_sources import StaticSource, StaticSources
from strategy_testing.clusters import cluster
from trimtab_operator.cli import main
from trimtab_operator.cli.commands.observe_table import Shown, quality_lines, show
from trimtab_operator.cli.tables import console
from trimtab_pipeline.api import Observation, SourceUnavailableError, Topology
from trimtab_pipeline.history.reader import HistoryReader
from trimtab_strategies.model import DataQuality, Topics
from trimtab_testbed.servers.kube import ControlPlane

Captured = pytest.CaptureFixture[str]
FIRST, SECOND = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal with room."""
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Four minutes of a cluster whose broker a cools down, and b is not believed in the last."""
    for minute, a in enumerate((0.9, 0.8, 0.7, 0.6)):
        load = cluster(bundles={"a": [1, 2, 3], "b": [1]}, untrusted=["b"] if minute == 3 else [], a=a, b=0.2)
        keep(tmp_path / "kept", "prod/one", [minute], replace(load, quality=LOAD.quality))
    return tmp_path / "kept"


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    """Pods a and b with a bundle each, one more that both report, and a pod of another namespace."""
    with FakePrometheus() as server:
        for pod, bundle in {"a": FIRST, "b": SECOND}.items():
            add_broker(server, pod)
            add_bundle(server, bundle, pod)
        add_bundle(server, FIRST, "b", rate=1.0)
        server.put("pulsar_broker_rate_in", 1, namespace="elsewhere", pod="c")
        yield server


def rows(shown: str, title: str) -> dict[str, list[str]]:
    """Words of each line below a table's title, by the first of them."""
    lines = shown[shown.index(title) :].splitlines()[1:]
    table = lines[: lines.index("", 4) if "" in lines[4:] else None]
    return {words[0]: words for line in table if (words := line.split())}


def test_the_last_cycle_of_a_history_is_shown_as_tables(kept: Path, capsys: Captured) -> None:
    assert main(["observe", "--history", str(kept), "--top", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("prod/one at 2025-06-15 15:03:00 UTC")
    assert "1 of 2 brokers are trusted; their CPU 60 % to 60 %; 4 bundles" in shown
    brokers = rows(shown, "Brokers")
    assert brokers["a"][:4] == ["a", "yes", "60.0", "%"]
    assert brokers["b"][:4] == ["b", "no", "20.0", "%"]
    assert rows(shown, "Busiest namespaces (2 of 2)")["public/a"][5] == "3"
    bundles = rows(shown, "Hottest bundles (2 of 4)")
    hottest = [name for name in bundles if name.startswith("public/")]
    assert hottest == [LOAD.bundles.names[2], LOAD.bundles.names[1]]
    for told in (
        "samples not used: 3 NaN",
        "1 bundle not measured",
        "no answer for broker b: http://prometheus.acme.example: refused",
        "the source warns: store 2 is out",
        "not trusted: b: PartialData, the query for its group of brokers got no answer",
        "note: a: counters were reset",
    ):
        assert told in shown


def test_json_holds_the_same_with_null_for_unknown(kept: Path, capsys: Captured) -> None:
    assert main(["observe", "--history", str(kept), "-o", "json", "--top", "1"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["of"], data["time"]) == ("prod/one", "2025-06-15T15:03:00.000Z")
    assert [(b["broker"], b["trusted"], b["usage"]["cpu"], b["bundles"]) for b in data["brokers"]] == [
        ("a", True, pytest.approx(60.0, abs=0.01), 3),
        ("b", False, pytest.approx(20.0, abs=0.01), 1),
    ]
    assert [bundle["bundle"] for bundle in data["bundles"]] == [LOAD.bundles.names[2]]
    now = 60 / 80  # of what broker a carried at first
    total = now * LOAD.bundles.short[LOAD.bundles.namespace == 0].sum(axis=0)
    of_a = now * LOAD.bundles.short[LOAD.bundles.owner == 0].sum(axis=0)
    (space,) = data["namespaces"]
    assert (space["namespace"], space["bundles"], space["unknownBundles"]) == ("public/a", 3, 0)
    assert (space["rateIn"], space["throughputOut"]) == pytest.approx((total[0], total[3]), abs=0.001)
    assert data["brokers"][0]["ofBundles"]["throughputOut"] == pytest.approx(of_a[3], abs=0.001)
    doubt = {"reason": "PartialData", "text": "the query for its group of brokers got no answer"}
    assert [broker["doubt"] for broker in data["brokers"]] == [None, doubt]
    assert data["quality"]["notes"] == ["a: counters were reset"]
    assert data["quality"]["dropped"] == {"NaN": 3}
    assert data["quality"]["failed"] == [{"part": "broker b", "error": "http://prometheus.acme.example: refused"}]


@pytest.mark.parametrize("watch", [False, True])
def test_yaml_holds_what_json_holds(kept: Path, watch: bool, capsys: Captured) -> None:  # noqa: FBT001
    load = HistoryReader(kept, "prod/one").load()
    for output in ("json", "yaml"):
        show(console(), Shown("x", load, load.now), output, 3, lines=watch)
    told = capsys.readouterr().out
    line, _, document = told.partition("\n---\n") if watch else told.partition("\nof: ")
    assert yaml.safe_load(document if watch else f"of: {document}") == json.loads(line)


@pytest.mark.parametrize(("at", "cpu"), [("2025-06-15T15:01:30Z", 80.0), ("2m", 80.0), ("3m", 90.0)])
def test_a_time_shows_the_newest_cycle_up_to_then(kept: Path, at: str, cpu: float, capsys: Captured) -> None:
    assert main(["observe", "--history", str(kept), "--at", at, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["brokers"][0]["usage"]["cpu"] == pytest.approx(cpu, abs=0.01)


def test_an_exported_file_is_read_as_it_is(kept: Path, tmp_path: Path, capsys: Captured) -> None:
    report = tmp_path / "report.tar"
    assert main(["history", "export", "--dir", str(kept), str(report)]) == 0
    assert main(["observe", "--history", str(kept), "-o", "json"]) == 0
    of_folder = json.loads(capsys.readouterr().out.partition("\n  prod/one: 4 cycles\n")[2])
    assert main(["observe", "--history", str(report), "-o", "json"]) == 0
    of_file = json.loads(capsys.readouterr().out)
    assert [one["usage"] for one in of_file["brokers"]] == [one["usage"] for one in of_folder["brokers"]]
    assert [path.name for path in tmp_path.iterdir() if path != kept] == ["report.tar"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "observe needs --policy NAME, --url URL or --history DIR"),
        (["--url", "http://x"], "--url needs --namespace"),
        (["--url", "http://x", "--policy", "one", "-n", "x"], "--url excludes"),
        (["--url", "http://u:p@x", "-n", "x"], "--url http://x: the url holds a user name"),
        (["--policy", "one", "-n", "x", "--at", "5m"], "--at needs --history DIR"),
        (["--history", "no.tar"], "no.tar: No such file or directory"),
        (["--history", "DIR", "--at", "1h"], "no cycle up to then: the oldest is of 2025-06-15T15:00:00"),
        (["--history", "DIR", "--policy", "mian"], "policy 'mian' has no history"),
        (["--history", "nowhere"], "nowhere is not a folder"),
        (["--history", "DIR", "--watch", "1", "--at", "5m"], "--watch shows new data"),
    ],
)
def test_a_mistake_is_told_in_one_line(kept: Path, words: list[str], told: str, capsys: Captured) -> None:
    assert main(["observe", *(str(kept) if word == "DIR" else word for word in words)]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert told in shown.err


@pytest.mark.parametrize(("option", "value"), [("--watch", "0"), ("--watch", "often"), ("--top", "-1"), ("--top", "x")])
def test_a_number_that_is_none_is_refused(option: str, value: str, capsys: Captured) -> None:
    assert main(["observe", f"{option}={value}"]) == 2
    assert f"'{value}' must be" in capsys.readouterr().err


def test_of_several_policies_one_must_be_chosen(kept: Path, capsys: Captured) -> None:
    keep(kept, "prod/two", [0])
    assert main(["observe", "--history", str(kept)]) == 2
    assert "choose one with --policy: prod/one, prod/two" in capsys.readouterr().err
    assert main(["observe", "--history", str(kept), "--policy", "two"]) == 0


class Ending(StaticSource):
    """Measures twice; then the person at the keyboard has seen enough."""

    looks = 0

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        self.looks += 1
        if self.looks > 2:
            raise KeyboardInterrupt
        return super().observe(topology, at)


def measured_by(source: StaticSource, monkeypatch: pytest.MonkeyPatch) -> StaticSources:
    sources = StaticSources(source)
    monkeypatch.setattr("trimtab_operator.cli.commands.measured_policy.load_sources", lambda _folder, _master: sources)
    return sources


def test_watching_prints_a_line_of_json_a_look_until_it_is_interrupted(
    fake: FakePrometheus, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    sources = measured_by(Ending(cluster(a=0.5, b=0.5)), monkeypatch)
    words = ["observe", "--url", fake.url, "-n", "pulsar", "-o", "json", "--watch", "0.01"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["of"] for line in lines] == [fake.url] * 2
    assert sources.closed


def test_hot_topics_are_shown_where_they_are_known(
    fake: FakePrometheus, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    class Inside(StaticSource):
        def observe(self, topology: Topology, at: float) -> Future[Observation]:
            seen = super().observe(topology, at).result()
            traffic = np.array([[1.0, 2, 3e6, 4e6], [5, 6, 7e6, 8e6]])
            topics = Topics(("persistent://t/n/x", "persistent://t/n/y"), np.array([0, 0]), np.array([1, 2]), traffic)
            outcome: Future[Observation] = Future()
            outcome.set_result(replace(seen, load=replace(seen.load, topics=topics)))
            return outcome

    measured_by(Inside(cluster(a=0.5, b=0.5)), monkeypatch)
    assert main(["observe", "--url", fake.url, "-n", "pulsar", "--top", "1"]) == 0
    table = rows(capsys.readouterr().out, "Hottest topics (1 of 2)")
    assert table["persistent://t/n/y"] == ["persistent://t/n/y", "0x00000000_0x80000000", "5", "6", "7.00", "8.00"]


def test_a_url_nobody_listens_at_is_told_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def refuse(_folder: Path, _master: str) -> None:
        raise AssertionError("Spark was started before the mistake was told")

    monkeypatch.setattr("trimtab_operator.cli.commands.measured_policy.load_sources", refuse)
    assert main(["observe", "--url", "http://127.0.0.1:9", "-n", "pulsar"]) == 2
    assert "http://127.0.0.1:9 refused the connection" in capsys.readouterr().err


def test_a_namespace_without_brokers_is_told(fake: FakePrometheus, capsys: Captured) -> None:
    assert main(["observe", "--url", fake.url, "-n", "nowhere"]) == 2
    assert 'knows no broker in namespace="nowhere"' in capsys.readouterr().err


def test_a_broker_of_which_nothing_is_known_is_shown_with_dashes(
    fake: FakePrometheus, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    measured_by(StaticSource(cluster(a=0.5)), monkeypatch)
    assert main(["observe", "--url", fake.url, "-n", "pulsar"]) == 0
    assert rows(capsys.readouterr().out, "Brokers")["b"] == ["b", "no", *["-"] * 9, "1", "never"]


def test_a_label_that_is_no_bundles_name_costs_nothing_but_itself(
    fake: FakePrometheus, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    add_bundle(fake, "noslash", "a")
    add_bundle(fake, "t/n/[red]0x1", "a")
    add_bundle(fake, "", "a")
    measured_by(StaticSource(cluster(a=0.5, b=0.5)), monkeypatch)
    assert main(["observe", "--url", fake.url, "-n", "pulsar"]) == 0
    assert "; 2 bundles\n" in capsys.readouterr().out


@pytest.mark.slow
def test_names_that_a_terminal_cant_show_are_spelt_out(tmp_path: Path) -> None:
    keep(tmp_path / "spelt", "prod/one", [0], cluster(bundles={"ünïcode": [1]}, **dict.fromkeys(["ünïcode"], 0.5)))
    words = [sys.executable, "-m", "trimtab_operator", "observe", "--history", str(tmp_path / "spelt")]
    shown = subprocess.run(words, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=True)
    assert b"\\xfcn\\xefcode" in shown.stdout


@pytest.mark.parametrize("spark", [[], pytest.param(["--spark", "local[2]"], marks=pytest.mark.spark)])
def test_a_prometheus_alone_is_enough(fake: FakePrometheus, spark: list[str]) -> None:
    """In a process of its own, as one process has one embedded Spark, and this one may have that of other tests."""
    environment = os.environ if spark else {**os.environ, "JAVA_HOME": "/nowhere"}
    for pod, cpu in {"a": 25.0, "b": 75.0}.items():
        for name in ("cpu", "memory", "directMemory", "bandwidth_in", "bandwidth_out"):
            fake.put(f"pulsar_lb_{name}_usage", cpu, namespace="pulsar", pod=pod)
    words = ["observe", "--url", fake.url, "-n", "pulsar", "--resources", "pulsar", "-o", "json"]
    command = [sys.executable, "-m", "trimtab_operator", *words, *spark]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    data = json.loads(shown.stdout)
    assert [(row["broker"], row["trusted"], row["usage"]["cpu"]) for row in data["brokers"]] == [
        ("a", True, 25.0),
        ("b", True, 75.0),
    ]
    owners = {row["bundle"]: (row["broker"], row["rateIn"]) for row in data["bundles"]}
    assert owners == {FIRST: ("a", 10.0), SECOND: ("b", 10.0)}
    assert data["quality"]["dropped"] == {"Duplicate": 1}


@pytest.fixture
def scene(trimtab_crds: ControlPlane, kube_namespace: str) -> PolicyEnvironment:
    """An uneven cluster with a policy."""
    scene = PolicyEnvironment(
        trimtab_crds, kube_namespace, cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)
    )
    scene.build()
    scene.create_policy()
    return scene


@pytest.mark.apiserver
def test_a_policys_cluster_is_shown_and_not_touched(
    scene: PolicyEnvironment, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    measured_by(StaticSource(scene.load), monkeypatch)
    before = scene.versions("bundles")
    words = ["observe", "--policy", "main", "-n", scene.namespace, "--kubeconfig", scene.kubeconfig, "-o", "json"]
    assert main(words) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["of"] == f"{scene.namespace}/main"
    assert [(row["broker"], row["usage"]["cpu"], row["bundles"]) for row in data["brokers"]] == [
        ("a", pytest.approx(80.0, abs=0.01), 8),
        ("b", pytest.approx(20.0, abs=0.01), 1),
        ("c", pytest.approx(20.0, abs=0.01), 0),
    ]
    assert scene.versions("bundles") == before


@pytest.mark.apiserver
def test_a_source_that_does_not_answer_is_told_in_one_line(
    scene: PolicyEnvironment, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    source = StaticSource(scene.load)
    source.error = SourceUnavailableError("http://prometheus:9090: connection refused")
    measured_by(source, monkeypatch)
    assert main(["observe", "--policy", "main", "-n", scene.namespace, "--kubeconfig", scene.kubeconfig]) == 2
    assert capsys.readouterr().err == "trimtab: http://prometheus:9090: connection refused\n"


def test_values_above_a_limit_are_not_called_unused() -> None:
    assert quality_lines(DataQuality(dropped={"AboveLimit": 5, "NaN": 1, "Gap": 2})) == [
        "samples not used: 2 Gap, 1 NaN",
        "used, although above the limit: 5 values (trust.aboveLimit)",
    ]
    assert quality_lines(DataQuality(dropped={"AboveLimit": 1})) == [
        "used, although above the limit: 1 value (trust.aboveLimit)"
    ]
