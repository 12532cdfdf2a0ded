"""Patterns that people write are matched in time, or refused with the reason and the fix."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import given, settings, strategies as st

from trimtab_strategies.filters.automaton import Matcher
from trimtab_strategies.filters.patterns import DEEPEST, LARGEST, compiled, problem


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
        ("x{2}y{,1}z{1,}", ["xxz", "xxyzz"], ["xz", "xxyyz", "xx"]),
        ("{}a{", ["{}a{"], ["a"]),
        ("", [""], ["a"]),
        ("(?!broker-0$).*", ["broker-1", "broker-00"], ["broker-0"]),
        (".*(?<!-0)", ["broker-1"], ["broker-0"]),
        ("(?=.*a)(?=.*b)[ab-]*(?<=b)", ["a-b", "bab"], ["bbb", "ba"]),
        (r"((?!-b\b).)*", ["a-bc", "a"], ["a-b.c"]),
        (r"^\ba.*\Bb\Z$", ["aab"], ["a-b"]),
        ("(?i)Broker-(?-i:A)", ["bROKER-A"], ["broker-a"]),
        (r"(?s)\x61\u0062.\101(?#what)*", ["ab\nA", "ab\nAAA", "ab\n"], ["ab\nB"]),
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
        (r"(a)\1", r"back-reference \(\\1\).*: write out the text it stands for"),
        ("(?P<x>a)(?P=x)", r"back-reference \(\(\?P=x\)\)"),
        ("(a)?(?(1)b|c)", r"back-reference \(\(\?\(1\)\)"),
        ("a++b", r"is possessive or atomic \(\+\+\): write the plain repetition"),
        ("(?>a)b", r"is possessive or atomic \(\(\?>\)"),
        ("[a-z&&[^b]]", r"has a class in a class .*: write one class"),
        ("(?x) a b", r"has the flag x \(\(\?x\)\): write it without blanks"),
        ("(?x: a )", "has the flag x"),
        ("(", "is not a regular expression .*: correct it"),
        ("a{99999999999}", "is not a regular expression"),
        ("(.{0,60}){40}", f"takes 7241 steps .*, at most {LARGEST} are allowed: lower their bounds"),
        ("((((a{999}){999}){999}){999}){999}", f"takes 996006994003000 steps .*, at most {LARGEST}"),
        ("(){3000000}", "takes .* steps"),
        ("(?:){1000000,}x", "takes .* steps"),
        ("((){3000}){1000}", "takes .* steps"),
        ("(x{0}){4000000000}", "takes .* steps"),
        ("(?i)[!-\uffff]", "letters that are not ASCII"),
        (r"(?i)[!-\uffff]", "letters that are not ASCII"),
        ("a" * (LARGEST + 1), f"has {LARGEST + 1} characters, at most {LARGEST} are allowed: shorten it"),
        ("(" * (DEEPEST + 1) + ")" * (DEEPEST + 1), f"more than {DEEPEST} nested groups"),
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
        "(?!" * 40 + "(a*)*b" + ")" * 40 + "a*",
        "((?=(a|aa)*b)a)*",
    ],
)
def test_what_takes_a_backtracking_engine_years_costs_a_visit_to_each_step_per_letter(pattern: str) -> None:
    found, name = matcher(pattern), "a" * 253

    found.fullmatch(name)

    assert found.visits <= (found.steps + 2) * (len(name) + 1)


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
    "{,2}",
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
@given(PATTERNS, st.text("ab-.A\n", max_size=7))
def test_any_pattern_means_what_it_means_to_pythons_own_engine(pattern: str, name: str) -> None:
    found = compiled(pattern)
    if found is not None:
        assert found.fullmatch(name) is (re.fullmatch(pattern, name) is not None), (pattern, name)


@settings(max_examples=300, deadline=None)
@given(PATTERNS.map(lambda pattern: f"({pattern}){{0,20}}"), st.text("ab-", min_size=1, max_size=60))
def test_any_pattern_costs_a_visit_to_each_step_per_letter(pattern: str, name: str) -> None:
    found = compiled(pattern)
    if found is not None:
        before = found.visits
        found.fullmatch(name)
        assert found.visits - before <= (found.steps + 2) * (len(name) + 1)


@given(st.text(max_size=30))
def test_any_text_is_a_pattern_or_is_refused_with_a_reason(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Python's, of classes that look like sets
        assert (compiled(pattern) is None) is bool(problem(pattern))
