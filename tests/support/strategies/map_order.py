"""Finds out whether a decision depends on the order of Java's hash maps: it asks with other names and orders."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]

KEPT_ALTERNATIVES = 4

BY_NAME = frozenset(
    {
        "extensible.LeastResourceUsageWithWeight",
        "extensible.TransferShedder",
        "modular.AvgShedder",
        "modular.AvgShedder.selectBroker",
        "modular.BundleSplitterTask",
        "modular.LeastLongTermMessageRate",
        "modular.LeastResourceUsageWithWeight",
        "modular.OverloadShedder",
        "modular.ThresholdShedder",
        "modular.UniformLoadShedder",
    }
)
"""Algorithms that keep their input in maps by name. In the others the order is part of the input, or irrelevant."""

_SUMS = frozenset({"ema", "scores", "load_avg", "load_std", "std_after"})
_SETS = frozenset({"bundles", "candidates", "one_of", "available", "recently_unloaded_brokers_after"})
_BUNDLE = re.compile(r"(.+)/0x[0-9a-f]{8}_0x[0-9a-f]{8}")
_BROKER = re.compile(r"[^/]+:\d+")


def sensitivity(scenario: Mapping[str, Any], ask: Ask, times: int) -> dict[str, Any]:
    """The fields ``order_sensitive`` and, where there are any, ``alternatives`` of a recording of `scenario`.

    times: how often to ask with other names, after a first answer with the names as written.
    """
    if scenario["algorithm"] not in BY_NAME:
        return {"order_sensitive": "no"}
    rng = random.Random(scenario["id"])
    first = decisions(ask(scenario))
    others: dict[str, list[dict[str, Any]]] = {}
    for _ in range(times):
        found = decisions(_asked_renamed(scenario, ask, rng))
        if found != first:
            others.setdefault(json.dumps(found, sort_keys=True), found)
    if not others:
        return {"order_sensitive": "no"}
    varies = any(_unordered(other) != _unordered(first) for other in others.values())
    kept = list(others.values())[:KEPT_ALTERNATIVES]
    return {"order_sensitive": "yes" if varies else "within", "alternatives": kept}


def decisions(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The decision in each round, step or case, without sums, whose last bits depend on the order of addition."""
    (values,) = answer.values()
    return [
        {key: value for key, value in {**found, **found.get("state", {})}.items() if key not in _SUMS | {"state"}}
        for found in (values if isinstance(values, list) else [dict(answer)])
    ]


def _asked_renamed(scenario: Mapping[str, Any], ask: Ask, rng: random.Random) -> Any:
    names = _other_names(scenario, rng)
    answer = ask({**_renamed(scenario, names, rng), "id": scenario["id"]})
    return _back(answer, {other: name for name, other in names.items()})


def _other_names(scenario: Mapping[str, Any], rng: random.Random) -> dict[str, str]:
    names: dict[str, str] = {}
    for text in sorted(set(_texts(scenario))):
        if bundle := _BUNDLE.fullmatch(text):
            low = rng.randrange(2**32 - 1)
            names[text] = f"{bundle[1]}/0x{low:08x}_0x{rng.randint(low + 1, 2**32 - 1):08x}"
        elif _BROKER.fullmatch(text):
            names[text] = f"{rng.getrandbits(64):016x}:8080"
    return names


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, inner in value.items():
                yield key
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)


def _renamed(value: Any, names: Mapping[str, str], rng: random.Random, key: str = "") -> Any:
    match value:
        case str():
            return names.get(value, value)
        case dict():
            entries = list(value.items())
            rng.shuffle(entries)
            return {names.get(name, name): _renamed(inner, names, rng, name) for name, inner in entries}
        case list():
            inside = [_renamed(inner, names, rng) for inner in value]
            if key in _SETS:
                rng.shuffle(inside)
            return inside
    return value


def _back(value: Any, names: Mapping[str, str], key: str = "") -> Any:
    match value:
        case str():
            return names.get(value, value)
        case dict():
            return {names.get(name, name): _back(inner, names, name) for name, inner in value.items()}
        case list():
            inside = [_back(inner, names) for inner in value]
            return sorted(inside) if key in _SETS else inside
    return value


def _unordered(value: Any) -> Any:
    match value:
        case dict():
            return {key: _unordered(inner) for key, inner in value.items()}
        case list():
            return sorted((_unordered(inner) for inner in value), key=lambda inner: json.dumps(inner, sort_keys=True))
    return value
