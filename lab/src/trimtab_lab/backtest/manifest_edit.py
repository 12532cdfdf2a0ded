"""Edits fields of a policy in the text of its file, and keeps comments and layout.

The changed text is parsed again. Except for these fields, it must have the same content as before. So a text that
does not show where a field belongs, such as one with aliases or duplicate keys, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from trimtab_lab.simulation.policy import KIND

Path = tuple[str, ...]
"""The path of a field: its keys below `spec`."""


class UneditableError(ValueError):
    """The text of a file does not show where a field belongs. The message names the field and the reason."""


def edited(text: str, name: str, changes: Mapping[Path, Any]) -> str:
    """The text of a file with `changes` made to the policy `name`. Raises `UneditableError`."""
    for path, value in changes.items():
        if not path:
            raise UneditableError("no field is named")
        after = _with(text, _policy(text, name), ("spec", *path), value)
        if not _says(after, _expected(text, name, path, value)):
            raise UneditableError(f"its text has no place of its own for spec.{'.'.join(path)}: resolve its aliases")
        text = after
    return text


def _policy(text: str, name: str) -> yaml.MappingNode:
    for node in _objects(text):
        kind, meta = _value(node, "kind"), _value(node, "metadata")
        named = _value(meta, "name") if isinstance(meta, yaml.MappingNode) else None
        if kind is not None and kind.value == KIND and named is not None and named.value == name:
            return node
    raise UneditableError(f"there is no {KIND} {name}")


def _objects(text: str) -> Iterator[yaml.MappingNode]:
    """The documents, and the items of a List."""
    for node in yaml.compose_all(text, Loader=yaml.SafeLoader):
        if not isinstance(node, yaml.MappingNode):
            continue
        items = _value(node, "items")
        inner = items.value if isinstance(items, yaml.SequenceNode) else []
        yield from (one for one in (node, *inner) if isinstance(one, yaml.MappingNode))


def _value(node: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for known, value in node.value if known.value == key), None)


def _with(text: str, node: yaml.MappingNode, path: Path, value: Any) -> str:
    """`text` with `value` at `path` below `node`."""
    for depth, key in enumerate(path):
        inner = _value(node, key)
        if inner is None:
            return _inserted(text, node, path[depth:], value)
        if depth == len(path) - 1:
            new = json.dumps(value) if _is_json(text) else _inline(value)
            return text[: inner.start_mark.index] + new + text[inner.end_mark.index :]
        if not isinstance(inner, yaml.MappingNode):
            raise UneditableError(f"{'.'.join(path[: depth + 1])} holds no fields of its own")
        node = inner
    raise UneditableError("no field is named")


def _inserted(text: str, node: yaml.MappingNode, path: Path, value: Any) -> str:
    """`text` with a new field in `node`: first in a mapping with braces, else last."""
    field = _field(path, value)
    if node.flow_style:
        begin = text.index("{", node.start_mark.index) + 1
        rest = ", " if node.value else ""
        return f"{text[:begin]}{_flow(field, as_json=_is_json(text))}{rest}{text[begin:]}"
    newline = "\r\n" if "\r\n" in text else "\n"
    margin = " " * node.value[0][0].start_mark.column
    lines = "".join(f"{margin}{line}{newline}" for line in yaml.safe_dump(field, sort_keys=False).splitlines())
    end = _last(node).end_mark.index
    if text[end - 1] != "\n":
        end = text.find("\n", end) + 1
    return f"{text[:end]}{lines}{text[end:]}" if end else f"{text}{newline}{lines}"


def _last(node: yaml.Node) -> yaml.Node:
    """The last value of a block mapping. If that value is a block, too: its last value, and so on.

    The text of the mapping ends with this value. The end mark of the mapping itself is after any comments that follow
    the mapping.
    """
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node


def _field(path: Path, value: Any) -> dict[str, Any]:
    """``{"a": {"b": value}}`` for the path a, b. A strategy that the policy did not name yet also gets its type."""
    inner: Any = value
    for key in reversed(path[1:]):
        inner = {key: inner}
    if path[0] in ("shedder", "placement") and len(path) > 1:
        inner = {"type": path[1][:1].upper() + path[1][1:], **inner}
    return {path[0]: inner}


def _flow(field: Mapping[str, Any], *, as_json: bool) -> str:
    """A field as it is written between braces."""
    if as_json:
        return json.dumps(field)[1:-1]
    return yaml.safe_dump(dict(field), sort_keys=False, default_flow_style=True, width=1000).strip()[1:-1]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _inline(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).strip().removesuffix("...").strip()


def _expected(text: str, name: str, path: Path, value: Any) -> list[Any]:
    """The content that the text must have after the change."""
    found: list[Any] = [_unshared(document) for document in yaml.safe_load_all(text)]
    for document in found:
        for one in (document, *(document.get("items") or ())) if isinstance(document, dict) else ():
            if isinstance(one, dict) and one.get("kind") == KIND and one["metadata"].get("name") == name:
                _put(one, ("spec", *path), value)
                return found
    return found


def _unshared(value: Any) -> Any:
    """A copy in which no two places share an object. In the result of PyYAML, places with the same alias share one."""
    if isinstance(value, dict):
        return {key: _unshared(inner) for key, inner in value.items()}
    return [_unshared(inner) for inner in value] if isinstance(value, list) else value


def _put(inner: Any, path: Path, value: Any) -> None:
    for depth, key in enumerate(path[:-1]):
        if key not in inner:
            inner |= _field(path[depth:], value)
            return
        inner = inner[key]
    inner[path[-1]] = value


def _says(text: str, expected: list[Any]) -> bool:
    try:
        return list(yaml.safe_load_all(text)) == expected
    except yaml.YAMLError:
        return False
