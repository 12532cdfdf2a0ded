"""The side-by-side benchmark: its figures, its records and its summary."""

from __future__ import annotations

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


def test_every_policy_names_strategies_that_there_are() -> None:
    policies = [entrant.policy for entrant in script("side_by_side_entrants").ENTRANTS.values() if entrant.policy]

    assert policies
    for policy in policies:
        ShedderSpec.model_validate(policy["shedder"])
        PlacementSpec.model_validate(policy["placement"])


def test_every_entrant_is_on_the_page_and_in_its_drawing() -> None:
    bench = script("side_by_side")
    page, drawing = ((ROOT / "docs" / f"side-by-side.{kind}").read_text() for kind in ("md", "svg"))

    for run, *_ in bench.read(bench.DATA).values():
        entrant = f"{run['run_by']}: {run['strategy']}, {run['manager']}, every {run['interval']}"
        assert f"| {entrant} |" in page
        assert entrant in drawing
