"""`trimtab tune` finds better parameters where the answer is known, judges them on other load, and applies nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from recorded_history import POLICY, RecordedHistory
from trim_world import World, spread
from trimtab_lab.backtest.search import AS_IS, Search, UnjudgedError
from trimtab_lab.backtest.sweep import Sweep, variants
from trimtab_lab.backtest.tasks import InProcess
from trimtab_operator.cli.main import main
from trimtab_pipeline.history.recording import Recording

pytestmark = pytest.mark.long

POLICY_HEAD = """\
apiVersion: trimtab.dev/v1alpha1
kind: BalancingPolicy
metadata: {name: main}
spec:
  source: {prometheus: {url: "http://prometheus:9090"}}
"""
DEAR = (
    POLICY_HEAD
    + """\
  shedder:
    type: Trim
    trim:
      price: 100000  # so dear that nothing moves
"""
)
HALF = ("--train", "0.5")
TWO = ("--search", "shedder.trim.price=300,90000")
"""One value that levels the cluster, and one that is as bad as what there is."""


def record(root: Path, cycles: int, *, level_from: int | None = None, brokers: int = 3) -> Path:
    """Cycles of four minutes: one broker at 70 % and the others at 25 %, all at 40 % from cycle `level_from` on."""
    history, random = RecordedHistory(root), np.random.default_rng(5)
    rows = [spread(70 if row == 0 else 25, 8, row + 1) for row in range(brokers)]
    world = World.of(*rows)
    for cycle in range(cycles):
        if cycle == level_from:
            world.load *= 40 / world.points()[world.owner]
        history.cycle(world.cluster(random.normal(1, 0.02, len(world.load))))
        world.now += 240
    return root


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nobody levelled it."""
    return record(tmp_path_factory.mktemp("uneven"), 34)


@pytest.fixture(scope="module")
def levelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It levelled itself in the second half: what paid before no longer does."""
    return record(tmp_path_factory.mktemp("levelled"), 34, level_from=16)


@pytest.fixture
def dear(tmp_path: Path) -> Path:
    file = tmp_path / "main.yaml"
    file.write_text(DEAR)
    return file


def tune(capsys: pytest.CaptureFixture[str], folder: Path, policy: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    code = main(["tune", "--history", str(folder), "--policy", str(policy), *words])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_the_known_better_value_wins_and_is_printed_as_a_change(
    capsys: pytest.CaptureFixture[str], uneven: Path, dear: Path
) -> None:
    code, out, _ = tune(capsys, uneven, dear, *TWO, *HALF)

    assert code == 0
    assert "which the search has not seen" in " ".join(out.split())
    assert [line.split()[0] for line in out.splitlines() if line.startswith((" as", " tuned", " live"))] == [
        "as",
        "tuned",
        "live",
    ]
    assert "The best: price=300." in out
    assert "\n-      price: 100000  # so dear that nothing moves\n+      price: 300  # so dear" in out
    assert dear.read_text() == DEAR


@pytest.mark.slow
def test_json_has_the_evidence(capsys: pytest.CaptureFixture[str], uneven: Path, dear: Path) -> None:
    found = json.loads(tune(capsys, uneven, dear, *TWO, *HALF, "-o", "json")[1])

    assert found["better"]
    assert found["best"] == {"name": "price=300", "fields": {"shedder.trim.price": 300}}
    before, after = found["judged"]["as it is"], found["judged"]["price=300"]
    assert before["moves"] == 0 < after["moves"]
    assert found["gained"] == pytest.approx(1 - after["cost"] / before["cost"])
    assert found["gained"] > 0.3
    assert max(rung["to"] for rung in found["rungs"]) < found["from"]


SPLITTING = (
    POLICY_HEAD
    + """\
  limits: {coolDown: 1m}
  split: {type: BundleSplitterTask, bundleSplitterTask: {maxThroughput: 1Gi, maxRate: 1000000}}
