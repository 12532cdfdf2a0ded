"""The command line: verbs, help that teaches, exit codes, and one clear line for each mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

from trimtab_operator import __version__
from trimtab_operator.cli import main
from trimtab_operator.cli.parser import VERBS
from trimtab_operator.resources.crd import rendered_crds

ROOT = Path(__file__).parents[2]
RECORDING = min((ROOT / "tests/conformance/pulsar").glob("*.gz"))


def test_the_crds_in_the_repository_are_those_of_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds", "--check", str(ROOT / "crds")]) == 0
    assert capsys.readouterr().out == ""


def test_printed_crds_are_what_kubectl_applies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds"]) == 0
    kinds = [document["spec"]["names"]["kind"] for document in yaml.safe_load_all(capsys.readouterr().out)]
    assert sorted(kinds) == ["BalancingPolicy", "Broker", "Bundle", "BundleSplit", "TopicNamespace"]


@pytest.mark.slow
def test_written_crds_pass_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "crds"
    assert main(["crds", "--write", str(folder)]) == 0
    assert capsys.readouterr().out.split() == [str(folder / name) for name in rendered_crds()]
    assert main(["crds", "--check", str(folder)]) == 0


def test_drift_is_shown_as_a_difference_with_the_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["crds", "--write", str(tmp_path)])
    changed = tmp_path / "trimtab.dev_bundles.yaml"
    changed.write_text(changed.read_text().replace("maxLength: 253", "maxLength: 63", 1))
    (tmp_path / "trimtab.dev_brokers.yaml").unlink()
    (tmp_path / "old.yaml").touch()
    capsys.readouterr()
    assert main(["crds", "--check", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "-                  maxLength: 63" in shown
    assert "+    kind: Broker" in shown
    assert "old.yaml belongs to no kind: delete it" in shown
    assert f"trimtab crds --write {tmp_path}" in shown


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_each_verb_teaches_by_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "example" in shown
    assert f"trimtab {verb} " in shown


def test_the_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    listed = {verb for verb, known in VERBS.items() if f"  {verb:<13} {known.help}\n" in shown}
    assert listed == {verb for verb, known in VERBS.items() if not known.hidden}
    assert "  apply " not in shown
    assert "demo" in shown


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"trimtab {__version__}\n"


@pytest.mark.parametrize("words", [[], ["crds", "--chekc", "x"], ["crds", "--write", "a", "--check", "b"]])
def test_wrong_usage_is_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "usage: trimtab" in capsys.readouterr().err


def test_without_a_verb_all_verbs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "  status        show the state of policies" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "told"),
    [("stats", "did you mean status? `trimtab --help`"), ("xyz", "verb xyz; `trimtab --help` lists all")],
)
def test_a_verb_that_there_is_not_is_told_in_one_line(word: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"trimtab: there is no verb {word}; ")
    assert told in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["explain"], "the following arguments are required: bundle|broker, NAME"),
        (
            ["rbac", "-n", "Bad_Name"],
            "--namespace 'Bad_Name' is not the name of a namespace: write up to 63 lower-case",
        ),
    ],
)
def test_a_wrong_word_is_named_as_the_user_knows_it(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err


def test_the_hint_of_a_check_repeats_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--watch-nodes", "-n", "messaging-eu", "--stop-deployment", "trimtab"]
    assert main(["rbac", *options, "--write", str(tmp_path)]) == 0
    assert main(["rbac", *options, "--check", str(tmp_path)]) == 0
    assert main(["rbac", "--check", str(tmp_path)]) == 1
    assert capsys.readouterr().out.endswith(f"update it with: trimtab rbac --write {tmp_path}\n")

    assert main(["rbac", "--watch-nodes", "--namespace", "other", "--check", str(tmp_path)]) == 1
    hint = capsys.readouterr().out.splitlines()[-1].partition("update it with: trimtab ")[2]
    assert main(hint.split()) == 0
    assert main(["rbac", "--watch-nodes", "--namespace", "other", "--check", str(tmp_path)]) == 0


def test_a_file_that_is_no_yaml_has_no_object_to_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text("a: b: c\n")
    assert main(["lint", str(file)]) == main(["lint", str(file), "-o", "github"]) == 1
    line, annotation = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{file}:1: error: is not YAML: ")
    assert "::is not YAML: " in annotation


@pytest.mark.parametrize(
    ("mode", "said"), [("mode: DryRun, ", "spec.mode is DryRun: "), ("", "spec has mode DryRun: ")]
)
def test_a_finding_about_the_mode_names_the_field_once(
    mode: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: BalancingPolicy\nmetadata: {name: main}\n"
        f"spec: {{{mode}source: {{prometheus: {{url: 'http://prometheus.monitoring.svc:9090'}}}}}}\n"
    )
    main(["lint", str(file)])
    assert f": notice: BalancingPolicy/main: {said}" in capsys.readouterr().out


def test_a_folder_that_is_none_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds", "--check", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith(f"trimtab: {tmp_path / 'none'} is not a folder; make it with: ")


def plugin(module: str) -> EntryPoint:
    """A verb `extra` that another package adds."""
    return EntryPoint("extra", f"{module}:register", "trimtab.commands")


def test_another_package_can_add_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extra", "--fail", "nothing"], plugins=[plugin("extra_verb")]) == 1
    assert main(["--help"], plugins=[plugin("extra_verb")]) == 0
    assert "  extra         added by extra_verb" in capsys.readouterr().out


@pytest.mark.parametrize("failure", ["usage", "connection", "address"])
def test_what_a_person_can_mend_is_told_in_one_line(failure: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extra", "--fail", failure], plugins=[plugin("extra_verb")]) == 2
    assert capsys.readouterr().err == f"trimtab: the {failure} is wrong\n"


def test_a_verb_whose_package_is_missing_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extra"], plugins=[plugin("a_package_that_is_not_there")]) == 2
    assert capsys.readouterr().err == (
        "trimtab: extra needs a_package_that_is_not_there, which is not installed; "
        "install it with: pip install 'WHEEL[extra]', with the path of your wheel of trimtab, "
        "or pip install '.[extra]' in a clone of Trimtab\n"
    )


def test_help_loads_no_heavy_package() -> None:
    code = "import sys; from trimtab_operator.cli import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "kopf", "pyspark", "kubernetes", "pydantic", "aiohttp", "rich", "argcomplete"}
    assert not heavy & set(done.stdout.split())


def test_it_is_a_module_and_a_kubectl_plugin_too() -> None:
    module = subprocess.run(
        [sys.executable, "-m", "trimtab_operator", "--version"], capture_output=True, text=True, check=True
    )
    script = Path(sys.executable).with_name("kubectl-trimtab")
    plugin = subprocess.run([str(script), "--version"], capture_output=True, text=True, check=True)
    assert module.stdout == plugin.stdout == f"trimtab {__version__}\n"


@pytest.mark.slow
def test_a_reader_that_goes_away_leaves_no_traceback() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "trimtab_operator", "crds"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
