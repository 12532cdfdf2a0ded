"""What the page about Trim says of its runs is true, and its pictures can be read in light and dark."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from trimtab_strategies.shedding.trim import cause
from trimtab_strategies.shedding.trim.shedder import TrimParams

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = sorted((DOCS / "explanation").glob("trim-*.svg"))
TRUE_CORES_PER_BYTE = {32: 1 / (64 * 2**20), 8: 2 / (64 * 2**20)}

pytestmark = [pytest.mark.long]


@pytest.fixture(scope="module")
def tools() -> Iterator[Any]:
    """The modules that make the page. Each scenario is played once."""
    sys.path.append(str(DOCS / "tools"))
    yield SimpleNamespace(page=import_module("trim_page"), runs=import_module("trim_runs"))
    sys.path.remove(str(DOCS / "tools"))


def test_why_it_moved_the_new_broker_is_answered_in_the_minute_in_which_it_joins(tools: Any) -> None:
    run = tools.runs.played("new-broker")
    first = run.acted[0]

    assert first.number == tools.runs.JOIN
    assert first.cause.window == max(cause.WINDOWS)
    assert len(run.acted) > 1
    assert np.ptp(first.replay.away, axis=1).min() > 50
    assert np.ptp(run.after_in(first).away.mean(axis=0)) < 5


@pytest.mark.slow
def test_why_it_waited_no_excess_lasts_for_long_enough(tools: Any) -> None:
    assert tools.runs.played("noisy-neighbour").score.moves == 0
    assert tools.runs.played("on-off").score.moves == 0
    run = tools.runs.played("foreign-load")
    assert run.scenario.event < run.acted[0].number < run.scenario.event + 10


def test_why_it_waited_an_excess_must_last_half_as_long_again_as_the_longest_and_a_minute(tools: Any) -> None:
    watches = [minute.cycle.watch for minute in tools.runs.played("noisy-neighbour").minutes.values()]

    assert {watch.patience for watch in watches if watch.spike} == {
        1.5 * watch.spike + 1 for watch in watches if watch.spike
    }
    parts = tools.page._waited()
    assert float(parts["NEEDED"]) == 1.5 * float(parts["SPIKE"]) + 1
    assert int(parts["DIP"]) > 0


@pytest.mark.parametrize("scenario", ["new-broker", "foreign-load", "mixed-costs"])
def test_the_plans_that_are_shown_are_those_that_were_made(tools: Any, scenario: str) -> None:
    run = tools.runs.played(scenario)

    assert [len(minute.plan.moves) for minute in run.acted] == [count for count in run.record.moves if count]


def test_why_it_waited_the_line_of_the_needed_minutes_stays_below_the_heading() -> None:
    text = (DOCS / "explanation" / "trim-waited.svg").read_text()
    heading = float(re.findall(r'y="([\d.]+)"[^>]*>Minutes it has lasted', text)[0])

    line = re.findall(r'class="line-cold"[^>]* d="([^"]+)"', text)[-1]
    assert min(float(y) for y in re.findall(r",([\d.]+)", line)) > heading


def test_what_traffic_costs_is_learned(tools: Any) -> None:
    run = tools.runs.played("mixed-costs")
    model = run.last.replay.model

    assert model.message == run.scenario.realism.message_price
    for cores, true in TRUE_CORES_PER_BYTE.items():
        assert np.median(model.slope[model.cores == cores]) == pytest.approx(true, rel=0.05)
    assert model.background[-1, tools.runs.FOREIGN_BROKER] == pytest.approx(2, abs=0.3)
    cpu = [run.minutes[minute].cpu["broker-05"] for minute in (tools.runs.FOREIGN - 1, tools.runs.FOREIGN)]
    assert cpu[1] - cpu[0] > 20
    assert any(minute.number > tools.runs.FOREIGN for minute in run.acted)


def test_which_bundles_it_took_the_first_plan_ends_at_its_cap_and_the_last_at_the_price(tools: Any) -> None:
    run = tools.runs.played("new-broker")

    assert len(run.acted[0].plan.moves) == TrimParams().moves_per_broker
    assert [step for step in run.steps() if step.gain < step.price] == []
    assert run.left_over.gain < run.left_over.price


def test_one_decision_in_numbers_its_predictions_were_right(tools: Any) -> None:
    parts = tools.page._scored()

    assert parts["RIGHT"] == parts["JUDGED"]


def test_every_parameter_has_a_unit_and_effects(tools: Any) -> None:
    assert set(tools.page.EFFECTS) == set(TrimParams.model_fields)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_a_picture_has_a_title_a_unit_on_both_axes_and_colours_for_dark_pages(picture: Path) -> None:
    text = picture.read_text()
    words = [element.text or "" for element in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]

    assert "prefers-color-scheme: dark" in text
    assert re.search(r"<title>[^<]{20,}</title>", text)
    units = ("minutes", "percent", "points", "cores", "MB/s", "price", "moves")
    assert len({unit for unit in units if any(unit in word for word in words)}) >= 2
    assert len(text) < 40_000


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_no_words_of_a_picture_leave_it(picture: Path) -> None:
    """A letter is about 0.58 times as wide as it is high."""
    for place in re.findall(
        r'<text class="\w+" x="([\d.]+)" y="[\d.]+" font-size="(\d+)" text-anchor="(\w+)">([^<]*)<', picture.read_text()
    ):
        x, size, anchor, words = float(place[0]), int(place[1]), place[2], place[3]
        width = 0.58 * size * len(words)
        left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
        assert left >= 0, words
        assert left + width <= 480, words
