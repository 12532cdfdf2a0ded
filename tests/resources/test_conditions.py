"""The words of conditions are theirs alone."""

from __future__ import annotations

from trimtab_operator.resources.conditions import ConditionReason
from trimtab_strategies.model import Reason


def test_no_reason_of_a_condition_is_also_in_the_common_vocabulary() -> None:
    assert {str(reason) for reason in ConditionReason} & {str(reason) for reason in Reason} == set()
