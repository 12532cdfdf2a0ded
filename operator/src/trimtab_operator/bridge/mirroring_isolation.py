"""Pulsar's namespace isolation policies in the words of a TopicNamespace. Pure.

Pulsar's patterns match the hosts of brokers, ours the names of Broker objects. So each list becomes the names of those
brokers whose hosts match, as alternations (``pulsar-broker-0|pulsar-broker-1``); where no known host matches, Pulsar's
own patterns are kept, so that the condition `Valid` of the TopicNamespace says that they match nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trimtab_strategies.model import Isolation
from trimtab_strategies.patterns import compiled

LONGEST = 253
"""Characters of one pattern."""
MOST = 64
"""Patterns in one list."""
MOST_AVAILABLE = 1000

_SPECIAL = str.maketrans({".": r"\."})


def isolation_of(
    namespace: str, policies: Mapping[str, Mapping[str, Any]], hosts: Mapping[str, str]
) -> Isolation | None:
    """What is asked for `namespace` (``tenant/name``) by the first policy that is about it; None when none is.

    policies: as Pulsar has them, in its order. hosts: name of a Broker object -> host by which Pulsar knows it.
    """
    for policy in policies.values():
        if any(_matches(pattern, namespace) for pattern in policy.get("namespaces") or ()):
            return _isolation(policy, hosts)
    return None


def _isolation(policy: Mapping[str, Any], hosts: Mapping[str, str]) -> Isolation | None:
    primary = _names(policy.get("primary") or (), hosts)
    secondary = [name for name in _names(policy.get("secondary") or (), hosts) if name not in primary]
    first = _patterns(primary, policy.get("primary") or ())
    second = [p for p in _patterns(secondary, policy.get("secondary") or ()) if p not in first]
    if not first and not second:
        return None
    return Isolation(tuple(first), tuple(second), _min_available(policy))


def _names(patterns: Iterable[str], hosts: Mapping[str, str]) -> list[str]:
    patterns = list(patterns)
    return sorted(name for name, host in hosts.items() if any(_matches(pattern, host) for pattern in patterns))


def _matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches, as Java's `String.matches`; never by a pattern that could take for ever."""
    regex = compiled(pattern)
    return regex is not None and regex.fullmatch(text) is not None


def _patterns(names: Sequence[str], asked: Iterable[str]) -> list[str]:
    if not names:
        return [pattern[:LONGEST] for pattern in asked if pattern][:MOST]
    packed: list[str] = []
    for name in (name.translate(_SPECIAL) for name in names):
        if packed and len(packed[-1]) + 1 + len(name) <= LONGEST:
            packed[-1] = f"{packed[-1]}|{name}"
        else:
            packed.append(name)
    return packed[:MOST]


def _min_available(policy: Mapping[str, Any]) -> int:
    """`min_limit` of Pulsar's fail-over policy, which is text there; 1 where it says nothing that can be read."""
    asked = str(((policy.get("auto_failover_policy") or {}).get("parameters") or {}).get("min_limit", "1"))
    return min(int(asked), MOST_AVAILABLE) if asked.isdecimal() else 1
