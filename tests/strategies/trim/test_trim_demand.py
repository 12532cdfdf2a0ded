"""Hidden demand: what the clients of a full machine want, by the bundles whose clients want what they always want."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab_strategies.model.cluster_load import BoolArray, FloatArray
from trimtab_strategies.shedding.trim.demand import FEWEST, LEAST, served, wanted

USUAL = np.array([10.0, 20, 5, 8, 40, 15, 30, 7])
FULL = np.array([True, False])


def samples(traffic: FloatArray) -> FloatArray:
    """Traffic (m,) as columns of bytes in, bytes out and messages."""
    return np.stack([traffic / 4, 3 * traffic / 4, traffic / 100], axis=1)


def demand(
    now: FloatArray, *before: FloatArray, owner: Sequence[int] | None = None, full: BoolArray = FULL
) -> FloatArray:
    """The wanted traffic (m,) when `now` was measured after the minutes `before`."""
    owners = np.zeros(len(now), dtype=np.int64) if owner is None else np.array(owner)
    ratio = served(samples(now), [samples(one).astype(np.float32) for one in before], owners, full)
    traffic: FloatArray = wanted(samples(now), ratio, owners)[:, :2].sum(axis=1)
    return traffic


@pytest.mark.parametrize("part", [0.85, 0.6, 0.45])
def test_the_others_show_how_much_a_bundle_wants_that_outgrew_its_broker(part: float) -> None:
    outgrown = USUAL * np.array([1, 1, 6.5, 1, 1, 1, 1, 1])

    assert demand(part * outgrown, USUAL, USUAL) == pytest.approx(outgrown, rel=1e-6)


def test_all_columns_grow_alike() -> None:
    owner = np.zeros(len(USUAL), dtype=np.int64)
    now = samples(0.5 * USUAL)

    assert wanted(now, served(now, [samples(USUAL)], owner, FULL), owner) == pytest.approx(2 * now)


def test_a_false_reading_of_a_full_machine_adds_nothing() -> None:
    noise = np.array([1.1, 0.93, 1.02, 0.97, 0.96, 1.05, 0.99, 1.0])

    assert (demand(USUAL * noise, USUAL) == USUAL * noise).all()


def test_a_machine_that_is_not_full_serves_all_that_is_wanted() -> None:
    assert (demand(0.5 * USUAL, USUAL, full=np.array([False, False])) == 0.5 * USUAL).all()


def test_bundles_of_other_brokers_and_of_none_stay_as_measured() -> None:
    now, owner = 0.5 * np.append(USUAL, [9.0, 4.0]), [0] * len(USUAL) + [1, -1]

    assert demand(now, 2 * now, owner=owner) == pytest.approx([*USUAL, 4.5, 2.0])


@pytest.mark.parametrize("known", range(FEWEST + 1))
def test_too_few_bundles_show_nothing(known: int) -> None:
    """New bundles, and those without traffic, are not counted."""
    before = np.where(np.arange(len(USUAL)) < known, USUAL, np.nan)
    idle = np.where(np.isnan(before), 0.0, before)
    found = [demand(0.5 * USUAL, before), demand(0.5 * USUAL, idle)]

    assert found == [pytest.approx(USUAL if known == FEWEST else 0.5 * USUAL)] * 2


def test_nothing_is_known_in_the_first_minute() -> None:
    assert (demand(0.5 * USUAL) == 0.5 * USUAL).all()


def test_many_small_bundles_do_not_decide() -> None:
    """Small bundles that nearly stop do not look as if the machine served less."""
    now = np.where(USUAL < 16, 0.2, 1.0) * USUAL

    assert (demand(now, USUAL) == now).all()


def test_a_single_odd_minute_does_not_change_what_is_usual() -> None:
    assert demand(0.5 * USUAL, USUAL, 9 * USUAL, USUAL) == pytest.approx(USUAL)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=1, max_size=30))
def test_demand_is_bounded_and_does_not_depend_on_the_order_of_bundles(
    bundles: list[tuple[float, float]],
) -> None:
    now, before = np.array(bundles).T
    found = demand(now, before)
    order = np.argsort(-now, kind="stable")

    assert (found >= now * (1 - 1e-9)).all()
    assert (found <= now / LEAST * (1 + 1e-9)).all()
    assert demand(now[order], before[order]) == pytest.approx(found[order], rel=1e-6)


def test_one_large_bundle_does_not_decide() -> None:
    before = np.array([100.0, 20, 15, 15, 15, 15])
    outgrown = before * np.array([2, 1, 1, 1, 1, 1])

    assert demand(0.6 * outgrown, before) == pytest.approx(outgrown)
