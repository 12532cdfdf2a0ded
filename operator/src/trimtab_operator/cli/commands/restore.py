"""`trimtab restore`: turns Pulsar's own balancer back on and removes finalizers, without an operator.

With ``--stop-deployment`` it scales the operator's Deployment to zero, and waits until no operator holds the Lease,
before it removes finalizers.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from trimtab_operator.cli.cluster import add_cluster_verb, asked, leader
from trimtab_operator.cli.cluster_flags import add_dry_run_flag
from trimtab_operator.cli.commands.restored_namespaces import objects, spaces
from trimtab_operator.cli.common import FINDING, FINE, CommandError
from trimtab_operator.cli.flags import add_pulsar_options, asked_pulsar
from trimtab_operator.cli.url_option import add_url_option, allowed_urls, check_url
from trimtab_operator.kube.client import (
    LEASES,
    POLICIES,
    TOPIC_NAMESPACES,
    Api,
    ApiError,
    ConflictError,
    NotFoundError,
    ResourceRef,
)
from trimtab_operator.kube.leader_election import LEASE
from trimtab_operator.pulsar.client.dynamic_config import SWITCHES, FoundSettings, is_true
from trimtab_operator.pulsar.own_balancer.restore import (
    REFUSALS,
    found_settings_store,
    has_it_off,
    reached,
    restore_settings,
)
from trimtab_operator.resources.common import FINALIZER
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.urls import AllowedUrls

DEPLOYMENTS = ResourceRef("apps", "v1", "deployments", "Deployment")

_READ_EVERY = 0.5

_ITSELF_WITHIN = 10.0
"""Seconds in which a running operator restores Pulsar's balancer itself. On real brokers it took 3 s."""

_TERMS = 4
"""Time limit for an operator to stop, in Lease durations: one minute in all. A pod has half a minute to stop."""


async def _stop_operator(api: Api, namespace: str, deployment: str, lease: str) -> bool:
    """Scale `deployment` to zero and wait until no operator leads. Raises `ApiError`.

    A leader that stops normally releases its Lease. Any other leader loses it when the Lease expires. Returns
    False if an operator continues to lead.
    """
    try:
        await api.patch(DEPLOYMENTS, namespace, deployment, {"spec": {"replicas": 0}}, subresource="scale")
    except NotFoundError:
        print(f"Deployment {deployment}: not found")
    else:
        print(f"Deployment {deployment}: scaled to zero")
    if holder := await _remaining_holder(api, namespace, lease):
        print(f"{holder} still holds Lease {lease}: does the Deployment have another name, or was it scaled up again?")
        return False
    print("no operator leads now")
    return True


async def _remaining_holder(api: Api, namespace: str, name: str) -> str:
    """Wait until no process holds the Lease. Returns the holder that renews it past the time limit, else empty."""
    seen, runs_out, patience = "", 0.0, math.inf
    while True:
        try:
            lease = await api.get(LEASES, namespace, name)
        except NotFoundError:
            return ""
        holder, now = str(lease["spec"].get("holderIdentity") or ""), time.monotonic()
        if lease["metadata"]["resourceVersion"] != seen:  # renewed; our own clock counts, as in the operator
            if now > patience:
                return holder
            seen = lease["metadata"]["resourceVersion"]
            lasts = lease["spec"].get("leaseDurationSeconds") or 0
            runs_out, patience = now + lasts, min(patience, now + _TERMS * lasts)
        if not holder or now >= runs_out:
            return ""
        await asyncio.sleep(_READ_EVERY)


_TRIES = 5
"""Attempts to write an object that other clients write too."""

_DESCRIPTION = """\
Restore a Pulsar cluster to its state before Trimtab balanced it:

  1. set to mode DryRun all policies that have switched off Pulsar's own balancer, so that they do not do so again
  2. restore Pulsar's own shedding and automatic split to their former settings. A running operator does this itself;
     if it has not within 10 seconds, the command does
  3. with --stop-deployment, and only if step 2 worked, stop the operator: while it runs, it may switch off again
  4. remove Trimtab's finalizers from BalancingPolicies and TopicNamespaces, so that these can be deleted

Bundles stay on their brokers. The command works with and without a running operator, can be repeated, and exits with 1
if a step failed. The operator stored a URL and names of Secrets when it switched the balancer off. The command uses
these if --allow-url allows the URL: give it the same patterns as the operator. Without stored settings it contacts no
server. With --admin-url it uses that URL, and reads no Secret.

examples:
  trimtab restore -n messaging --dry-run     show what would be done
  trimtab restore -n messaging
  trimtab restore -n messaging --allow-url 'https://pulsar.example.com:8443'
  trimtab restore -n messaging --stop-deployment trimtab     also stop the operator, before an uninstall
  trimtab restore -n messaging --admin-url http://127.0.0.1:8080 --token-file token     from outside the cluster
"""


