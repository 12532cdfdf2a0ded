"""Bodies of instant queries, the fast way and the slow way."""

from __future__ import annotations

import json
import math

import pytest

from trimtab_pipeline import samples
from trimtab_pipeline.samples import MalformedBodyError, parse_vector


def body(*series: tuple[dict[str, str], str], **more: object) -> bytes:
    """A body as Prometheus writes it: compact, in its order of keys."""
    result = [{"metric": metric, "value": [1750000000.123, value]} for metric, value in series]
    answer = {"status": "success", "data": {"resultType": "vector", "result": result}, **more}
    return json.dumps(answer, separators=(",", ":")).encode()


TWO = body(({"bundle": "t/n/0x0_0x8", "pod": "a"}, "1.5"), ({"bundle": "t/n/0x8_0xf", "pod": "b"}, "2e3"))


def test_regular_bodies_take_the_fast_way_and_agree_with_the_slow_one() -> None:
    fast, slow = samples._tokenize(TWO), samples._parse_json(TWO)
    assert fast is not None
    assert fast.values.to_pylist() == slow.values.to_pylist() == [1.5, 2000.0]
    assert fast.label("bundle").to_pylist() == slow.label("bundle").to_pylist() == ["t/n/0x0_0x8", "t/n/0x8_0xf"]
    assert fast.label("pod").to_pylist() == ["a", "b"]


def test_nan_and_infinities_are_read_as_such() -> None:
    values = parse_vector(body(*(({"pod": p}, v) for p, v in zip("abc", ("NaN", "+Inf", "-Inf"), strict=True)))).values
    assert math.isnan(values[0].as_py())
    assert values.to_pylist()[1:] == [math.inf, -math.inf]


def test_warnings_are_kept_without_leaving_the_fast_way() -> None:
    partial = body(({"pod": "a"}, "1"), warnings=["store 3 did not answer", 'say "why"'])
    assert samples._tokenize(partial) is not None
    assert parse_vector(partial).warnings == ("store 3 did not answer", 'say "why"')


@pytest.mark.parametrize(
    ("series", "pods"),
    [
        pytest.param([({"bundle": "x", "pod": "a"}, "1"), ({"pod": "b"}, "2")], ["a", "b"], id="a label is missing"),
        pytest.param([({"pod": "a"}, "1"), ({"bundle": "x"}, "2")], ["a", ""], id="same number of labels, other names"),
        pytest.param([({"pod": 'a"b'}, "1"), ({"pod": "c\\d"}, "2")], ['a"b', "c\\d"], id="escapes"),
        pytest.param(
            [({"pod": "value"}, "1"), ({"pod": "metric"}, "2")], ["value", "metric"], id="words of the format"
        ),
        pytest.param([({"pod": "ä"}, "1"), ({"pod": "b"}, "2")], ["ä", "b"], id="not ASCII"),
        pytest.param([({}, "1"), ({}, "2")], ["", ""], id="no labels"),
    ],
)
def test_irregular_bodies_are_read_too(series: list[tuple[dict[str, str], str]], pods: list[str]) -> None:
    read = parse_vector(body(*series))
    assert read.label("pod").to_pylist() == pods
    assert read.values.to_pylist() == [1.0, 2.0]


def test_a_label_called_value_is_no_end_of_labels() -> None:
    read = parse_vector(body(({"pod": "a", "value": "x"}, "1"), ({"pod": "b", "value": "y"}, "2")))
    assert (read.label("value").to_pylist(), read.values.to_pylist()) == (["x", "y"], [1.0, 2.0])


def test_an_empty_answer_has_no_rows() -> None:
    empty = parse_vector(body())
    assert len(empty) == 0
    assert empty.label("pod").to_pylist() == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"<html>login</html>", "no JSON.*<html>login"),
        (TWO[:-20], "no JSON"),
        (b'{"status":"error","errorType":"timeout","error":"query timed out"}', "status is not success.*timed out"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "no instant vector"),
        (b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}', "no value"),
        (b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}', "'x'"),
        (b"[1]", "status is not success"),
    ],
)
def test_a_body_that_is_no_answer_is_told_with_its_beginning(text: bytes, says: str) -> None:
    with pytest.raises(MalformedBodyError, match=says):
        parse_vector(text)
