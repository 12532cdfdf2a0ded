"""Patterns that people write are matched in time, or refused with the reason and the fix."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import given, settings, strategies as st

from trimtab_strategies.filters.patterns import LARGEST, Matcher, compiled, problem


def matcher(pattern: str) -> Matcher:
    """What matches a pattern that has no problem."""
    found = compiled(pattern)
    assert found is not None, problem(pattern)
    return found


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("pulsar-broker-.*", ["pulsar-broker-0", "pulsar-broker-"], ["a-pulsar-broker-0", "pulsar-broker"]),
        (r"broker-[0-9]+\.zone-(a|b)\..*", ["broker-12.zone-b.x"], ["broker-.zone-a.x", "broker-1.zone-c.x"]),
        ("a|b", ["a", "b"], ["ab", ""]),
        ("a|", ["a", ""], ["b"]),
        (".*-(prod|stage)-.*", ["x-stage-y"], ["x-test-y"]),
        ("(?:x)*", ["", "xxx"], ["xy"]),
        ("[(+)*|]*", ["(+)*|", ""], ["a"]),
        (r"\(a\)+", ["(a)", "(a))"], ["(a"]),
        ("x{2,3}", ["xx", "xxx"], ["x", "xxxx"]),
        ("x{2}y{0,1}z{1,}", ["xxz", "xxyzz"], ["xz", "xxyyz", "xx"]),
        ("{}a{", ["{}a{"], ["a"]),
        ("", [""], ["a"]),
        ("(?!broker-0$).*", ["broker-1", "broker-00"], ["broker-0"]),
        ("(?i)(?!(BROKER-0|x)$).*", ["broker-1", "broker-00"], ["broker-0", "X"]),
        ("(?=.*a)(?![b)]b)[ab-]*", ["a-b", "bab"], ["bbb", "bba"]),
        (r"^\ba.*\Bb$", ["aab"], ["a-b"]),
        ("(?i)Broker-(?-i:A)", ["bROKER-A"], ["broker-a"]),
        (r"(?s)\x61b.\101*", ["ab\nA", "ab\nAAA", "ab\n"], ["ab\nB"]),
        ("a*?b??(?P<n>c)", ["aac", "bc"], ["ab"]),
    ],
)
def test_a_pattern_matches_whole_names_as_pythons_own_engine_does(
    pattern: str, names: list[str], others: list[str]
) -> None:
    found = {name: matcher(pattern).fullmatch(name) for name in (*names, *others)}

    assert found == dict.fromkeys(names, True) | dict.fromkeys(others, False)
    assert found == {name: re.fullmatch(pattern, name) is not None for name in found}


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (r"(a)\1", "can't be matched in bounded time .*: write it without back-references"),
        ("(?P<x>a)(?P=x)", "can't be matched in bounded time"),
        ("(a)?(?(1)b|c)", "can't be matched in bounded time"),
        ("a++b", r"can't be matched in bounded time \(bad repetition operator: \+\+\)"),
        ("(?>a)b", "can't be matched in bounded time"),
        (".*(?<!-0)", "look-arounds but look-aheads at the beginning"),
        ("(?!a)*b", "can't be matched in bounded time"),
        ("(?!a)b|c", "can't be matched in bounded time"),
        ("(?!(?!a)b)c", "can't be matched in bounded time"),
        ("[a-z&&[^b]]", "has a class in a class .*: write one class"),
        ("(?x) a b", "can't be matched in bounded time"),
        ("a{,2}", "has the repetition {,.*: write 0 for no lower bound"),
        ("(", "is not a regular expression .*: correct it"),
        ("a{99999999999}", "has the repetition {99999.*at most 1000"),
        ("(.{0,60}){40}", "can't be matched in bounded time"),
        ("((((a{999}){999}){999}){999}){999}", "can't be matched in bounded time"),
        ("(?:){1000000,}x", "has the repetition {10000"),
        ("(x{0}){4000000000}", "has the repetition {40000"),
        ("(?i)[!-\uffff]", "letters that are not ASCII"),
        (r"(?i)[!-\uffff]", "letters that are not ASCII"),
        ("a" * (LARGEST + 1), f"has {LARGEST + 1} characters, at most {LARGEST} are allowed: shorten it"),
    ],
)
def test_what_cannot_be_matched_in_time_or_is_no_pattern_is_refused(pattern: str, told: str) -> None:
    assert re.search(told, problem(pattern))
    assert compiled(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        ".?" * 30 + "Z",
        ".{0,60}" * 9 + "Z",
        "(a+)+b",
        "(a|aa)*b",
        "((a{1,20})){1,20}b",
        ".*a" * 80 + "b",
        "(?!(a*)*b)(?=(a|aa)*)" * 40 + "a*c",
    ],
)
def test_what_takes_a_backtracking_engine_years_is_answered(pattern: str) -> None:
    assert not matcher(pattern).fullmatch("a" * 253)


PIECES = [
    "a",
    "b",
    ".",
    "(",
    ")",
    "|",
    "*",
    "+",
    "?",
    "{2,}",
    "{1,9}",
    "[ab]",
    "[^a-]",
    "(?:",
    r"\w",
    "-",
    "*?",
]
PIECES += [
    "^",
    "$",
    r"\b",
    r"\B",
    "(?=",
    "(?!",
    "(?<=",
    "(?<!",
    "(?i:",
    "(?i)",
    "{",
    "]",
    r"\.",
    r"\x61",
    "(?#)",
    r"\n",
]
PATTERNS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@settings(max_examples=500, deadline=None)
@given(PATTERNS, st.text("ab-.A", min_size=1, max_size=7))
def test_any_pattern_means_what_it_means_to_pythons_own_engine(pattern: str, name: str) -> None:
    """For a name of one line: engines differ in what ``\\B`` finds in an empty text, and ``$`` before a line's end."""
    found = compiled(pattern)
    if found is not None:
        assert found.fullmatch(name) is (re.fullmatch(pattern, name) is not None), (pattern, name)


@given(st.text(max_size=30))
def test_any_text_is_a_pattern_or_is_refused_with_a_reason(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Python's, of classes that look like sets
        assert (compiled(pattern) is None) is bool(problem(pattern))
