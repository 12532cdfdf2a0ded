"""``--dry-run``: records a verb's writes instead of making them.

A verb runs the same code with and without a dry run. A dry run only uses another client (`DraftApi`). With
``server`` the API server also checks each write with the rights of the user, and stores nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import yaml

from trimtab_operator.cli.cluster import asked, asked_by
from trimtab_operator.cli.common import FINE, is_data, print_data
from trimtab_operator.kube.client import Api, ResourceRef

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DraftedWrite:
    """One write that was not made. verb: create, or patch (a merge patch)."""

    verb: str
    ref: ResourceRef
    namespace: str
    name: str
    body: Mapping[str, Any]

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        names = {"kind": self.ref.kind, "namespace": self.namespace, "name": self.name}
        return {"verb": self.verb, **names, "body": dict(self.body)}

    @property
    def text(self) -> str:
        """What would be done, and the body in YAML."""
        body = yaml.safe_dump(dict(self.body), sort_keys=False, allow_unicode=True, width=120).rstrip()
        indented = "\n".join(f"  {line}" for line in body.splitlines())
        return f"would {self.verb} {self.ref.kind} {self.name} in namespace {self.namespace}:\n{indented}"


class DraftApi(Api):
    """Reads as `Api` does, and records creates and patches.

    how: ``client``: each answer is the body that was given. ``server``: the API server checks each write and answers.
    """

    how: ClassVar[str] = "client"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.drafts: list[DraftedWrite] = []

    async def create(self, ref: ResourceRef, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Record the create."""
        self.drafts.append(DraftedWrite("create", ref, namespace, body["metadata"]["name"], body))
        return dict(body) if self.how == "client" else await super().create(ref, namespace, body)

    async def patch(
        self, ref: ResourceRef, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        """Record the patch."""
        self.drafts.append(DraftedWrite("patch", ref, namespace, "/".join(filter(None, (name, subresource))), body))
        if self.how == "client":
            return dict(body)
        return await super().patch(ref, namespace, name, body, subresource=subresource)


class CheckedDraftApi(DraftApi):
    """A `DraftApi` that has the API server check each write, and store nothing."""

    how: ClassVar[str] = "server"
    writing: ClassVar[Mapping[str, str]] = {**Api.writing, "dryRun": "All"}


_CLIENTS: Mapping[str, type[DraftApi]] = {client.how: client for client in (DraftApi, CheckedDraftApi)}


def wrote(
    arguments: argparse.Namespace,
    write: Callable[[Api], Awaitable[T]],
    tell: Callable[[Api, T], Awaitable[int]],
) -> int:
    """Run `write`, then `tell` with its result, and return the exit code. `tell` may wait for the operator's answer.

    With ``--dry-run``, show the writes instead of making them. Raises what `asked` raises.
    """
    client = _CLIENTS.get(arguments.dry_run)

    async def whole(api: Api) -> int:
        return await tell(api, await write(api))

    async def drafted(api: DraftApi) -> int:
        await write(api)
        _show(api, arguments.output)
        return FINE

    return asked(arguments, whole) if client is None else asked_by(client, arguments, drafted)


def _show(api: DraftApi, output: str) -> None:
    if is_data(output):
        print_data({"dryRun": api.how, "writes": [draft.as_data() for draft in api.drafts]}, output)
        return
    texts = [draft.text for draft in api.drafts] or ["nothing would be written"]
    print(f"dry run ({api.how}): " + "\n".join(texts))
