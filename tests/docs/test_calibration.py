"""The lab's constants are those of real brokers, and the page of the calibration says what its data say."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab_lab.simulation import build, load
from trimtab_lab.simulation.realism import Batching

ROOT = Path(__file__).parents[2]
DATA = json.loads((ROOT / "docs" / "data" / "calibration.json").read_text())
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module", autouse=True)
def scripts() -> Iterator[None]:
    """Tools and benchmarks are scripts that import each other by name."""
    folders = [str(ROOT / "docs" / "tools"), str(ROOT / "benchmarks")]
    sys.path.extend(folders)
    yield
    for folder in folders:
        sys.path.remove(folder)


def script(name: str) -> Any:
    return import_module(name)


def test_both_sides_got_the_same_load() -> None:
    """Of whole minutes in which nothing moved; real clients may be a little behind."""
    figures = script("calibration_figures")
    real = figures.minutes(figures.values(DATA["real"]["rates"]), figures.REAL_STEP).sum(axis=1)
    lab = np.array(DATA["lab"]["rates"]).sum(axis=1)

    assert np.median(np.abs(real / lab - 1)) < 0.05


def test_the_lab_sends_what_the_scenario_says() -> None:
    lab = script("calibration_lab")
    world = build(load(str(lab.SCENARIO)), np.random.default_rng(lab.SEED))

    assert lab.sent(world).sum(axis=1).round(1).tolist() == pytest.approx(
        np.array(DATA["lab"]["rates"]).sum(axis=1).tolist(), rel=0.03
    )


def test_cpu_in_the_lab_is_that_of_real_brokers() -> None:
    """At the same messages/s, of brokers whose bundles did not grow."""
    figures = script("calibration_figures")
    points = figures.points(DATA)
    apart = (figures.lab_curve().percent(points.rates) - points.cpu)[~points.grown]

    assert abs(np.median(apart)) < 5
    assert np.quantile(np.abs(apart), 0.9) < 12


def test_the_constants_are_within_what_was_measured() -> None:
    """Gaps of one run on a busy machine tell little: `test_realism.py` compares those of ten."""
    figures = script("calibration_figures")
    found = figures.fitted(figures.points(DATA))

    assert Batching().exponent == pytest.approx(found.exponent, abs=0.1)
    assert Batching().idle == pytest.approx(found.idle, abs=0.02)
    assert figures.scenario().realism.batching.growth == pytest.approx(figures.growth(DATA), abs=0.1)


def test_a_fit_finds_the_curve_that_made_the_points() -> None:
    figures = script("calibration_figures")
    curve = figures.CpuCurve(exponent=0.7, idle=0.1, full=600.0)
    rates = np.array([0.0, 0.0, 50, 100, 150, 200, 300])
    points = figures.Points(rates, curve.percent(rates), np.zeros(len(rates), dtype=np.int64), rates > 1000)

    assert figures.fitted(points) == pytest.approx(curve, rel=1e-6)


def test_no_message_was_lost_on_real_brokers() -> None:
    real = DATA["real"]

    assert real["errors"] == 0
    assert real["acked"] == real["sent"] <= real["received"]


@pytest.mark.parametrize("name", ["calibration", "calibration-cpu"])
def test_a_drawing_has_colors_for_light_and_dark_and_units(name: str) -> None:
    drawn = script("calibration_page").DRAWINGS[name]()

    assert "prefers-color-scheme: dark" in drawn
    texts = [element.text or "" for element in ET.fromstring(drawn).iter(f"{SVG}text")]
    assert any(text.endswith(" %") for text in texts)
    assert any(text.endswith((" min", "messages/s")) for text in texts)


def test_every_move_has_a_mark() -> None:
    drawn = script("calibration_page").traces()

    assert len(re.findall('class="mark"', drawn)) == sum(len(DATA[side]["moves"]) for side in ("real", "lab"))
