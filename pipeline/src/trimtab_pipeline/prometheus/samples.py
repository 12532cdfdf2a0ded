"""Bodies of Prometheus' instant-query API as Arrow columns.

The standard way (a Python dict per series) takes over a second for the 420,000 samples of a large cluster, most of it
in the garbage collector. Here every string of the body becomes one entry of a single Arrow array, whose offsets are the
positions of the quotes. A column is every n-th entry of that array. This needs the same labels on all series, and plain
ASCII; the parser checks both. Other bodies are parsed by `json`, which is slow. The answers of one read are about the
same series, so a `VectorParser` parses their labels once. If the text between the values is the same as in an earlier
answer, it parses only the values.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.prometheus.response_limits import TooDeepError, json_of
from trimtab_strategies.model.cluster_load import FloatArray

_SUCCESS = b'{"status":"success"'
_RESULT = b'"result":['
_END = b'"]}]'  # ends the last series' value, its object, and the list
_QUOTE, _BRACKET = ord('"'), ord("]")
_MAX_BODY = 2**31 - 1  # bytes; Arrow's string offsets are 32 bit
_MOST_LABELS = 1000  # of a series; Prometheus' own have about a dozen
_MOST_WARNINGS = 100  # of an answer; further ones say nothing new
_LONGEST_WARNING = 1000  # characters

_ODD = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""Errors that are raised for JSON values of another form than that of an answer."""


class MalformedBodyError(ValueError):
    """A body that is not a successful answer to an instant query. The text quotes the beginning of `body`."""

    def __init__(self, what: str, body: bytes) -> None:
        super().__init__(f"{what}; it begins with {head(body)}")
        self.what, self.body = what, body


