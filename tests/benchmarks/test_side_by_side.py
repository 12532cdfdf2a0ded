"""The figures of the side-by-side run are those of what was seen, and its page says of them what is true."""

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

from trimtab_operator.resources.unions import PlacementSpec, ShedderSpec

ROOT = Path(__file__).parents[2]
TOPICS = 36
HOT, WARM, COLD = range(3)


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    """Benchmarks and pages are scripts: what they share lies beside them."""
    folders = [str(ROOT / "benchmarks"), str(ROOT / "docs" / "tools")]
    sys.path += folders
    yield
    for folder in folders:
        sys.path.remove(folder)


def script(name: str) -> Any:
    module: ModuleType = import_module(name)
    return module


def topics(*bundles: int) -> list[Any]:
    return [script("contest_story").Topic(f"t-{n}", bundle) for n, bundle in enumerate(bundles)]


def row(at: float, acked: tuple[int, ...], owners: tuple[int, ...], cpu: tuple[float, ...] = (0, 0, 0)) -> Any:
    return script("contest_watch").Row(at, acked, cpu, owners)


def change(at: float, bundle: int, source: int, target: int) -> Any:
    return script("contest_watch").Change(at, bundle, source, target)


def steady(seconds: int, rates: tuple[int, ...], owners: tuple[int, ...]) -> list[Any]:
    return [row(float(s), tuple(s * rate for rate in rates), owners) for s in range(seconds + 1)]


def test_rates_are_shared_out_by_zipf() -> None:
    rates = script("contest_story").rates(TOPICS, 600.0)

    assert sum(rates) == pytest.approx(600)
    assert [rates[0] / rate for rate in rates] == pytest.approx(range(1, TOPICS + 1))


def test_first_broker_begins_with_most_of_the_load() -> None:
    story = script("contest_story")
    rates = story.rates()

    sums = np.bincount([story.first_owner(story.bundle_of(k)) for k in range(TOPICS)], weights=rates)

    assert sums[0] > 0.8 * sum(rates)
    assert len(sums) == story.BROKERS
    assert min(sums) > 0


def test_after_the_change_the_fullest_broker_has_the_hot_topics() -> None:
    served = topics(0, 1, 2, 3)

    after = script("contest_story").shifted(served, {0: HOT, 1: WARM, 2: COLD, 3: COLD})

    assert sum(after.values()) == pytest.approx(600)
    assert sorted(after, key=lambda name: -after[name]) == ["t-2", "t-3", "t-0", "t-1"]


def test_messages_count_where_their_bundle_was_served() -> None:
    rows = [row(0, (0, 0), (0, 1)), row(1, (10, 4), (0, 1)), row(3, (30, 8), (2, 1))]

    assert script("contest_figures").rates(rows, topics(0, 1)).tolist() == [[10, 4, 0], [0, 2, 10]]


@pytest.mark.parametrize(
    ("by_broker", "expected"), [((200, 200, 200), 0.0), ((600, 0, 0), 3.0), ((250, 200, 150), 0.5)]
)
def test_unevenness_is_the_range_against_the_mean(by_broker: tuple[float, ...], expected: float) -> None:
    assert script("contest_figures").uneven(np.array([by_broker], dtype=float)).tolist() == [expected]


@pytest.mark.parametrize(
    ("unevenness", "expected"),
    [((0.1, 0.2), 0.0), ((3, 2, 0.4, 0.5), 20.0), ((3, 0.4, 0.6, 0.4), 30.0), ((0.1, 3), None), ((0.1, np.nan), None)],
)
def test_settled_means_level_until_the_end(unevenness: tuple[float, ...], expected: float | None) -> None:
    assert script("contest_figures").settled(np.array(unevenness)) == expected


def test_bundle_that_moves_on_counts_again_and_one_that_comes_back_at_once_is_no_move() -> None:
    changes = [change(1, 0, HOT, WARM), change(2, 0, WARM, COLD), change(3, 1, HOT, HOT)]

    assert script("contest_figures").counted(changes) == {"moves": 2, "again": 1, "returned": 1}


