"""Every command of README.md, the tutorial and the list of commands is run in a world of the demo, or said why not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from doc_blocks import Block, blocks, spans
from documented_cluster import ROOT, DocumentedCluster, documented_cluster
from small_cluster import until
from trimtab_operator.cli.parser import VERBS
from trimtab_testbed.demo.run import looking_around
from trimtab_testbed.simulated.scenarios import SCENARIOS

README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "ten-minutes.md"
DAILY = ROOT / "docs" / "reference" / "cli.md"
"""Its list of commands for every day; all other blocks of this page are usage and examples of the verbs."""
PAGES = (README, TUTORIAL, DAILY)
TOLD = [pytest.param(page, id=page.name) for page in (README, TUTORIAL)]

TARGETS = {
    "make demo": "a stage of CI: takes a minute, and shows what the commands here look at",
    "make test": "a stage of CI: takes minutes",
    "make test-full": "a stage of CI, and what runs this test",
    "make e2e": "a stage of CI: starts real Pulsar brokers, which takes minutes",
}
"""Commands that are run as they stand, but elsewhere, and why."""

LEFT_OUT = {
    "make demo DEMO=--keep": "the demo without --keep is a stage of CI; what it leaves running is what runs here",
    "helm uninstall trimtab -n pulsar": "tests/chart uninstalls the chart",
    "helm install trimtab charts/trimtab --namespace pulsar": "needs a registry; tests/chart installs the chart",
    "trimtab migrate --trim": "needs a Pulsar; tests/e2e migrates",
    "kubectl port-forward": "needs a Pulsar",
    "kubectl rollout status": "needs a kubelet; tests/chart waits for the same",
    "kubectl wait bpol/main -n pulsar": "needs a Pulsar; the same condition is waited for on the demo's cluster",
    "kubectl apply -n pulsar": "applies what the line above prints",
    "kubectl patch bpol main -n pulsar": "needs a Pulsar; tests/e2e hands over",
    "trimtab plan main -n pulsar": "needs a Pulsar; the same verb runs on the demo's cluster",
    "trimtab status main -n pulsar": "needs a Pulsar; the same verb runs on the demo's cluster",
    "trimtab approve main -n pulsar": "needs a Pulsar; the same verb runs on the demo's cluster",
    "trimtab stop main -n pulsar": "needs a Pulsar; tests/proposals stops",
    "trimtab restore -n pulsar": "needs a Pulsar; tests/e2e restores",
    "trimtab backtest": "tests/lab/test_backtest_command.py runs it",
    "trimtab simulate": "tests/lab/test_simulate_command.py runs it",
    ".venv/bin/trimtab simulate": "tests/lab/test_simulate_command.py runs it",
    ".venv/bin/pip install": "installs packages; tests/cli/test_extras.py plays with them",
    "pip install": "installs packages; tests/cli/test_extras.py plays with them",
    "python3 -m venv": "the tests have a virtual environment",
    "source .venv/bin/activate": "the shell of the tests has it on its PATH",
    "export PATH": "the tests have the built kubectl on their PATH",
    "export KUBECONFIG": "the path is another one each time",
}
"""Beginnings of commands below a comment `not run`, or in a sentence, and why they are not run."""

WAIT = "kubectl wait bpol/balance --for=condition=ProposalReady"
FIRST = {"trimtab approve": f"trimtab refresh balance -n demo && {WAIT}"}
"""What comes before a command of the list, whose readers saw the proposal: an older one is out of date."""

LANGUAGES = {"sh", "console", "yaml", "text", ""}
PROGRAM = re.compile(r"^(?:\$ )?(?:make|trimtab|kubectl|helm|kind|docker|source|python3?|pip) ")
HALVED = "fleet-telemetry-0x00000000-0x08000000"
"""The bundle that examples/05-bundle-split.yaml divides."""

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.long, pytest.mark.timeout(1800)]


def commands(page: Path, *, run: bool) -> list[tuple[Block, str]]:
    """The commands in blocks of a page; those that are run here or as a target, or those that are not."""
    return [(block, command) for block in blocks(page) if block.run is run for command in block.commands]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocumentedCluster]:
    """The demo's as it begins, uneven, but in mode Approve: the list comes first, the tutorial finds it level."""
    demo = SCENARIOS["skewed-96"]
    scenario = replace(demo, policy={**demo.policy, "mode": "Approve"})
    with documented_cluster(tmp_path_factory.mktemp("told"), scenario) as started:
        yield started