@dataclass(frozen=True, slots=True)
class Samples:
    """The answer to one instant query: rows are series.

    labels:   a string array for each label; empty string where a series lacks it.
    values:   float64 array; may hold NaN and infinities. For a range query, the newest value of each series.
    warnings: the server's warnings about the answer (partial data).
    points:   for a range query, (k, 2) times (epoch s) and values of each series, oldest first; else empty.
    """

    labels: Mapping[str, pa.StringArray]
    values: pa.DoubleArray
    warnings: tuple[str, ...] = ()
    points: tuple[FloatArray, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def label(self, name: str) -> pa.StringArray:
        """The column of label `name`, all empty where no series has it."""
        return self.labels[name] if name in self.labels else pa.repeat("", len(self))

    @classmethod
    def joined(cls, parts: Sequence[Samples]) -> Samples:
        """All series of `parts`, which has at least one answer."""
        if len(parts) == 1:
            return parts[0]
        names = dict.fromkeys(name for part in parts for name in part.labels)
        return cls(
            {name: pa.concat_arrays([part.label(name) for part in parts]) for name in names},
            pa.concat_arrays([part.values for part in parts]),
            tuple(dict.fromkeys(text for part in parts for text in part.warnings)),
            tuple(itertools.chain.from_iterable(part.points for part in parts)),
        )

    def of_pods(self, pods: Sequence[str]) -> Samples:
        """The series whose label ``pod`` is among `pods`."""
        return self.filter(pc.is_in(self.label("pod"), value_set=pa.array(pods, pa.string())))

    def filter(self, keep: pa.BooleanArray) -> Samples:
        """The series for which `keep` is true."""
        labels = {name: column.filter(keep) for name, column in self.labels.items()}
        points = tuple(itertools.compress(self.points, keep.to_pylist()))
        return Samples(labels, self.values.filter(keep), self.warnings, points)


@dataclass(frozen=True, slots=True)
class _Known:
    """The labels of an earlier answer, and the texts between its values: each ends where a value begins."""

    labels: Mapping[str, pa.StringArray]
    texts: pa.StringArray

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Bytes of each text."""
        lengths: npt.NDArray[np.int32] = pc.binary_length(self.texts).to_numpy()
        return lengths


class VectorParser:
    """Parses the answers of one read. Threads share it and take turns: the first one parses the labels for all."""

    def __init__(self) -> None:
        self._known, self._turn = _Known({}, pa.array([], pa.string())), threading.Lock()

    def parse(self, body: bytes) -> Samples:
        """Samples of the body of an instant query, for a vector or for a range. Raises `MalformedBodyError`."""
        found = None
        if (span := _regular(body)) is not None:
            with self._turn:
                found = self._fast(body, span)
        return _parse_json(body) if found is None else found

    def _fast(self, body: bytes, span: tuple[int, int]) -> Samples | None:
        """The samples by the fast parser, or None when its assumptions do not hold."""
        if (again := _repeated(body, span, self._known)) is not None:
            return again
        if (found := _tokenize(body, span)) is not None:
            texts = _texts(body, span)
            self._known = _Known(found.labels, texts if len(texts) == len(found) else texts[:0])
        return found


def parse_vector(body: bytes) -> Samples:
    """As `VectorParser.parse`, for a single answer."""
    return VectorParser().parse(body)


def _regular(body: bytes) -> tuple[int, int] | None:
    """Where the series of the body begin and end, or None when the fast parser's assumptions do not hold."""
    start, end = body.find(_RESULT) + len(_RESULT), body.rfind(_END) + len(_END)
    regular = body.startswith(_SUCCESS) and len(_RESULT) <= start < end and len(body) < _MAX_BODY
    if not regular or not body.isascii() or body.find(b"\\", start, end) >= 0:
        return None
    if any(word in body[:start] for word in (b'"warnings"', b'"isPartial":true')):
        return None
    return start, end


def _tokenize(body: bytes, span: tuple[int, int]) -> Samples | None:
    """The samples by the fast parser, or None when its assumptions do not hold."""
    start, end = span
    warnings = _warnings_after(body, end)
    tokens = _strings(body, start, end)
    names = _label_names(tokens)
    width = 3 + 2 * len(names)  # "metric", a name and a value per label, "value", the value
    if warnings is None or len(names) > _MOST_LABELS or (len(tokens) + 1) % (2 * width):
        return None
    columns = [_every(tokens, k, width) for k in range(width)]
    expected = {0: "metric", width - 2: "value"} | {1 + 2 * i: name for i, name in enumerate(names)}
    if not all(pc.all(pc.equal(columns[k], word)).as_py() for k, word in expected.items()):
        return None
    values = _numbers(columns[-1])
    return None if values is None else Samples({n: columns[2 + 2 * i] for i, n in enumerate(names)}, values, warnings)


def _numbers(texts: pa.StringArray) -> pa.DoubleArray | None:
    try:
        return pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        return None


def _repeated(body: bytes, span: tuple[int, int], known: _Known) -> Samples | None:
    """The samples of a body whose labels are `known`: only its values are parsed. None for other labels."""
    ends, lengths = _value_ends(body, span), known.lengths
    if len(ends) != len(lengths) or not len(ends):
        return None
    begins = np.append(np.int32(0), ends[:-1]) + lengths
    if not (begins <= ends).all():
        return None
    pieces = _pieces(body, span, begins, ends)
    warnings = _warnings_after(body, span[1])
    if warnings is None or not _alternate(pieces, 0).equals(known.texts):
        return None
    values = _numbers(_alternate(pieces, 1))
    return None if values is None else Samples(known.labels, values, warnings)


def _texts(body: bytes, span: tuple[int, int]) -> pa.StringArray:
    """The text before each value. Empty if labels contain brackets: then `_repeated` recognizes no body."""
    ends = _value_ends(body, span)
    view = np.frombuffer(memoryview(body)[span[0] : span[1]], np.uint8)
    quotes = np.flatnonzero(view == _QUOTE)
    last = np.searchsorted(quotes, ends)  # the closing quote of each value
    if len(ends) == 0 or last[-1] >= len(quotes) or not (quotes[last] == ends).all():
        return pa.array([], pa.string())
    begins = (quotes[last - 1] + 1).astype(np.int32)
    return _alternate(_pieces(body, span, begins, ends), 0)


def _value_ends(body: bytes, span: tuple[int, int]) -> npt.NDArray[np.int32]:
    """Position in the span of each value's closing quote, which a bracket follows."""
    view = np.frombuffer(memoryview(body)[span[0] : span[1] - 1], np.uint8)
    return np.flatnonzero(view == _BRACKET).astype(np.int32) - 1


def _pieces(
    body: bytes, span: tuple[int, int], begins: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]
) -> pa.StringArray:
    """The text before each value and the value, in turn, without a copy."""
    offsets = np.append(np.int32(0), np.stack([begins, ends], axis=1).ravel()).astype(np.int32)
    view = memoryview(body)[span[0] : span[1]]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(view)])


def _alternate(pieces: pa.StringArray, first: int) -> pa.StringArray:
    """Every second piece from the one numbered `first`."""
    return pc.take(pieces, pa.array(np.arange(first, len(pieces), 2, dtype=np.int32)))


