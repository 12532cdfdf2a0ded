"""Every command of the tutorial is run, in order, in the world of the demo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from doc_blocks import Block, blocks
from stage import until
from told_world import ROOT, ToldWorld, told_world

TUTORIAL = ROOT / "docs" / "tutorial" / "ten-minutes.md"

STAGES = {
    "make demo": "takes a minute and shows what the commands here look at",
    "make test": "is what runs this test",
}
"""Commands that CI runs as stages of their own, and why they are not run here."""

LEFT_OUT = {
    "make demo DEMO=--keep": "the demo without --keep is a stage of CI; what it leaves running is what runs here",
    "source .venv/bin/activate": "the shell of the tests has it on its PATH",
    "export KUBECONFIG": "the path is another one each time",
    "kind create cluster": "needs Docker",
    "helm install": "needs a cluster with nodes; tests/chart installs the chart on the API server",
    "kubectl apply -n messaging -f examples/01-dry-run.yaml": "belongs to the cluster of the two above",
}
"""Beginnings of commands below a paragraph that begins with "Not run", and why they are not run."""

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.spark, pytest.mark.timeout(1800)]


def read(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.commands]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToldWorld]:
    """The demo's, as it is when it has just begun."""
    with told_world(tmp_path_factory.mktemp("told")) as started:
        yield started


def carry_out(world: ToldWorld, page: Path) -> None:
    """Run what the page says; the first command that fails is named with its line and what it printed."""
    for block in read(page):
        for command in block.commands if block.run else ():
            if command.split("#")[0].strip() in STAGES:
                continue
            if command.startswith("trimtab run "):
                assert "serving /metrics" in world.serve(command), f"{page.name}, line {block.line}: {command}"
                continue
            ran = world.run(command)
            where = f"{page.name}, block of line {block.line}: {command}"
            assert ran.returncode == 0, f"{where}\nended with {ran.returncode}:\n{ran.stdout}"
            assert ran.stdout.strip(), f"{where}\nprinted nothing"


def test_every_command_of_the_tutorial_works_in_its_order(world: ToldWorld) -> None:
    until("the cluster is level, as the tutorial finds it", lambda: balanced(world), within=400)

    carry_out(world, TUTORIAL)

    assert world.stage.policy()["spec"]["mode"] == "Auto"
    assert world.run("kubectl get bspl halve -o jsonpath='{.status.phase}'").stdout == "Completed"


def balanced(world: ToldWorld) -> bool:
    conditions = world.stage.policy().get("status", {}).get("conditions", [])
    return any(c["type"] == "Balanced" and c["status"] == "True" for c in conditions) and world.settled()


def test_what_is_not_run_is_said_on_the_page_and_has_a_reason_here() -> None:
    left_out = [command for block in read(TUTORIAL) if not block.run for command in block.commands]

    assert [command for command in left_out if not command.startswith(tuple(LEFT_OUT))] == []


def test_every_reason_is_still_needed_and_ci_has_the_stages() -> None:
    left_out = [command for block in read(TUTORIAL) if not block.run for command in block.commands]
    stages = (ROOT / ".ci" / "run").read_text()

    assert [begin for begin in LEFT_OUT if not any(command.startswith(begin) for command in left_out)] == []
    assert [command for command in STAGES if command not in stages] == []
