"""The table of conditions: complete, and the only place of their words."""

from __future__ import annotations

from itertools import chain
from typing import get_args

from trimtab_operator.resources.conditions import CONDITIONS, REASONS, ConditionReason, ConditionType
from trimtab_strategies.model import Reason

KINDS = {
    "PolicyCondition": "BalancingPolicy",
    "BrokerCondition": "Broker",
    "SplitCondition": "BundleSplit",
    "TopicNamespaceCondition": "TopicNamespace",
}


def test_each_condition_has_one_row_under_its_kind() -> None:
    types = chain.from_iterable(get_args(ConditionType))

    assert [(row.kind, row.type) for row in CONDITIONS] == [(KINDS[type(t).__name__], t) for t in types]


def test_each_reason_has_a_meaning_and_a_condition() -> None:
    used = chain.from_iterable(row.reasons for row in CONDITIONS)

    assert set(REASONS) == set(ConditionReason) == set(used)


def test_no_reason_of_a_condition_is_also_in_the_common_vocabulary() -> None:
    assert {str(reason) for reason in ConditionReason} & {str(reason) for reason in Reason} == set()
