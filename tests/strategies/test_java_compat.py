"""Orders and sums of Java's standard library, as printed by a real one (OpenJDK 17)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, strategies as st

from trimtab_strategies import java_compat

CONFORMANCE = Path(__file__).parents[1] / "conformance"
MAPS = json.loads((CONFORMANCE / "java-map-orders.json").read_text())
HERMES = yaml.load((CONFORMANCE / "hermes" / "hand-made.yaml").read_text(), Loader=yaml.CSafeLoader)


def cases(kind: str) -> list[dict[str, Any]]:
    return HERMES[kind]["cases"]


@pytest.mark.parametrize("case", MAPS, ids=lambda case: case["id"])
def test_names_come_in_the_order_of_java_s_maps(case: dict[str, Any]) -> None:
    assert java_compat.hash_map_order(case["insertion"]) == case["expect_HashMap"]
    assert java_compat.concurrent_map_order(case["insertion"]) == case["expect_ConcurrentHashMap"]


@pytest.mark.parametrize("case", [c for c in cases("java_hash_codes") if c["kind"] == "string"], ids=str)
def test_a_text_s_hash_code_is_java_s(case: dict[str, Any]) -> None:
    assert java_compat.string_hashes([case["value"]]).tolist() == [case["hash"]]


@pytest.mark.parametrize("case", [c for c in cases("java_hash_codes") if c["kind"] == "consumer_node"], ids=str)
def test_a_hash_code_of_members_is_java_s(case: dict[str, Any]) -> None:
    hashes = 31 + java_compat.string_hashes([case["value"]])

    assert java_compat.spread(hashes).tolist() == java_compat.spread(np.array([case["hash"]])).tolist()


@pytest.mark.parametrize("case", cases("java_iteration_orders"), ids=lambda case: case["id"])
def test_ids_come_in_the_order_of_a_hash_map(case: dict[str, Any]) -> None:
    assert java_compat.hash_map_order(case["insert_consumer_ids"]) == case["expect_consumer_order"]


@pytest.mark.parametrize("case", cases("java_priority_queue"), ids=lambda case: case["id"])
def test_equal_weights_leave_the_queue_as_in_java(case: dict[str, Any]) -> None:
    weights = np.array(case["weights_in_insertion_order"])

    assert java_compat.poll_order(weights).tolist() == case["expect_poll_indices"]


def reference_hash(text: str) -> int:
    folded = 0
    units = text.encode("utf-16-le")
    for low, high in zip(units[::2], units[1::2], strict=True):
        folded = (31 * folded + low + 256 * high) & 0xFFFFFFFF
    return folded - (1 << 32) if folded >= 1 << 31 else folded


@given(st.lists(st.text()))
def test_many_texts_are_hashed_as_one_by_one(texts: list[str]) -> None:
    assert java_compat.string_hashes(texts).tolist() == [reference_hash(text) for text in texts]


@given(st.lists(st.floats(0, 100), unique=True, max_size=40))
def test_different_weights_leave_the_queue_heaviest_first(weights: list[float]) -> None:
    order = java_compat.poll_order(np.array(weights, dtype=np.float64))

    assert [weights[k] for k in order] == sorted(weights, reverse=True)


@pytest.mark.parametrize(
    ("size", "count", "table"),
    [
        (java_compat.grown_table, 0, 16),
        (java_compat.grown_table, 12, 16),
        (java_compat.grown_table, 13, 32),
        (java_compat.copied_set_table, 3, 16),
        (java_compat.copied_set_table, 11, 16),
        (java_compat.copied_set_table, 12, 32),
    ],
)
def test_a_table_is_as_large_as_java_makes_it(size: Callable[[int], int], count: int, table: int) -> None:
    assert size(count) == table


def test_lost_bits_are_added_back_only_by_the_compensated_sum() -> None:
    tenths = [0.1] * 10

    assert java_compat.plain_sum(tenths) == 0.9999999999999999
    assert java_compat.compensated_sum(tenths) == 1.0