def test_half_tells_of_its_own_time_only() -> None:
    changes = [change(-1, 0, HOT, WARM), change(12, 0, HOT, WARM), change(20, 1, HOT, HOT), change(99, 0, WARM, HOT)]

    half = script("contest_figures").half(steady(40, (30, 30, 60), (0, 1, 2)), topics(0, 1, 2), changes, 0.5)

    assert half["moves"] == 1
    assert half["moved_at"] == [12]
    assert half["rates"] == [[30, 30, 60]] * 4
    assert half["uneven"] == half["uneven_end"] == 0.75
    assert half["settled"] is None


def test_cpu_is_told_in_percent_of_the_box() -> None:
    rows = [row(float(s), (s,), (0,), (0.3 * s, 0.15 * s, 0.0)) for s in range(21)]

    half = script("contest_figures").half(rows, topics(0), [], 0.3)

    assert half["cpu"] == [[100, 50, 0]] * 2
    assert half["cpu_range"] == 100


def test_silence_is_what_exceeds_the_usual_pause() -> None:
    gaps = script("contest_figures").gaps([100.0, 400.0, 90.0], [50.0, 150.0, 100.0])

    assert gaps == {"median": 100, "p90": 340, "max": 400, "interrupted": 0.3}


def test_nothing_moved_has_no_gap() -> None:
    assert script("contest_figures").gaps([], []) == {"median": None, "p90": None, "max": None, "interrupted": 0.0}


def test_every_policy_names_strategies_that_there_are() -> None:
    policies = [entrant.policy for entrant in script("contest_entrants").ENTRANTS.values() if entrant.policy]

    assert policies
    for policy in policies:
        ShedderSpec.model_validate(policy["shedder"])
        PlacementSpec.model_validate(policy["placement"])


def a_run(run_by: str, settled: float | None, moves: int) -> dict[str, Any]:
    half = {"settled": settled, "uneven": 1.0, "cpu_range_end": 5.0, "moves": moves}
    gaps = {"median": 100.0, "interrupted": 1.0}
    about = {"run_by": run_by, "strategy": "S", "manager": "modular", "interval": "60s"}
    return {**about, "first": half, "shift": half, "gaps": gaps}


@pytest.mark.parametrize(
    ("ours", "theirs", "winner"),
    [(30.0, 60.0, "Trimtab"), (60.0, 30.0, "Pulsar"), (None, 30.0, "Pulsar"), (30.0, 30.0, "Pulsar and Trimtab")],
)
def test_page_names_whoever_wins(ours: float | None, theirs: float, winner: str) -> None:
    words = script("side_by_side_words")

    told = words.best(words.MEASURES[0], [[a_run("Pulsar", theirs, 1)], [a_run("Trimtab", ours, 1)]])

    assert told.split(" | ")[1] == winner


def test_nobody_wins_what_nobody_reached() -> None:
    words = script("side_by_side_words")

    told = words.best(words.MEASURES[0], [[a_run("Pulsar", None, 0)], [a_run("Trimtab", None, 0)]])

    assert told.endswith("| nobody | never | never |")


def test_there_is_no_winner_before_both_have_run() -> None:
    words = script("side_by_side_words")

    assert words.best(words.MEASURES[0], [[a_run("Pulsar", 30.0, 1)]]).endswith(
        "| open | 30 s (S, modular) | not run |"
    )


def test_few_moves_count_only_for_who_became_level() -> None:
    words = script("side_by_side_words")
    (fewest,) = (measure for measure in words.MEASURES if "fewest moves" in measure.name)

    assert fewest.of(a_run("Pulsar", None, 0)) is None
    assert fewest.of(a_run("Trimtab", 60.0, 4)) == 8


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((40, 50, 60), (70, 80, 90), "Trimtab | 80 s, 70 to 90 (S, modular) | 50 s, 40 to 60 (S, modular)"),
        ((40, 50, 80), (70, 80, 90), "Trimtab (runs overlap) | 80 s, 70 to 90"),
        ((40, 50, None), (70, 80, 90), "Trimtab (runs overlap) | 80 s, 70 to 90 (S, modular) | 50 s, 40 to - (S"),
        ((40, None, None), (70, 80, 90), "Pulsar | 80 s, 70 to 90 (S, modular) | never"),
        ((50, 50, 50), (70, 80, 90), "Trimtab | 80 s, 70 to 90 (S, modular) | 50 s (S, modular)"),
    ],
)
def test_sides_are_compared_by_the_medians_of_their_runs(
    ours: tuple[float | None, ...], theirs: tuple[float | None, ...], expected: str
) -> None:
    words = script("side_by_side_words")
    sides = [[a_run("Pulsar", settled, 1) for settled in theirs], [a_run("Trimtab", settled, 1) for settled in ours]]

    assert f" | {expected}" in words.best(words.MEASURES[0], sides)


