"""`trimtab migrate`: the policy that balances as a Pulsar cluster does, and what has no equivalent."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pulsar_settings import defaults, settings_brokers
from trimtab_lab.simulation.contenders import contender
from trimtab_operator.cli import main
from trimtab_operator.cli.commands.migrate import unfinished
from trimtab_operator.cli.commands.migration import _RUNS, migrate
from trimtab_operator.state.settings import Settings
from trimtab_testbed.servers.kube import ControlPlane

_BASE = "org.apache.pulsar.broker.loadbalance"
NIC = "loadBalancerOverrideBrokerNicSpeedGbps"
SHEDDER, PLACEMENT = "loadBalancerLoadSheddingStrategy", "loadBalancerLoadPlacementStrategy"


def spec(runtime: dict[str, str]) -> dict[str, Any]:
    return migrate(runtime, admin_url="http://pulsar:8080", prometheus="http://prometheus:9090").spec


def notes(runtime: dict[str, str]) -> str:
    return "\n".join(migrate(runtime, admin_url="http://pulsar:8080", prometheus="http://prometheus:9090").notes)


def test_the_defaults_of_the_modular_load_manager_are_those_of_a_policy() -> None:
    assert spec(defaults()) == {
        "mode": "DryRun",
        "interval": "1m",
        "pulsar": {"adminUrl": "http://pulsar:8080"},
        "source": {"prometheus": {"url": "http://prometheus:9090"}},
        "shedder": {"type": "ThresholdShedder"},
        "placement": {"type": "LeastLongTermMessageRate"},
        "selection": {"type": "Modular"},
        "split": {"type": "BundleSplitterTask"},
        "limits": {"coolDown": "30m"},
    }
    assert notes(defaults()).count("\n") == 0, "only that a small cluster wants another minimum"


@pytest.mark.parametrize(
    ("shedder", "said"),
    [
        ("ThresholdShedder", ["thresholdShedder.minThroughput is 10Mi bytes/s", "or less, for example 10Ki"]),
        ("UniformLoadShedder", ["uniformLoadShedder.minRate is 1000 messages/s", "or less, for example 10"]),
        ("UniformLoadShedder", ["uniformLoadShedder.minThroughput is 1Mi bytes/s", "or less, for example 10Ki"]),
        ("AvgShedder", ["avgShedder.minRate is 1000 messages/s", "avgShedder.minThroughput is 1Mi bytes/s"]),
    ],
)
def test_a_minimum_that_a_small_cluster_never_reaches_is_said(shedder: str, said: list[str]) -> None:
    """With the field, its value, and what to set: by Pulsar's defaults a small cluster is never balanced."""
    told = notes(_with(f"impl.{shedder}", "impl.AvgShedder" if "Avg" in shedder else ""))

    assert [text for text in said if text not in told] == []


def test_a_minimum_that_was_lowered_is_not_spoken_of() -> None:
    lowered = {"loadBalancerBundleUnloadMinThroughputThreshold": "0.5"}

    assert "minThroughput" not in notes({**defaults(), **lowered})
    assert "cluster that means never" not in notes(_with("impl.OverloadShedder"))


def test_the_extensible_load_manager_runs_its_own_strategies_whatever_stands_there() -> None:
    found = spec(defaults(extensible=True))
    assert found["shedder"] == {"type": "TransferShedder"}
    assert found["placement"] == {"type": "ExtensibleLeastResourceUsageWithWeight"}
    assert found["selection"] == {"type": "Extensible"}
    assert found["split"] == {"type": "DefaultNamespaceBundleSplitStrategy"}
    assert "TransferShedder runs instead" in notes(defaults(extensible=True))


def test_with_trim_only_what_concerns_pulsars_shedding_is_left_out() -> None:
    named = _with("impl.AvgShedder", "impl.AvgShedder", loadBalancerSheddingIntervalMinutes="5", **{NIC: "25.0"})
    found = migrate(named, admin_url="http://pulsar:8080", prometheus="http://prometheus:9090", trim=True)

    kept = ("mode", "pulsar", "source", "selection", "split")
    assert found.spec == {name: spec(named)[name] for name in kept}
    assert found.spec["source"]["prometheus"]["nicSpeed"] == "25G"
    assert (found.shedder, found.notes) == ("AvgShedder", [])


def test_with_trim_nothing_is_said_of_a_strategy_that_can_not_be_run() -> None:
    runtime = defaults(**{SHEDDER: "com.example.OwnShedder"})
    found = migrate(runtime, admin_url="http://pulsar:8080", prometheus="http://p:9090", trim=True)
    assert (found.shedder, found.notes) == ("ThresholdShedder", [])