def _register(subparsers: Any) -> None:
    parser = add_cluster_verb(subparsers, "restore", _DESCRIPTION, _run, several=True)
    add_pulsar_options(parser, required=False)
    add_url_option(parser, "URLs that may be used without --admin-url, as for trimtab run")
    parser.add_argument(
        "--stop-deployment",
        metavar="NAME",
        help="Deployment of the operator, to scale to zero before finalizers are removed",
    )
    parser.add_argument(
        "--operator-namespace", metavar="NAMESPACE", help="namespace of Deployment and Lease (default: that of -n)"
    )
    parser.add_argument(
        "--lease-name",
        default=LEASE,
        metavar="NAME",
        help="name of the operator's Lease (%(default)s); empty if no operator manages the namespaces",
    )
    add_dry_run_flag(parser)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.dry_run == "server":
        raise CommandError("restore also writes to Pulsar, whose API checks no write in advance: use --dry-run=client")
    arguments.dry_run = arguments.dry_run == "client"
    if arguments.stop_deployment and not arguments.lease_name:
        raise CommandError(
            "--stop-deployment waits for the operator's Lease: it needs a --lease-name that is not empty"
        )
    urls = allowed_urls(arguments)
    if arguments.admin_url:
        check_url("--admin-url", arguments.admin_url)
    return asked(arguments, lambda api: restore(api, arguments, urls))


async def restore(api: Api, arguments: argparse.Namespace, urls: AllowedUrls) -> int:
    """Restore, print each step, and return the exit code. urls: the allowed URLs. Raises `ApiError`."""
    each = [argparse.Namespace(**{**vars(arguments), "namespace": space}) for space in await spaces(api, arguments)]
    advising = [await _advise_only(api, one) for one in each]
    by_operator = [await _restored_by_operator(api, one) for one in each]
    done = all([await _pulsar(api, one, urls, again=by) for one, by in zip(each, by_operator, strict=True)])
    if arguments.stop_deployment:
        if not await _stop(api, arguments, restored=done):
            return FINDING
        # until it stopped, the operator may have switched Pulsar's balancer off again
        done = arguments.dry_run or all([await _pulsar(api, one, urls, again=True) for one in each])
    released = [ok for one in each for ref in (POLICIES, TOPIC_NAMESPACES) for ok in await _release(api, ref, one)]
    if any(released) and not arguments.stop_deployment:
        await _warn_of_operator(api, arguments, [one.namespace for one in each])  # with the flag, it was stopped
    return FINE if all(advising) and done and all(released) else FINDING


async def _stop(api: Api, arguments: argparse.Namespace, *, restored: bool) -> bool:
    """Stop the operator if Pulsar's own balancer is `restored`: otherwise nothing would balance the cluster.

    Returns whether finalizers may be removed: an operator that continues adds them again.
    """
    name, namespace = arguments.stop_deployment, arguments.operator_namespace
    if not restored:
        print(f"Deployment {name}: not stopped, as Pulsar's own balancer is not restored; finalizers stay, too")
    elif arguments.dry_run:
        _say(arguments, f"Deployment {name}: scaled to zero")
    elif not await _stop_operator(api, namespace, name, arguments.lease_name):
        print("finalizers stay, as a running operator adds them again")
        return False
    return restored


def _say(arguments: argparse.Namespace, text: str) -> None:
    print(f"would be done: {text}" if arguments.dry_run else text)


async def _advise_only(api: Api, arguments: argparse.Namespace) -> bool:
    """Set the mode to DryRun in each policy that switches Pulsar's balancer off. Returns whether this worked for all.

    Raises `ApiError`.
    """
    policies = await objects(api, POLICIES, arguments.namespace)
    return all([await _set_dry_run(api, arguments, policy) for policy in policies if has_it_off(policy)])


async def _set_dry_run(api: Api, arguments: argparse.Namespace, policy: Mapping[str, Any]) -> bool:
    """Set a policy to DryRun. Returns whether that worked: a failure must not prevent restoring Pulsar's balancer."""
    name = policy["metadata"]["name"]
    try:
        if not arguments.dry_run:
            await api.patch(POLICIES, arguments.namespace, name, {"spec": {"mode": str(Mode.DRY_RUN)}})
    except NotFoundError:
        return True  # deleted meanwhile
    except ApiError as error:
        print(f"policy {name}: can't be set to DryRun, so an operator would switch it off again: {error}")
        return False
    _say(arguments, f"policy {name}: mode {policy['spec']['mode']} becomes DryRun")
    return True


async def _restored_by_operator(api: Api, arguments: argparse.Namespace) -> bool:
    """Give a running operator time to restore Pulsar's balancer itself. Returns whether it has done so.

    The operator does so because its policies are in DryRun now. If this command restored first, an operator that has
    not seen the new mode yet would switch the balancer off again.
    """
    if arguments.dry_run or arguments.stop_deployment:
        return False
    holder, _ = await _leader(api, arguments, [arguments.namespace])
    if not holder:
        return False
    with suppress(*REFUSALS):  # `_pulsar` reports them
        store = found_settings_store(api, arguments.namespace)
        if await store.load() is None:  # nothing is switched off
            return False
        end = time.monotonic() + _ITSELF_WITHIN
        while time.monotonic() < end:
            await asyncio.sleep(_READ_EVERY)
            if await store.load() is None:
                print("Pulsar: restored by the operator, whose policies are in mode DryRun now")
                return True
    return False


