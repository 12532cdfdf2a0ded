"""The side-by-side benchmark: its figures, its records and its summary."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from trimtab_operator.resources.strategy_unions import PlacementSpec, ShedderSpec

ROOT = Path(__file__).parents[2]
TOPICS = 36
HOT, WARM, COLD = range(3)


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    """Benchmarks are scripts that import each other by name."""
    folder = str(ROOT / "benchmarks")
    sys.path.append(folder)
    yield
    sys.path.remove(folder)


def script(name: str) -> Any:
    module: ModuleType = import_module(name)
    return module


def topics(*bundles: int) -> list[Any]:
    return [script("side_by_side_entrants").Topic(f"t-{n}", bundle) for n, bundle in enumerate(bundles)]


def row(at: float, acked: tuple[int, ...], owners: tuple[int, ...], cpu: tuple[float, ...] = (0, 0, 0)) -> Any:
    return script("side_by_side_figures").Row(at, acked, cpu, owners)


def change(at: float, bundle: int, source: int, target: int) -> Any:
    return script("side_by_side_figures").Change(at, bundle, source, target)


def steady(seconds: int, rates: tuple[int, ...], owners: tuple[int, ...]) -> list[Any]:
    return [row(float(s), tuple(s * rate for rate in rates), owners) for s in range(seconds + 1)]


def test_rates_are_shared_out_by_zipf() -> None:
    rates = script("side_by_side_entrants").rates(TOPICS, 600.0)

    assert sum(rates) == pytest.approx(600)
    assert [rates[0] / rate for rate in rates] == pytest.approx(range(1, TOPICS + 1))


def test_first_broker_begins_with_most_of_the_load() -> None:
    story = script("side_by_side_entrants")
    rates = story.rates()

    sums = np.bincount([story.first_owner(story.bundle_of(k)) for k in range(TOPICS)], weights=rates)

    assert sums[0] > 0.8 * sum(rates)
    assert len(sums) == story.BROKERS
    assert min(sums) > 0


def test_after_the_change_the_fullest_broker_has_the_hot_topics() -> None:
    served = topics(0, 1, 2, 3)

    after = script("side_by_side_entrants").shifted(served, {0: HOT, 1: WARM, 2: COLD, 3: COLD})

    assert sum(after.values()) == pytest.approx(600)
    assert sorted(after, key=lambda name: -after[name]) == ["t-2", "t-3", "t-0", "t-1"]


def test_messages_count_where_their_bundle_was_served() -> None:
    rows = [row(0, (0, 0), (0, 1)), row(1, (10, 4), (0, 1)), row(3, (30, 8), (2, 1))]

    assert script("side_by_side_figures").rates(rows, topics(0, 1)).tolist() == [[10, 4, 0], [0, 2, 10]]


@pytest.mark.parametrize(
    ("by_broker", "expected"), [((200, 200, 200), 0.0), ((600, 0, 0), 3.0), ((250, 200, 150), 0.5)]
)
def test_unevenness_is_the_range_against_the_mean(by_broker: tuple[float, ...], expected: float) -> None:
    assert script("side_by_side_figures").uneven(np.array([by_broker], dtype=float)).tolist() == [expected]


@pytest.mark.parametrize(
    ("unevenness", "expected"),
    [((0.1, 0.2), 0.0), ((3, 2, 0.4, 0.5), 20.0), ((3, 0.4, 0.6, 0.4), 30.0), ((0.1, 3), None), ((0.1, np.nan), None)],
)
def test_settled_means_level_until_the_end(unevenness: tuple[float, ...], expected: float | None) -> None:
    assert script("side_by_side_figures").settled(np.array(unevenness)) == expected


def test_bundle_that_moves_on_counts_again_and_one_that_comes_back_at_once_is_no_move() -> None:
    changes = [change(1, 0, HOT, WARM), change(2, 0, WARM, COLD), change(3, 1, HOT, HOT)]

    assert script("side_by_side_figures").counted(changes) == {"moves": 2, "again": 1, "returned": 1}


def test_half_tells_of_its_own_time_only() -> None:
    changes = [change(-1, 0, HOT, WARM), change(12, 0, HOT, WARM), change(20, 1, HOT, HOT), change(99, 0, WARM, HOT)]

    half = script("side_by_side_figures").half(steady(40, (30, 30, 60), (0, 1, 2)), topics(0, 1, 2), changes, 0.5)

    assert half["moves"] == 1
    assert half["moved_at"] == [12]
    assert half["rates"] == [[30, 30, 60]] * 4
    assert half["uneven"] == half["uneven_end"] == 0.75
    assert half["settled"] is None


def test_cpu_is_shown_in_percent_of_the_box() -> None:
    rows = [row(float(s), (s,), (0,), (0.3 * s, 0.15 * s, 0.0)) for s in range(21)]

    half = script("side_by_side_figures").half(rows, topics(0), [], 0.3)

    assert half["cpu"] == [[100, 50, 0]] * 2
    assert half["cpu_range"] == 100


def test_silence_is_what_exceeds_the_usual_pause() -> None:
    gaps = script("side_by_side_figures").gaps([100.0, 400.0, 90.0], [50.0, 150.0, 100.0])

    assert gaps == {"median": 100, "p90": 340, "max": 400, "interrupted": 0.3}


def test_nothing_moved_has_no_gap() -> None:
    assert script("side_by_side_figures").gaps([], []) == {"median": None, "p90": None, "max": None, "interrupted": 0.0}


def test_every_policy_names_strategies_that_there_are() -> None:
    policies = [entrant.policy for entrant in script("side_by_side_entrants").ENTRANTS.values() if entrant.policy]

    assert policies
    for policy in policies:
        ShedderSpec.model_validate(policy["shedder"])
        PlacementSpec.model_validate(policy["placement"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.25], "1.2"),
        ([None], "-"),
        ([3, 1, 2], "2.0 (1.0 to 3.0)"),
        ([1, 2], "1.5 (1.0 to 2.0)"),
        ([2, 2, 2], "2.0"),
        ([1, 2, None], "2.0 (1.0 to -)"),
        ([1, None], "- (1.0 to -)"),
        ([None, None, 1], "- (1.0 to -)"),
    ],
)
def test_a_cell_is_the_median_and_what_never_was_comes_last(values: list[float | None], expected: str) -> None:
    assert script("side_by_side").cell(values, 1) == expected


def finished(at: str, minutes: float = 5) -> dict[str, Any]:
    return {"finished": at, "minutes": minutes}


def test_all_first_runs_come_before_any_second_run() -> None:
    data = script("side_by_side")
    runs = {"a": [finished("2026-11-22 10:00")], "c": [finished("2026-11-22 11:00")] * 2}

    assert data.due(runs, ["a", "b", "c"], 3) == ["b", "a", "b", "a", "b", "c"]
    assert data.due(runs, ["a", "c"], 1) == []
    assert data.due(runs, ["a", "c"], 2, since="2026-11-22 10:01") == ["a", "a"]


def test_a_run_is_saved_behind_the_others_of_its_entrant(tmp_path: Path) -> None:
    bench, file = script("side_by_side"), tmp_path / "new" / "runs.json"

    bench.record(file, "trimtab-avg", finished("2026-11-22 10:00"))
    bench.record(file, "pulsar-avg", finished("2026-11-22 11:00"))
    bench.record(file, "trimtab-avg", finished("2026-11-22 12:00"))

    saved = json.loads(file.read_text())
    ours = saved["runs"]["trimtab-avg"]
    assert list(saved["runs"]) == ["pulsar-avg", "trimtab-avg"], "in the order of the page"
    assert [run["finished"] for run in ours] == ["2026-11-22 10:00", "2026-11-22 12:00"]
    assert (ours[0]["run_by"], ours[0]["strategy"]) == ("Trimtab", "AvgShedder")
    assert len(saved["story"]["missing"]) == len(script("side_by_side_entrants").ENTRANTS) - 2
    assert [each.name for each in file.parent.iterdir()] == ["runs.json"]


def test_the_first_new_run_replaces_those_of_an_entrant_that_do_not_count(tmp_path: Path) -> None:
    bench, file = script("side_by_side"), tmp_path / "runs.json"
    for name in ("pulsar-avg", "trimtab-avg"):
        bench.record(file, name, finished("2026-11-22 10:00"))

    bench.record(file, "trimtab-avg", finished("2026-11-23 09:00"), since="2026-11-23 00:00")
    bench.record(file, "trimtab-avg", finished("2026-11-23 10:00"), since="2026-11-23 00:00")

    runs = {name: [run["finished"] for run in of] for name, of in json.loads(file.read_text())["runs"].items()}
    assert runs == {
        "pulsar-avg": ["2026-11-22 10:00"],
        "trimtab-avg": ["2026-11-23 09:00", "2026-11-23 10:00"],
    }


def test_a_save_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    bench, file = script("side_by_side"), tmp_path / "runs.json"
    bench.record(file, "pulsar-avg", finished("2026-11-22 10:00"))
    before = file.read_bytes()

    with pytest.raises(TypeError):
        bench.record(file, "pulsar-avg", {**finished("2026-11-22 11:00"), "first": object()})

    assert file.read_bytes() == before


def test_what_is_recorded_is_not_played_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "runs.json"
    file.write_bytes(script("side_by_side").DATA.read_bytes())
    before = file.read_bytes()

    script("side_by_side").main(["--runs", "1", "--json", str(file)])

    assert file.read_bytes() == before
    assert capsys.readouterr().out == f"nothing to play: {file} has --runs 1 of each; --since TIME asks for new ones\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--runs", "9", "--minutes", "7"], "a median with runs of 7 says nothing; use its length or --since"),
        (["--runs", "0"], "0 is no number of runs; give 1 or more"),
        (["--runs", "some"], "some is no number of runs; give 1 or more"),
        (["--since", "yesterday"], "yesterday is no time; write it as 2026-11-23 or '2026-11-23 08:00'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_played(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        script("side_by_side").main(arguments)

    assert said in capsys.readouterr().err


def test_a_day_is_its_first_minute() -> None:
    moment = script("side_by_side").moment

    assert moment("2026-11-23") == "2026-11-23 00:00"
    assert moment("2026-11-23 8:05") == "2026-11-23 08:05"


def test_the_summary_is_that_of_the_recorded_runs() -> None:
    bench = script("side_by_side")
    runs = bench.read(bench.DATA)

    assert bench.DATA.with_suffix(".md").read_text() == bench.summary(runs)
    assert all(bench.title(run) in bench.summary(runs) for run, *_ in runs.values())


def test_the_summary_shows_medians_of_several_runs() -> None:
    bench = script("side_by_side")
    (last,) = bench.read(bench.DATA)["trimtab-threshold"]
    firsts = [{"settled": 90.0, "moves": 21}, {"settled": 60.0, "moves": 22}, {"settled": None, "moves": 23}]
    runs = [{**last, "first": {**last["first"], **first}} for first in firsts]

    row = bench.summary({"trimtab-threshold": runs}).splitlines()[-1]

    assert row.startswith(
        "| Trimtab: ThresholdShedder, modular, every 60s | 3 | 2026-11-22 14:26 | 90 (60 to -) / 90 |"
    )
    assert "| 22 (21 to 23) / 4 |" in row


def test_a_run_without_a_move_has_no_part_in_the_gap() -> None:
    bench = script("side_by_side")
    (moved,) = bench.read(bench.DATA)["trimtab-threshold"]
    still = {**moved, "gaps": {**moved["gaps"], "median": None}}

    assert "| 353 |" in bench.summary({"a": [still, moved]})
    assert "| - | 8.2 |" in bench.summary({"a": [still]})


def test_every_entrant_is_on_the_dated_page_and_in_its_drawing() -> None:
    bench = script("side_by_side")
    page, drawing = ((ROOT / "docs" / f"side-by-side.{kind}").read_text() for kind in ("md", "svg"))

    for run, *_ in bench.read(bench.DATA).values():
        assert f"| {bench.title(run)} |" in page
        assert bench.title(run) in drawing
