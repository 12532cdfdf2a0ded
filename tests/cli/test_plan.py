"""`trimtab plan`: what a person, and what a program, reads of the next cycle; and each mistake in one line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import policy
from plan_clusters import HOT
from policy_environment import PolicyEnvironment, eager
from static_sources import StaticSources
from strategy_testing.clusters import cluster, with_bundles
from trimtab_operator.cli import main
from trimtab_operator.kube.client import POLICIES
from trimtab_pipeline.api import LoadSources, SourceUnavailableError

pytestmark = pytest.mark.apiserver

Planned = Callable[..., tuple[int, str, str]]


@pytest.fixture
def planned(env: PolicyEnvironment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Planned:
    """Runs `trimtab plan` on the cluster, measured by its source; gives exit code, output and errors."""
    sources: LoadSources = StaticSources(env)
    monkeypatch.setattr("trimtab_operator.cli.commands.measured_policy.load_sources", lambda _history, _master: sources)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["plan", *(words or ["main"]), "-n", env.namespace, "--kubeconfig", env.kubeconfig])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting Spark is a failure of the test."""

    def refuse(_history: Path, _master: str) -> Any:
        raise AssertionError("Spark was started before the mistake was told")

    monkeypatch.setattr("trimtab_operator.cli.commands.measured_policy.load_sources", refuse)


def test_a_table_tells_what_moves_where_and_why(env: PolicyEnvironment, planned: Planned) -> None:
    env.create_policy()

    code, shown, _ = planned()

    assert code == 0
    lines = shown.splitlines()
    assert lines[0] == "main makes 4 moves"
    assert lines[1] == "CPU of the brokers: 20 % to 80 %, then 40 % to 40 %"
    assert "80.0 -> 40.0 %" in shown
    assert any("public-a-0x00000000-0x20000000" in line and "a -> " in line for line in lines)
    assert all("Overloaded" in line for line in lines if "a -> " in line)
    assert max(map(len, lines)) <= 100


def test_a_dry_run_is_called_one(env: PolicyEnvironment, planned: Planned) -> None:
    env.create_policy(mode="DryRun")

    _, shown, _ = planned()

    assert shown.splitlines()[0] == "main proposes 4 moves and makes none: spec.mode is DryRun"


def test_outside_its_windows_a_policy_proposes(env: PolicyEnvironment, planned: Planned) -> None:
    env.create_policy(windows=[{"kind": "Deny", "start": "00:00", "duration": "24h"}])

    code, shown, _ = planned()

    assert code == 0
    assert shown.startswith("main makes drains only, and proposes 4 moves: OutsideWindow: spec.windows: ")


def test_what_is_held_back_is_told_with_its_reason(env: PolicyEnvironment, planned: Planned) -> None:
    env.create_policy(limits={"maxMovesPerCycle": 1})

    _, shown, _ = planned()

    assert "main makes 1 move\n" in shown
    [line] = [line for line in shown.splitlines() if line.lstrip().startswith("CycleCap")]
    assert line.split()[1] == "a"
    assert "per cycle" in " ".join(shown.split())


GROUPED = cluster(bundles=2, a=0.8, b=0.2, c=0.2)
SPREAD = with_bundles(HOT, owner={2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 7: 2})  # a keeps the fewest bundles of public/a
FULL = {"type": "Extensible", "extensible": {"maxTopics": 1}}
NEWEST = {"type": "Extensible", "extensible": {"preferLaterVersions": True}}


