"""The flags that verbs share: whose name the program answers to, which cluster, how it is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from manifests import policy
from trimtab_operator.cli import main
from trimtab_operator.cli.common import spoken
from trimtab_operator.cli.parser import VERBS
from trimtab_operator.cli.tables import Grid, console, print_grid
from trimtab_operator.kube.connection import default_namespace
from trimtab_operator.kube.errors import ConnectionSettingsError
from trimtab_testbed.servers.kube import ControlPlane

Captured = pytest.CaptureFixture[str]

BY_HAND = ("plan", "explain", "why-not", "approve", "refresh", "stop", "pause", "resume", "move", "split", "drain")
BY_HAND += ("undrain",)
WORDS = {
    "explain": ["broker", "b"],
    "why-not": ["b"],
    "move": ["bundle", "broker"],
    "split": ["bundle"],
    "drain": ["broker"],
    "undrain": ["broker"],
    "approve": ["policy"],
}


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """As kubectl starts it."""
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-trimtab", "--help"])


# -- the plugin --


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("verb", ["status", *BY_HAND])
def test_the_plugin_speaks_of_itself_as_kubectl_trimtab(verb: str, capsys: Captured) -> None:
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: kubectl trimtab {verb} ")
    assert f"\n  kubectl trimtab {verb} " in shown, "its examples can be copied"
    assert "kubectl kubectl" not in shown


@pytest.mark.usefixtures("plugin")
def test_what_is_no_command_keeps_its_name(capsys: Captured) -> None:
    assert spoken("trimtab.dev/paused and Trimtab, /opt/trimtab x, trimtab: no") == (
        "trimtab.dev/paused and Trimtab, /opt/trimtab x, trimtab: no"
    )
    assert spoken("go on: trimtab resume main -n x") == "go on: kubectl trimtab resume main -n x"
    assert main(["pause"]) == 2
    assert capsys.readouterr().err.startswith("usage: kubectl trimtab pause ")


def test_elsewhere_it_is_trimtab(capsys: Captured) -> None:
    assert main(["status", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: trimtab status ")


@pytest.mark.apiserver
def test_kubectl_finds_and_runs_the_plugin(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {**os.environ, "PATH": path, "KUBECONFIG": str(trimtab_crds.kubeconfig)}

    def kubectl(*words: str) -> str:
        command = [str(trimtab_crds.binaries.kubectl), *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    told = kubectl("trimtab", "status", "-n", kube_namespace)
    assert told == f"there is no BalancingPolicy in namespace {kube_namespace}; -A shows all namespaces\n"
    assert kubectl("plugin", "list").count("kubectl-trimtab") == 1


# -- which cluster --


@pytest.mark.parametrize("verb", BY_HAND)
def test_all_namespaces_are_refused_where_one_messaging_cluster_is_meant(verb: str, capsys: Captured) -> None:
    assert main([verb, *WORDS.get(verb, ["main"]), "-A"]) == 2
    told = f"{verb} works on one messaging cluster: name its namespace with -n instead of -A\n"
    assert capsys.readouterr().err.endswith(told)


@pytest.mark.parametrize("verb", ["status", *BY_HAND])
def test_every_verb_of_the_plugin_has_the_usual_flags(verb: str, capsys: Captured) -> None:
    main([verb, "--help"])
    shown = capsys.readouterr().out
    usual = ("--namespace", "-n", "--kubeconfig", "--context", "--output", "-o", "--json", "--color")
    for flag in (*usual, "--as", "--as-group", "--request-timeout"):
        assert flag in shown, flag
    assert ("--all-namespaces" in shown) == (verb == "status")


def kubeconfig(folder: Path, **contexts: str) -> Path:
    """A kubeconfig with these contexts and their namespaces; the first one is current."""
    listed = [
        {"name": name, "context": {"cluster": "c", "user": "u", **({"namespace": space} if space else {})}}
        for name, space in contexts.items()
    ]
    file = folder / f"{'-'.join(contexts)}.kubeconfig"
    file.write_text(json.dumps({"contexts": listed, "current-context": next(iter(contexts))}))
    return file


def test_the_namespace_is_that_of_the_context_as_for_kubectl(tmp_path: Path) -> None:
    file = str(kubeconfig(tmp_path, here="messaging", there="other", plain=""))
    assert default_namespace(file, None) == "messaging"
    assert default_namespace(file, "there") == "other"
    assert default_namespace(file, "plain") == "default"
    with pytest.raises(ConnectionSettingsError, match=r"context 'nowhere' is not .*: here, there, plain"):
        default_namespace(file, "nowhere")


def test_of_two_kubeconfigs_the_first_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = kubeconfig(tmp_path, here="one"), kubeconfig(tmp_path, there="two")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")
    assert default_namespace(None, None) == "one"
    assert default_namespace(None, "there") == "two"


def test_a_context_or_a_kubeconfig_counts_in_a_pod_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in kubectl: else a command for one cluster would write to that of the pod."""
    file = kubeconfig(tmp_path, here="messaging", there="other")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert default_namespace(None, None) == "default"
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert default_namespace(None, None) == "messaging"
    assert default_namespace(None, "there") == "other"
    with pytest.raises(ConnectionSettingsError, match="context 'nowhere' is not"):
        default_namespace(None, "nowhere")


