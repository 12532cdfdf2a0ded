"""Shell completion: candidates for each place, names from a real API server, and a real bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from manifests import broker, bundle, policy, topic_namespace
from trimtab_operator.cli import main
from trimtab_operator.cli.completion import SCRIPTS
from trimtab_operator.cli.parser import VERBS
from trimtab_testbed.servers.kube import ControlPlane

Captured = pytest.CaptureFixture[str]
BIN = Path(sys.executable).parent


def candidates(capsys: Captured, *words: str) -> tuple[list[str], str]:
    """What may stand in place of the last word, and kubectl's number."""
    assert main(["__complete", *words]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    *found, directive = shown.out.splitlines()
    return [line.partition("\t")[0] for line in found], directive


def test_a_verb_is_completed_with_what_it_does(capsys: Captured) -> None:
    assert candidates(capsys, "re") == (["refresh", "restore", "resume"], ":4")
    assert set(candidates(capsys, "")[0]) >= set(VERBS)
    main(["__complete", "pau"])
    assert capsys.readouterr().out == f"pause\t{VERBS['pause'].help}\n:4\n"


def test_flags_and_their_values_are_completed(capsys: Captured) -> None:
    assert candidates(capsys, "status", "--w") == (["--watch"], ":4")
    assert candidates(capsys, "status", "-o", "") == (["json", "table", "wide", "yaml"], ":4")
    assert candidates(capsys, "status", "--color", "a")[0] == ["always", "auto"]
    assert candidates(capsys, "explain", "")[0] == ["broker", "bundle"]
    assert candidates(capsys, "completion", "f")[0] == ["fish"]


def test_files_are_left_to_the_shell(capsys: Captured) -> None:
    assert candidates(capsys, "lint", "") == ([], ":0")
    assert candidates(capsys, "plan", "-f", "")[1] == ":0"
    assert candidates(capsys, "status", "--kubeconfig", "")[1] == ":0"


def test_where_nothing_can_be_known_nothing_is_said(capsys: Captured, tmp_path: Path) -> None:
    nowhere = ("--kubeconfig", str(tmp_path / "none"))
    assert candidates(capsys, "plan", *nowhere, "") == ([], ":4")
    assert candidates(capsys, "nonsense", "") == ([], ":4")
    dead = tmp_path / "dead"
    dead.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}"
    )
    assert candidates(capsys, "drain", "--kubeconfig", str(dead), "") == ([], ":4")
    assert candidates(capsys, "status", "--kubeconfig", str(dead), "--context", "")[0] == ["c"]


@pytest.mark.apiserver
def test_names_come_from_the_cluster(trimtab_crds: ControlPlane, kube_namespace: str, capsys: Captured) -> None:
    root, rest = f"/apis/trimtab.dev/v1alpha1/namespaces/{kube_namespace}", trimtab_crds.rest
    rest.create(f"{root}/topicnamespaces", topic_namespace())
    for name in ("pulsar-broker-0", "pulsar-broker-1"):
        rest.create(f"{root}/brokers", broker(name))
    rest.create(f"{root}/bundles", bundle("public-default-0x00000000-0x40000000"))
    rest.create(f"{root}/balancingpolicies", policy("main"))
    where = ("-n", kube_namespace, "--kubeconfig", str(trimtab_crds.kubeconfig))
    brokers, bundles = ["pulsar-broker-0", "pulsar-broker-1"], ["public-default-0x00000000-0x40000000"]

    for verb in ("status", "plan", "approve", "refresh", "stop", "pause", "resume"):
        assert candidates(capsys, verb, *where, "")[0] == ["main"], verb
    assert candidates(capsys, "drain", *where, "pulsar-broker-1")[0] == ["pulsar-broker-1"]
    assert candidates(capsys, "move", *where, "")[0] == bundles
    assert candidates(capsys, "move", *where, bundles[0], "")[0] == brokers
    assert candidates(capsys, "move", *where, bundles[0], brokers[0], "")[0] == []
    assert candidates(capsys, "explain", *where, "bundle", "")[0] == bundles
    assert candidates(capsys, "explain", "broker", *where, "")[0] == brokers
    assert candidates(capsys, "why-not", *where, "")[0] == [*bundles, *brokers]
    assert candidates(capsys, "why-not", *where, bundles[0], "--to", "")[0] == brokers
    assert kube_namespace in candidates(capsys, "status", *where[2:], "-n", "test-")[0]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_script_is_printed_for_each_shell(shell: str, capsys: Captured) -> None:
    assert main(["completion", shell]) == 0
    assert "__complete" in capsys.readouterr().out


def test_bash_completes_with_it(tmp_path: Path) -> None:
    story = f"""
    PATH={BIN}:$PATH
    source <(trimtab completion bash)
    COMP_WORDS=(trimtab res); COMP_CWORD=1; _trimtab; echo "${{COMPREPLY[@]}}"
    COMP_WORDS=(trimtab status --out); COMP_CWORD=2; _trimtab; echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", story], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["restore resume", "--output"]


@pytest.mark.apiserver
def test_kubectl_completes_the_plugin_with_it(trimtab_crds: ControlPlane, tmp_path: Path, capsys: Captured) -> None:
    assert main(["completion", "kubectl"]) == 0
    script = tmp_path / "kubectl_complete-trimtab"
    script.write_text(capsys.readouterr().out)
    script.chmod(0o755)
    path = f"{tmp_path}:{BIN}:{trimtab_crds.binaries.kubectl.parent}:{os.environ['PATH']}"
    kubectl = [str(trimtab_crds.binaries.kubectl), "__complete", "trimtab", "res"]
    done = subprocess.run(kubectl, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path})
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["restore", "resume", ":4"]
