"""`trimtab plan`: what the next cycle would do, for a policy in the cluster or one in a file.

A policy from a file is checked as by `trimtab lint` and takes the place of the live one. The output says what only the
operator asks a real Pulsar cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimtab_operator.app import following, new_cluster
from trimtab_operator.cli.cluster import PATIENCE, add_cluster_flags, fetch, names_of, said, settle_namespace
from trimtab_operator.cli.commands.plan_table import Stand, show
from trimtab_operator.cli.commands.run import add_url_option, allowed_urls, load_sources
from trimtab_operator.cli.common import FINDING, FINE, CommandError
from trimtab_operator.cli.lint.files import Document, UnreadableError, documents, manifest_files
from trimtab_operator.cli.lint.findings import spelt
from trimtab_operator.cli.lint.schema import refusals, without_nulls
from trimtab_operator.cli.output import add_output_option
from trimtab_operator.kube.client import POLICIES, Api, ApiError, NotFoundError
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.loop.preview import Preview, preview
from trimtab_operator.resources.urls import SERVICES_ALONE, AllowedUrls, RefusedUrlError, UrlPattern, parse
from trimtab_operator.state.settings import InvalidPolicyError, Settings
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_pipeline.api import LoadSources, SourceUnavailableError
from trimtab_strategies.model import some

_FOUND = ("Linked", "PulsarBalancerDisabled", "DataTrusted")
"""Conditions that tell what only the operator asks, in the order in which a person mends them."""


def unasked(settings: Settings, status: Mapping[str, Any], namespace: str) -> list[str]:
    """Lines that belong to a plan; none where no Pulsar cluster carries it out.

    status: of the policy in the cluster, empty where there is none yet.
    """
    if settings.pulsar is None:
        return []
    found = list(_refused(status))
    alone = "whether Prometheus shows these brokers, and whether Pulsar's own balancing is off, the operator finds out"
    where = "" if found else f": trimtab status {settings.name} -n {namespace}"
    return [f"Pulsar was not asked: {alone}{where}", *found]


def _refused(status: Mapping[str, Any]) -> Iterator[str]:
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    for kind in _FOUND:
        found = conditions.get(kind)
        if found is not None and found["status"] == "False":
            yield f"the operator found {kind} False: {found['reason']}: {found.get('message', '')}"


_NEW_UID = "00000000-0000-0000-0000-000000000000"
"""Of a policy that the API server has not seen: nothing in the cluster is owned by it."""

_NOT_BORN_YET = "9999-12-31T23:59:59Z"
"""When it was created: after every policy that there is, in whichever second those were."""


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


_NAMED = 10
"""Policies that an error lists."""


_ASKED = (
    "{policy} measures bundles by what brokers tell the operator (bundleMetrics: Statistics), which plan does not ask; "
    "see its own plan: trimtab status {policy} -n {namespace}"
)


_DESCRIPTION = """\
Show what the next cycle of a policy would do, and why it would do nothing else. Writes nothing to the cluster.

With -f the policy comes from a file (- for standard input), and stands in for the one of its name in the cluster, or
would be a new one: that is what a change would do before it is merged. All other policies are as the cluster has them.

It measures the cluster as the operator does; outside of the cluster, --prometheus says how the same server is reached
from here, such as by a `kubectl port-forward`. It needs neither Spark nor Java, unless --spark is given. Averages that
need a past begin afresh, unless you point --history at a copy of the operator's folder; what the strategies remember is
read from the cluster. Of a policy with actuator Pulsar it says what only the operator asks of the brokers.

Exit code 0, or, with --exit-code, 1 when something would be moved or split; 2: a mistake, or there is no data.

examples:
  trimtab plan cluster-a --namespace messaging
  trimtab plan cluster-a --namespace messaging -o json | jq .moves
  trimtab plan -f policy.yaml -n messaging --prometheus http://localhost:9090
  trimtab plan -f policy.yaml -n messaging --exit-code || echo "merging this moves bundles"
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "plan",
        help="show what the next cycle would do",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "policy",
        nargs="?",
        help="name of the BalancingPolicy, where there are several: in the cluster, or with -f in the file",
    )
    parser.add_argument("-f", "--filename", metavar="FILE", help="a file with the policy, or - for standard input")
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="base URL to measure by instead of the policy's own, and to be sent what its Secrets hold",
    )
    parser.add_argument("--exit-code", action="store_true", help="end with 1 when something would be moved or split")
    add_cluster_flags(parser)
    parser.add_argument("--history", type=Path, metavar="DIR", help="a copy of the operator's Parquet history (none)")
    parser.add_argument("--spark", default="", help="measure with Spark: local[*], or sc://host:port (without)")
    add_url_option(parser, "URLs that may be sent what a policy's Secrets hold")
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    try:
        stand, foreseen = asyncio.run(_foresee(arguments))
    except ApiError as error:
        raise CommandError(said(error)) from error
    except (InvalidPolicyError, UnreadableContentError, SourceUnavailableError) as error:
        raise CommandError(str(error)) from error
    except TimeoutError as error:
        raise CommandError("the API server did not list the cluster in time; try again") from error
    notes = unasked(foreseen.settings, stand.status, arguments.namespace)
    show(stand, foreseen, arguments.output, arguments.color, notes)
    moves = bool(foreseen.plan.moves or foreseen.plan.splits) and foreseen.refusal is None
    return FINDING if arguments.exit_code and moves else FINE


