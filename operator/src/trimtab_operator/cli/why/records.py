"""Reads the data for `explain` and `why-not` from the cluster: a bundle or broker, its policy and the decisions.

`history_records.recalled` reads it from a history instead.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab_operator.cli.cluster import fetch, names_of, near
from trimtab_operator.cli.commands.edit import object_name
from trimtab_operator.cli.common import CommandError
from trimtab_operator.cli.why.answers import Facts
from trimtab_operator.cli.why.manual_move import manual_move
from trimtab_operator.decision_log.outcome import followed
from trimtab_operator.decision_log.record import DecisionRecord
from trimtab_operator.decision_log.store import decision_store
from trimtab_operator.kube.client import BROKERS, BUNDLES, POLICIES, TOPIC_NAMESPACES, Api, NotFoundError
from trimtab_operator.kube.conditions import epoch
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.kube.move_costs import MoveCosts
from trimtab_operator.kube.records import BundleRecord, bundle_record, topic_namespace_record
from trimtab_operator.resources.policy_status import PAUSE_ANNOTATION
from trimtab_operator.state.hash_rings import examine
from trimtab_strategies.model import Reason
from trimtab_strategies.params import seconds

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordsFound:
    """The facts about a bundle or broker (`name`), and the decisions of its policy, oldest first.

    broker: the broker itself; for a bundle, the broker that serves it, or else its desired owner. next_cycle: text that
    says when the next decision is due. of_bundle: whether `name` is a bundle.
    """

    name: str
    broker: str
    facts: Facts
    records: tuple[DecisionRecord, ...]
    next_cycle: str
    of_bundle: bool = False


async def about_bundle(api: Api, namespace: str, bundle: str) -> RecordsFound:
    """Everything about a bundle, by its object name or Pulsar name. Raises `CommandError`, `ApiError`."""
    raw = await fetch(api, BUNDLES, namespace, object_name(bundle))
    found = bundle_record(raw)
    return await _found(api, namespace, found.name, found.status_owner or found.owner, raw)


async def about_broker(api: Api, namespace: str, broker: str) -> RecordsFound:
    """Everything about a broker. Raises `CommandError`, `ApiError`."""
    await fetch(api, BROKERS, namespace, broker)
    return await _found(api, namespace, broker, broker, None)


async def is_broker(api: Api, namespace: str, name: str) -> bool:
    """Whether a name is a broker's, not a bundle's. Raises `CommandError` if it is neither."""
    if "/" in name:
        return False
    for ref, answer in ((BROKERS, True), (BUNDLES, False)):
        try:
            await api.get(ref, namespace, name)
        except NotFoundError:
            continue
        return answer
    names = [*await names_of(api, BROKERS, namespace), *await names_of(api, BUNDLES, namespace)]
    raise CommandError(f"{name} is neither a Broker nor a Bundle in namespace {namespace}; {near(name, names)}")


async def _found(api: Api, namespace: str, name: str, broker: str, raw: Object | None) -> RecordsFound:
    """Everything about a bundle or broker. raw: the Bundle object, None for a broker."""
    bundle = bundle_record(raw) if raw is not None else None
    policies = [policy async for page in api.list(POLICIES, namespace) for policy in page.items]
    if not policies:
        raise CommandError(f"there is no BalancingPolicy in namespace {namespace}, so nothing is decided")
    brokers = [found async for page in api.list(BROKERS, namespace) for found in page.items]
    policy, records = await _policy(api, namespace, policies, brokers, broker)
    facts = Facts(
        now=time.time(),
        namespace=namespace,
        policy=policy["metadata"]["name"],
        paused=_paused(policy),
        cool_down=seconds((policy["spec"].get("limits") or {}).get("coolDown") or "30m"),
        last=_last(policy),
        usage=_usage(brokers),
        bundle=bundle,
        costs=await _costs(api, namespace, policy, bundle),
    )
    if bundle is not None and raw is not None:
        there = {found["metadata"]["name"] for found in brokers}
        facts = replace(facts, manual_move=manual_move(raw, bundle, there, records))
        seen = bundle.since if math.isfinite(bundle.since) else facts.now
        records = tuple(followed(record, {name: bundle}, seen, only=name) for record in records)
        if not bundle.status_owner and "pulsar" not in policy["spec"]:
            facts = replace(facts, no_place=await _no_place(api, namespace, bundle))
    elif (policy.get("status") or {}).get("progress"):
        records = await _carried_out(api, namespace, broker, records, facts.now)
    return RecordsFound(name, broker, facts, records, next_cycle(policy), bundle is not None)


async def _carried_out(
    api: Api, namespace: str, broker: str, records: tuple[DecisionRecord, ...], now: float
) -> tuple[DecisionRecord, ...]:
    """The records. In the newest, approved moves from or to `broker` have the outcomes that their bundles show.

    The operator itself records these outcomes only in its next cycle. Raises `ApiError`.
    """
    if not records:
        return records
    newest = records[-1]
    leave, come = newest.moves_of(broker)
    for move in (*leave, *come):
        if move.outcome is Reason.NOT_APPROVED:
            found = await _bundle(api, namespace, move.name)
            newest = followed(newest, {} if found is None else {move.name: found}, now, only=move.name)
    return (*records[:-1], newest)


async def _bundle(api: Api, namespace: str, name: str) -> BundleRecord | None:
    """A bundle by its object name; None if it is gone. Raises `ApiError`."""
    try:
        return bundle_record(await api.get(BUNDLES, namespace, name))
    except NotFoundError:
        return None


async def _no_place(api: Api, namespace: str, bundle: BundleRecord) -> tuple[Reason, str] | None:
    """Why a bundle gets no owner, if its TopicNamespace or the other bundles there prevent it; None if they do not.

    Raises `ApiError`.
    """
    name = bundle.topic_namespace
    try:
        space = topic_namespace_record(await api.get(TOPIC_NAMESPACES, namespace, name))
    except NotFoundError:
        return Reason.UNOWNED, f"not before there is a TopicNamespace {name}"
    if space.superfluous:
        return Reason.UNOWNED, f"not while its TopicNamespace {name} is {space.ready[1]}: another one describes it"
    found = [bundle_record(raw) async for page in api.list(BUNDLES, namespace) for raw in page.items]
    other = examine({b.name: b for b in found if b.topic_namespace == name}).overlaps.get(bundle.name)
    return None if other is None else (Reason.OVERLAP, other)


async def _policy(
    api: Api, namespace: str, policies: Sequence[Object], brokers: Sequence[Object], broker: str
) -> tuple[Object, tuple[DecisionRecord, ...]]:
    """The policy of `broker`, and the decisions of that policy.

    If the broker's status names no policy, it is the oldest one whose newest decision includes the broker.
    """
    by_name = {policy["metadata"]["name"]: policy for policy in policies}
    named = {b["metadata"]["name"]: (b.get("status") or {}).get("policy", "") for b in brokers}.get(broker, "")
    first = [named] if named in by_name else []
    oldest = sorted(by_name, key=lambda n: (str(by_name[n]["metadata"].get("creationTimestamp")), n))
    names = list(dict.fromkeys([*first, *oldest]))
    kept = {name: await _records(api, namespace, by_name[name]) for name in names}
    knows = (name for name in names if kept[name] and kept[name][-1].broker(broker) is not None)
    chosen = named if first else next(knows, names[0])
    return by_name[chosen], kept[chosen]


async def _records(api: Api, namespace: str, policy: Object) -> tuple[DecisionRecord, ...]:
    meta = policy["metadata"]
    try:
        return await decision_store(api, namespace, meta["name"], meta["uid"]).load() or ()
    except UnreadableContentError as error:
        raise CommandError(str(error)) from error


async def _costs(api: Api, namespace: str, policy: Object, bundle: BundleRecord | None) -> MoveCosts | None:
    """Cost of moves in the bundle's namespace; None if not measured, or for a broker."""
    if bundle is None or "pulsar" not in policy["spec"]:
        return None
    try:
        return MoveCosts.of((await api.get(TOPIC_NAMESPACES, namespace, bundle.topic_namespace)).get("status") or {})
    except NotFoundError:
        return None


