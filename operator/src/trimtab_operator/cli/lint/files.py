"""Reads manifests as Kubernetes does, keeps the line of each field, and says where a finding is.

PyYAML alone reads ``22:00`` as a number and ``1.25e9`` as a string; kubectl does the opposite.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from trimtab_operator.cli.common import CommandError
from trimtab_operator.resources.common import GROUP
from trimtab_pipeline.prometheus.response_limits import DEEPEST, HalfLetterError, TooDeepError, json_of

STDIN = "-"
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
LARGEST = 16 * 2**20
"""Maximum number of characters of a file."""

_MOST_NODES = 200_000
"""Maximum number of values in a document: a few YAML aliases could make billions."""

IGNORE = f"{GROUP}/lint-ignore"
"""Annotation: comma-separated names of rules to silence for an object."""

At = tuple[str | int, ...]
"""The place of a value: keys and positions, from the top of its document."""


class UnreadableError(ValueError):
    """A file that is not YAML or JSON. line: the line with the error, from 1. file: its name, if known."""

    def __init__(self, text: str, line: int, file: str = "") -> None:
        super().__init__(text)
        self.line, self.file = line, file


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file. lines: line (from 1) of each field and item, by place. twice: duplicate keys."""

    file: str
    data: Any
    lines: Mapping[At, int] = field(default_factory=dict)
    twice: tuple[At, ...] = ()

    def line(self, at: At) -> int:
        """The line of the value at `at`, or of the nearest value around it."""
        while at and at not in self.lines:
            at = at[:-1]
        return self.lines.get(at, 1)

    @property
    def ignored(self) -> frozenset[str]:
        """The rules that the annotation `IGNORE` of the object silences."""
        meta = self.data.get("metadata")
        notes = meta.get("annotations") if isinstance(meta, dict) else None
        text = notes.get(IGNORE) if isinstance(notes, dict) else None
        return frozenset(word.strip() for word in str(text or "").split(","))


class _Kubernetes(yaml.SafeLoader):
    """Reads scalars as kubectl does, and limits the number of merged fields."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replace ``<<`` by the fields that it merges.

        Raises `ValueError` for too many fields: a few lines can make billions.
        """
        merged = 0
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                for inner in value.value if isinstance(value, yaml.SequenceNode) else (value,):
                    if isinstance(inner, yaml.MappingNode):
                        self.flatten_mapping(inner)
                        merged += len(inner.value)
        if merged > _MOST_NODES:
            raise ValueError(f"it merges more than {_MOST_NODES:,} fields")
        super().flatten_mapping(node)


_TEMPORAL = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
_Kubernetes.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rows if tag not in _TEMPORAL]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Kubernetes.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(0b[01]+|0x[0-9a-fA-F]+|0o?[0-7]*|[1-9][0-9_]*)$"), list("-+0123456789")
)
_Kubernetes.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


