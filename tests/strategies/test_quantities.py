"""An amount is written as in Kubernetes, and Pulsar's amounts become such."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from trimtab_strategies.params import as_quantity, pulsar_keys, quantity
from trimtab_strategies.shedding.threshold import ThresholdShedderParams
from trimtab_strategies.shedding.uniform import UniformLoadShedderParams
from trimtab_strategies.splitting.limits import SplitLimits


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("7", 7), ("10Mi", 10485760), ("1.5k", 1500), ("500m", 0.5), ("10G", 1e10), ("2Ki", 2048)],
)
def test_a_quantity_is_the_number_that_kubernetes_reads(text: str, value: float) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "10MB", "-1", "ten", "1e6", "1.", ".5", "1 Mi", "NaN"])
def test_what_is_no_quantity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write one such as 500k, 10Mi"):
        quantity(text)


def test_whole_numbers_are_quantities_and_fractions_and_truth_values_are_not() -> None:
    assert ThresholdShedderParams(min_throughput=1000).min_throughput == "1000"  # type: ignore[arg-type]
    for wrong in (0.5, True, -1):
        with pytest.raises(ValidationError):
            ThresholdShedderParams(min_throughput=wrong)  # type: ignore[arg-type]


def test_a_limit_of_zero_is_refused() -> None:
    with pytest.raises(ValidationError, match="must be above 0"):
        SplitLimits(max_throughput="0Mi")


@given(st.floats(0, 1e15))
def test_an_amount_is_shown_rounded_down_and_near(value: float) -> None:
    shown = quantity(as_quantity(value))

    assert shown <= value
    assert value - shown < max(1.0, value * 0.1)


def test_pulsars_amounts_become_bytes_per_second_whatever_their_unit() -> None:
    mebibytes = pulsar_keys(ThresholdShedderParams)["loadBalancerBundleUnloadMinThroughputThreshold"]
    amount = pulsar_keys(UniformLoadShedderParams)["minUnloadMessageThroughput"]

    assert [mebibytes.value(given) for given in (10, 0.5)] == ["10Mi", "0.5Mi"]
    assert [amount.value(given) for given in (1048576, 2048, 10000)] == ["1Mi", "2Ki", "10000"]
