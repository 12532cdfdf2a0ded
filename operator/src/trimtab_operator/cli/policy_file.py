"""A policy out of a file, for `trimtab plan -f`: checked as by `trimtab lint`, and put in the place of the live one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.cli.failure import CommandError
from trimtab_operator.cli.lint_findings import spelt
from trimtab_operator.cli.lint_schema import refusals, without_nulls
from trimtab_operator.cli.manifest_files import Document, UnreadableError, documents, manifest_files
from trimtab_operator.cluster.api import POLICIES, Api, NotFoundError
from trimtab_strategies.model import some

_NEW_UID = "00000000-0000-0000-0000-000000000000"
"""Of a policy that the API server has not seen: nothing in the cluster is owned by it."""
_NOT_BORN_YET = "9999-12-31T23:59:59Z"
"""When it was created: after every policy that there is, in whichever second those were."""


@dataclass(frozen=True, slots=True)
class Stand:
    """The policy to plan for, as a BalancingPolicy object. told: what it stands for, where it is from a file."""

    manifest: Mapping[str, Any]
    told: str = ""

    @property
    def status(self) -> Mapping[str, Any]:
        """What the operator wrote of the policy that the cluster has; empty where it has none."""
        found: Mapping[str, Any] = self.manifest.get("status") or {}
        return found

    @property
    def name(self) -> str:
        """Of the BalancingPolicy."""
        return str(self.manifest["metadata"]["name"])


def policy_from(file: str, name: str | None) -> dict[str, Any]:
    """The BalancingPolicy of a file; of several, the one of that name. Raises `CommandError`."""
    if file != "-":
        manifest_files([file])
    try:
        found = [d for d in documents(file) if isinstance(d.data, dict) and d.data.get("kind") == POLICIES.kind]
    except UnreadableError as error:
        raise CommandError(f"{file}:{error.line}: it {error}") from error
    chosen = [document for document in found if name in {None, _name(document)}]
    if len(chosen) != 1:
        names = ", ".join(map(_name, found)) or "none"
        raise CommandError(
            f"{file} must hold one BalancingPolicy{f' {name}' if name else ', or name one of them'}; it holds: {names}"
        )
    return _checked(chosen[0])


def _name(document: Document) -> str:
    return str((document.data.get("metadata") or {}).get("name", "(without a name)"))


def _checked(document: Document) -> dict[str, Any]:
    if wrong := list(refusals(document.data)):
        told = [f"{document.file}:{document.line(found.at)}: {spelt(found.at)}: {found.text}" for found in wrong]
        raise CommandError(some(told, 3, "; "))
    checked: dict[str, Any] = without_nulls(document.data)
    return checked


async def standing_in(api: Api, given: Mapping[str, Any], namespace: str) -> Stand:
    """`given` in the place of the policy of its name in the cluster, or as a new one. Raises `ApiError`."""
    meta = given["metadata"]
    try:
        there = await api.get(POLICIES, namespace, meta["name"])
        live, status = there["metadata"], there.get("status") or {}
        told = f"planned as the file has it, in place of the policy {meta['name']} in namespace {namespace}"
    except NotFoundError as error:
        if error.reason != "NotFound":  # no such kind: the plan would be of a cluster without bundles
            raise
        live, status = {"uid": _NEW_UID, "creationTimestamp": _NOT_BORN_YET}, {}
        told = f"planned as the file has it; namespace {namespace} has no policy {meta['name']} yet"
    kept = {key: live[key] for key in ("uid", "creationTimestamp", "generation") if key in live}
    notes = {"annotations": {**(live.get("annotations") or {}), **(meta.get("annotations") or {})}}
    return Stand({**given, "metadata": {**meta, **kept, **notes, "namespace": namespace}, "status": status}, told)
