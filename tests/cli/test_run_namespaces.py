"""`trimtab run`: which namespaces it watches, and where its Lease is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trimtab_operator.cli import main
from trimtab_operator.cli.commands.run import watched
from trimtab_operator.cli.parser import parser_for


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A kubeconfig whose context names a namespace."""
    context = {"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "trimtab-system"}}
    (file := tmp_path / "kubeconfig").write_text(yaml.safe_dump({"contexts": [context], "current-context": "x"}))
    return file


@pytest.mark.parametrize(
    ("words", "namespaces", "lease"),
    [
        (["-n", "a"], ("a",), "a"),
        (["-n", "a", "-n", "b", "-n", "a"], ("a", "b"), "trimtab-system"),
        (["-A"], (), "trimtab-system"),
        (["-n", "a", "--lease-namespace", "c"], ("a",), "c"),
        (["-A", "--lease-namespace", "c"], (), "c"),
    ],
)
def test_the_lease_of_several_namespaces_is_in_the_operators_own(
    words: list[str], namespaces: tuple[str, ...], lease: str, kubeconfig: Path
) -> None:
    arguments = parser_for(["run"]).parse_args(["run", *words, "--kubeconfig", str(kubeconfig)])
    assert watched(arguments) == (namespaces, lease)


@pytest.mark.parametrize("words", [[], ["-A", "-n", "a"]], ids=["none", "both"])
def test_no_namespace_is_guessed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *words]) == 2
    assert "name the namespace of each messaging cluster with -n, or all with -A" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["-n", ""], ["-n", "a", "-n", ""]], ids=["alone", "one of two"])
def test_an_empty_namespace_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *words]) == 2
    assert "-n is given without a name" in capsys.readouterr().err
