"""The comparison page is what the simulation makes, and each of its sentences about a scenario is true."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trimtab_lab.simulation import RunScore

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = [pytest.mark.long]


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """The page's generator. It runs every scenario once."""
    sys.path.append(str(DOCS / "tools"))
    yield import_module("comparison_page")
    sys.path.remove(str(DOCS / "tools"))


def sooner(one: RunScore, other: RunScore) -> bool:
    """Whether `one` was balanced, and in fewer rounds than `other`, if `other` was at all."""
    return one.balanced is not None and (other.balanced is None or one.balanced < other.balanced)


def fewer(one: RunScore, other: RunScore, times: float = 2) -> bool:
    """Whether `one` needed fewer moves than a part of those of `other`."""
    return one.moves < other.moves / times


TRUE: dict[str, list[Callable[[Any], bool]]] = {
    "Skewed load": [
        lambda v: v.threshold.backward > 0 and sooner(v.our_threshold, v.threshold),
        lambda v: fewer(v.our_threshold, v.threshold, 1),
        lambda v: fewer(v.uniform, v.threshold) and fewer(v.average, v.threshold),
        lambda v: None not in (v.uniform.balanced, v.average.balanced),
        lambda v: v.overload.balanced is None and v.our_overload.balanced is None,
        lambda v: v.transfer.balanced is None and v.our_weighted.balanced is not None,
        lambda v: fewer(v.our_weighted, v.weighted, 3),
    ],
    "Two brokers": [
        lambda v: fewer(v.average, v.threshold, 3) and v.threshold.backward > 0,
        lambda v: fewer(v.our_threshold, v.threshold) and sooner(v.our_threshold, v.threshold),
        lambda v: v.our_threshold.backward == 0,
        lambda v: v.our_weighted.balanced is not None and not v.our_weighted.repeated and v.weighted.left > 40,
    ],
    "Two hot brokers of six": [
        lambda v: v.threshold.backward > 4 * v.our_threshold.backward,
        lambda v: v.uniform.backward == v.average.backward == 0 and v.uniform.quiet < v.average.quiet,
    ],
    "A new broker": [
        lambda v: v.threshold.balanced is None and v.our_threshold.balanced is None and not v.overload.moves,
        lambda v: sooner(v.uniform, v.average) and v.average.balanced is not None,
    ],
    "Twenty new brokers": [
        lambda v: v.uniform.quiet is None and sooner(v.average, v.uniform),
        lambda v: v.threshold.repeated > 0 and sooner(v.our_threshold, v.threshold),
        lambda v: fewer(v.our_threshold, v.threshold),
        lambda v: v.transfer.left > v.our_weighted.left and v.our_weighted.balanced is not None,
        lambda v: v.weighted.balanced is None and fewer(v.our_weighted, v.weighted),
    ],
    "A broker is lost and comes back": [
        lambda v: v.threshold.balanced is None and v.overload.balanced is None,
        lambda v: sooner(v.uniform, v.average) and v.average.balanced is not None,
    ],
    "Mixed machines": [
        lambda v: None not in (v.threshold.balanced, v.our_threshold.balanced),
        lambda v: v.our_threshold.left < v.threshold.left,
        lambda v: v.uniform.moves == 0 and v.average.balanced is None and v.average.left > 40,
        lambda v: v.our_weighted.balanced is not None and not v.our_weighted.backward,
    ],
    "A shared machine": [
        lambda v: v.uniform.backward > 0 and v.our_uniform.backward == 0,
        lambda v: v.threshold.moves == v.average.moves == 0,
        lambda v: v.our_weighted.left < v.weighted.left,
    ],
    "Foreign load arrives": [
        lambda v: v.threshold.balanced is not None and v.threshold.balanced > 5 and not v.threshold.backward,
        lambda v: v.uniform.moves == 0 and v.average.balanced is None and v.overload.balanced is None,
        lambda v: v.our_weighted.balanced is not None and fewer(v.threshold, v.our_weighted, 1),
    ],
    "Load jitter": [
        lambda v: max(v.threshold.moves, v.average.moves) < min(v.uniform.moves, v.overload.moves),
        lambda v: v.transfer.moves < v.our_weighted.moves and fewer(v.our_weighted, v.weighted, 5),
    ],
}
"""Of each scenario what its sentences in docs/templates/comparison-scenarios.md claim, in their order."""


def test_every_scenario_has_claims(script: Any) -> None:
    assert list(TRUE) == [scenario.title for scenario in script.SCENARIOS]


@pytest.mark.parametrize("scenario", TRUE)
def test_what_the_page_says_about_a_scenario_is_true(script: Any, scenario: str) -> None:
    scores = SimpleNamespace(**script.scores(scenario))

    assert [number for number, holds in enumerate(TRUE[scenario]) if not holds(scores)] == []


def test_the_page_is_up_to_date(script: Any) -> None:
    assert (DOCS / "comparison.md").read_text() == script.page(), "run make docs"
