"""Readers of the records that Trimtab keeps in ConfigMaps, which people may edit, and of short texts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from fuzz_target import BETWEEN, Target, parts
from trimtab_operator.decision_log.store import DECISIONS
from trimtab_operator.kube.conditions import epoch
from trimtab_operator.kube.config_map_store import StoredFormat, UnreadableContentError, packed
from trimtab_operator.proposals.store import proposal_store
from trimtab_operator.pulsar.client.dynamic_config import FoundSettings
from trimtab_operator.pulsar.own_balancer.restore import found_settings_store
from trimtab_operator.resources.policy_status import ProposalState
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.state.strategy_state import STATE_FORMAT
from trimtab_strategies.filters.isolation import IsolationRules
from trimtab_strategies.filters.patterns import compiled, problem
from trimtab_strategies.model import Isolation, NamespacePolicy
from trimtab_strategies.params import quantity, seconds

NOW = 1_800_000_000.0
NOBODY: Any = None
"""The API of a store of which only the format is used."""
PROPOSALS = proposal_store(NOBODY, "messaging", "main", "uid").format
FOUND = found_settings_store(NOBODY, "messaging").format


def _config_map(texts: Mapping[str, str]) -> dict[str, Any]:
    plain = {key: text for key, text in texts.items() if not key.endswith(".gz")}
    binary = {key: packed(text) for key, text in texts.items() if key.endswith(".gz")}
    return {"metadata": {"name": "record"}, "data": plain, "binaryData": binary}


def read_proposal(data: bytes) -> None:
    """A proposal, its progress and its state, which are shown and continued."""
    keys = ("state.json", "proposal.json.gz", "progress.json.gz")
    standing = PROPOSALS.read(_config_map(dict(zip(keys, parts(data, 3), strict=True))))
    if (kept := standing.kept) is not None:
        kept.shown(ProposalState.PROPOSAL_READY)
        kept.to_json()
    if (execution := standing.execution) is not None:
        execution.waiting(5)
        execution.waiting_splits()
        execution.follow({})
        json.dumps(execution.shown(NOW), allow_nan=False)
        execution.to_json()


def _proposals() -> list[bytes]:
    proposal = {
        "version": 1,
        "id": "0123abcd",
        "generation": 1,
        "made_at": NOW,
        "expires_at": NOW + 900,
        "names": ["t-n-0x00000000-0x80000000", "t-n-0x80000000-0xffffffff"],
        "brokers": ["a", "b"],
        "before": [[50, None, None, 1, 1], [10, None, None, 1, 1]],
        "after": [[30, None, None, 1, 1], [30, None, None, 1, 1]],
        "moves": [["t/n/0x00000000_0x80000000", "a", "b", "Overloaded", 1.5]],
        "splits": [
            {
                "bundle": "t/n/0x80000000_0xffffffff",
                "source": "a",
                "boundaries": [0xC0000000],
                "reason": "Overloaded",
                "destinations": [],
            }
        ],
        "cost": {"connections": 1, "topics": 2, "unknown": 0, "seconds": None, "worst": None, "unmeasured": None},
    }
    progress = {
        "proposal": "0123abcd",
        "started": NOW,
        "by": "ann",
        "marks": ">+",
        "failures": {"0": ["Conflict", "gone"]},
        "stopped": False,
        "finished": None,
    }
    ready = {"state": "ProposalReady", "message": "", "uid": "uid"}
    under_way = {**ready, "state": "Rebalancing"}
    texts = [(ready, proposal), (under_way, proposal, progress)]
    return [BETWEEN.join(json.dumps(one).encode() for one in text) for text in texts]


def read_found(data: bytes) -> None:
    """The stored former settings of Pulsar's own balancer."""
    found = FOUND.read(_config_map({"found.json": data.decode("utf-8", "replace")}))
    found.undone_again(NOW).to_json()
    found.to_restore({})
    found.of(found.pulsar, ["broker-0:8080"])


def _found() -> list[bytes]:
    spec = PulsarSpec.model_validate({"adminUrl": "http://pulsar-broker:8080"})
    one = FoundSettings(spec, {"loadBalancerSheddingEnabled": "true"}, (NOW,), frozenset(), frozenset({"b:8080"}))
    return [one.to_json().encode()]