def test_a_run_in_which_nothing_moved_has_no_part_in_the_gap() -> None:
    words = script("side_by_side_words")
    (gap,) = (measure for measure in words.MEASURES if "publish gap" in measure.name)
    still = {**a_run("Pulsar", 30.0, 0), "gaps": {"median": None, "interrupted": 0.0}}

    assert gap.spread([still, a_run("Pulsar", 30.0, 1)]).median == 100
    assert gap.spread([still]).median == np.inf


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
    assert script("side_by_side_runs").cell(values, 1) == expected


def test_a_median_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="a median needs a run"):
        script("side_by_side_runs").spread([])


def recorded() -> dict[str, Any]:
    """What is in docs/data."""
    data: dict[str, Any] = json.loads(script("side_by_side_page").DATA.read_text())
    return data


def with_first_half(run: dict[str, Any], **figures: float | None) -> dict[str, Any]:
    return {**run, "first": {**run["first"], **figures}}


def test_page_shows_medians_of_several_runs_and_draws_the_middle_one(tmp_path: Path) -> None:
    pages, data = script("side_by_side_page"), recorded()
    last = data["runs"]["trimtab-threshold"][-1]
    data["runs"]["trimtab-threshold"] = [
        with_first_half(last, settled=90.0, uneven=0.7, moves=21),
        with_first_half(last, settled=60.0, uneven=0.5, moves=22),
        with_first_half(last, settled=None, uneven=0.2, moves=23),
    ]
    file = tmp_path / "runs.json"
    file.write_text(json.dumps(data))

    page, drawing = pages.page(file), pages.drawing(file)

    level, cost = (line for line in page.splitlines() if line.startswith("| Trimtab: ThresholdShedder"))
    assert "every 60s | 90 (60 to -) | 0.50 (0.20 to 0.70), 0.39 | " in level
    assert "every 60s (3 runs) | 22 (21 to 23) + 4 | " in cost
    assert "UniformLoadShedder, modular, every 60s (1 run) | " in page
    assert "There are 1 or 3 runs of each" in page
    assert "**Several runs.**" in page
    assert "22 moves, then 4" in drawing
    assert drawing.count(script("side_by_side_words").title(last)) == 1


def test_an_even_number_of_runs_may_have_half_a_move(tmp_path: Path) -> None:
    data = recorded()
    last = data["runs"]["trimtab-threshold"][-1]
    data["runs"]["trimtab-threshold"] = [with_first_half(last, moves=21), with_first_half(last, moves=22)]
    (tmp_path / "runs.json").write_text(json.dumps(data))

    assert "| 21.5 (21.0 to 22.0) + 4.0 |" in script("side_by_side_page").page(tmp_path / "runs.json")


def finished(at: str, minutes: float = 5) -> dict[str, Any]:
    return {"finished": at, "minutes": minutes}


def test_nobody_plays_a_second_time_before_everybody_played_once() -> None:
    data = script("contest_data")
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
    assert len(saved["story"]["missing"]) == len(script("contest_entrants").ENTRANTS) - 2
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
    file.write_bytes(script("side_by_side_page").DATA.read_bytes())
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
def test_what_can_not_be_meant_is_refused_before_anything_is_played(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        script("side_by_side").main(arguments)

    assert said in capsys.readouterr().err


def test_a_day_is_its_first_minute() -> None:
    moment = script("contest_data").moment

    assert moment("2026-11-23") == "2026-11-23 00:00"
    assert moment("2026-11-23 8:05") == "2026-11-23 08:05"


def test_page_and_drawing_are_those_of_the_last_runs() -> None:
    pages, words = script("side_by_side_page"), script("side_by_side_words")
    runs = json.loads(pages.DATA.read_text())["runs"]
    page, drawing = pages.page(), pages.drawing()

    assert page == (ROOT / "docs" / "side-by-side.md").read_text(), "run make docs"
    assert drawing == (ROOT / "docs" / "side-by-side.svg").read_text(), "run make docs"
    assert runs
    for run, *_ in runs.values():
        assert words.title(run) in page
        assert words.title(run) in drawing