"""
)
SPLIT_EARLIER = ("--search", "split.bundleSplitterTask.maxThroughput=400Mi", *HALF, "--weight", "0.1")


@pytest.fixture
def hot(tmp_path: Path) -> tuple[Path, Path]:
    """A bundle with 60 % of a broker, which no other one has room for; and a policy that would never split it."""
    history, world = RecordedHistory(tmp_path), World.of([60, 5], [10], [10])
    for _ in range(34):
        load = world.cluster()
        history.cycle(replace(load, bundles=replace(load.bundles, topics=np.full(4, 20.0))))
        world.now += 240
    file = tmp_path / "main.yaml"
    file.write_text(SPLITTING)
    return tmp_path, file


@pytest.mark.slow
def test_parameters_of_a_splitter_are_searched_with_its_splits(
    capsys: pytest.CaptureFixture[str], hot: tuple[Path, Path]
) -> None:
    code, out, _ = tune(capsys, *hot, *SPLIT_EARLIER, "--splits", "on", "-o", "json")
    _, told, _ = tune(capsys, *hot, *SPLIT_EARLIER, "--splits", "on")

    found = json.loads(out)
    before, after = found["judged"]["as it is"], found["judged"]["maxThroughput=400Mi"]
    assert code == 0
    assert found["better"]
    assert before["splits"] == 0 < after["splits"]
    assert after["area"] < 0.8 * before["area"]
    assert "maxThroughput: 400Mi" in found["diff"]
    assert f"tuned: {after['splits']} split" in told
    assert not any("Splits are left out" in line for line in found["lacks"])


def test_without_splits_a_splitter_has_nothing_to_search(
    capsys: pytest.CaptureFixture[str], hot: tuple[Path, Path]
) -> None:
    code, _, errors = tune(capsys, *hot, *SPLIT_EARLIER)

    assert code == 2
    assert "--search split.bundleSplitterTask.maxThroughput: the splitter has no effect without --splits on" in errors


@pytest.mark.slow
def test_what_a_search_leaves_out_is_told(capsys: pytest.CaptureFixture[str], hot: tuple[Path, Path]) -> None:
    _, out, _ = tune(capsys, *hot, "--search", "shedder.trim.price=300", *HALF, "-o", "json")

    assert json.loads(out)["lacks"] == [
        "The history does not say at its beginning which bundles were pinned: until it does, none is.",
        "Splits are left out: main would make some. --splits on replays them.",
        "The history has a cycle every 4m, so main decides every 4m here, not every 1m.",
    ]


@pytest.mark.slow
def test_what_pays_only_on_load_that_was_seen_is_not_proposed(
    capsys: pytest.CaptureFixture[str], levelled: Path, dear: Path
) -> None:
    code, out, _ = tune(capsys, levelled, dear, *TWO, "--train", "0.47", "-o", "json")

    found = json.loads(out)
    assert code == 0
    assert found["best"]["name"] == "price=300"
    last = found["rungs"][-1]["costs"]
    assert last["price=300"] < 0.6 * last["as it is"]
    assert not found["better"]
    assert found["diff"] == ""
    said = tune(capsys, levelled, dear, *TWO, "--train", "0.47")[1]
    assert ": keep the policy as it is." in said
    assert "+++" not in said


@pytest.mark.slow
def test_the_diff_is_one_that_git_applies(
    capsys: pytest.CaptureFixture[str], uneven: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder inside of the repository, too."""
    inner = tmp_path / "repository" / "team a"
    inner.mkdir(parents=True)
    file = inner / "main.yaml"
    file.write_bytes(DEAR.rstrip("\n").replace("\n", "\r\n").encode())
    subprocess.run(["git", "init", "-q", inner.parent], check=True)
    monkeypatch.chdir(inner)

    _, out, _ = tune(capsys, uneven, Path("main.yaml"), *TWO, *HALF, "-o", "diff")

    assert out.startswith(f"# {POLICY}: judged on ")
    subprocess.run(["git", "apply"], input=out.encode(), check=True)
    assert file.read_bytes() == DEAR.replace("100000", "300").rstrip("\n").replace("\n", "\r\n").encode()


@pytest.mark.slow
def test_values_are_drawn_from_ranges_and_the_seed_decides_which(
    capsys: pytest.CaptureFixture[str], uneven: Path, dear: Path
) -> None:
    words = ("--search", "shedder.trim.price=100..90000", "--search", "shedder.trim.worth", "--samples", "3")

    one, same, other = (
        json.loads(tune(capsys, uneven, dear, *words, *HALF, "-o", "json", "--seed", seed)[1]) for seed in "112"
    )

    assert one == same
    assert len(one["rungs"][0]["costs"]) == 4
    assert one["rungs"][0]["costs"].keys() != other["rungs"][0]["costs"].keys()
    assert {*one["best"]["fields"]} == {"shedder.trim.price", "shedder.trim.worth"}
    assert one["better"]


@pytest.mark.slow
def test_without_a_search_all_numbers_of_the_shedder_are_searched(
    capsys: pytest.CaptureFixture[str], uneven: Path, dear: Path
) -> None:
    found = json.loads(tune(capsys, uneven, dear, "--samples", "2", *HALF, "-o", "json")[1])

    assert {field.rpartition(".")[0] for field in found["best"]["fields"]} == {"shedder.trim"}
    assert {"shedder.trim.price", "shedder.trim.worth", "shedder.trim.hot"} < {*found["best"]["fields"]}


@pytest.mark.slow
def test_each_rung_keeps_the_best_third_for_three_times_the_load(uneven: Path) -> None:
    times = Recording(str(uneven), POLICY).times(0, 1e12)
    policy = {"metadata": {"name": "main", "namespace": "messaging"}, "spec": yaml.safe_load(DEAR)["spec"]}
    made = variants(policy, [Sweep.of(f"shedder.trim.price={','.join(map(str, prices()))}")], 1, 1)

    tuned = Search(str(uneven), POLICY, times[:18], times[18:], 1.0).run(policy, made, InProcess(), lambda _: None)

    assert [len(rung.costs) - 1 for rung in tuned.rungs] == [9, 3, 1]
    assert [round((rung.end - rung.begin) / 240) + 1 for rung in tuned.rungs] == [2, 6, 18]
    assert all(list(rung.costs.values()) == sorted(rung.costs.values()) for rung in tuned.rungs)
    assert tuned.begin > tuned.rungs[-1].end
    assert AS_IS in tuned.rungs[-1].costs
    assert tuned.winner is not None
    assert tuned.winner.changes[("shedder", "trim", "price")] <= 1000