@pytest.mark.parametrize("verb", ["restore", "status"])
def test_an_empty_namespace_is_not_all_of_them(verb: str, capsys: Captured) -> None:
    assert main([verb, "-n", ""]) == 2
    assert capsys.readouterr().err == "trimtab: -n is given without a name: name a namespace, or leave it out\n"


def test_a_kubeconfig_that_is_none_is_told_in_one_line(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "config"
    file.write_text("contexts: [1]")
    assert main(["status", "--kubeconfig", str(file)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"trimtab: kubeconfig {file} can't be read: ")
    assert told.count("\n") == 1


@pytest.mark.apiserver
def test_status_looks_where_the_context_says_or_everywhere(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    rest = trimtab_crds.rest
    other = f"{kube_namespace}-other"
    rest.create_namespace(other)
    for space, name in ((kube_namespace, "near"), (other, "far")):
        rest.create(f"/apis/trimtab.dev/v1alpha1/namespaces/{space}/balancingpolicies", policy(name))
    here = str(trimtab_crds.write_kubeconfig("here", {"token": trimtab_crds.token}, namespace=kube_namespace))

    assert main(["status", "--kubeconfig", here]) == 1, "no operator looks at it"
    shown = capsys.readouterr().out
    assert "near" in shown
    assert "far" not in shown

    everywhere = ["status", "-A", "--kubeconfig", here, "-o"]
    assert main([*everywhere, "json"]) in {0, 1}, (
        "policies that other tests left, and that are not ready, are there, too"
    )
    found = [(p["namespace"], p["policy"]) for p in json.loads(capsys.readouterr().out)]
    assert found.index((kube_namespace, "near")) < found.index((other, "far"))

    assert main([*everywhere, "wide"]) in {0, 1}
    shown = capsys.readouterr().out
    assert "Namespace" in shown
    assert "ThresholdShedder" in shown


# -- how it is printed --


@pytest.mark.parametrize(
    ("color", "no_color", "colored"),
    [("auto", "", False), ("always", "", True), ("always", "1", True), ("never", "", False)],
)
def test_colours_are_where_they_are_asked_for(
    color: str,
    no_color: str,
    colored: bool,  # noqa: FBT001
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    print_grid(console(color), Grid("Title", ("Name",), [("x",)]))
    assert ("\x1b[" in capsys.readouterr().out) is colored


def test_the_verbs_of_the_plugin_are_verbs() -> None:
    assert {"status", *BY_HAND, "lint", "completion"} <= set(VERBS)


# -- ports --


@pytest.mark.parametrize("port", ["99999", "-1", "http"])
def test_a_port_that_there_is_not_is_refused_with_its_bounds(port: str, capsys: Captured) -> None:
    assert main(["run", "-n", "x", "--http-port", port]) == 2
    assert f"--http-port: {port!r} is not a port: write 0 (any free port) to 65535" in capsys.readouterr().err