@pytest.mark.parametrize(
    ("env", "selection", "asked", "reason", "words"),
    [
        (HOT, None, {"isolation": {"primary": ["a"]}}, "Isolation", "isolation policies allow no such move"),
        (GROUPED, None, {"antiAffinityGroup": "shop"}, "AntiAffinity", "group would not be kept apart"),
        (GROUPED, FULL, {}, "TopicLimit", "the other brokers have as many topics as a broker may have"),
        (HOT, NEWEST, {}, "Version", "the other brokers run an older version"),
        (SPREAD, {"type": "Modular"}, {}, "Uneven", "the other brokers have more bundles of the namespace"),
        (HOT, None, {"isolation": {"primary": ["a("]}}, "InvalidPolicy", "isolation pattern 'a(' is not a regular"),
        (HOT, None, {"balanced": False}, "Excluded", "in namespaces that are left out of balancing"),
    ],
    indirect=["env"],
    ids=["isolation", "anti-affinity", "topic limit", "version", "uneven", "invalid policy", "excluded"],
)
def test_a_bundle_that_a_selection_keeps_is_told_with_the_reason_in_words(
    env: PolicyEnvironment, selection: Any, asked: dict[str, Any], reason: str, words: str, planned: Planned
) -> None:
    for space in env.load.namespaces:
        env.rest.patch(env.path("topicnamespaces", space.replace("/", "-")), {"spec": asked})
    for name, version in {"a": "4.2.4", "b": "4.0.8", "c": "4.0.8"}.items():
        env.rest.patch(env.path("brokers", name), {"spec": {"version": version}})
    env.create_policy(**({"selection": selection} if selection else {}))

    _, shown, _ = planned()

    assert "moves nothing" in shown.splitlines()[0]
    held = shown.partition("Held back")[2]
    assert any(line.lstrip().startswith(reason) for line in held.splitlines())
    assert words in " ".join(held.split())


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"paused": True}, "Paused"), ({"brokers": {"names": ["a", "b", "nobody"]}}, "UnknownBroker")],
    ids=["paused", "unknown broker"],
)
def test_a_cycle_that_would_be_refused_says_so_before_what_it_would_do(
    spec: dict[str, Any], reason: str, env: PolicyEnvironment, planned: Planned
) -> None:
    env.create_policy(**spec)

    _, shown, _ = planned()
    _, data, _ = planned("main", "--json")

    assert shown.startswith(f"main moves nothing: {reason}: ")
    assert "otherwise it would make" in shown
    assert json.loads(data)["refusal"]["reason"] == reason


def test_nothing_to_do_is_a_table_too(env: PolicyEnvironment, planned: Planned) -> None:
    env.create_policy()
    env.load = replace(HOT, brokers=replace(HOT.brokers, usage=HOT.brokers.usage[[1, 1, 1]]))
    env.source.load = env.load  # type: ignore[attr-defined]

    code, shown, _ = planned()

    assert code == 0
    assert shown.startswith("main moves nothing\n")
    assert "Balanced" in shown


def test_json_and_yaml_hold_the_same(env: PolicyEnvironment, planned: Planned) -> None:
    env.create_policy()

    _, as_json, _ = planned("main", "-o", "json")
    _, as_yaml, _ = planned("main", "-o", "yaml")

    data = json.loads(as_json)
    assert [list(move) for move in data["moves"]] == [list(move) for move in yaml.safe_load(as_yaml)["moves"]]
    assert data.keys() == yaml.safe_load(as_yaml).keys()
    assert (data["policy"], data["mode"], data["refusal"]) == ("main", "Auto", None)
    usage = [(row["broker"], row["cpuBefore"], row["cpuAfter"]) for row in data["brokers"]]
    assert usage == [("a", 80.0, 40.0), ("b", 20.0, 40.0), ("c", 20.0, 40.0)]
    first = data["moves"][0]
    assert (first["source"], first["reason"], first["cpu"]) == ("a", "Overloaded", 10.0)
    assert env.names[first["bundle"]] == first["name"]


