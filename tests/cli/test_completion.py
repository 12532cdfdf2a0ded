"""Shell completion: candidates for each place, names from a real API server, and a real bash."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from argcomplete.finders import CompletionFinder

from manifests import broker, bundle, policy, topic_namespace
from trimtab_operator.cli import main
from trimtab_operator.cli.completion import SHELLS, complete
from trimtab_operator.cli.parser import VERBS, parser_for
from trimtab_testbed.servers.kube import ControlPlane

Captured = pytest.CaptureFixture[str]
Candidates = Callable[..., dict[str, str]]
BIN = Path(sys.executable).parent


class Finder(CompletionFinder):
    """Leaves file descriptor 9 alone: here it is one of pytest's."""

    def _init_debug_stream(self) -> None:
        pass


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> Candidates:
    """What may stand in place of the last word, each with its description."""
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setenv("_ARGCOMPLETE_SHELL", "fish")
    monkeypatch.setenv("_ARGCOMPLETE_SUPPRESS_SPACE", "1")
    monkeypatch.setenv("_ARGCOMPLETE_DFS", "\t")
    monkeypatch.setenv("_ARGCOMPLETE_IFS", "\n")

    def found(*words: str) -> dict[str, str]:
        line, shown = " ".join(["trimtab", *words]), io.StringIO()
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setenv("COMP_POINT", str(len(line)))
        with suppress(SystemExit):
            assert complete(parser_for, Finder(), shown) == 0
        pairs = (line.partition("\t") for line in shown.getvalue().splitlines())
        return {name: about for name, _, about in pairs}

    return found


def test_a_verb_is_completed_with_what_it_does(candidates: Candidates) -> None:
    assert sorted(candidates("re")) == ["refresh", "restore", "resume"]
    assert set(candidates("")) >= {verb for verb, known in VERBS.items() if not known.hidden}
    assert "apply" not in candidates("")
    assert candidates("pau") == {"pause": VERBS["pause"].help}


def test_flags_and_their_values_are_completed(candidates: Candidates) -> None:
    assert list(candidates("status", "--w")) == ["--watch"]
    assert sorted(candidates("status", "-o", "")) == ["json", "table", "wide", "yaml"]
    assert sorted(candidates("status", "--color", "a")) == ["always", "auto"]
    assert sorted(candidates("explain", "")) == ["broker", "bundle"]
    assert list(candidates("completion", "f")) == ["fish"]
    assert list(candidates("status", "--all")) == ["--all-namespaces"]
    assert list(candidates("drain", "--all")) == []  # it works on one messaging cluster


def test_flags_before_the_verb_are_completed_and_do_not_hide_it(candidates: Candidates) -> None:
    assert list(candidates("--req")) == ["--request-timeout"]
    assert list(candidates("-n", "messaging", "undr")) == ["undrain"]
    assert sorted(candidates("-n", "messaging", "explain", "")) == ["broker", "bundle"]
    assert list(candidates("--context", "c", "-A", "status", "--wat")) == ["--watch"]
    assert list(candidates("help", "appr")) == ["approve"]


def test_files_are_completed_where_a_file_is_meant(candidates: Candidates, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").touch()
    (tmp_path / "policies").mkdir()
    anywhere = [("lint",), ("plan", "-f"), ("plan", "-k"), ("plan", "--save"), ("status", "--kubeconfig")]
    for words in [*anywhere, ("approve", "-f"), ("--kubeconfig",)]:
        assert sorted(candidates(*words, f"{tmp_path}/pol")) == [f"{tmp_path}/policies/", f"{tmp_path}/policy.yaml"]
    assert list(candidates("drain", f"{tmp_path}/pol")) == []


def test_where_nothing_can_be_known_there_are_no_candidates(candidates: Candidates, tmp_path: Path) -> None:
    nowhere = ("--kubeconfig", str(tmp_path / "none"))
    assert candidates("plan", *nowhere, "") == {}
    assert candidates("nonsense", "") == {}
    dead = tmp_path / "dead"
    dead.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}"
    )
    assert candidates("drain", "--kubeconfig", str(dead), "") == {}
    assert list(candidates("status", "--kubeconfig", str(dead), "--context", "")) == ["c"]


