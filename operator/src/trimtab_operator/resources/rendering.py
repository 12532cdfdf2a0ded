"""CRD manifests of the five kinds, made of `kinds` and their pydantic models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from trimtab_operator.resources.common import GROUP, VERSION
from trimtab_operator.resources.kinds import KINDS, Column, Kind
from trimtab_operator.resources.schema import structural

CATEGORY = "trimtab"
"""``kubectl get trimtab`` shows objects of all kinds."""

_HEAD = "# Rendered by `trimtab crds --write crds` from the models in trimtab_operator.resources. Do not edit.\n"


def manifests() -> dict[str, dict[str, Any]]:
    """File name -> CustomResourceDefinition, for each kind."""
    return {f"{GROUP}_{kind.plural}.yaml": manifest(kind) for kind in KINDS}


def rendered() -> dict[str, str]:
    """File name -> text of the file, for each kind."""
    return {name: _HEAD + to_yaml(crd) for name, crd in manifests().items()}


def to_yaml(document: Mapping[str, Any]) -> str:
    """YAML in the order of the keys, without anchors."""
    return yaml.dump(document, Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)


def manifest(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind. Raises `InexpressibleError` for a model that no schema can describe."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": [kind.short],
                "categories": [CATEGORY],
            },
            "versions": [_version(kind)],
        },
    }


def _version(kind: Kind) -> dict[str, Any]:
    version: dict[str, Any] = {"name": VERSION, "served": True, "storage": True, "subresources": {"status": {}}}
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    version["additionalPrinterColumns"] = [_column(column) for column in kind.columns]
    version["schema"] = {"openAPIV3Schema": _schema(kind)}
    return version


def _column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        shown["description"] = column.description
    if column.wide:
        shown["priority"] = 1
    return shown


def _schema(kind: Kind) -> dict[str, Any]:
    return {
        "description": kind.doc,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": kind.kind},
            "metadata": {"type": "object"},
            "spec": structural(kind.spec),
            "status": structural(kind.status),
        },
    }


class _Plain(yaml.SafeDumper):
    """Writes a part that occurs twice as two parts, and indents lists below their key."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        super().increase_indent(flow, indentless=False)
