"""`trimtab restore`: puts Pulsar's own balancer back and releases finalizers, without an operator.

With ``--stop-deployment`` it first scales the operator's Deployment to zero and waits for its Lease.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trimtab_operator.cli.cluster import add_verb, asked
from trimtab_operator.cli.commands.run import add_url_option, allowed_urls
from trimtab_operator.cli.common import FINDING, FINE, CommandError
from trimtab_operator.cli.flags import add_pulsar_options, asked_pulsar
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
from trimtab_operator.kube.lease import LEASE
from trimtab_operator.pulsar.client.dynamic_config import SWITCHES, FoundSettings, is_true, restore_settings
from trimtab_operator.pulsar.own_balancer.release import REFUSALS, found_settings_store, has_it_off, reached
from trimtab_operator.resources.common import GROUP
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.urls import AllowedUrls

DEPLOYMENTS = ResourceRef("apps", "v1", "deployments", "Deployment")


_LOOK_EVERY = 0.5

_TERMS = 4
"""Lease durations within which an operator that was told to end has ended: a minute, where a pod has half of one."""


def add_stop_options(parser: argparse.ArgumentParser) -> None:
    """The options of `stop_operator`."""
    parser.add_argument(
        "--stop-deployment",
        metavar="NAME",
        help="scale this Deployment of the operator to none before finalizers are taken off, "
        "as an operator that runs puts them back",
    )
    parser.add_argument("--lease-name", default=LEASE, metavar="NAME", help="the Lease of that operator (%(default)s)")


async def stop_operator(api: Api, namespace: str, deployment: str, lease: str, say: Callable[[str], None]) -> bool:
    """Scale `deployment` to none and wait until no operator leads any more; False: one goes on. Raises `ApiError`.

    A leader that ends in good order gives its Lease back; one that doesn't has lost it when the Lease ran out.
    """
    try:
        await api.patch(DEPLOYMENTS, namespace, deployment, {"spec": {"replicas": 0}}, subresource="scale")
    except NotFoundError:
        say(f"Deployment {deployment}: there is none of this name (any more)")
    else:
        say(f"Deployment {deployment}: scaled to none")
    if leader := await _who_goes_on(api, namespace, lease):
        say(f"{leader} still holds Lease {lease}: is the Deployment called otherwise, or was it scaled up again?")
        return False
    say("no operator leads any more")
    return True


async def _who_goes_on(api: Api, namespace: str, name: str) -> str:
    """Wait until nobody holds the Lease; not empty: who renewed it after longer than it takes to end."""
    seen, runs_out, patience = "", 0.0, math.inf
    while True:
        try:
            lease = await api.get(LEASES, namespace, name)
        except NotFoundError:
            return ""
        holder, now = str(lease["spec"].get("holderIdentity") or ""), time.monotonic()
        if lease["metadata"]["resourceVersion"] != seen:  # renewed: by our own clock, as the operator does
            if now > patience:
                return holder
            seen = lease["metadata"]["resourceVersion"]
            lasts = lease["spec"].get("leaseDurationSeconds") or 0
            runs_out, patience = now + lasts, min(patience, now + _TERMS * lasts)
        if not holder or now >= runs_out:
            return ""
        await asyncio.sleep(_LOOK_EVERY)


_FINALIZER = f"{GROUP}/finalizer"

_TRIES = 5
"""How often an object that somebody else writes meanwhile is read."""

_DESCRIPTION = """\
Leaves a Pulsar cluster as it was before Trimtab balanced it:

  1. policies that have Pulsar's own balancing off go to mode DryRun, or they would switch it off again
  2. what was found of Pulsar's own shedding and automatic split, before they were switched off, is put back
  3. with --stop-deployment, and only if that worked, the operator is ended: as long as it runs it puts finalizers back
  4. Trimtab's finalizers are taken off BalancingPolicies and TopicNamespaces, so that these can be deleted

What moved stays where it is. It works with an operator and without one, can be repeated, and exits with 1 if something
could not be done. Pulsar is asked at the URL, and with the Secrets, that were noted down when it was switched off, if
--allow-url has that URL: give the patterns that the operator has. Where nothing was noted down, no server is asked.
--admin-url names another way: no Secret is read then.

examples:
  trimtab restore -n messaging --dry-run     say what would be done
  trimtab restore -n messaging
  trimtab restore -n messaging --allow-url 'https://pulsar.example.com:8443'
  trimtab restore -n messaging --stop-deployment trimtab     end the operator, too, before it is uninstalled
  trimtab restore -n messaging --admin-url http://127.0.0.1:8080 --token-file token     from outside of the cluster
