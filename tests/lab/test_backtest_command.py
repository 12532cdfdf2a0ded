"""`trimtab backtest` as users run it: tables, JSON, Markdown, requirements, and what it says of wrong input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorded_history import POLICY, RecordedHistory
from trim_world import START, World, spread
from trimtab_lab.backtest.gate import GATED, InvalidRequirementError, requirements
from trimtab_lab.backtest.trace import Figures
from trimtab_operator.cli.main import main

SOURCE = {"source": {"prometheus": {"url": "http://prometheus.messaging.svc:9090"}}}
STILL = {"shedder": {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half an hour of three brokers, one of them at 70 %, on which nobody acted: the policy was in mode DryRun."""
    root = tmp_path_factory.mktemp("history")
    history, random = RecordedHistory(root), np.random.default_rng(5)
    world = World.of(spread(70, 20, 1), spread(25, 20, 2), spread(25, 20, 3))
    history.policy(START, SOURCE)
    for _ in range(30):
        history.cycle(world.cluster(random.normal(1, 0.05, len(world.load))))
        world.now += 60
    return root


def manifest(path: Path, name: str, spec: dict[str, Any]) -> str:
    """A file with a policy."""
    kind = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BalancingPolicy"}
    path.write_text(json.dumps({**kind, "metadata": {"name": name}, "spec": {**SOURCE, **spec}}))
    return str(path)


@pytest.fixture(scope="module")
def trim(folder: Path) -> str:
    return manifest(folder / "trim.yaml", "trim", {})


@pytest.fixture(scope="module")
def still(folder: Path) -> str:
    return manifest(folder / "still.yaml", "still", STILL)