def _with(shedder: str = "", placement: str = "", *, extensible: bool = False, **changed: str) -> dict[str, str]:
    classes = {SHEDDER: shedder, PLACEMENT: placement}
    named = {key: f"{_BASE}.{name}" for key, name in classes.items() if name}
    return defaults(extensible=extensible, **named, **changed)


CASES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "thresholds": (
        _with(loadBalancerBrokerThresholdShedderPercentage="20", loadBalancerHistoryResourcePercentage="0.5"),
        {"shedder": {"type": "ThresholdShedder", "thresholdShedder": {"threshold": 20, "historyPercent": 50}}},
    ),
    "overload": (
        _with("impl.OverloadShedder", loadBalancerBrokerOverloadedThresholdPercentage="70"),
        {
            "shedder": {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 70}},
            "placement": {"type": "LeastLongTermMessageRate", "leastLongTermMessageRate": {"overloadThreshold": 70}},
            "selection": {"type": "Modular", "modular": {"overloadThreshold": 70}},
        },
    ),
    "uniform": (
        _with("impl.UniformLoadShedder", maxUnloadPercentage="0.4", minUnloadMessage="10"),
        {"shedder": {"type": "UniformLoadShedder", "uniformLoadShedder": {"maxUnloadPercent": 40, "minRate": 10}}},
    ),
    "avg": (
        _with("impl.AvgShedder", "impl.AvgShedder", loadBalancerAvgShedderLowThreshold="20"),
        {
            "shedder": {"type": "AvgShedder", "avgShedder": {"lowThreshold": 20}},
            "placement": {"type": "AvgShedder"},
        },
    ),
    "least usage": (
        _with(placement="impl.LeastResourceUsageWithWeight", loadBalancerCPUResourceWeight="0.5"),
        {
            "placement": {
                "type": "LeastResourceUsageWithWeight",
                "leastResourceUsageWithWeight": {"cpuWeight": 0.5},
            },
        },
    ),
    "round robin": (_with(placement="impl.RoundRobinBrokerSelector"), {"placement": {"type": "RoundRobin"}}),
    "transfer": (
        _with(
            "extensions.scheduler.TransferShedder",
            extensible=True,
            loadBalancerBrokerLoadTargetStd="0.1",
            loadBalancerSheddingConditionHitCountThreshold="1",
            loadBalancerTransferEnabled="false",
            loadBalancerSheddingExcludedNamespaces="[a/b, c/d]",
        ),
        {
            "shedder": {
                "type": "TransferShedder",
                "transferShedder": {
                    "targetDeviationPercent": 10,
                    "hitCount": 2,
                    "transfer": False,
                    "excludedNamespaces": ["a/b", "c/d"],
                },
            },
        },
    ),
    "splits": (
        _with(
            loadBalancerNamespaceBundleMaxTopics="50",
            loadBalancerNamespaceMaximumBundles="256",
            defaultNamespaceBundleSplitAlgorithm="flow_or_qps_equally_divide",
        ),
        {
            "split": {
                "type": "BundleSplitterTask",
                "bundleSplitterTask": {
                    "maxTopics": 50,
                    "maxBundles": 256,
                    "algorithm": "flow_or_qps_equally_divide",
                },
            },
        },
    ),
    "times": (
        _with(loadBalancerSheddingIntervalMinutes="5", loadBalancerSheddingGracePeriodMinutes="120"),
        {"interval": "5m", "limits": {"coolDown": "120m"}},
    ),
    "no grace": (_with(loadBalancerSheddingGracePeriodMinutes="0"), {"limits": {"coolDown": "1s"}}),
    "misspelt": (
        _with(loadBalancerBandwithInResourceWeight="0"),
        {"shedder": {"type": "ThresholdShedder", "thresholdShedder": {"networkInWeight": 0}}},
    ),
    "nic": (
        _with(loadBalancerOverrideBrokerNicSpeedGbps="Optional[25.0]"),
        {"source": {"prometheus": {"url": "http://prometheus:9090", "nicSpeed": "25G"}}},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_pulsar_is_told_a_policy_says(case: str) -> None:
    runtime, wanted = CASES[case]
    found = spec(runtime)
    assert {key: found.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"loadBalancerSheddingEnabled": "false"}, "this policy would do more than Pulsar does"),
        ({"loadBalancerEnabled": "false"}, "this policy would do more than Pulsar does"),
        ({"loadBalancerAutoBundleSplitEnabled": "false"}, "no split rule"),
        ({SHEDDER: "com.example.OwnShedder"}, "OwnShedder is not a strategy of Pulsar"),
        ({SHEDDER: f"{_BASE}.extensions.scheduler.TransferShedder"}, "can't be run by ModularLoadManagerImpl"),
        ({SHEDDER: f"{_BASE}.extensions.scheduler.TransferShedder"}, "Pulsar 4 runs SimpleLoadManagerImpl"),
        (
            {PLACEMENT: f"{_BASE}.impl.AvgShedder"},
            "only the shedder AvgShedder works with it: Pulsar 4 runs Simple",
        ),
        ({"loadManagerClassName": "com.example.Mine"}, "is not a known load manager"),
        ({"loadBalancerReportUpdateMaxIntervalMinutes": "3"}, "has no equivalent: load comes from Prometheus"),
        ({"loadBalancerBrokerOverloadedThresholdPercentage": "120"}, "can't be used (Input"),
        ({"loadBalancerSheddingIntervalMinutes": "soon"}, "is not a number of minutes: 1m is used"),
        ({NIC: "1.2.3"}, f"{NIC} = 1.2.3 is not a speed in Gbit/s: nicSpeed is left at its default"),
        ({NIC: "Optional[0.0]"}, f"{NIC} = Optional[0.0] is not a speed in Gbit/s"),
        ({NIC: "1e300"}, f"{NIC} = 1e300 is not a speed in Gbit/s"),
    ],
)
def test_what_has_no_equivalent_is_said(changed: dict[str, str], told: str) -> None:
    assert told in notes(defaults(**changed))