def manifest_files(names: Iterable[str]) -> list[str]:
    """Files to read: those named, and those in each named folder, sorted. Raises `CommandError`."""
    found: list[str] = []
    for name in names:
        path = Path(name)
        if name == STDIN or path.is_file():
            found.append(name)
        elif path.is_dir():
            found += sorted(str(file) for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
        else:
            raise CommandError(f"there is no file or folder {name}")
    return list(dict.fromkeys(found))


def documents(file: str) -> Iterator[Document]:
    """The documents of a file (``-``: standard input), and the items of a List. Empty documents are left out.

    Raises `CommandError` for a file that can't be opened, `UnreadableError` for one that is not YAML or JSON.
    """
    yield from documents_of(file, _text(file))


def documents_of(file: str, text: str) -> Iterator[Document]:
    """As `documents`, for the `text` of a file that was read already."""
    for document in _parsed(file, text):
        kind = document.data.get("kind") if isinstance(document.data, dict) else None
        if kind == "List" and isinstance(document.data.get("items"), list):
            yield from _items(document)
        elif document.data is not None:
            yield document


def _text(file: str) -> str:
    try:
        with contextlib.nullcontext(sys.stdin) if file == STDIN else Path(file).open(encoding="utf-8") as source:
            text = source.read(LARGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CommandError(f"{file} can't be read: {why}") from error
    if len(text) > LARGEST:
        raise CommandError(f"{file} has more than {LARGEST >> 20} Mi characters: divide it")
    return text


def _parsed(file: str, text: str) -> Iterator[Document]:
    if file.endswith(".json"):
        try:
            yield Document(file, json_of(text))
        except json.JSONDecodeError as error:
            raise UnreadableError(f"is not JSON: {error.msg}", error.lineno, file) from error
        except ValueError as error:
            raise UnreadableError(f"can't be read: {error}", 1, file) from error
        return
    try:
        loader = _Kubernetes(text)
        while loader.check_node():
            yield _document(file, loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise UnreadableError(f"is not YAML: {error.problem or error.context}", line, file) from error
    except RecursionError as error:
        raise UnreadableError(f"is not YAML: {TooDeepError()}", 1, file) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # OverflowError: an escape beyond Unicode
        raise UnreadableError(f"is not YAML: {error}", 1, file) from error


def _document(file: str, loader: _Kubernetes) -> Document:
    reading = _Reading(loader)
    data = reading.value(loader.get_node(), ())
    return Document(file, data, reading.lines, tuple(reading.twice))


class _Reading:
    """Turns the nodes of one YAML document into plain data."""

    def __init__(self, loader: _Kubernetes) -> None:
        self._loader, self._nodes = loader, 0
        self.lines: dict[At, int] = {}
        self.twice: list[At] = []

    def value(self, node: Any, at: At) -> Any:
        """Plain data of `node`, whose place is `at`."""
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise ValueError(f"it has more than {_MOST_NODES:,} values")
        if len(at) > DEEPEST:
            raise TooDeepError
        self.lines.setdefault(at, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*at, k)) for k, item in enumerate(node.value)]
        return self._scalar(node)

    def _scalar(self, node: Any) -> Any:
        try:
            found = self._loader.construct_object(node)
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:  # PyYAML: a tag with a wrong value
            raise ValueError(f"{node.value!r:.80} is no {node.tag.rpartition(':')[2]}") from error
        if isinstance(found, int) and found.bit_length() > sys.float_info.max_exp:
            raise ValueError(f"the number {node.value[:20]}... is too large")
        return _whole(found) if isinstance(found, str) else found

    def _mapping(self, node: yaml.MappingNode, at: At) -> dict[str, Any]:
        if not all(isinstance(key, yaml.ScalarNode) for key, _ in node.value):
            raise ValueError("a list or a mapping is the name of a field")
        keys = Counter(_whole(key.value) for key, _ in node.value)
        self.twice += [(*at, key) for key, count in keys.items() if count > 1]
        self._loader.flatten_mapping(node)
        found: dict[str, Any] = {}
        for key, item in node.value:
            name = str(key.value)
            self.lines[(*at, name)] = key.start_mark.line + 1
            found[name] = self.value(item, (*at, name))
        return found


def _whole(text: str) -> str:
    """Return `text`. Raises `HalfLetterError` if it can't be printed."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise HalfLetterError from None
    return text


def _items(document: Document) -> Iterator[Document]:
    lines: dict[At, dict[At, int]] = defaultdict(dict)
    for at, line in document.lines.items():
        lines[at[:2]][at[2:]] = line
    for k, item in enumerate(document.data["items"]):
        inside = ("items", k)
        yield Document(document.file, item, lines[inside], tuple(at[2:] for at in document.twice if at[:2] == inside))


class Level(StrEnum):
    """Severity of a finding; the values are GitHub's words for annotations."""

    ERROR = "error"
    """The API server or the operator would refuse the object."""
    WARNING = "warning"
    """The object would be accepted, but is risky."""
    NOTICE = "notice"
    """Good to know; does not change the exit code."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a rule finds in an object: the place, and a text with value, bound and fix."""

    level: Level
    rule: str
    at: At
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A `Found` in its file.

    subject: ``Kind/name`` of the object, or empty. silenced: whether the annotation `IGNORE` of the object names the
    rule.
    """

    level: Level
    rule: str
    file: str
    line: int
    subject: str
    field: str
    text: str
    silenced: bool = False

    @classmethod
    def of(cls, document: Document, subject: str, found: Found) -> Finding:
        """A finding in an object of `document`."""
        line = document.line(found.at)
        silenced = found.level is not Level.ERROR and found.rule in document.ignored
        return cls(found.level, found.rule, document.file, line, subject, spelt(found.at), found.text, silenced)

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "level": str(self.level),
            "rule": self.rule,
            "file": self.file,
            "line": self.line,
            "object": self.subject,
            "field": self.field,
            "message": self.text,
        }


def spelt(at: At) -> str:
    """A place as people write it, such as ``spec.windows[0].start``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at).lstrip(".")