def _paused(policy: Object) -> bool:
    annotations = policy["metadata"].get("annotations") or {}
    return bool(policy["spec"].get("paused")) or annotations.get(PAUSE_ANNOTATION) == "true"


def _last(policy: Object) -> tuple[float, str] | None:
    last = (policy.get("status") or {}).get("lastCycle")
    return (epoch(last["time"]), last["outcome"]) if last else None


def _usage(brokers: Sequence[Object]) -> dict[str, float]:
    loads = {b["metadata"]["name"]: ((b.get("status") or {}).get("load") or {}).get("cpu") for b in brokers}
    return {name: float(cpu) for name, cpu in loads.items() if cpu is not None}


def next_cycle(policy: Object) -> str:
    """Text that says when the next decision of a policy is due."""
    name, interval = policy["metadata"]["name"], policy["spec"].get("interval", "60s")
    if (last := _last(policy)) is None:
        return (
            f"policy {name} decides every {interval}, but has not yet: is the operator running? "
            f"(trimtab status {name} -n {policy['metadata']['namespace']})"
        )
    due = last[0] + seconds(interval) - time.time()
    when = f"in {due:.0f} s" if due > 0 else f"{-due:.0f} s overdue: is the operator running?"
    return f"policy {name} decides every {interval}; the next decision is {when}"
