"""The policy that `trimtab plan` reads from a file, a folder of manifests, or a kustomization."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

from trimtab_operator.cli.commands.plan_table import Stand
from trimtab_operator.cli.common import CommandError
from trimtab_operator.cli.lint.files import STDIN, Document, UnreadableError, documents, documents_of, manifest_files
from trimtab_operator.cli.lint.schema import valid_manifest
from trimtab_operator.kube.client import POLICIES, Api, NotFoundError

_NEW_UID = "00000000-0000-0000-0000-000000000000"
"""The uid of a policy that is not in the cluster: no object has it as its owner."""

_NOT_YET_CREATED = "9999-12-31T23:59:59Z"
"""The creation time of a policy that is not in the cluster: later than that of every other policy."""


def given_policy(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """The policy of ``-f`` or ``-k``, or None. Sets `arguments.namespace` to its namespace. Raises `CommandError`."""
    if arguments.kustomize:
        given = policy_among(_kustomized(arguments.kustomize), arguments.kustomize, arguments.policy)
    elif arguments.filename:
        given = policy_among(_manifests(arguments.filename), arguments.filename, arguments.policy)
    else:
        return None
    _one_namespace(arguments, given)
    return given


def _manifests(name: str) -> Iterator[Document]:
    for file in manifest_files([name]):
        yield from documents(file)


def _kustomized(folder: str) -> Iterator[Document]:
    """What ``kubectl kustomize`` makes of a folder. Raises `CommandError`."""
    if (kubectl := shutil.which("kubectl")) is None:
        raise CommandError(
            f"-k needs kubectl on the PATH; with kustomize alone: kustomize build {folder} | trimtab plan -f {STDIN}"
        )
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)  # noqa: S603  (no shell)
    if done.returncode:
        raise CommandError(f"kubectl kustomize {folder}: {' '.join(done.stderr.split()) or 'failed without a message'}")
    yield from documents_of(folder, done.stdout)


def policy_among(manifests: Iterator[Document], where: str, name: str | None) -> dict[str, Any]:
    """The BalancingPolicy in `manifests`; of several, the one called `name`. Raises `CommandError`."""
    try:
        found = [d for d in manifests if isinstance(d.data, dict) and d.data.get("kind") == POLICIES.kind]
    except UnreadableError as error:
        raise CommandError(f"{error.file or where}:{error.line}: it {error}") from error
    chosen = [document for document in found if name in {None, _name(document)}]
    if len(chosen) != 1:
        names = ", ".join(map(_name, found)) or "none"
        raise CommandError(
            f"{where} must contain one BalancingPolicy{f' {name}' if name else ', or give its NAME'}; found: {names}"
        )
    return valid_manifest(chosen[0])


def _name(document: Document) -> str:
    meta = document.data.get("metadata")
    return str(meta.get("name", "(without a name)")) if isinstance(meta, dict) else "(without a name)"


def _one_namespace(arguments: argparse.Namespace, given: Mapping[str, Any]) -> None:
    """Use the namespace in the file. Raises `CommandError` if ``-n`` names another."""
    written = given["metadata"].get("namespace", "")
    if written and arguments.namespace and written != arguments.namespace:
        raise CommandError(f"the file has namespace {written}, and -n has {arguments.namespace}: leave out one")
    arguments.namespace = written or arguments.namespace


async def standing_in(api: Api, given: Mapping[str, Any], namespace: str) -> Stand:
    """`given` as a replacement of the policy with its name in the cluster, or as a new policy. Raises `ApiError`."""
    meta = given["metadata"]
    try:
        there = await api.get(POLICIES, namespace, meta["name"])
        live, status = there["metadata"], there.get("status") or {}
        note = f"planned with the file, in place of the policy {meta['name']} in namespace {namespace}"
    except NotFoundError as error:
        if error.reason != "NotFound":  # the kind is unknown: without the CRDs there are no bundles
            raise
        live, status = {"uid": _NEW_UID, "creationTimestamp": _NOT_YET_CREATED}, {}
        note = f"planned with the file; namespace {namespace} has no policy {meta['name']} yet"
    kept = {key: live[key] for key in ("uid", "creationTimestamp", "generation") if key in live}
    notes = {"annotations": {**(live.get("annotations") or {}), **(meta.get("annotations") or {})}}
    return Stand({**given, "metadata": {**meta, **kept, **notes, "namespace": namespace}, "status": status}, note)