def test_no_fallback_is_told_of_where_what_is_named_can_run() -> None:
    both = dict.fromkeys((SHEDDER, PLACEMENT), f"{_BASE}.impl.AvgShedder")
    for runtime in (defaults(), defaults(**both), defaults(**{SHEDDER: f"{_BASE}.impl.AvgShedder"})):
        assert "SimpleLoadManagerImpl" not in notes(runtime)
    assert "SimpleLoadManagerImpl" not in notes(defaults(extensible=True))


@pytest.mark.apiserver
def test_every_policy_that_is_printed_can_be_applied_and_run(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    rest, path = trimtab_crds.rest, f"/apis/trimtab.dev/v1alpha1/namespaces/{kube_namespace}/balancingpolicies"
    for number, (runtime, _) in enumerate([*CASES.values(), (defaults(extensible=True), {}), ({}, {})]):
        manifest = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "BalancingPolicy",
            "metadata": {"name": f"p-{number}"},
            "spec": spec(runtime),
        }
        Settings.of(rest.create(path, manifest))


def test_the_verb_reads_every_broker_and_says_where_they_differ(capsys: pytest.CaptureFixture[str]) -> None:
    odd = defaults(loadBalancerSheddingGracePeriodMinutes="10")
    with settings_brokers(defaults(), defaults(), odd) as brokers:
        code = main(["migrate", "--admin-url", brokers.url, "--prometheus-url", "http://p:9090", "--name", "mine"])
        leader = brokers.ids[-1]
    out = capsys.readouterr().out
    assert code == 0
    [told] = [line for line in out.splitlines() if "brokers differ in loadBalancerSheddingGracePeriodMinutes" in line]
    assert f"30 at {min(brokers.ids[:2])}" in told
    assert f"# where brokers differ, the values of the leader {leader} were used" in out
    policy = yaml.safe_load(out)
    assert (policy["metadata"]["name"], policy["spec"]["limits"]) == ("mine", {"coolDown": "10m"})


def test_matchers_and_parameters_of_prometheus_are_in_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--matcher", "cluster=east", "--parameter", "extra_label=tenant=a", "-o", "json"]
    with settings_brokers(defaults()) as brokers:
        assert main(["migrate", "--admin-url", brokers.url, *words]) == 0
    source = json.loads(capsys.readouterr().out)["spec"]["source"]["prometheus"]
    assert source["matchers"] == {"cluster": "east"}
    assert source["parameters"] == {"extra_label": "tenant=a"}


def test_a_comment_says_how_to_compare_with_trim(capsys: pytest.CaptureFixture[str]) -> None:
    with settings_brokers(defaults()) as brokers:
        assert main(["migrate", "--admin-url", brokers.url]) == 0

    assert "trimtab simulate skewed --against ThresholdShedder/Pulsar\n" in capsys.readouterr().out


def test_with_trim_the_first_comments_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--policy-admin-url", "http://pulsar:8080", "--prometheus-url", "http://p:9090", "--trim"]
    with settings_brokers(defaults()) as brokers:
        assert main(["migrate", "--admin-url", brokers.url, *words]) == 0
    out, said = capsys.readouterr()
    head = out.splitlines()
    assert said == ""
    assert head[0] == "# this is Trim, Trimtab's default strategy, with Pulsar's other settings"
    assert head[1].endswith("Trim uses the defaults, 60s and 30m")
    assert "trimtab simulate skewed --against ThresholdShedder/Pulsar" in head[2]
    assert not {"shedder", "placement", "interval", "limits"} & set(yaml.safe_load(out)["spec"])