@pytest.mark.apiserver
def test_names_come_from_the_cluster(trimtab_crds: ControlPlane, kube_namespace: str, candidates: Candidates) -> None:
    root, rest = f"/apis/trimtab.dev/v1alpha1/namespaces/{kube_namespace}", trimtab_crds.rest
    rest.create(f"{root}/topicnamespaces", topic_namespace())
    for name in ("pulsar-broker-0", "pulsar-broker-1"):
        rest.create(f"{root}/brokers", broker(name))
    rest.create(f"{root}/bundles", bundle("public-default-0x00000000-0x40000000"))
    rest.create(f"{root}/balancingpolicies", policy("main"))
    where = ("-n", kube_namespace, "--kubeconfig", str(trimtab_crds.kubeconfig))
    brokers, bundles = ["pulsar-broker-0", "pulsar-broker-1"], ["public-default-0x00000000-0x40000000"]

    for verb in ("status", "plan", "approve", "refresh", "stop", "pause", "resume"):
        assert sorted(candidates(verb, *where, "")) == ["main"], verb
    assert sorted(candidates("drain", *where, "pulsar-broker-1")) == ["pulsar-broker-1"]
    assert sorted(candidates("move", *where, "")) == bundles
    assert sorted(candidates(*where, "undrain", "")) == sorted(candidates("plan", *where, "--from", "")) == brokers
    assert sorted(candidates("move", *where, bundles[0], "")) == brokers
    assert sorted(candidates("move", *where, bundles[0], brokers[0], "")) == []
    assert sorted(candidates("explain", *where, "bundle", "")) == bundles
    assert sorted(candidates("explain", "broker", *where, "")) == brokers
    assert sorted(candidates("why-not", *where, "")) == sorted(["bundle", "broker", *bundles, *brokers])
    assert set(brokers) <= set(candidates("why-not", *where, "broker", ""))
    assert sorted(candidates("why-not", *where, bundles[0], "--to", "")) == brokers
    assert kube_namespace in candidates("status", *where[2:], "-n", "test-")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_printed_for_each_shell(shell: str, capsys: Captured) -> None:
    assert main(["completion", shell]) == 0
    assert "_ARGCOMPLETE=1" in capsys.readouterr().out.replace("_ARGCOMPLETE 1", "_ARGCOMPLETE=1")


@pytest.mark.slow
def test_bash_completes_with_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    scenario = f"""
    PATH={BIN}:$PATH
    source <(trimtab completion bash)
    COMP_LINE="trimtab res"; COMP_POINT=11; _python_argcomplete trimtab; echo "${{COMPREPLY[@]}}"
    COMP_LINE="trimtab status --out"; COMP_POINT=20; _python_argcomplete trimtab; echo "${{COMPREPLY[@]}}"
    COMP_LINE="trimtab drain "; COMP_POINT=14; _python_argcomplete trimtab; echo "${{COMPREPLY[@]}}"
    complete -p trimtab
    """
    done = subprocess.run(["bash", "-c", scenario], capture_output=True, text=True, check=True, cwd=tmp_path)
    resumed, output, nothing, how = (sorted(line.split()) for line in done.stdout.splitlines())
    assert (resumed, output, nothing) == (["restore", "resume"], ["--output"], [])
    assert "default" not in how  # files are not candidates where a name is meant


@pytest.mark.apiserver
def test_kubectl_completes_the_plugin_with_it(trimtab_crds: ControlPlane, tmp_path: Path, capsys: Captured) -> None:
    assert main(["completion", "kubectl"]) == 0
    script = tmp_path / "kubectl_complete-trimtab"
    script.write_text(capsys.readouterr().out)
    script.chmod(0o755)
    path = f"{tmp_path}:{BIN}:{trimtab_crds.binaries.kubectl.parent}:{os.environ['PATH']}"
    kubectl = [str(trimtab_crds.binaries.kubectl), "__complete", "trimtab", "res"]
    done = subprocess.run(kubectl, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path})
    assert sorted(line.partition("\t")[0] for line in done.stdout.splitlines()) == [":4", "restore", "resume"]
