"""`trimtab plan`: what the next cycle would do, for a policy in the cluster or one in a file.

A policy from a file is checked as by `trimtab lint` and replaces the live one. The output names the checks that only
the operator makes against a real Pulsar cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from trimtab_operator.app import following, new_cluster
from trimtab_operator.cli.cluster import PATIENCE, fetch, names_of, said
from trimtab_operator.cli.commands.plan_table import Stand, show
from trimtab_operator.cli.commands.run import load_sources
from trimtab_operator.cli.common import FINDING, FINE, CommandError, add_output_option, add_verb
from trimtab_operator.cli.flags import add_cluster_flags, settle_namespace
from trimtab_operator.cli.lint.files import Document, UnreadableError, documents, manifest_files
from trimtab_operator.cli.lint.schema import valid_manifest
from trimtab_operator.cli.url_option import add_url_option, allowed_urls
from trimtab_operator.kube.client import POLICIES, Api, ApiError, NotFoundError
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.loop.preview import Preview, preview
from trimtab_operator.resources.urls import SERVICES_ALONE, AllowedUrls, RefusedUrlError, UrlPattern, parse
from trimtab_operator.state.settings import InvalidPolicyError, Settings
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_pipeline.api import LoadSources, SourceUnavailableError
from trimtab_strategies.model import some

_FOUND = ("Linked", "PulsarBalancerDisabled", "DataTrusted")
"""Conditions that only the operator checks, in the order in which a user should fix them."""


def unasked(settings: Settings, status: Mapping[str, Any], namespace: str) -> list[str]:
    """Notes on checks that the plan lacks; none without a Pulsar cluster.

    status: of the policy in the cluster, empty if there is none yet.
    """
    if settings.pulsar is None:
        return []
    found = list(_refused(status))
    alone = "only the operator checks whether Prometheus shows these brokers, and whether Pulsar's own balancer is off"
    where = "" if found else f": trimtab status {settings.name} -n {namespace}"
    return [f"Pulsar was not checked: {alone}{where}", *found]


def _refused(status: Mapping[str, Any]) -> Iterator[str]:
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    for kind in _FOUND:
        found = conditions.get(kind)
        if found is not None and found["status"] == "False":
            yield f"the operator found {kind} False: {found['reason']}: {found.get('message', '')}"


_NEW_UID = "00000000-0000-0000-0000-000000000000"
"""The uid of a policy that is not in the cluster: no object has it as its owner."""

_NOT_YET_CREATED = "9999-12-31T23:59:59Z"
"""The creation time of a policy that is not in the cluster: after that of every other policy."""


def policy_from(file: str, name: str | None) -> dict[str, Any]:
    """The BalancingPolicy in a file; of several, the one with that name. Raises `CommandError`."""
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
    return valid_manifest(chosen[0])


def _name(document: Document) -> str:
    return str((document.data.get("metadata") or {}).get("name", "(without a name)"))


async def standing_in(api: Api, given: Mapping[str, Any], namespace: str) -> Stand:
    """`given` as a replacement of the policy with its name in the cluster, or as a new policy. Raises `ApiError`."""
    meta = given["metadata"]
    try:
        there = await api.get(POLICIES, namespace, meta["name"])
        live, status = there["metadata"], there.get("status") or {}
        note = f"planned with the file, in place of the policy {meta['name']} in namespace {namespace}"
    except NotFoundError as error:
        if error.reason != "NotFound":  # no such kind: the cluster would have no bundles
            raise
        live, status = {"uid": _NEW_UID, "creationTimestamp": _NOT_YET_CREATED}, {}
        note = f"planned with the file; namespace {namespace} has no policy {meta['name']} yet"
    kept = {key: live[key] for key in ("uid", "creationTimestamp", "generation") if key in live}
    notes = {"annotations": {**(live.get("annotations") or {}), **(meta.get("annotations") or {})}}
    return Stand({**given, "metadata": {**meta, **kept, **notes, "namespace": namespace}, "status": status}, note)


_NAMED = 10
"""Policies that an error lists."""


_ASKED = (
    "{policy} measures bundles by brokers' statistics (bundleMetrics: Statistics), which only the operator reads; "
    "see its plan: trimtab status {policy} -n {namespace}"
)


_DESCRIPTION = """\
Show what the next cycle of a policy would do, and why it would not do more. The command writes nothing.