def test_every_shedder_that_pulsar_runs_can_be_compared() -> None:
    for shedder in {name for names, _ in _RUNS.values() for name in names}:
        assert contender(f"{shedder}/Pulsar").name == f"{shedder}/Pulsar"


def test_json_is_json_and_the_notes_are_beside_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    with settings_brokers(defaults(), token="s3cret") as brokers:
        words = ["migrate", "--admin-url", brokers.url, "-o", "json"]
        assert main([*words, "--token-file", str(tmp_path / "token")]) == 0
        shown = capsys.readouterr()
        assert main(words) == 2
    assert json.loads(shown.out)["spec"]["pulsar"]["adminUrl"] == brokers.url
    assert "note: spec.source.prometheus.url (http://prometheus.monitoring.svc:9090) is a guess" in shown.err
    refused = capsys.readouterr().err
    assert "401" in refused
    assert "s3cret" not in refused


def test_the_policy_gets_the_url_at_which_the_operator_reaches_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    with settings_brokers(defaults()) as brokers:
        words = ["migrate", "--admin-url", brokers.url, "--policy-admin-url", "http://pulsar:8080", "-o", "json"]
        assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["spec"]["pulsar"]["adminUrl"] == "http://pulsar:8080"


def test_what_the_operator_can_not_use_as_it_is_is_noted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    with settings_brokers(defaults(), token="s3cret") as brokers:
        words = ["migrate", "--admin-url", brokers.url, "--token-file", str(tmp_path / "token")]
        assert main([*words, "--prometheus-url", "http://localhost:9090"]) == 0
    out = capsys.readouterr().out
    for field, option, url in (
        ("pulsar.adminUrl", "--policy-admin-url", brokers.url),
        ("source.prometheus.url", "--prometheus-url", "http://localhost:9090"),
    ):
        told = (
            f"# spec.{field} ({url}) points to this machine: give {option} with a Service that the operator can reach"
        )
        assert told in out
    assert "# --token-file is not copied: put it into a Secret with the label trimtab.dev/credentials" in out
    assert "spec.pulsar.auth.token" in out
    assert "s3cret" not in out


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, []),
        ({"admin_url": "http://[::1]:8080"}, ["spec.pulsar.adminUrl"]),
        ({"admin_url": "http://[::1]:8080", "policy_admin_url": "http://pulsar:8080"}, []),
        ({"prometheus_url": ""}, ["spec.source.prometheus.url (http://prometheus.monitoring.svc:9090) is a guess"]),
        ({"ca_file": Path("ca.pem"), "key_file": Path("key.pem")}, ["--ca-file", "--key-file"]),
    ],
)
def test_only_what_is_to_be_filled_in_is_noted(changed: dict[str, Any], told: list[str]) -> None:
    files = dict.fromkeys(("token_file", "ca_file", "certificate_file", "key_file"))
    urls = {"admin_url": "http://pulsar:8080", "policy_admin_url": None, "prometheus_url": "http://prometheus:9090"}
    found = unfinished(argparse.Namespace(**{**files, **urls, **changed}))
    assert [note[: len(start)] for note, start in zip(found, told, strict=True)] == told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--admin-url", "http://127.0.0.1:1"], "Pulsar at http://127.0.0.1:1"),
        (["--admin-url", "http://127.0.0.1:1", "--token-file", "/nowhere"], "--token-file /nowhere can't be read"),
        ([], "--admin-url"),
        (
            ["--admin-url", "http://127.0.0.1:1", "--policy-admin-url", "p:80"],
            "--policy-admin-url p:80: the url has no scheme; write http://p:80 or https://p:80",
        ),
        (["--admin-url", "pulsar:8080"], "--admin-url pulsar:8080: the url has no scheme; write http://pulsar:8080 or"),
        (
            ["--admin-url", "http://127.0.0.1:1", "--prometheus-url", "prometheus:9090"],
            "--prometheus-url prometheus:9090: the url has no scheme; write http://prometheus:9090 or https://",
        ),
        (
            ["--admin-url", "http://127.0.0.1:1", "--prometheus-url", "http://p:9090/?tenant=a"],
            "--prometheus-url http://p:9090/: the url holds ? or #; leave out what follows, and write http://p:9090/",
        ),
        (["--admin-url", "http://u:s3cret@127.0.0.1:1"], "--admin-url http://127.0.0.1:1: the url holds a user name"),
    ],
)
def test_what_is_wrong_with_the_command_is_said_in_a_line(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert main(["migrate", *words]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "s3cret" not in said
    assert "Traceback" not in said


def test_a_url_that_no_policy_takes_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with settings_brokers(defaults()) as brokers:
        url = f"http://p:9090/{'a' * 600}"
        assert main(["migrate", "--admin-url", brokers.url, "--prometheus-url", url]) == 2
    assert "spec.source.prometheus.url = 'http://p:9090/aaa" in capsys.readouterr().err