async def _pulsar(api: Api, arguments: argparse.Namespace, urls: AllowedUrls, *, again: bool = False) -> bool:
    """Turn Pulsar's own balancer back on. Returns whether nothing is left to do.

    again: whether an earlier step of this command may have restored the balancer. If one did, nothing more is printed.
    """
    store = found_settings_store(api, arguments.namespace)
    try:
        if (found := await store.load()) is None:
            if not again:
                print("Pulsar: nothing was switched off, or it was restored already")
                await _print_switches(arguments)
            return True
        steps = await _restore_settings(api, arguments, urls, found)
    except (*REFUSALS, CommandError) as error:
        print(f"Pulsar: not restored: {error}")
        return False
    for step in steps:
        _say(arguments, f"Pulsar: {step}")
    if not arguments.dry_run:
        await store.delete()
    return True


async def _restore_settings(
    api: Api, arguments: argparse.Namespace, urls: AllowedUrls, found: FoundSettings
) -> list[str]:
    """The steps done at ``--admin-url``, else at the stored URL. Raises what is in `REFUSALS`, and `CommandError`."""
    dry_run = arguments.dry_run
    if arguments.admin_url:
        return await asked_pulsar(arguments, lambda admin: restore_settings(admin, found, dry_run=dry_run))
    async with reached(found.pulsar, api, arguments.namespace, urls, lambda _write: None) as admin:
        return await restore_settings(admin, found, dry_run=dry_run)


async def _print_switches(arguments: argparse.Namespace) -> None:
    """Print which of Pulsar's switches are off: the stored settings may have been deleted before the restore.

    It asks only the server of ``--admin-url``. Without stored settings, nothing shows that the URL of a policy is
    right.
    """
    if not arguments.admin_url:
        print("Pulsar: give --admin-url to check its switches")
        return
    try:
        overrides = await asked_pulsar(arguments, lambda admin: admin.overrides())
    except CommandError as error:
        print(f"Pulsar: can't read whether its own balancer is on: {error}")
        return
    for switch in SWITCHES:
        if not is_true(overrides.get(switch, "true")):
            print(
                f"Pulsar: {switch} is {overrides[switch]} by dynamic configuration, set by an unknown client: if it "
                f"was Trimtab, remove it with pulsar-admin brokers delete-dynamic-config --config {switch}"
            )


async def _leader(api: Api, arguments: argparse.Namespace, namespaces: Sequence[str]) -> tuple[str, str]:
    """The operator that leads, and the namespace of its Lease; empty texts if none leads, or no Lease can be read.

    An empty ``--lease-name`` says that none leads.
    """
    for namespace in dict.fromkeys((arguments.operator_namespace, *namespaces)) if arguments.lease_name else ():
        with suppress(ApiError):
            if holder := leader(await api.get(LEASES, namespace, arguments.lease_name), time.time()):
                return holder, namespace
    return "", ""


async def _warn_of_operator(api: Api, arguments: argparse.Namespace, namespaces: Sequence[str]) -> None:
    """Print a warning if an operator still leads: it may switch off again what a policy allows."""
    holder, namespace = await _leader(api, arguments, namespaces)
    if holder:
        also = f" --operator-namespace {namespace}" if [*namespaces] != [namespace] else ""
        print(
            f"the operator {holder} still runs in namespace {namespace} and may switch off again: "
            f"stop it first with --stop-deployment NAME{also}, or uninstall it"
        )


async def _release(api: Api, ref: ResourceRef, arguments: argparse.Namespace) -> list[bool]:
    """Remove Trimtab's finalizer from the objects of a kind that have it. Returns for each whether that worked.

    Raises `ApiError`.
    """
    items = await objects(api, ref, arguments.namespace)
    return [await _release_one(api, ref, arguments, item) for item in items if FINALIZER in _finalizers(item)]


async def _release_one(api: Api, ref: ResourceRef, arguments: argparse.Namespace, item: Mapping[str, Any]) -> bool:
    name = item["metadata"]["name"]
    try:
        if not arguments.dry_run:
            await _remove_finalizer(api, ref, arguments.namespace, item)
    except ApiError as error:
        print(f"{ref.kind} {name}: finalizer not removed: {error}")
        return False
    _say(arguments, f"{ref.kind} {name}: finalizer removed")
    return True


async def _remove_finalizer(
    api: Api, ref: ResourceRef, namespace: str, item: Mapping[str, Any], tries: int = _TRIES
) -> None:
    """Remove the finalizer, and retry if the object changed since it was read. Raises `ApiError`."""
    meta, left = item["metadata"], [finalizer for finalizer in _finalizers(item) if finalizer != FINALIZER]
    body = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": left}}
    try:
        await api.patch(ref, namespace, meta["name"], body)
    except NotFoundError:
        return
    except ConflictError:
        if tries == 1:
            raise
        for again in await objects(api, ref, namespace, meta["name"]):
            await _remove_finalizer(api, ref, namespace, again, tries - 1)


def _finalizers(item: Mapping[str, Any]) -> Sequence[str]:
    return item["metadata"].get("finalizers") or ()