def carry_out(world: DocumentedCluster, page: Path, first: Mapping[str, str]) -> dict[str, str]:
    """Run what the page says; what each command printed. One that fails is named with its line."""
    printed: dict[str, str] = {}
    for block, command in commands(page, run=True):
        if bare(command) in TARGETS:
            continue
        where = f"{page.name}, block of line {block.line}: {command}"
        if command.startswith("trimtab run "):
            assert "serving /metrics" in world.serve(command), where
            continue
        for before in (step for begin, step in first.items() if command.startswith(begin)):
            assert world.run(before).returncode == 0, f"before {where}"
        ran = world.run(command)
        assert ran.returncode == 0, f"{where}\nended with {ran.returncode}:\n{ran.stdout}"
        assert ran.stdout.strip(), f"{where}\nprinted nothing"
        printed[bare(command)] = ran.stdout
    return printed


def bare(command: str) -> str:
    """Without its comment."""
    return command.split(" #", maxsplit=1)[0].strip()


def test_every_command_of_every_day_works_in_its_order(world: DocumentedCluster) -> None:
    # the page speaks of a cluster without Trimtab's kinds; here the demo made them, so kubectl takes them over
    assert world.run("trimtab crds | kubectl apply --server-side --force-conflicts -f -").returncode == 0
    assert world.run(WAIT).returncode == 0

    printed = carry_out(world, DAILY, FIRST)

    approved = printed["trimtab approve balance --namespace messaging --wait"]
    assert "100 %" in approved, approved
    restored = printed["trimtab restore --namespace messaging"]
    assert "nothing was switched off" in restored
    assert "finalizers" not in world.stage.policy()["metadata"], "nothing is switched off"


def test_every_command_of_the_tutorial_works_in_its_order(world: DocumentedCluster) -> None:
    world.run("""kubectl patch bpol balance --type merge -p '{"spec":{"mode":"Auto"}}'""")
    until("the cluster is level, as the tutorial finds it", lambda: balanced(world), within=900)

    printed = carry_out(world, TUTORIAL, {})

    assert world.stage.policy()["spec"]["mode"] == "Auto"
    assert halved(printed)


def halved(printed: Mapping[str, str]) -> bool:
    """Whether the split was shown as carried out; its object goes by itself some time later."""
    return any(re.search(rf"\b{HALVED} +Completed\b", text) for text in printed.values())


def balanced(world: DocumentedCluster) -> bool:
    conditions = world.stage.policy().get("status", {}).get("conditions", [])
    return any(c["type"] == "Balanced" and c["status"] == "True" for c in conditions) and world.settled()


@pytest.mark.parametrize("page", TOLD)
def test_what_is_not_run_is_marked_on_the_page_and_has_a_reason_here(page: Path) -> None:
    left_out = [command for _, command in commands(page, run=False)]

    assert [command for command in left_out if not command.startswith(tuple(LEFT_OUT))] == []


def test_the_tutorial_sets_what_the_demo_says_to_set() -> None:
    """By the same names and in the same order, and says nothing of tests to its readers."""
    said = [line.split("=")[0] for line in looking_around(Path("demo.kubeconfig"), Path("kube/kubectl"))[:2]]

    copied = [command.split("=")[0] for _, command in commands(TUTORIAL, run=False) if command.startswith("export ")]
    assert copied == said
    assert not re.search(r"\btests?\b", re.sub(r"<!--.*?-->|\([^)]*\)", "", TUTORIAL.read_text()))


@pytest.mark.parametrize("page", TOLD)
def test_no_command_hides_in_another_kind_of_block(page: Path) -> None:
    """A block that is not run, whatever its language, holds no line that begins with a program's name."""
    assert {block.language for block in blocks(page)} <= LANGUAGES
    quiet = [line for block in blocks(page) if not block.commands for line in block.text.splitlines()]

    assert [line for line in quiet if PROGRAM.match(line)] == []


@pytest.mark.parametrize("page", TOLD)
def test_a_command_inside_a_sentence_is_run_too_or_names_what_there_is(page: Path) -> None:
    """A verb or a target by its name is one that exists; with more than its name it is run, or has a reason here."""
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    names = {f"make {target}" for target in targets} | {f"trimtab {verb}" for verb in VERBS} | {"kubectl trimtab"}
    known = (*LEFT_OUT, *(bare(command) for page in PAGES for _, command in commands(page, run=True)))

    told = [span for span in spans(page) if PROGRAM.match(span)]
    assert [span for span in told if span not in names and not span.startswith(known)] == []


def test_every_reason_is_still_needed_and_every_target_exists() -> None:
    left_out = [command for page in PAGES for _, command in commands(page, run=False)]
    left_out += [span for page in PAGES for span in spans(page)]
    makefile = (ROOT / "Makefile").read_text()

    assert [begin for begin in LEFT_OUT if not any(command.startswith(begin) for command in left_out)] == []
    assert [command for command in TARGETS if f"\n{command.removeprefix('make ')}: " not in makefile] == []
    stages = (ROOT / ".ci" / "run").read_text()
    assert [command for command, why in TARGETS.items() if "stage of CI" in why and command not in stages] == []