def prices() -> list[int]:
    """Two that level the cluster, and seven that do not."""
    return [300, 1000, *range(90000, 97000, 1000)]


def test_load_of_one_broker_tells_nothing(tmp_path: Path) -> None:
    times = Recording(str(record(tmp_path, 8, brokers=1)), POLICY).times(0, 1e12)
    policy = {"metadata": {"name": "main", "namespace": "messaging"}, "spec": yaml.safe_load(DEAR)["spec"]}
    made = variants(policy, [Sweep.of("shedder.trim.price=300")], 1, 1)

    with pytest.raises(UnjudgedError, match="fewer than two brokers were measured at a time"):
        Search(str(tmp_path), POLICY, times[:4], times[4:], 1.0).run(policy, made, InProcess(), lambda _: None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--search", "shedder.trim.prise=1,2"], "prise=1 is not a valid policy: spec.shedder.trim.prise"),
        (["--search", "shedder.trim.prise"], "--search: shedder.trim.prise has no range of its own"),
        (["--search", "price"], "--search: 'price' is not a sweep"),
        (["--search", "shedder.trim.price=5..1"], "a range goes up from 0 or more"),
        (["--samples", "0"], "argument --samples: 0 is below 1"),
        (["--train", "1"], "--train 1 leaves no time to judge the winner on: give a ratio below 1"),
        (["--train", "0"], "0 is not above 0"),
        (["--weight", "-1"], "-1 is not above 0"),
        (["--train", "0.9"], "one of the parts has 0.3 hours of recorded load, and 1 are needed"),
        (["--recorded", "other"], "policy 'other' has no history"),
        (["--spark", "yarn"], "master 'yarn' must be local[N]"),
    ],
)
def test_wrong_input_is_named(
    capsys: pytest.CaptureFixture[str], uneven: Path, dear: Path, words: Sequence[str], said: str
) -> None:
    code, _, errors = tune(capsys, uneven, dear, *words, *(() if "--train" in words else HALF))

    assert code == 2
    assert said in errors


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "main.yaml: there is no such file; name the manifest that tune should change"),
        (f"{DEAR}---\n{DEAR.replace('name: main', 'name: other')}", "has 2 policies: tune works on one"),
        ("kind: Secret\nmetadata: {name: main}\n", "must hold a BalancingPolicy"),
        (f"base: &base 100000\n{DEAR.replace('price: 100000', 'price: *base')}", "base"),
    ],
)
def test_a_wrong_file_is_named(
    capsys: pytest.CaptureFixture[str], uneven: Path, tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "main.yaml"
    if text is not None:
        file.write_text(text)

    code, _, errors = tune(capsys, uneven, file, *TWO, *HALF)

    assert code == 2
    assert said in errors


@pytest.mark.slow
def test_a_file_with_aliases_is_left_alone_and_the_winner_named(
    capsys: pytest.CaptureFixture[str], uneven: Path, tmp_path: Path
) -> None:
    file = tmp_path / "main.yaml"
    file.write_text(
        DEAR.replace("spec:\n", "spec:\n  limits: {maxMovesPerHour: &dear 100000}\n").replace(
            ": 100000  #", ": *dear  #"
        )
    )

    code, _, errors = tune(capsys, uneven, file, *TWO, *HALF)

    assert code == 2
    assert "its text has no place of its own for spec.shedder.trim.price" in errors
    assert "the winner is price=300" in errors


def test_a_long_gap_does_not_count_as_load(capsys: pytest.CaptureFixture[str], tmp_path: Path, dear: Path) -> None:
    history, world = RecordedHistory(tmp_path / "gappy"), World.of(spread(70, 8, 1), spread(25, 8, 2))
    for cycle in range(60):
        world.now += 7200 if cycle == 30 else 60
        history.cycle(world.cluster())

    code, _, errors = tune(capsys, tmp_path / "gappy", dear, *TWO, *HALF)

    assert code == 2
    assert "one of the parts has 0.5 hours of recorded load" in errors


@pytest.mark.spark
def test_spark_finds_the_same(capsys: pytest.CaptureFixture[str], uneven: Path, dear: Path) -> None:
    """In a process of its own, as one process has one embedded Spark, and this one may have that of other tests."""
    here = tune(capsys, uneven, dear, *TWO, *HALF, "-o", "json")[1]
    words = ["tune", "--history", str(uneven), "--policy", str(dear), *TWO, *HALF, "-o", "json", "--spark", "local[2]"]
    command = [sys.executable, "-m", "trimtab_operator", *words]
    there = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout

    assert json.loads(there) == json.loads(here)