def read_decisions(data: bytes) -> None:
    """The latest decisions, as `trimtab explain` reads them."""
    records = DECISIONS.read(_config_map({"decisions.json.gz": data.decode("utf-8", "replace")}))
    for record in records:
        record.says_the_same(records[0])
        record.to_json()


def _decisions() -> list[bytes]:
    caps = {"perCycle": 10, "perBroker": 5, "perHour": 100, "lastHour": 0, "coolDown": 600.0}
    record = {
        "version": 1,
        "at": NOW,
        "policy": "main",
        "generation": 1,
        "mode": "Auto",
        "interval": 60.0,
        "window": 60.0,
        "outcome": "Balanced",
        "shedder": "Trim",
        "placement": "LeastResourceUsageWithWeight",
        "caps": caps,
        "heldBack": [{"reason": "Balanced", "detail": "level"}],
    }
    return [json.dumps(record).encode()]


def read_memory(data: bytes) -> None:
    """The memory of a policy's strategies, and its moves of the last hour."""
    state = STATE_FORMAT.read(_config_map({"memory.json": data.decode("utf-8", "replace")}))
    state.moved_last_hour(NOW)
    state.caught_up([NOW]).after(state.strategies, 1, NOW).to_json()


def _memory() -> list[bytes]:
    memory = {
        "version": 1,
        "shedder": {"averages": {"a": 0.5}},
        "placement": {},
        "splitter": {},
        "moves": [[NOW - 60, 3]],
        "epoch": 2,
        "of": ["Trim", "LeastResourceUsageWithWeight", ""],
        "fight": [[NOW], 0.0, 1],
    }
    return [json.dumps(memory).encode()]


FORMATS: tuple[tuple[str, StoredFormat[Any]], ...] = (
    ("proposal.json.gz", PROPOSALS),
    ("decisions.json.gz", DECISIONS),
)


def read_packed(data: bytes) -> None:
    """Compressed content of a ConfigMap, in base64. The first byte chooses the kind of record."""
    key, form = FORMATS[data[0] % len(FORMATS) if data else 0]
    texts = {"state.json": '{"state": "ProposalReady", "message": "", "uid": "uid"}'}
    form.read({"metadata": {"name": "record"}, "data": texts, "binaryData": {key: data[1:].decode("latin-1")}})


def read_pattern(data: bytes) -> None:
    """An isolation pattern, and names of hosts, one per line."""
    pattern, *names = data.decode("utf-8", "replace").split("\n")
    problem(pattern)
    if (matcher := compiled(pattern)) is not None:
        for name in names[:3]:
            matcher.fullmatch(name[:253])
    rules = {"t/n": NamespacePolicy(Isolation((pattern,), tuple(names[:1])))}
    IsolationRules(tuple(names[:3]), rules).problems()


def _patterns() -> list[bytes]:
    texts = ("broker-[0-9]+\nbroker-12", "(?i)a|b{2,3}(?=c)\nbbc", r"pulsar\.(?:x|y)*?$" + "\npulsar.xy", "(?<!a)b")
    return [text.encode() for text in texts]


def read_quantity(data: bytes) -> None:
    """A duration, a quantity or a time."""
    text = data.decode("utf-8", "replace")
    for read in (seconds, quantity):
        try:
            assert math.isfinite(read(text))
        except ValueError:
            continue
    epoch(text)


TARGETS = (
    Target("proposal", read_proposal, (UnreadableContentError,), _proposals),
    Target("found", read_found, (UnreadableContentError,), _found),
    Target("decisions", read_decisions, (UnreadableContentError,), _decisions),
    Target("memory", read_memory, (UnreadableContentError,), _memory),
    Target(
        "packed",
        read_packed,
        (UnreadableContentError,),
        lambda: [b"\x01" + packed(_decisions()[0].decode()).encode(), b"\x00"],
    ),
    Target("pattern", read_pattern, (), _patterns),
    Target("quantity", read_quantity, (), lambda: [b"1h30m", b"1.5Gi", b"2026-01-31T12:00:00Z"]),
)
