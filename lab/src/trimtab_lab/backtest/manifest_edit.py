"""Changes fields of a policy in the text of its file. Comments and layout stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from trimtab_lab.simulation.policy import KIND

Path = tuple[str, ...]
"""Keys of a field below `spec`."""


class UneditableError(ValueError):
    """A file whose text does not show where a field belongs, such as one with aliases. It says which."""


def edited(text: str, name: str, changes: Mapping[Path, Any]) -> str:
    """The text of a file with other values in the policy `name`. Raises `UneditableError`."""
    for path, value in changes.items():
        text = _with(text, _policy(text, name), ("spec", *path), value)
    return text


def _policy(text: str, name: str) -> yaml.MappingNode:
    for node in yaml.compose_all(text, Loader=yaml.SafeLoader):
        if isinstance(node, yaml.MappingNode):
            kind, meta = _value(node, "kind"), _value(node, "metadata")
            named = _value(meta, "name") if isinstance(meta, yaml.MappingNode) else None
            if kind is not None and kind.value == KIND and named is not None and named.value == name:
                return node
    raise UneditableError(f"there is no {KIND} {name}")


def _value(node: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for known, value in node.value if known.value == key), None)


def _with(text: str, node: yaml.MappingNode, path: Path, value: Any) -> str:
    """`text` with `value` at `path` below `node`."""
    for depth, key in enumerate(path):
        inner = _value(node, key)
        if inner is None:
            return _inserted(text, node, path[depth:], value)
        if depth == len(path) - 1:
            return text[: inner.start_mark.index] + _inline(value) + text[inner.end_mark.index :]
        if not isinstance(inner, yaml.MappingNode) or not inner.value or inner.start_mark.index < node.start_mark.index:
            raise UneditableError(f"{'.'.join(path[: depth + 1])} holds no fields of its own")
        node = inner
    raise UneditableError("no field is named")


def _inserted(text: str, node: yaml.MappingNode, path: Path, value: Any) -> str:
    """`text` with a new field as the first one of `node`."""
    field = _field(path, value)
    begin = node.start_mark.index
    if node.flow_style:
        inner = yaml.safe_dump(field, sort_keys=False, default_flow_style=True, width=1000).strip()[1:-1]
        return f"{text[: begin + 1]}{inner}, {text[begin + 1 :]}"
    margin = " " * node.start_mark.column
    lines = yaml.safe_dump(field, sort_keys=False).splitlines()
    return text[:begin] + "".join(f"{line}\n{margin}" for line in lines) + text[begin:]


def _field(path: Path, value: Any) -> dict[str, Any]:
    """``{"a": {"b": value}}`` for the path a, b. A strategy that is named for its first time gets its type, too."""
    inner: Any = value
    for key in reversed(path[1:]):
        inner = {key: inner}
    if path[0] in ("shedder", "placement") and len(path) > 1:
        inner = {"type": path[1][:1].upper() + path[1][1:], **inner}
    return {path[0]: inner}


def _inline(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).strip().removesuffix("...").strip()