async def _foresee(arguments: argparse.Namespace) -> tuple[Stand, Preview]:
    urls = _urls(arguments)
    given = policy_from(arguments.filename, arguments.policy) if arguments.filename else None
    if given is not None:
        _one_namespace(arguments, given)
    settle_namespace(arguments)
    async with Api.connect(arguments.kubeconfig, arguments.context, patience=PATIENCE) as api:
        stand = await _stand(api, arguments, given)
        with tempfile.TemporaryDirectory(prefix="trimtab-plan-") as folder:
            sources = load_sources(arguments.history or Path(folder), arguments.spark)
            try:
                await asyncio.wrap_future(sources.warm_up())  # or the deadline of a cycle would run while Spark starts
                return stand, await foresee_with(sources, api, arguments.namespace, stand, urls)
            finally:
                await asyncio.to_thread(sources.close)


def _urls(arguments: argparse.Namespace) -> AllowedUrls:
    """What may be asked; the server of ``--prometheus`` as it is spelt, and trusted as the policy's own would be."""
    urls = allowed_urls(arguments, strangers=True)
    if not arguments.prometheus:
        return urls
    try:
        named = parse(arguments.prometheus)
    except RefusedUrlError as error:
        raise CommandError(f"--prometheus: {error}") from error
    return replace(urls, patterns=(*urls.patterns, UrlPattern(named.scheme, named.host, named.port)))


def _one_namespace(arguments: argparse.Namespace, given: Mapping[str, Any]) -> None:
    """A namespace that the file names counts. Raises `CommandError` where ``-n`` names another."""
    written = given["metadata"].get("namespace", "")
    if written and arguments.namespace and written != arguments.namespace:
        raise CommandError(f"the file is of namespace {written}, and -n says {arguments.namespace}: leave out one")
    arguments.namespace = written or arguments.namespace


async def _stand(api: Api, arguments: argparse.Namespace, given: Mapping[str, Any] | None) -> Stand:
    """The policy to plan for, checked before an engine is started.

    Raises `InvalidPolicyError`, `CommandError` and `ApiError`.
    """
    if given is None:
        stand = Stand(await _named(api, arguments))
    else:
        stand = await standing_in(api, given, arguments.namespace)
    if arguments.prometheus:
        stand = replace(stand, manifest=_measured_by(stand.manifest, arguments.prometheus))
    if Settings.of(stand.manifest).asks_brokers:
        raise CommandError(_ASKED.format(policy=stand.name, namespace=arguments.namespace))
    return stand


async def _named(api: Api, arguments: argparse.Namespace) -> dict[str, Any]:
    """The policy of that name; without a name the only one. Raises `CommandError` and `ApiError`."""
    namespace, name = arguments.namespace, arguments.policy
    if not name:
        names = await names_of(api, POLICIES, namespace)
        if not names:
            raise CommandError(
                f"there is no BalancingPolicy in namespace {namespace}: name another with -n, or -f FILE"
            )
        if len(names) > 1:
            raise CommandError(f"namespace {namespace} has {len(names)} policies: name one of {some(names, _NAMED)}")
        [name] = names
    return await fetch(api, POLICIES, namespace, name)


def _measured_by(policy: Mapping[str, Any], url: str) -> dict[str, Any]:
    """The same policy, asking another server."""
    spec = policy["spec"]
    source = {**spec["source"], "prometheus": {**spec["source"]["prometheus"], "url": url}}
    return {**policy, "spec": {**spec, "source": source}}


async def foresee_with(
    sources: LoadSources, api: Api, namespace: str, stand: Stand, urls: AllowedUrls = SERVICES_ALONE
) -> Preview:
    """What the policy would do, measured by `sources` at one of `urls`."""
    context = new_cluster(api, namespace, sources, Metrics(), urls=urls)
    async with following(context):
        return await preview(context, stand.name, stand.manifest)


async def check_policy(api: Api, namespace: str, policy: str) -> None:
    """Before an engine is started: is there such a policy, and can it be run?

    Raises `CommandError`, `InvalidPolicyError` and `ApiError`.
    """
    Settings.of(await fetch(api, POLICIES, namespace, policy))
