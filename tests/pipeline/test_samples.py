"""Bodies of instant queries, the fast way and the slow way."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable

import pytest

from trimtab_pipeline.prometheus import samples
from trimtab_pipeline.prometheus.samples import MalformedBodyError, VectorParser, parse_vector


def body(*series: tuple[dict[str, str], str], **more: object) -> bytes:
    """A body as Prometheus writes it: compact, in its order of keys."""
    result = [{"metric": metric, "value": [1750000000.123, value]} for metric, value in series]
    answer = {"status": "success", "data": {"resultType": "vector", "result": result}, **more}
    return json.dumps(answer, separators=(",", ":")).encode()


TWO = body(({"bundle": "t/n/0x0_0x8", "pod": "a"}, "1.5"), ({"bundle": "t/n/0x8_0xf", "pod": "b"}, "2e3"))


def fast_way(text: bytes) -> samples.Samples | None:
    """What the fast parser reads."""
    span = samples._regular(text)
    return None if span is None else samples._tokenize(text, span)


def test_regular_bodies_take_the_fast_way_and_agree_with_the_slow_one() -> None:
    fast, slow = fast_way(TWO), samples._parse_json(TWO)
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
    assert fast_way(partial) is not None
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
        (b"<html>login</html>", "not JSON.*<html>login"),
        (TWO[:-20], "not JSON"),
        (b'{"status":"error","errorType":"timeout","error":"query timed out"}', "status is not success.*timed out"),
        (b'{"status":"success","data":{"resultType":"scalar","result":[]}}', "no instant vector"),
        (b'{"status":"success","data":{"resultType":["vector"],"result":[]}}', "no instant vector"),
        (b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}', "no value"),
        (b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}', "'x'"),
        (b"[1]", "status is not success"),
    ],
)
def test_a_body_that_is_no_answer_is_reported_with_its_beginning(text: bytes, says: str) -> None:
    with pytest.raises(MalformedBodyError, match=says):
        parse_vector(text)


@pytest.mark.parametrize("place", ["head", "tail"])
def test_an_answer_that_says_it_is_partial_carries_a_warning(place: str) -> None:
    whole = body(({"pod": "a"}, "1"))
    partial = (
        whole.replace(b'"success",', b'"success","isPartial":true,')
        if place == "head"
        else whole[:-1] + b',"isPartial":true}'
    )
    assert parse_vector(whole.replace(b'"success",', b'"success","isPartial":false,')).warnings == ()
    assert parse_vector(partial).warnings == ("the server says that its answer is partial",)


@pytest.mark.parametrize("where", [b'"pod"', b'"a"', b'"value"'])
def test_bytes_that_are_no_text_are_malformed_wherever_they_are(where: bytes) -> None:
    broken = body(({"pod": "a"}, "1")).replace(where, where[:-1] + b'\xff"')
    with pytest.raises(MalformedBodyError, match="not JSON"):
        parse_vector(broken)


def test_names_beyond_ascii_are_read() -> None:
    text = body(({"pod": "größe"}, "1")).replace(b"gr\\u00f6\\u00dfe", "größe".encode())
    assert parse_vector(text).label("pod").to_pylist() == ["größe"]


def test_a_mangled_body_is_read_or_reported_but_breaks_nothing() -> None:
    chance = random.Random(1)
    for _ in range(3000):
        mangled = bytearray(TWO)
        at = chance.randrange(len(mangled))
        mangled[at : at + chance.randint(0, 9)] = chance.choice(
            [b"", b'"', b"\xff", b"\\", b"]", b'":[', b'"value"', b'"metric"', b"{}"]
        )
        try:
            read = parse_vector(bytes(mangled))
        except MalformedBodyError:
            continue
        assert all(len(column) == len(read) and column.to_pylist() for column in read.labels.values())


def test_raw_samples_are_read_with_their_times_and_series_of_histograms_are_left_out() -> None:
    series = [
        {"metric": {"pod": "a"}, "values": [[100.5, "1"], [115.5, "NaN"], [130.5, "2.5"]]},
        {"metric": {"pod": "b"}, "histograms": [[100.5, {"count": "1"}]]},
        {"metric": {"pod": "c", "id": "x"}, "values": [[99, "+Inf"]]},
    ]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": series}, "warnings": ["partial"]}
    read = parse_vector(json.dumps(answer).encode())
    assert (read.label("pod").to_pylist(), read.label("id").to_pylist()) == (["a", "c"], ["", "x"])
    assert read.values.to_pylist() == [2.5, math.inf]
    assert [points[:, 0].tolist() for points in read.points] == [[100.5, 115.5, 130.5], [99.0]]
    assert [len(points) for points in read.of_pods(["c"]).points] == [1]
    assert read.warnings == ("partial",)


def series_of(*values: str, labels: str = "abc", at: float = 1750000000.123) -> bytes:
    """A body with a series per value."""
    result = [{"metric": {"pod": pod}, "value": [at, v]} for pod, v in zip(labels, values, strict=True)]
    answer = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return json.dumps(answer, separators=(",", ":")).encode()


def test_labels_that_an_earlier_answer_had_are_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = VectorParser()
    first = parser.parse(series_of("1", "22.5", "333"))
    monkeypatch.setattr(samples, "_tokenize", None)
    again = parser.parse(series_of("12345", "NaN", "0.5"))
    assert again.labels["pod"] is first.labels["pod"]
    assert [again.values[0].as_py(), again.values[2].as_py()] == [12345.0, 0.5]
    assert math.isnan(again.values[1].as_py())
    assert parser.parse(body(*(({"pod": p}, "7") for p in "abc"), warnings=["late"])).warnings == ("late",)


@pytest.mark.parametrize(
    "other",
    [
        series_of("1", "2", "3", labels="abz"),
        series_of("1", "2", "3", labels="bac"),
        series_of("1", "2", labels="ab"),
        series_of("1", "2", "3", "4", labels="abcd"),
        series_of("1", "2", "3", at=1750000001.123),
        series_of("1", "2", "3", labels="]bc"),
        series_of("1", "2", "3").replace(b'"pod"', b'"pid"'),
        series_of("1", "2", "3").replace(b'"2"', b'"2","3"'),
        series_of("1", "2", "3").replace(b'"2"', b'"2]"'),
        series_of(labels=""),
    ],
)
@pytest.mark.parametrize("known", [series_of("1", "22.5", "333"), series_of("1", "2", "3", labels="]b]")])
def test_other_labels_are_read_as_if_there_had_been_no_earlier_answer(known: bytes, other: bytes) -> None:
    parser = VectorParser()
    parser.parse(known)

    def read(parse: Callable[[bytes], samples.Samples]) -> object:
        try:
            found = parse(other)
        except MalformedBodyError as error:
            return str(error)
        return {name: column.to_pylist() for name, column in found.labels.items()}, found.values.to_pylist()

    assert read(parser.parse) == read(parse_vector)


@pytest.mark.slow
def test_a_mangled_body_is_read_as_if_there_had_been_no_earlier_answer() -> None:
    chance = random.Random(2)
    for _ in range(3000):
        mangled = bytearray(TWO)
        at = chance.randrange(len(mangled))
        mangled[at : at + chance.randint(0, 9)] = chance.choice(
            [b"", b'"', b"\xff", b"\\", b"]", b'":[', b'"value"', b'"metric"', b"{}", b"7"]
        )
        parser = VectorParser()
        parser.parse(TWO)
        try:
            expected = parse_vector(bytes(mangled))
        except MalformedBodyError:
            with pytest.raises(MalformedBodyError):
                parser.parse(bytes(mangled))
            continue
        found = parser.parse(bytes(mangled))
        assert str(found.values) == str(expected.values)
        assert {n: c.to_pylist() for n, c in found.labels.items()} == {
            n: c.to_pylist() for n, c in expected.labels.items()
        }