-f reads the policy from a file (- for standard input). It replaces the policy with its name in the cluster, or is a new
one: so you see the effect of a change before you merge it. All other policies are read from the cluster.

The command measures the cluster as the operator does. Outside the cluster, --prometheus names a URL at which you reach
the same server, for example by `kubectl port-forward`. Neither Spark nor Java is needed, unless --spark is given. The
state of the strategies is read from the cluster. Long-term averages and the samples of the last minutes start now,
unless --history names a copy of the operator's history. For a policy with actuator Pulsar, notes name the checks that
only the operator makes.

Exit code 0; with --exit-code, 1 if something would be moved or split; 2: wrong usage, or no data.

examples:
  trimtab plan cluster-a --namespace messaging
  trimtab plan cluster-a --namespace messaging -o json | jq .moves
  trimtab plan -f policy.yaml -n messaging --prometheus http://localhost:9090
  trimtab plan -f policy.yaml -n messaging --exit-code || echo "merging this moves bundles"
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "plan", _DESCRIPTION, run)
    parser.add_argument(
        "policy",
        nargs="?",
        help="name of the BalancingPolicy (default: the only one in the cluster, or in FILE)",
    )
    parser.add_argument("-f", "--filename", metavar="FILE", help="file with the policy, or - for standard input")
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="Prometheus URL to use instead of the policy's; it receives the policy's credentials",
    )
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if something would be moved or split")
    add_cluster_flags(parser)
    parser.add_argument("--history", metavar="DIR", help="copy of the operator's history folder (default: none)")
    parser.add_argument(
        "--spark", default="", help="measure with Spark: local[*], or sc://host:port (default: without Spark)"
    )
    add_url_option(parser, "URLs that may receive a policy's credentials")
    add_output_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb and return the exit code. Raises `CommandError`."""
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
            sources = load_sources(arguments.history or folder, arguments.spark)
            try:
                await asyncio.wrap_future(sources.warm_up())  # the deadline of a cycle must not run while Spark starts
                return stand, await foresee_with(sources, api, arguments.namespace, stand, urls)
            finally:
                await asyncio.to_thread(sources.close)


def _urls(arguments: argparse.Namespace) -> AllowedUrls:
    """The allowed URLs, with that of ``--prometheus``, which is trusted like the policy's own."""
    urls = allowed_urls(arguments, strangers=True)
    if not arguments.prometheus:
        return urls
    try:
        named = parse(arguments.prometheus)
    except RefusedUrlError as error:
        raise CommandError(f"--prometheus: {error}") from error
    return replace(urls, patterns=(*urls.patterns, UrlPattern(named.scheme, named.host, named.port)))


def _one_namespace(arguments: argparse.Namespace, given: Mapping[str, Any]) -> None:
    """Use the namespace in the file. Raises `CommandError` if ``-n`` names another."""
    written = given["metadata"].get("namespace", "")
    if written and arguments.namespace and written != arguments.namespace:
        raise CommandError(f"the file has namespace {written}, and -n has {arguments.namespace}: leave out one")
    arguments.namespace = written or arguments.namespace


async def _stand(api: Api, arguments: argparse.Namespace, given: Mapping[str, Any] | None) -> Stand:
    """The policy to plan for, checked before an engine starts.

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
    """The policy with that name; without a name, the only one. Raises `CommandError` and `ApiError`."""
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
    """The same policy with another Prometheus URL."""
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
    """Check that the policy exists and is valid, before an engine starts.

    Raises `CommandError`, `InvalidPolicyError` and `ApiError`.
    """
    Settings.of(await fetch(api, POLICIES, namespace, policy))