def test_nothing_is_written(env: PolicyEnvironment, planned: Planned, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    env.create_policy()
    before = [env.versions(kind) for kind in ("bundles", "brokers", "balancingpolicies")]

    assert planned()[0] == 0

    assert [env.versions(kind) for kind in ("bundles", "brokers", "balancingpolicies")] == before
    assert env.events() == []
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_does_not_answer_is_told_in_one_line(env: PolicyEnvironment, planned: Planned) -> None:
    env.create_policy()
    env.source.error = SourceUnavailableError("http://prometheus:9090: connection refused")  # type: ignore[attr-defined]

    assert planned() == (2, "", "trimtab: http://prometheus:9090: connection refused\n")


@pytest.mark.usefixtures("no_engine")
def test_a_policy_that_does_not_exist_is_told_at_once_with_those_that_do(
    env: PolicyEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", "mian", "-n", env.namespace, "--kubeconfig", env.kubeconfig]
    assert main(words) == 2
    assert capsys.readouterr().err == f"trimtab: no BalancingPolicy mian in namespace {env.namespace}; there are none\n"

    env.create_policy()
    assert main(words) == 2
    assert capsys.readouterr().err.endswith("; did you mean main?\n")


def test_without_a_name_the_only_policy_is_planned_for(env: PolicyEnvironment, planned: Planned) -> None:
    env.create_policy()

    code, shown, _ = planned("--color", "never")

    assert (code, shown.splitlines()[0]) == (0, "main makes 4 moves")


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    ("names", "told"),
    [((), "there is no BalancingPolicy in namespace "), (("one", "two"), "2 policies: name one of one, two\n")],
    ids=["none", "two"],
)
def test_without_a_name_none_or_several_policies_are_told(
    names: tuple[str, ...], told: str, env: PolicyEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in names:
        env.create_policy(name)

    assert main(["plan", "-n", env.namespace, "--kubeconfig", env.kubeconfig]) == 2

    assert told in capsys.readouterr().err


PULSAR = {"pulsar": {"adminUrl": "http://pulsar.messaging.svc:8080"}}


def test_of_a_pulsar_cluster_it_says_what_only_the_operator_asks(env: PolicyEnvironment, planned: Planned) -> None:
    env.create_policy(**PULSAR)

    code, shown, _ = planned()
    told = " ".join(shown.split())

    assert (code, shown.splitlines()[0]) == (0, "main makes 4 moves")
    assert "Pulsar was not checked: only the operator checks whether Prometheus shows these brokers" in told
    assert f"trimtab status main -n {env.namespace}" in told

    found = {"type": "DataTrusted", "status": "False", "reason": "Untrusted", "message": "it may show another cluster"}
    condition = {**found, "lastTransitionTime": "2026-11-22T10:00:00Z"}
    env.rest.patch(env.path("balancingpolicies", "main", "status"), {"status": {"conditions": [condition]}})
    notes = json.loads(planned("main", "-o", "json")[1])["notes"]

    assert notes[1:] == ["the operator found DataTrusted False: Untrusted: it may show another cluster"]


def test_where_brokers_watch_objects_there_is_nothing_that_was_not_asked(
    env: PolicyEnvironment, planned: Planned
) -> None:
    env.create_policy()
    assert json.loads(planned("main", "-o", "json")[1])["notes"] == []


@pytest.mark.usefixtures("no_engine")
def test_a_policy_whose_bundles_only_brokers_tell_of_is_not_planned_for(
    env: PolicyEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    source = {"prometheus": {"url": "http://prometheus:9090", "bundleMetrics": "Statistics"}}
    manifest = policy("main", **{**eager(), **PULSAR, "source": source})
    env.rest.create(env.path("balancingpolicies"), manifest)

    assert main(["plan", "main", "-n", env.namespace, "--kubeconfig", env.kubeconfig]) == 2

    told = capsys.readouterr().err
    assert "bundleMetrics: Statistics" in told
    assert f"see its plan: trimtab status main -n {env.namespace}\n" in told


@pytest.mark.usefixtures("no_engine")
def test_an_invalid_policy_is_told_naming_field_and_value(
    env: PolicyEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    env.create_policy(interval="0s")

    assert main(["plan", "main", "-n", env.namespace, "--kubeconfig", env.kubeconfig]) == 2

    shown = capsys.readouterr().err
    assert "spec.interval" in shown
    assert "longer than 0s" in shown


@pytest.mark.usefixtures("no_engine")
def test_a_cluster_without_our_kinds_is_told_how_to_get_them(
    env: PolicyEnvironment, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "trimtab_operator.cli.commands.measured_policy.POLICIES", replace(POLICIES, plural="elsewheres")
    )

    assert main(["plan", "main", "-n", env.namespace, "--kubeconfig", env.kubeconfig]) == 2

    assert "trimtab crds | kubectl apply --server-side -f -" in capsys.readouterr().err


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("verb", [["plan", "main"], ["run"]], ids=str)
def test_a_missing_kubeconfig_is_told_within_a_second(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.process_time()

    assert main([*verb, "-n", "messaging", "--kubeconfig", str(tmp_path / "none")]) == 2

    assert time.process_time() - began < 1.0
    assert capsys.readouterr().err == f"trimtab: kubeconfig {tmp_path / 'none'} does not exist\n"
