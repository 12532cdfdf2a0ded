"""Variants of a policy: which values they get, and which of them no other one beats."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorded_history import RecordedHistory
from trim_world import START, World, spread
from trimtab_lab.backtest.charts import sweep_chart
from trimtab_lab.backtest.sweep import InvalidSweepError, Sweep, front, variants
from trimtab_lab.backtest.trace import Figures
from trimtab_operator.cli.main import main

SOURCE = {"source": {"prometheus": {"url": "http://prometheus.messaging.svc:9090"}}}
POLICY: dict[str, Any] = {
    "apiVersion": "trimtab.dev/v1alpha1",
    "kind": "BalancingPolicy",
    "metadata": {"name": "main"},
    "spec": SOURCE,
}


def made(*sweeps: str, samples: int = 10, seed: int = 1) -> dict[str, dict[str, Any]]:
    """The specifications of the variants of `POLICY`."""
    found = variants(POLICY, [Sweep.of(text) for text in sweeps], samples, seed)
    return {one.name: one.manifest["spec"] for one in found}


def test_lists_are_combined_with_each_other() -> None:
    found = made("shedder.trim.price=200,400", "interval=30s,60s")

    assert list(found) == [f"price={price} interval={interval}" for price in (200, 400) for interval in ("30s", "60s")]
    assert found["price=400 interval=30s"] == {
        **SOURCE,
        "shedder": {"type": "Trim", "trim": {"price": 400}},
        "interval": "30s",
    }
    assert "shedder" not in POLICY["spec"]


def test_a_shedder_that_is_there_stays() -> None:
    given = {**POLICY, "spec": {**SOURCE, "shedder": {"type": "AvgShedder", "avgShedder": {"minRate": 10}}}}

    [found] = variants(given, [Sweep.of("shedder.avgShedder.lowThreshold=5")], 1, 1)

    assert found.manifest["spec"]["shedder"] == {"type": "AvgShedder", "avgShedder": {"minRate": 10, "lowThreshold": 5}}


def test_a_field_of_whole_numbers_gets_no_others() -> None:
    """Also from a range that is narrower than the number of samples."""
    found = [spec["limits"]["maxMovesPerCycle"] for spec in made("limits.maxMovesPerCycle=1..5", samples=20).values()]

    assert sorted(found) == [1, 2, 3, 4, 5]
    assert all(isinstance(value, int) for value in found)


def test_samples_are_spread_over_the_range_in_proportion() -> None:
    values = [spec["shedder"]["trim"]["price"] for spec in made("shedder.trim.price=100..1600", samples=40).values()]

    assert len(set(values)) == 40
    assert all(isinstance(value, int) and 100 <= value <= 1600 for value in values)
    assert np.histogram(np.log2(values), bins=4, range=(np.log2(100), 4 + np.log2(100)))[0].tolist() == [10] * 4


def test_samples_of_a_range_from_zero_are_spread_evenly() -> None:
    values = [
        spec["shedder"]["trim"]["fixedPercent"] for spec in made("shedder.trim.fixedPercent=0..1", samples=20).values()
    ]

    assert np.histogram(values, bins=4, range=(0, 1))[0].tolist() == [5] * 4


def test_each_sample_takes_a_value_of_every_range_and_the_seed_decides_which() -> None:
    ranges = ("shedder.trim.price=100..1600", "shedder.trim.worth=100..1000")

    assert len(made(*ranges, samples=7)) == 7
    assert made(*ranges) == made(*ranges)
    assert made(*ranges) != made(*ranges, seed=2)
    assert len(made(*ranges, "interval=30s,60s", samples=7)) == 14


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("price", "is not a sweep: write one like shedder.trim.price=200,400,800"),
        ("=3", "is not a sweep"),
        ("a..b=3", "is not a sweep"),
        ("shedder.trim.price=", "is not a sweep"),
        ("shedder.trim.price=5..1", "a range goes up from 0 or more"),
        ("shedder.trim.price=-5..1", "a range goes up from 0 or more"),
    ],
)
def test_what_is_no_sweep_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidSweepError, match=said):
        Sweep.of(text)


def test_too_many_variants_are_refused() -> None:
    with pytest.raises(InvalidSweepError, match="make 300 variants: use 200 at most"):
        made("interval=30s,60s,90s", "shedder.trim.price=1..1000", samples=100)


def figures(cut: float, area: float, moves: int = 0) -> Figures:
    return Figures(moves, 0, cut, 0.0, area, area, area, 0.0, 0.0, 1.0, 1.0, 1)


def test_the_front_has_what_no_other_one_beats() -> None:
    assert front([figures(1, 9), figures(2, 5), figures(3, 5), figures(4, 2), figures(2, 5)]) == [
        True,
        True,
        False,
        True,
        True,
    ]


def test_without_clients_moves_count() -> None:
    unknown = float("nan")

    assert front([figures(unknown, 5, moves=3), figures(unknown, 5, moves=2)]) == [False, True]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty minutes of three brokers, one of them at 70 %."""
    history, random = RecordedHistory(tmp_path), np.random.default_rng(5)
    world = World.of(spread(70, 20, 1), spread(25, 20, 2), spread(25, 20, 3))
    history.policy(START, SOURCE)
    for _ in range(20):
        history.cycle(world.cluster(random.normal(1, 0.05, len(world.load))))
        world.now += 60
    return tmp_path


def backtest(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[int, str, str]:
    code = main(["backtest", "--history", str(folder), *words])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_variants_of_the_recorded_policy_are_compared(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, _ = backtest(capsys, folder, "--sweep", "shedder.trim.price=100,1600", "-o", "json")

    assert code == 0
    cheap, dear, live = json.loads(out)["policies"]
    assert [one["name"] for one in (cheap, dear, live)] == ["price=100", "price=1600", "live"]
    assert cheap["moves"] > dear["moves"]
    assert cheap["area"] < dear["area"]
    assert [one["front"] for one in (cheap, dear, live)] == [True, True, False]


def test_the_table_marks_the_front(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    _, out, _ = backtest(capsys, folder, "--sweep", "shedder.trim.price=100,1600")

    assert "\n price=100 *" in out
    assert "Not beaten by another one: price=100, price=1600.\n" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sweep", "shedder.trim.prise=1,2"], "prise=1 is not a valid policy: spec.shedder.trim.prise"),
        (["--sweep", "shedder.trim.price=-1,2"], "price=-1 is not a valid policy: spec.shedder.trim.price"),
        (["--sweep", "price"], "--sweep: 'price' is not a sweep"),
        (["--sweep", "interval=1..1000", "--samples", "500"], "these sweeps make 500 variants"),
        (["--sweep", "interval=30s,60s", "--require", "moves<=live"], "--require judges one policy"),
    ],
)
def test_wrong_input_is_named(capsys: pytest.CaptureFixture[str], folder: Path, words: list[str], said: str) -> None:
    code, _, errors = backtest(capsys, folder, *words)

    assert code == 2
    assert said in errors


def test_a_variant_whose_range_is_not_known_has_no_point_in_the_chart() -> None:
    known = Figures(3, 0, 2.0, 1.0, 12.0, 20.0, 15.0, 0.0, 0.0, 1.0, 1.0, 60)
    unknown = replace(known, area=float("nan"))

    some = sweep_chart({"one": known, "other": unknown}, ["one", "other"], known)
    none = sweep_chart({"one": unknown}, ["one"], unknown)

    assert (some.count("<circle"), none.count("<circle")) == (2, 0)
    assert "nan" not in some + none
