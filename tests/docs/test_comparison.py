"""The comparison page: it has every strategy in every scenario, and what it says follows from its figures."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from trimtab_lab.simulation import catalogue, shown
from trimtab_lab.simulation.compare import COLUMNS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "comparison.md").read_text()
ROWS = json.loads((DOCS / "data" / "comparison.json").read_text())["cells"]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """The page's generator."""
    sys.path.append(str(DOCS / "tools"))
    yield import_module("comparison_page")
    sys.path.remove(str(DOCS / "tools"))


def test_every_strategy_was_measured_in_every_scenario() -> None:
    found = [(row["scenario"], row["strategy"]) for row in ROWS]

    assert found == [(scenario, who.name) for scenario in catalogue() for who in shown()]
    assert all(list(row["scores"]) == list(COLUMNS) for row in ROWS)
    assert all(low <= middle <= high for row in ROWS for low, middle, high in row["scores"].values())


def test_the_file_has_the_figures_of_every_strategy_in_every_scenario() -> None:
    rows = list(csv.DictReader((DOCS / "comparison.csv").read_text().splitlines()))

    assert [(row["scenario"], row["strategy"]) for row in rows] == [(row["scenario"], row["strategy"]) for row in ROWS]
    for row, measured in zip(rows, ROWS, strict=True):
        low, middle, high = measured["scores"]["cost"]
        assert [float(row[f"cost{part}"]) for part in (" p5", "", " p95")] == pytest.approx([low, middle, high], 1e-4)


def test_the_readme_counts_the_scenarios() -> None:
    assert f"every strategy in {len(catalogue())} simulated" in (DOCS.parent / "README.md").read_text()


def test_the_counts_of_the_first_sentence_are_those_of_the_tables(script: Any) -> None:
    total, better, tied, worse = map(int, re.findall(r"\d+", next(script.short()).partition("score by score.")[2]))

    sums = [0, 0, 0]
    for row in re.findall(r"^\| [^|]+\| \w+/\w+ \| (\d+) \| (\d+) \| (\d+) \|", PAGE, re.MULTILINE):
        sums = [before + int(now) for before, now in zip(sums, row, strict=True)]
    assert sums == [better, tied, worse]
    assert sum(sums) == total


def test_every_loss_is_on_the_page(script: Any) -> None:
    losses = PAGE.partition("### Where Trim is worse")[2].partition("\n### ")[0]

    for one in script.comparisons().values():
        assert (f"- {one.scenario.title}: " in losses) is bool(one.verdict.worse), one.name


def test_a_baseline_that_dominates_trim_is_named_in_short(script: Any) -> None:
    text = " ".join(PAGE.partition("## In short")[2].partition("\n### ")[0].split())

    for one in script.comparisons().values():
        for name in one.verdict.dominated_by:
            assert name in text
            assert one.scenario.title in text


CLAIMS: dict[str, Callable[[Any], bool]] = {
    "ThresholdShedder overplaces as Pulsar runs it": lambda v: (
        v.two_hot.threshold.backward > 4 * v.two_hot.our_threshold.backward
    ),
    "ThresholdShedder overunloads as Pulsar runs it": lambda v: (
        v.two_brokers.threshold.moves > 3 * v.two_brokers.average.moves
        and v.two_brokers.threshold.moves > 2 * v.two_brokers.our_threshold.moves
    ),
    "OverloadShedder leaves the rest": lambda v: v.skewed.overload.left > 30,
    "UniformLoadShedder moves to the shared machine": lambda v: v.shared_machine.uniform.backward > 0,
    "UniformLoadShedder does not see foreign load": lambda v: v.foreign_load.uniform.moves == 0,
    "UniformLoadShedder is slow": lambda v: v.twenty_new.uniform.waited == 60,
    "AvgShedder waits": lambda v: v.skewed.average.waited > v.skewed.uniform.waited > 0,
    "AvgShedder leaves mixed machines": lambda v: v.mixed_machines.average.left > 40,
    "TransferShedder stops early": lambda v: v.skewed.transfer.left > 30,
    "WeightedBalancer swings": lambda v: (
        v.skewed.weighted.moves > 3 * v.skewed.our_weighted.moves and v.skewed.weighted.repeated > 10
    ),
    "WeightedBalancer takes its time": lambda v: 20 < v.skewed.our_weighted.waited < 60,
}
"""What the page says of the medians on PIP-364."""


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_the_page_says_of_the_proposal_is_true(script: Any, claim: str) -> None:
    assert CLAIMS[claim](script.figures())


@pytest.mark.parametrize("name", ["comparison", "comparison-scenarios"])
def test_a_picture_has_a_mark_for_each_strategy(name: str) -> None:
    drawing = ET.fromstring((DOCS / f"{name}.svg").read_text())

    marks = [title.text for path in drawing.iter(f"{SVG}path") for title in path.iter(f"{SVG}title")]
    assert {who.name for who in shown()} <= set(marks)


@pytest.mark.parametrize("name", ["comparison.md", "comparison.svg", "comparison-scenarios.svg"])
def test_the_page_and_its_pictures_are_up_to_date(script: Any, name: str) -> None:
    stem, _, ending = name.partition(".")
    made = script.page() if ending == "md" else script.DRAWINGS[stem]()

    assert (DOCS / name).read_text() == made, "run make docs"
