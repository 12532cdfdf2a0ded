"""Plans made by the load measured now: of a policy, or with its settings to relieve a broker or move a bundle."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trimtab_operator.app import new_cluster
from trimtab_operator.cli.cluster import fetch
from trimtab_operator.cli.commands.measured_policy import (
    measurable,
    measuring_urls,
    named_policy,
    opened_sources,
    refusals_told,
)
from trimtab_operator.cli.common import CommandError
from trimtab_operator.kube.client import TOPIC_NAMESPACES, Api
from trimtab_operator.kube.naming import pulsar_bundle
from trimtab_operator.loop.preview import Preview, preview
from trimtab_operator.resources.urls import AllowedUrls
from trimtab_operator.state.settings import Settings
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_operator.watched_namespaces import following
from trimtab_strategies.model import HeldBack, Plan, Reason
from trimtab_strategies.planner.relief import BrokerRelief
from trimtab_strategies.protocols import Shedder


async def placed(api: Api, arguments: argparse.Namespace, bundle: Mapping[str, Any], source: str) -> str:
    """The broker that the policy's placement chooses for a Bundle on `source`. Raises `CommandError`, `ApiError`."""
    spec, name = bundle["spec"], bundle["metadata"]["name"]
    space = (await fetch(api, TOPIC_NAMESPACES, arguments.namespace, spec["topicNamespace"]))["spec"]
    full = pulsar_bundle(space["tenant"], space["name"], spec["range"]["lower"], spec["range"]["upper"])
    plan = await _relief_plan(api, arguments, BrokerRelief(source, full))
    found = [move.destination for move in plan.moves if move.source == source and move.reason is Reason.ADMIN]
    if not found:
        why = "; ".join(map(_said, plan.held_back)) or "the placement keeps it where it is"
        raise CommandError(f"no better broker for {name} than {source}: {why}; name a broker to move it in any case")
    return found[0]


def _said(held: HeldBack) -> str:
    return f"{held.reason}: {held.detail}" if held.detail else str(held.reason)


async def _relief_plan(api: Api, arguments: argparse.Namespace, relief: BrokerRelief) -> Plan:
    """The plan of `relief`, with the weights of the policy. Raises `CommandError`, `ApiError`."""
    urls, policy = measuring_urls(arguments), await named_policy(api, arguments.namespace, arguments.policy)
    _check_linked(policy)
    with refusals_told():
        manifest = measurable(arguments, policy)
        return (await previewed(api, arguments, manifest, urls, relieving(manifest, relief))).plan


def relieving(manifest: Mapping[str, Any], relief: BrokerRelief) -> Shedder:
    """`relief` with the weights of the policy of `manifest`. Raises `InvalidPolicyError`."""
    return replace(relief, weights=Settings.of(manifest).pair.weights)


async def previewed(
    api: Api,
    arguments: argparse.Namespace,
    manifest: Mapping[str, Any],
    urls: AllowedUrls,
    shedder: Shedder | None = None,
) -> Preview:
    """What the policy of `manifest` would do, by the load measured now. Raises what `preview` raises."""
    async with opened_sources(arguments) as sources:
        context = new_cluster(api, arguments.namespace, sources, Metrics(), urls=urls)
        async with following(context):
            return await preview(context, manifest["metadata"]["name"], manifest, shedder)


def _check_linked(policy: Mapping[str, Any]) -> None:
    """Raise `CommandError` if the operator found that it can't ask Pulsar (condition `Linked` False)."""
    for condition in (policy.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Linked" and condition["status"] == "False":
            why = f"{condition['reason']}: {condition.get('message', '')}"
            raise CommandError(f"the operator can't ask Pulsar to move bundles (Linked is False): {why}")