def _warnings_after(body: bytes, end: int) -> tuple[str, ...] | None:
    """The warnings after the result list, if any; None when the answer does not end as expected."""
    tail = body[end:].strip()
    if tail == b"}}":
        return ()
    try:
        return _warnings(json_of(b'{"data":{"result":[]' + tail))
    except _ODD:
        return None


def _strings(body: bytes, start: int, end: int) -> pa.StringArray:
    """All strings of ``body[start:end]`` at even positions, the text between them at odd ones, without a copy."""
    view = memoryview(body)[start:end]
    offsets = np.flatnonzero(np.frombuffer(view, np.uint8) == _QUOTE).astype(np.int32)
    offsets[0::2] += 1  # a string begins behind its opening quote and ends at its closing one
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(view)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def _label_names(strings: pa.StringArray) -> list[str]:
    """Label names of the first series, the strings between its "metric" and its "value". Stops after too many."""
    names: list[str] = []
    for k in range(2, min(len(strings) - 1, 4 * _MOST_LABELS + 6), 4):
        name = strings[k].as_py()
        if name == "value" and strings[k + 1].as_py().startswith('":['):
            break
        names.append(name)
    return names


def _every(strings: pa.StringArray, first: int, width: int) -> pa.StringArray:
    """Every `width`-th string from the one numbered `first`."""
    return pc.take(strings, pa.array(np.arange(2 * first, len(strings), 2 * width, dtype=np.int32)))


def _parse_json(body: bytes) -> Samples:
    """The samples by the slow parser, which takes any labels and explains an invalid body."""
    try:
        answer = json_of(body)
    except TooDeepError as error:
        raise MalformedBodyError(f"the answer can't be read: {error}", body) from None
    except ValueError as error:
        raise MalformedBodyError(f"the answer is not JSON ({error})", body) from error
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise MalformedBodyError("the answer's status is not success", body)
    data = answer.get("data")
    if not isinstance(data, dict) or data.get("resultType") not in ("vector", "matrix"):
        raise MalformedBodyError("the answer holds no instant vector and no range", body)
    try:
        read = _columns if data["resultType"] == "vector" else _ranges
        return read(data["result"], _warnings(answer), len(body))
    except _ODD as error:
        what = f"a series has no labels or no value ({type(error).__name__}: {error})"
        raise MalformedBodyError(what, body) from error


def _columns(result: list[dict[str, Any]], warnings: tuple[str, ...], size: int) -> Samples:
    values = pa.array([float(series["value"][1]) for series in result], pa.float64())
    return Samples(_labels(result, size), values, warnings)


def _ranges(result: list[dict[str, Any]], warnings: tuple[str, ...], size: int) -> Samples:
    """Raw samples. Series with only histograms have none, and are left out."""
    filled = [series for series in result if series.get("values")]
    points = tuple(_points(series["values"]) for series in filled)
    return Samples(_labels(filled, size), pa.array([one[-1, 1] for one in points], pa.float64()), warnings, points)


def _points(values: list[Any]) -> FloatArray:
    """(k, 2) times and values of a series. Raises `ValueError` for other shapes, and for a time that is not finite."""
    points = np.array(values, np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points[:, 0]).all():  # noqa: PLR2004  time and value
        raise ValueError("a sample is a time and a value")
    return points


def _labels(result: list[dict[str, Any]], size: int) -> dict[str, pa.StringArray]:
    """A column for each label. size: bytes of the body.

    Raises `ValueError` if the columns would need far more memory than the body, because most series lack most labels.
    """
    names = sorted({name for series in result for name in series["metric"]})
    if len(names) > _MOST_LABELS or len(names) * len(result) > size:
        raise ValueError(f"the series have {len(names)} different labels")
    columns = {n: pa.array([series["metric"].get(n, "") for series in result], pa.string()) for n in names}
    if any(column.null_count for column in columns.values()):
        raise TypeError("a label's value is not a text")
    return columns


def _warnings(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """The warnings of an answer about missing data; ``infos`` do not count.

    Thanos may put them next to the result. VictoriaMetrics has a flag instead of a text.
    """
    texts = [*(answer.get("warnings") or ()), *(answer["data"].get("warnings") or ())]
    partial = ("the server says that its answer is partial",) if answer.get("isPartial") is True else ()
    return (*dict.fromkeys(str(text)[:_LONGEST_WARNING] for text in texts[:_MOST_WARNINGS]), *partial)


def head(body: bytes, length: int = 120) -> str:
    """The beginning of a body, for an error message."""
    return repr(body[:length].decode("utf-8", "replace"))
