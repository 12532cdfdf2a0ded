"""Patterns that people write are matched in time, or refused with the reason."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings, strategies as st

from trimtab_strategies.patterns import compiled, problem


@pytest.mark.parametrize(
    "pattern",
    [
        "pulsar-broker-.*",
        r"broker-[0-9]+\.zone-(a|b)\..*",
        "a|b",
        ".*-(prod|stage)-.*",
        "(?:x)*",
        "[(+)*|]*",
        r"\(a\)+",
        "x{2,3}",
        "",
    ],
)
def test_what_people_write_of_hosts_is_matched(pattern: str) -> None:
    assert problem(pattern) == ""
    assert compiled(pattern) is not None


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(a+)+b", "itself repeats"),
        ("(a|aa)*b", "itself repeats or chooses"),
        ("((a{1,50})){1,50}", "itself repeats"),
        ("(?:(a*)b)*", "itself repeats"),
        (r"(a)\1", "refers back"),
        ("(?P<x>a)(?P=x)", "refers back"),
        (".*a.*b.*c.*d.*", "5 repetitions without a bound, at most 4"),
        ("(", "is no regular expression"),
        ("a{99999999999}", "is no regular expression"),
    ],
)
def test_what_may_take_for_ever_or_is_no_pattern_is_refused(pattern: str, told: str) -> None:
    assert told in problem(pattern)
    assert compiled(pattern) is None


PIECES = ["a", "b", ".", "(", ")", "|", "*", "+", "?", "{2,}", "{1,9}", "[ab]", "(?:", r"\w", "^", "$", "(?=", "-"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_whatever_is_not_refused_is_matched_in_time(pattern: str) -> None:
    found = compiled(pattern)
    if found is None:
        return
    began = time.process_time()
    found.fullmatch("a" * 60 + "!")
    assert time.process_time() - began < 1.0, pattern
    assert re.compile(pattern)
