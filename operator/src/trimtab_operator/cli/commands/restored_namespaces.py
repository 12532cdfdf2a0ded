"""The namespaces that `trimtab restore` restores, and the objects in them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from trimtab_operator.cli.common import CommandError
from trimtab_operator.kube.client import (
    CONFIG_MAPS,
    POLICIES,
    TOPIC_NAMESPACES,
    Api,
    NotFoundError,
    RefusedError,
    ResourceRef,
)
from trimtab_operator.kube.naming import PULSAR_FOUND


async def spaces(api: Api, arguments: argparse.Namespace) -> list[str]:
    """The namespaces of the messaging clusters; with -A, all that have our objects. Raises `ApiError`, `CommandError`.

    Sets `arguments.operator_namespace`.
    """
    if arguments.namespace == "":
        found = await _with_our_objects(api)
    else:
        found = [arguments.namespace] if isinstance(arguments.namespace, str) else arguments.namespace
    one = len(found) == 1 and not arguments.all_namespaces
    if not one and arguments.admin_url:
        raise CommandError("--admin-url names one Pulsar cluster: restore one namespace at a time with it")
    if not one and arguments.stop_deployment and not arguments.operator_namespace:
        raise CommandError("--stop-deployment with several namespaces needs --operator-namespace")
    arguments.operator_namespace = arguments.operator_namespace or (found[0] if found else "")
    return found


async def _with_our_objects(api: Api) -> list[str]:
    """All namespaces with policies, TopicNamespaces or stored settings of Pulsar. Raises `ApiError`.

    Stored settings outlive the policies.
    """
    items = [item for ref in (POLICIES, TOPIC_NAMESPACES) for item in await objects(api, ref, "")]
    try:
        items += await objects(api, CONFIG_MAPS, "", PULSAR_FOUND)
    except RefusedError as error:
        print(f"namespaces without policies and TopicNamespaces are left out, as ConfigMaps can't be listed: {error}")
    if not items:
        print("nothing to restore was found in any namespace; -n NAMESPACE checks one namespace")
    return sorted({item["metadata"]["namespace"] for item in items})


async def objects(api: Api, ref: ResourceRef, namespace: str, name: str = "") -> list[Mapping[str, Any]]:
    """All objects of a kind, or the one with that `name`. The uninstall hook may list objects, but not get one.

    Raises `ApiError`.
    """
    selector = f"metadata.name={name}" if name else ""
    try:
        return [item async for page in api.list(ref, namespace, field_selector=selector) for item in page.items]
    except NotFoundError:
        return []  # the kind no longer exists