def backtest(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    code = main(["backtest", "--history", str(folder), *words])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_the_table_compares_the_policies_with_what_happened(
    capsys: pytest.CaptureFixture[str], folder: Path, trim: str, still: str
) -> None:
    code, out, _ = backtest(capsys, folder, "--policy", trim, "--against", still)

    assert code == 0
    assert out.startswith(f"{POLICY}: 1970-01-12 13:46:40 to 1970-01-12 14:15:40 UTC (29m), 30 cycles\n")
    names = [line.split()[0] for line in out.splitlines() if line.startswith((" trim", " still", " live"))]
    assert names == ["trim", "still", "live"]
    assert "moves instead of 0 (still), the brokers within" in out
    assert "Check: the recorded policy was in mode DryRun and moved nothing by itself." in out


def test_policies_may_be_called_as_the_report_calls_what_happened(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    live, recorded = manifest(tmp_path / "a.yaml", "live", {}), manifest(tmp_path / "b.yaml", "recorded", STILL)
    code, out, _ = backtest(capsys, folder, "--policy", live, "--against", recorded, "--html", str(tmp_path / "a.html"))

    assert code == 0
    names = [line[1:].split("  ")[0] for line in out.splitlines() if line.startswith((" live", " recorded"))]
    assert names == ["live (policy)", "recorded (against)", "live"]
    assert "live (policy)" in (tmp_path / "a.html").read_text()


def test_json_has_every_figure_and_each_namespace(capsys: pytest.CaptureFixture[str], folder: Path, trim: str) -> None:
    _, out, _ = backtest(capsys, folder, "--policy", trim, "-o", "json")

    found = json.loads(out)
    first, live = found["policies"]
    assert (first["name"], live["name"]) == ("trim", "live")
    assert set(GATED) < set(first)
    assert first["namespaces"]["public/default"]["moves"] == first["moves"] > 0
    assert live["moves"] == 0
    assert live["measured"] == 1
    assert found["from"] == "1970-01-12T13:46:40.000Z"


def test_markdown_is_a_comment_with_a_table(capsys: pytest.CaptureFixture[str], folder: Path, trim: str) -> None:
    code, out, _ = backtest(capsys, folder, "--policy", trim, "-o", "markdown", "--require", "moves<=live")

    assert code == 1
    assert out.startswith("### Trimtab backtest\n")
    assert "\n| policy | moves | again | cut % |" in out
    assert "\n| public/default |" in out
    assert "\n**Not met**: moves<=live: moves is " in out


def test_without_a_policy_the_recorded_one_is_replayed(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    _, out, _ = backtest(capsys, folder)

    assert [line.split()[0] for line in out.splitlines() if line.startswith((" recorded", " live"))] == [
        "recorded",
        "live",
    ]


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ("area<=live*0.5, cut<=60%", 0),
        ("moves<against*2, moves>0, measured>=50%", 1),
        ("moves<=live", 1),
        ("area < live , within<= 60", 0),
    ],
)
def test_requirements_decide_the_exit_code(
    capsys: pytest.CaptureFixture[str], folder: Path, trim: str, still: str, rules: str, code: int
) -> None:
    found, _, errors = backtest(capsys, folder, "--policy", trim, "--against", still, "--require", rules)

    assert found == code
    assert ("not met: moves" in errors) == bool(code)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--require", "moves=3"], "'moves=3' is not a requirement: write moves<=live*0.5"),
        (["--require", "luck<=3"], "there is no figure 'luck': use moves, again, cut"),
        (["--require", "moves<=3%"], "moves is not a percentage"),
        (["--require", "measured>=80"], "measured is a ratio from 0 to 1, or a percentage such as 80%"),
        (["--require", "splits<=3"], "a replay makes none without --splits on"),
        (["--require", "moves<=best"], "compare with a number, live or against, not 'best'"),
        (["--require", "moves<=against"], "name a policy with --against"),
        (["--recorded", "other"], "policy 'other' has no history"),
        (["--from", "2001-01-01", "--to", "2001-02-01"], "there are fewer than two cycles; the history has 1970-01-12"),
        (["--from", "2h", "--days", "1"], "argument --days: not allowed with argument --from"),
        (["--policy", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_wrong_input_is_named(
    capsys: pytest.CaptureFixture[str], folder: Path, words: Sequence[str], said: str
) -> None:
    code, _, errors = backtest(capsys, folder, *words)

    assert code == 2
    assert said in errors


def test_a_page_that_cant_be_written_loses_no_result(
    capsys: pytest.CaptureFixture[str], folder: Path, still: str
) -> None:
    code, out, errors = backtest(capsys, folder, "--policy", still, "--html", str(folder / "none" / "page.html"))

    assert code == 2
    assert "still: 0 moves instead of 0 (live)" in out
    assert "No such file or directory" in errors


def test_requirements_judge_one_policy(capsys: pytest.CaptureFixture[str], folder: Path, trim: str, still: str) -> None:
    code, _, errors = backtest(capsys, folder, "--policy", trim, "--policy", still, "--require", "moves<=live")

    assert code == 2
    assert "--require judges one policy, but --policy names 2" in errors


def test_a_folder_without_a_history_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, errors = backtest(capsys, tmp_path)

    assert code == 2
    assert "trimtab run --history" in errors


def test_a_history_without_a_policy_needs_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    history, world = RecordedHistory(tmp_path), World.of([50, 5], [20])
    for _ in range(3):
        history.cycle(world.cluster())
        world.now += 60

    code, _, errors = backtest(capsys, tmp_path)

    assert code == 2
    assert "does not say which policy ran: name one with --policy" in errors


def figures(**given: float) -> Figures:
    zeros = dict.fromkeys(("moves", "again", "hot", "cycles"), 0)
    others = dict.fromkeys(("cut", "silent", "area", "within", "worst", "worst_at", "measured", "hours"), 0.0)
    return Figures(**{**zeros, **others, **given})  # type: ignore[arg-type]


def test_a_figure_that_is_not_known_meets_nothing() -> None:
    [rule] = requirements("cut<=5%")

    assert rule.failure({"policy": figures(cut=float("nan"))}) == "cut<=5%: cut is not known"


def test_a_percentage_of_measured_work_is_a_ratio() -> None:
    [rule] = requirements("measured>=90%")

    assert not rule.failure({"policy": figures(measured=0.91)})
    assert rule.failure({"policy": figures(measured=0.89)}).endswith("measured is 0.89, allowed is >= 0.9")


@pytest.mark.parametrize("text", ["", " , "])
def test_no_requirement_is_none(text: str) -> None:
    assert requirements(text) == ()


@pytest.mark.parametrize("text", ["moves<=", "moves", "<=3", "moves<=live*", "moves<=-3", "moves<=1e9x"])
def test_what_is_no_requirement_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequirementError, match="is not a requirement"):
        requirements(text)