"""


def register(subparsers: Any) -> None:
    """Add the verb."""
    summary = "put back what was switched off in Pulsar, and release finalizers"
    parser = add_verb(subparsers, "restore", summary, _DESCRIPTION)
    add_pulsar_options(parser, required=False)
    add_url_option(parser, "URLs that may be asked without --admin-url, as for trimtab run")
    add_stop_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="change nothing")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    urls = allowed_urls(arguments)
    return asked(arguments, lambda api: restore(api, arguments, urls))


async def restore(api: Api, arguments: argparse.Namespace, urls: AllowedUrls) -> int:
    """Do it, saying each step; the exit code. urls: what may be asked. Raises `ApiError`."""
    advising = await _advise_only(api, arguments)
    done = await _pulsar(api, arguments, urls)
    if arguments.stop_deployment:
        if not await _stop(api, arguments, restored=done):
            return FINDING
        # it may have switched it off once more meanwhile
        done = arguments.dry_run or await _pulsar(api, arguments, urls, again=True)
    released = [await _release(api, ref, arguments) for ref in (POLICIES, TOPIC_NAMESPACES)]
    return FINE if advising and done and all(released) else FINDING


async def _stop(api: Api, arguments: argparse.Namespace, *, restored: bool) -> bool:
    """End the operator, unless Pulsar is not `restored`: it goes on trying, and must not leave it with nobody.

    Whether finalizers may be taken off: an operator that goes on puts them back.
    """
    name, namespace = arguments.stop_deployment, arguments.namespace
    if not restored:
        print(f"Deployment {name}: not stopped, as Pulsar's own balancing is not put back; finalizers stay, too")
    elif arguments.dry_run:
        _say(arguments, f"Deployment {name}: scaled to none")
    elif not await stop_operator(api, namespace, name, arguments.lease_name, print):
        print("finalizers stay, as an operator that runs puts them back")
        return False
    return restored


def _say(arguments: argparse.Namespace, text: str) -> None:
    print(f"would be done: {text}" if arguments.dry_run else text)


async def _objects(api: Api, ref: ResourceRef, namespace: str, name: str = "") -> list[Mapping[str, Any]]:
    """All of a kind, or the one of that `name`: a list, as the hook before an uninstall has no right to get one."""
    selector = f"metadata.name={name}" if name else ""
    try:
        return [item async for page in api.list(ref, namespace, field_selector=selector) for item in page.items]
    except NotFoundError:
        return []  # the kind is gone already


async def _advise_only(api: Api, arguments: argparse.Namespace) -> bool:
    """Leave no policy that has Pulsar's own balancing off; whether that could be done. Raises `ApiError`."""
    done = True
    for policy in await _objects(api, POLICIES, arguments.namespace):
        if has_it_off(policy):
            done &= await _set_dry_run(api, arguments, policy)
    return done


async def _set_dry_run(api: Api, arguments: argparse.Namespace, policy: Mapping[str, Any]) -> bool:
    """Whether the policy moves nothing any more. One that can't be changed must not keep Pulsar's balancing off."""
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


async def _pulsar(api: Api, arguments: argparse.Namespace, urls: AllowedUrls, *, again: bool = False) -> bool:
    """Put Pulsar's own balancing back; whether nothing is left to do. again: it was done once, so may be done."""
    store = found_settings_store(api, arguments.namespace)
    try:
        if (found := await store.load()) is None:
            if not again:
                print("Pulsar: nothing was switched off, or it was put back already")
                await _tell_what_is_off(arguments)
            return True
        steps = await _restore_settings(api, arguments, urls, found)
    except (*REFUSALS, CommandError) as error:
        print(f"Pulsar: not put back: {error}")
        return False
    for step in steps:
        _say(arguments, f"Pulsar: {step}")
    if not arguments.dry_run:
        await store.delete()
    return True


async def _restore_settings(
    api: Api, arguments: argparse.Namespace, urls: AllowedUrls, found: FoundSettings
) -> list[str]:
    """What was done at ``--admin-url``, else where it was found. Raises what is in `REFUSALS`, and `CommandError`."""
    dry_run = arguments.dry_run
    if arguments.admin_url:
        return await asked_pulsar(arguments, lambda admin: restore_settings(admin, found, dry_run=dry_run))
    async with reached(found.pulsar, api, arguments.namespace, urls, lambda _write: None) as admin:
        return await restore_settings(admin, found, dry_run=dry_run)


async def _tell_what_is_off(arguments: argparse.Namespace) -> None:
    """What was found may have been deleted before it was put back: with its Kubernetes namespace, or by a person.

    No policy is trusted to say where to ask: one that never moved a bundle may name any server.
    """
    if not arguments.admin_url:
        print("Pulsar: give --admin-url to have its switches looked at")
        return
    try:
        overrides = await asked_pulsar(arguments, lambda admin: admin.overrides())
    except CommandError as error:
        print(f"Pulsar: can't be asked whether its own balancing is on: {error}")
        return
    for switch in SWITCHES:
        if not is_true(overrides.get(switch, "true")):
            print(
                f"Pulsar: {switch} is {overrides[switch]} by dynamic configuration, and who set it is not known: if it "
                f"was Trimtab, remove it with pulsar-admin brokers delete-dynamic-config --config {switch}"
            )


async def _release(api: Api, ref: ResourceRef, arguments: argparse.Namespace) -> bool:
    """Take Trimtab's finalizer off the objects of a kind; whether it is off all of them. Raises `ApiError`."""
    done = True
    for item in await _objects(api, ref, arguments.namespace):
        if _FINALIZER in _finalizers(item):
            done &= await _release_one(api, ref, arguments, item)
    return done


async def _release_one(api: Api, ref: ResourceRef, arguments: argparse.Namespace, item: Mapping[str, Any]) -> bool:
    name = item["metadata"]["name"]
    try:
        if not arguments.dry_run:
            await _take_off(api, ref, arguments.namespace, item)
    except ApiError as error:
        print(f"{ref.kind} {name}: finalizer not taken off: {error}")
        return False
    _say(arguments, f"{ref.kind} {name}: finalizer taken off")
    return True


async def _take_off(api: Api, ref: ResourceRef, namespace: str, item: Mapping[str, Any], tries: int = _TRIES) -> None:
    """Take the finalizer off as the object was read, again if it changed since. Raises `ApiError`."""
    meta, left = item["metadata"], [finalizer for finalizer in _finalizers(item) if finalizer != _FINALIZER]
    body = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": left}}
    try:
        await api.patch(ref, namespace, meta["name"], body)
    except NotFoundError:
        return
    except ConflictError:
        if tries == 1:
            raise
        for again in await _objects(api, ref, namespace, meta["name"]):
            await _take_off(api, ref, namespace, again, tries - 1)


def _finalizers(item: Mapping[str, Any]) -> Sequence[str]:
    return item["metadata"].get("finalizers") or ()
