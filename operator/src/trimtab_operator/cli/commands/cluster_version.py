"""The part of `trimtab version` that queries the cluster. If a version can't be read, its line says why."""

from __future__ import annotations

import argparse
import asyncio

from trimtab_operator.cli.cluster import asked
from trimtab_operator.cli.common import CommandError, VersionPart
from trimtab_operator.kube.client import LEASES, PODS, Api, ApiError, NotFoundError
from trimtab_operator.kube.errors import ConnectionSettingsError
from trimtab_operator.kube.leader_election import LEASE
from trimtab_operator.resources.common import GROUP, VERSION

_WITHIN = 5.0
"""Seconds for each request, unless ``--request-timeout`` says otherwise."""

_VERSION_LABEL = "app.kubernetes.io/version"


def of_the_cluster(arguments: argparse.Namespace) -> dict[str, VersionPart]:
    """Versions of the API server, of our kinds and of the operator, or why the cluster can't be queried."""
    if arguments.request_timeout is None:
        arguments.request_timeout = _WITHIN
    try:
        return asked(arguments, lambda api: _parts(api, arguments.namespace))
    except (CommandError, ConnectionSettingsError) as error:
        return {"cluster": VersionPart(f"not asked: {error}", {"error": str(error)})}


async def _parts(api: Api, namespace: str) -> dict[str, VersionPart]:
    kubernetes = str((await api.read("/version"))["gitVersion"])
    kinds, operator = await asyncio.gather(_kinds(api), _operator(api, namespace))
    data = {"version": kubernetes, "server": api.host}
    return {
        "cluster": VersionPart(f"Kubernetes {kubernetes} at {api.host}", data),
        "kinds": kinds,
        "operator": operator,
    }


async def _kinds(api: Api) -> VersionPart:
    """Served versions of our API group, by discovery: every user may read that."""
    try:
        group = await api.read(f"/apis/{GROUP}")
    except NotFoundError:
        first = "trimtab crds | kubectl apply --server-side -f -"
        return VersionPart(f"the CRDs are not installed; first: {first}", {"served": [], "wanted": VERSION})
    except ApiError as error:
        return _unknown(error)
    served = [version["version"] for version in group["versions"]]
    missing = "" if VERSION in served else f"; this program needs {VERSION}: update the CRDs, or use a matching trimtab"
    return VersionPart(f"{GROUP} {', '.join(served)}{missing}", {"served": served, "wanted": VERSION})


async def _operator(api: Api, namespace: str) -> VersionPart:
    """The operator that holds the Lease in a namespace."""
    try:
        holder = ((await api.get(LEASES, namespace, LEASE)).get("spec") or {}).get("holderIdentity") or ""
    except NotFoundError:
        return VersionPart(f"none in namespace {namespace}: there is no Lease {LEASE}", {"leader": ""})
    except ApiError as error:
        return _unknown(error)
    if not holder:
        return VersionPart(f"none leads in namespace {namespace}", {"leader": ""})
    return await _leader(api, namespace, holder.rpartition("_")[0] or holder)


async def _leader(api: Api, namespace: str, pod: str) -> VersionPart:
    """The version of the operator in a pod. An operator outside the cluster has no pod."""
    try:
        found = await api.get(PODS, namespace, pod)
    except ApiError as error:
        return VersionPart(
            f"unknown: {pod} leads in namespace {namespace}, and its pod can't be read",
            {"leader": pod, "error": str(error)},
        )
    version = (found["metadata"].get("labels") or {}).get(_VERSION_LABEL, "")
    text = f"{version or f'unknown (no label {_VERSION_LABEL})'}: {pod} leads in namespace {namespace}"
    return VersionPart(text, {"leader": pod, "version": version or None})


def _unknown(error: ApiError) -> VersionPart:
    return VersionPart(f"unknown: {error}", {"error": str(error)})
