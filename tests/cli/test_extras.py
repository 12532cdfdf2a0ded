"""The plain installation has the command line; a verb that needs more names the extra that it needs."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from installation import ROOT, Installation
from trimtab_operator.cli.common import EXTRAS
from trimtab_operator.cli.parser import PLUGINS, VERBS
from trimtab_testbed.servers.processes import free_ports

pytestmark = pytest.mark.slow

MORE = dict.fromkeys(("plan", "move", "observe", "run", "history"), "pyarrow")
"""Verbs that the plain installation lacks, and the first package that each looks for."""

VERB_NAMES = sorted({*VERBS, *(point.name for point in entry_points(group=PLUGINS))})

HELP = """\
import contextlib, io, sys
from trimtab_operator.cli import main
for verb in {verbs}:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([verb, "--help"])
    print(verb, code, err.getvalue().strip())
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def measuring(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("measuring"), "measure")


def helps(installation: Installation) -> dict[str, str]:
    """What each verb's `--help` ends with: its exit code and what it says on standard error."""
    printed = installation.run(code=HELP.format(verbs=VERB_NAMES)).stdout
    return {verb: said for verb, _, said in (line.partition(" ") for line in printed.splitlines())}


def ask(port: int) -> list[str]:
    """A command line that measures by a Prometheus on this machine."""
    url = f"http://127.0.0.1:{port}"
    return ["observe", "--url", url, "-n", "messaging", "--allow-url", url]


def test_a_plain_installation_has_no_package_of_an_extra(plain: Installation) -> None:
    code = "from importlib.util import find_spec; import sys; print([n for n in sys.argv[1:] if find_spec(n)])"
    found = plain.run(code=code.replace("sys.argv[1:]", repr(list(EXTRAS)))).stdout
    assert found == "[]\n"


def test_each_verb_runs_or_says_which_extra_it_needs(plain: Installation) -> None:
    wanted = dict.fromkeys(VERB_NAMES, "0 ") | {
        verb: f"2 trimtab: {verb} needs {package}, which is not installed; install it with: "
        f"pip install 'WHEEL[{EXTRAS[package]}]', with the path of your wheel of trimtab, "
        f"or pip install '.[{EXTRAS[package]}]' in a clone of Trimtab"
        for verb, package in MORE.items()
    }
    assert helps(plain) == wanted


def test_a_plain_installation_simulates_lints_and_renders(plain: Installation, tmp_path: Path) -> None:
    quick = ["two-hot", "--strategy", "AvgShedder/Pulsar", "--seeds", "1", "--jobs", "1"]
    policy = str(ROOT / "examples" / "28-trim.yaml")
    for words in (
        ["simulate", *quick, "--picture", str(tmp_path / "load.svg"), "--policy", policy],
        ["lint", policy],
        ["crds"],
        ["rbac"],
    ):
        done = plain.run(*words)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (["explain", "broker", "a", "--history", "h"], "pyarrow"),
        (["backtest", "--history", "h", "--policy", "p.yaml"], "pyarrow"),
        (["demo"], "pyarrow"),
    ],
)
def test_a_verb_names_the_extra_once_it_needs_it(plain: Installation, words: list[str], package: str) -> None:
    done = plain.run(*words)
    extra = "demo" if words[0] == "demo" else EXTRAS[package]
    assert done.returncode == 2
    assert done.stderr.startswith(f"trimtab: {words[0]} needs {package}, which is not installed; install it with: ")
    assert f"'WHEEL[{extra}]'" in done.stderr


def test_measurements_need_neither_spark_nor_kopf(measuring: Installation) -> None:
    assert {verb: said for verb, said in helps(measuring).items() if said != "0 "} == {}

    (port,) = free_ports(1)
    done = measuring.run(*ask(port))
    assert f"http://127.0.0.1:{port} refused the connection" in done.stderr


STARTS_SPARK = """\
import argparse, sys
from trimtab_operator.cli.commands.run import load_sources
from trimtab_operator.cli.main import main
class Verb:
    name, module = "mine", "mine"
    def load(self):
        def register(subparsers):
            subparsers.add_parser("mine").set_defaults(run=lambda _: load_sources("history", "local[1]"))
        return register
sys.exit(main(["mine"], plugins=[Verb()]))
"""


def test_a_verb_that_starts_spark_names_its_extra(measuring: Installation) -> None:
    done = measuring.run(code=STARTS_SPARK)
    assert done.returncode == 2
    assert done.stderr.startswith("trimtab: mine needs pyspark, which is not installed; install it with: ")
    assert "'WHEEL[operator]'" in done.stderr
