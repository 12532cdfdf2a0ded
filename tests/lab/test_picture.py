"""The picture of `trimtab simulate --picture`: well-formed, a line per broker, and a tick per minute with moves."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

import pytest

from trimtab_lab.simulation import Scenario, contender, named
from trimtab_lab.simulation.compare import Outcome, outcomes
from trimtab_lab.simulation.picture import draw

NAMES = ("AvgShedder/Pulsar", "ThresholdShedder/Pulsar")


def drawn(*names: str) -> tuple[list[Outcome], Element]:
    """The outcomes in the scenarios, and the picture of them."""
    scenarios: dict[str, Scenario] = {name: named(name) for name in names}
    found = list(outcomes(scenarios, [contender(name) for name in NAMES], [1]))
    return found, fromstring(draw(scenarios, found))


def by_class(panel: Element, name: str) -> list[Element]:
    return [part for part in panel.iter() if name in part.get("class", "").split()]


def panels(picture: Element) -> list[Element]:
    return picture.findall("{*}g")


def test_every_run_has_a_panel_with_a_line_per_broker() -> None:
    found, picture = drawn("two-hot", "new-broker")

    assert [by_class(panel, "title")[0].text for panel in panels(picture)] == [*NAMES, *NAMES]
    counts = [len(by_class(panel, "broker")) for panel in panels(picture)]
    assert counts == [outcome.record.pressure.shape[1] for outcome in found] == [6, 6, 10, 10]


def test_the_ticks_count_all_moves() -> None:
    found, picture = drawn("two-hot", "jitter")

    for outcome, panel in zip(found, panels(picture), strict=True):
        ticks = [tick[0].text or "" for tick in by_class(panel, "moves")]
        assert sum(int(text.split()[0]) for text in ticks) == outcome.scores[0].moves


def test_the_axes_have_units() -> None:
    _, picture = drawn("two-hot")

    words = [part.text for part in panels(picture)[0].iter("{http://www.w3.org/2000/svg}text")]
    assert {"100 %", "0 %", "60 min", "moves", "per min", "usage of each broker's busiest resource"} <= set(words)


def test_a_line_has_a_gap_while_its_broker_is_away() -> None:
    _, picture = drawn("lost-broker")

    pens = [line.get("d", "").count("M") for line in by_class(panels(picture)[0], "broker")]
    assert sorted(pens) == [1] * 9 + [2]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["week", "idle"])
def test_long_runs_and_runs_without_moves_are_drawn(scenario: str) -> None:
    _, picture = drawn(scenario)

    lines = by_class(picture, "broker")
    assert all(len(line.get("d", "").split()) <= 600 for line in lines)
    assert all(len(by_class(panel, "band")) == 1 for panel in panels(picture))
