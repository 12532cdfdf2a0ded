"""`trimtab plan -f`: a policy from a file stands in for the one in the cluster; exit codes; another Prometheus."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import policy
from plan_clusters import HOT, LEVEL
from policy_environment import PolicyEnvironment, eager
from static_sources import StaticSources
from trimtab_operator.cli import main
from trimtab_pipeline.api import PrometheusSettings
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

Planned = Callable[..., tuple[int, str, str]]


class Asked(StaticSources):
    """Remembers which server it was to ask, and how."""

    urls: list[str]
    last: PrometheusSettings

    def open(self, policy: str, settings: PrometheusSettings) -> Any:
        self.urls.append(settings.url)
        self.last = settings
        return super().open(policy, settings)


@pytest.fixture
def asked(env: PolicyEnvironment, monkeypatch: pytest.MonkeyPatch) -> Asked:
    sources = Asked(env)
    sources.urls = []
    monkeypatch.setattr("trimtab_operator.cli.commands.measured_policy.load_sources", lambda _history, _master: sources)
    return sources


@pytest.fixture
def planned(
    env: PolicyEnvironment,
    asked: Asked,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Planned:
    """Runs `trimtab plan -f` on a file with `manifests`."""
    monkeypatch.setenv("COLUMNS", "120")
    assert asked.urls == []

    def run(*words: str, manifests: list[dict[str, Any]]) -> tuple[int, str, str]:
        file = tmp_path / "policy.yaml"
        file.write_text(yaml.safe_dump_all(manifests))
        whole = ["plan", "-f", str(file), "-n", env.namespace, "--kubeconfig", env.kubeconfig, *words]
        code = main(whole)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def written(name: str = "main", **spec: Any) -> dict[str, Any]:
    base = {**eager(), "source": {"prometheus": {"url": "http://prometheus:9090"}}}
    return policy(name, **{**base, **spec})


def test_a_policy_that_is_not_there_yet_is_planned_for(env: PolicyEnvironment, planned: Planned) -> None:
    code, shown, _ = planned(manifests=[written()])

    assert code == 0
    lines = shown.splitlines()
    assert lines[0] == f"planned with the file; namespace {env.namespace} has no policy main yet"
    assert lines[1] == "main makes 4 moves"
    assert env.versions("balancingpolicies") == {}


def test_the_file_stands_in_for_the_policy_of_its_name(env: PolicyEnvironment, planned: Planned) -> None:
    env.create_policy(mode="DryRun")
    before = [env.versions(kind) for kind in ("bundles", "brokers", "balancingpolicies")]

    code, shown, _ = planned(manifests=[written(limits={"maxMovesPerCycle": 1})])

    assert code == 0
    assert shown.splitlines()[0].endswith(f"in place of the policy main in namespace {env.namespace}")
    assert shown.splitlines()[1] == "main makes 1 move", "the limit is that of the file, and so is the mode"
    assert [env.versions(kind) for kind in ("bundles", "brokers", "balancingpolicies")] == before


def test_a_second_policy_over_the_same_brokers_would_be_refused(env: PolicyEnvironment, planned: Planned) -> None:
    env.create_policy("older")

    code, shown, _ = planned("--exit-code", manifests=[written("newer")])

    assert code == 0, "refused, it moves nothing"
    assert "newer moves nothing: " in shown
    assert "older" in shown


@pytest.mark.parametrize(
    ("env", "options", "code"),
    [(HOT, (), 0), (HOT, ("--exit-code",), 1), (LEVEL, ("--exit-code",), 0)],
    indirect=["env"],
    ids=["moves, not asked", "moves", "nothing to move"],
)
def test_the_exit_code_says_whether_something_would_move(options: tuple[str, ...], code: int, planned: Planned) -> None:
    assert planned(*options, manifests=[written()])[0] == code


def test_of_several_the_named_one_is_taken(planned: Planned) -> None:
    several = [written("one"), written("two"), {"kind": "ConfigMap"}]

    code, shown, _ = planned("two", "-o", "json", manifests=several)
    assert (code, json.loads(shown)["policy"]) == (0, "two")

    code, _, err = planned(manifests=several)
    assert (code, "must contain one BalancingPolicy, or give its NAME; found: one, two" in err) == (2, True)


def test_another_prometheus_may_be_measured_by(planned: Planned, asked: Asked) -> None:
    assert planned("--prometheus", "http://localhost:9099", manifests=[written()])[0] == 0
    assert asked.urls == ["http://localhost:9099"]


def test_matchers_and_parameters_are_added_to_those_of_the_policy(planned: Planned, asked: Asked) -> None:
    source = {"url": "http://prometheus:9090", "matchers": {"cluster": "east", "site": "a"}}
    words = ("--matcher", "cluster=west", "--parameter", "dedup=true")
    assert planned(*words, manifests=[written(source={"prometheus": source})])[0] == 0
    assert dict(asked.last.matchers) == {"cluster": "west", "site": "a"}
    assert dict(asked.last.parameters) == {"dedup": "true"}


def test_a_policy_of_the_cluster_may_be_measured_by_another_prometheus(
    env: PolicyEnvironment, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    env.create_policy()
    words = ["plan", "main", "-n", env.namespace, "--kubeconfig", env.kubeconfig]
    assert main([*words, "--prometheus", "http://localhost:9099"]) == 0
    assert asked.urls == ["http://localhost:9099"]
    assert capsys.readouterr().out.startswith("main makes 4 moves\n")


def test_standard_input_is_a_file_too(
    env: PolicyEnvironment, asked: Asked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(yaml.safe_dump(written())))
    assert main(["plan", "-f", "-", "-n", env.namespace, "--kubeconfig", env.kubeconfig, "--exit-code"]) == 1
    assert "main makes 4 moves" in capsys.readouterr().out
    assert asked.urls == [f"http://prometheus.{env.namespace}.svc:9090"], "a short name is a Service's"


MISTAKES: dict[str, tuple[list[dict[str, Any]], tuple[str, ...], str]] = {
    "a bound": (
        [written(limits={"minTrustedBrokersPercent": 101})],
        (),
        "spec.limits.minTrustedBrokersPercent: is 101, but must be",
    ),
    "an unknown key": ([written(windowss=[])], (), "spec.windowss: is unknown; did you mean windows?"),
    "a length of nothing": ([written(interval="0s")], (), "must be longer than 0s"),
    "no policy": ([{"kind": "ConfigMap"}], (), "found: none"),
    "two namespaces": (
        [{**written(), "metadata": {"name": "main", "namespace": "elsewhere"}}],
        (),
        "the file has namespace elsewhere, and -n has",
    ),
    "no URL": (
        [written()],
        ("--prometheus", "localhost:9090"),
        "--prometheus: the url has no scheme; write http://localhost:9090 or",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_exit_code_2_and_one_line(case: str, planned: Planned, asked: Asked) -> None:
    manifests, options, told = MISTAKES[case]
    code, out, err = planned(*options, manifests=manifests)
    assert (code, out, asked.urls) == (2, "", [])
    assert told in err
    assert err.count("\n") == 1


def test_a_file_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", "nowhere.yaml", "-n", "x"]) == 2
    assert capsys.readouterr().err == "trimtab: there is no file or folder nowhere.yaml\n"


def test_a_folder_is_read_like_a_file_and_other_kinds_in_it_are_left_out(
    env: PolicyEnvironment, asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked.urls == []
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "a.yaml").write_text(yaml.safe_dump_all([written(), written("second")]))
    (folder / "b.json").write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}))
    words = ["plan", "-f", str(folder), "-n", env.namespace, "--kubeconfig", env.kubeconfig]

    assert main([*words, "main", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["policy"] == "main"

    assert main(words) == 2
    told = f"{folder} must contain one BalancingPolicy, or give its NAME; found: main, second"
    assert told in capsys.readouterr().err


def test_a_kustomization_is_built_by_kubectl(
    env: PolicyEnvironment,
    asked: Asked,
    trimtab_crds: ControlPlane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert asked.urls == []
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(written()))
    patch = json.dumps([{"op": "replace", "path": "/spec/mode", "value": "Approve"}])
    kustomization = {
        "namespace": env.namespace,
        "resources": ["policy.yaml"],
        "patches": [{"target": {"kind": "BalancingPolicy"}, "patch": patch}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    words = ["plan", "-k", str(tmp_path), "--kubeconfig", env.kubeconfig]

    monkeypatch.setenv("PATH", str(trimtab_crds.binaries.kubectl.parent))
    assert main([*words, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["mode"], len(found["moves"])) == ("Approve", 4), "the overlay's namespace and mode count"

    (tmp_path / "kustomization.yaml").write_text("resources: [nothing.yaml]")
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"trimtab: kubectl kustomize {tmp_path}: error: accumulating resources")
    assert shown.count("\n") == 1

    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(words) == 2
    assert f"with kustomize alone: kustomize build {tmp_path} | trimtab plan -f -" in capsys.readouterr().err
