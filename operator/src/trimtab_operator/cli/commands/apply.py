"""`trimtab apply`: applies policies server-side. The chart's Job uses it, because the image has no kubectl."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Any

from trimtab_operator.cli.cluster import add_cluster_verb, asked
from trimtab_operator.cli.common import FINE, CommandError
from trimtab_operator.cli.flags import length
from trimtab_operator.cli.lint.files import UnreadableError, documents, manifest_files
from trimtab_operator.kube.client import POLICIES, Api, NotFoundError

_MANAGER = "trimtab"

_READ_EVERY = 1.0
"""Seconds between two attempts while the API server does not serve the kind."""

_DESCRIPTION = """\
Apply the BalancingPolicies in files, server-side, in the namespace of -n. Other objects are refused: use kubectl.

--prune deletes the policies that have all the given labels and are in none of the files.
--wait waits until the API server serves the kind. Use it directly after an installation of the CRDs.

example:
  trimtab apply -n messaging -f policy.yaml
"""


def _register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_cluster_verb(subparsers, "apply", _DESCRIPTION, _run)
    parser.add_argument(
        "--filename", "-f", metavar="FILE", action="append", required=True, help="file or folder; -: standard input"
    )
    parser.add_argument(
        "--wait", metavar="TIME", type=length, default=0.0, help="longest wait for the kind, such as 60s (no wait)"
    )
    parser.add_argument(
        "--field-manager", metavar="NAME", default=_MANAGER, help="owner of the applied fields (%(default)s)"
    )
    parser.add_argument(
        "--prune", metavar="LABELS", default="", help="delete policies with these labels (a=b,c=d) that no file has"
    )
    parser.add_argument("--force", action="store_true", help="also set fields that another manager owns")


def _run(arguments: argparse.Namespace) -> int:
    policies = list(_policies(arguments.filename))
    return asked(arguments, lambda api: _apply(api, arguments, policies))


def _policies(names: list[str]) -> Iterator[Mapping[str, Any]]:
    """The policies in files. Raises `CommandError` for a file with anything else."""
    for file in manifest_files(names):
        try:
            for document in documents(file):
                yield _policy(f"{file}:{document.line(())}", document.data)
        except UnreadableError as error:
            raise CommandError(f"{file}:{error.line} {error}") from error


def _policy(where: str, data: Any) -> Mapping[str, Any]:
    kind = (data.get("apiVersion"), data.get("kind")) if isinstance(data, dict) else ("", "")
    if kind != (POLICIES.api_version, POLICIES.kind):
        raise CommandError(f"{where} is not a {POLICIES.kind} of {POLICIES.api_version}: apply it with kubectl")
    meta = data.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        raise CommandError(f"{where} has no metadata.name")
    found: dict[str, Any] = data
    return found


async def _apply(api: Api, arguments: argparse.Namespace, policies: list[Mapping[str, Any]]) -> int:
    """Apply all policies, and print their names. Raises `ApiError`, and `CommandError` for a wrong namespace."""
    for policy in policies:
        name, space = policy["metadata"]["name"], policy["metadata"].get("namespace", arguments.namespace)
        if space != arguments.namespace:
            raise CommandError(f"policy {name} is in namespace {space}: name it with -n, not {arguments.namespace}")
    until = time.monotonic() + arguments.wait
    for policy in policies:
        await _apply_one(api, arguments, policy, until)
        print(f"policy {policy['metadata']['name']}: applied")
    if arguments.prune:
        await _prune(api, arguments, {policy["metadata"]["name"] for policy in policies})
    return FINE


async def _prune(api: Api, arguments: argparse.Namespace, kept: set[str]) -> None:
    """Delete the policies with the labels of ``--prune`` that are not in `kept`. Raises `ApiError`."""
    pages = api.list(POLICIES, arguments.namespace, label_selector=arguments.prune)
    names = [item["metadata"]["name"] async for page in pages for item in page.items]
    for name in sorted(set(names) - kept):
        await api.delete(POLICIES, arguments.namespace, name)
        print(f"policy {name}: deleted")


async def _apply_one(api: Api, arguments: argparse.Namespace, policy: Mapping[str, Any], until: float) -> None:
    """Apply a policy. While the kind is unknown, retry until `until` (monotonic seconds). Raises `ApiError`."""
    while True:
        try:
            await api.apply(
                POLICIES, arguments.namespace, policy, manager=arguments.field_manager, force=arguments.force
            )
        except NotFoundError:
            if time.monotonic() >= until:
                raise
            await asyncio.sleep(_READ_EVERY)
        else:
            return
