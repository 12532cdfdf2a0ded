"""Random tables of the pipeline, drawn from a seed, one policy each. They have every fault that samples can have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab_pipeline.api import PrometheusSettings, Trust
from trimtab_pipeline.columns import BROKER_SAMPLES, BUNDLE_SAMPLES, BUNDLE_STATE, LIMITED, LONG, SHORT, TRAFFIC, USAGE
from trimtab_pipeline.transform.relations import DECLARED, POD_TIMES, TARGETS, Cycle
from trimtab_pipeline.transform.topic_to_bundle import HashRanges
from trimtab_strategies.hash_ring import LAST_HASH, bundle_names

AT = 1_750_000_000.0
PODS = ("a", "b", "c", "d")
Rng = np.random.Generator
Row = dict[str, Any]


def cycle(rng: Rng, policy: str) -> Cycle:
    """A cycle of `policy` with random settings."""
    settings = PrometheusSettings(
        "http://x",
        "ns",
        resources=str(rng.choice(["kubernetes", "kubernetes", "pulsar"])),
        window=float(rng.choice([30, 60, 90])),
        trust=Trust(
            above_limit=float(rng.choice([1.0, 10.0])),
            max_resets=int(rng.integers(0, 4)),
            min_samples=int(rng.integers(2, 5)),
        ),
        averages=str(rng.choice(["time", "samples"])),
        long_tau=float(rng.choice([600, 3600])),
    )
    return Cycle.of(policy, settings, AT + float(rng.integers(0, 3)))


@dataclass(frozen=True)
class Brokers:
    """Raw samples of one policy, and its topology."""

    cycle: Cycle
    samples: pa.Table
    targets: pa.Table


@dataclass(frozen=True)
class Bundles:
    """Bundles and topics of one policy, and its state."""

    cycle: Cycle
    samples: pa.Table
    ranges: HashRanges
    times: pa.Table
    state: pa.Table


def brokers(seed: int, policy: str) -> Brokers:
    """Samples with gaps, late starts, resets, restarts, copies, several parts, impossible values, and future times."""
    rng = np.random.default_rng(seed)
    now, failed = cycle(rng, policy), rng.random(2) < 0.15
    rows: list[Row] = []
    for number, pod in enumerate(PODS):
        if not failed[number % 2] and rng.random() < 0.9:
            rows += [{"shard": number % 2, "pod": pod, **row} for row in _of_pod(rng, now)]
    rows += [{"shard": k, "report": report(k, ok=not failed[k])} for k in range(2)]
    samples = pa.Table.from_pylist([{"policy": policy, **row} for row in rows], BROKER_SAMPLES)
    return Brokers(now, samples, _targets(rng, now))


def report(shard: int, *, ok: bool = True, **more: Any) -> str:
    """The report of a shard."""
    return json.dumps({"shard": shard, "ok": ok, "error": "" if ok else "503", "dropped": {}, "warnings": []} | more)


def _of_pod(rng: Rng, now: Cycle) -> list[Row]:
    """The samples of a pod. Half of the pods have timely samples: otherwise most checks of usage would never matter."""
    rows: list[Row] = []
    late = bool(rng.random() < 0.5)
    for signal in USAGE:
        shares = [0.85, 0.05, 0.05, 0.05] if signal == "cpu" else [0.6, 0.25, 0.1, 0.05]
        kind = str(rng.choice(["counter", "gauge", "own", ""], p=shares))
        if kind == "own":
            rows += _value(rng, signal, float(rng.uniform(0, 5)))
            rows += _series(rng, signal, "rated", "", _times(rng, now, late=late))
        elif kind:
            rows += _parts(rng, now, signal, kind, late=late)
    for signal in TRAFFIC:
        rows += _parts(rng, now, signal, "gauge", late=late, most=1)
    limits = {f"{name}_limit": float(rng.choice([0.0, 0.01, 2.0, 50.0])) for name in ("cpu", "memory", "network")}
    ages = [0, 5, 100, 130, -40] if late else [0, 5]
    times = {name: now.at - float(rng.choice(ages)) for name in ("resource_time", "traffic_time")}
    ahead = {"ahead": float(rng.integers(1, 4))} if rng.random() < 0.05 else {}
    for signal, value in (limits | times | ahead | {"throttled": 0.5}).items():
        rows += _value(rng, signal, value)
    return rows


def _value(rng: Rng, signal: str, value: float) -> list[Row]:
    """The answer to an instant query, which may be missing, impossible or repeated."""
    if rng.random() < 0.05:
        return []
    values = [float(rng.choice([np.nan, np.inf, -1.0]))] if rng.random() < 0.03 else [value]
    values += [value + 1.0] * int(rng.random() < 0.05)
    return [{"signal": signal, "kind": "value", "part": "", "series": "", "value": one} for one in values]


def _parts(rng: Rng, now: Cycle, signal: str, kind: str, *, late: bool, most: int = 3) -> list[Row]:
    """The parts of a signal, mostly sampled at the same times. Each part has one series or several."""
    rows: list[Row] = []
    together = _times(rng, now, late=late)
    for part in range(int(rng.integers(1, most + 1))):
        times = together if rng.random() < 0.8 else _times(rng, now, late=late)
        for copy in range(1 + int(rng.random() < 0.15)):
            name = f"part{part}" if most > 1 else ""
            rows += _series(rng, signal, kind, name, times if copy == 0 else _times(rng, now, late=late), str(copy))
    return rows


def _times(rng: Rng, now: Cycle, *, late: bool) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Times of samples: every few seconds until now. If `late`: any interval, any start, and some are missing."""
    if not late:
        return now.at - np.arange(320.0, 0.0, -float(rng.choice([5, 10, 15]))) + float(rng.integers(0, 5))
    interval = float(rng.choice([5, 10, 15, 30, 45]))
    begin, end = -float(rng.choice([320, 320, 60, 20])), float(rng.choice([0, 0, 0, -20, -100, 35]))
    times = now.at + np.arange(begin + float(rng.integers(0, 5)), end, interval)
    if rng.random() < 0.3:
        times = times + rng.uniform(0, 0.05 * interval, len(times))
    return times[rng.random(len(times)) > float(rng.choice([0, 0, 0.2]))]


def _series(rng: Rng, signal: str, kind: str, part: str, times: Any, series: str = "") -> list[Row]:
    """One series: a counter with its resets, or a gauge."""
    gains = rng.uniform(0, 3, len(times)) * float(rng.choice([0, 1, 1]))
    values = np.cumsum(gains) + float(rng.choice([0, 1000])) if kind != "gauge" else gains
    if kind != "gauge" and len(times) and rng.random() < 0.3:
        for begin in rng.integers(0, len(times), int(rng.integers(1, 4))):
            values[begin:] -= values[begin] - gains[begin]
    if len(times) and rng.random() < 0.05:
        values[rng.integers(0, len(times))] = rng.choice([np.nan, np.inf, -np.inf, -5.0])
    key = {"signal": signal, "kind": kind, "part": part, "series": series}
    return [{**key, "time": float(t), "value": float(v)} for t, v in zip(times, values, strict=True)]


def _targets(rng: Rng, now: Cycle) -> pa.Table:
    known: dict[str, Row] = {}
    starts, choices = rng.spawn(2)
    for number, pod in enumerate([*PODS, "gone", ""]):
        declared = {name: float(rng.choice([0.01, 2.0, 3.0])) for name in DECLARED if rng.random() < 0.4}
        names = ("last_resource_time", "last_traffic_time")
        last = {name: now.at - float(rng.integers(30, 200)) for name in names if rng.random() < 0.8}
        last |= {"started": now.at - float(starts.integers(-100, 200))} if starts.random() < 0.3 else {}
        last |= {"chosen": [name for name in LIMITED if choices.random() < 0.3]}
        known[pod] = {"policy": now.policy, "shard": number % 2 if pod else None, "pod": pod} | declared | last
    pods = [*known, str(rng.choice(["", "a"]))]
    rows = [{"broker": f"broker{number}", **known[pod]} for number, pod in enumerate(pods)]
    return pa.Table.from_pylist(rows, TARGETS)


def bundles(seed: int, policy: str) -> Bundles:
    """Bundles with metrics of their own, or topics. Some names are odd, and some bundles have stored averages."""
    rng = np.random.default_rng(seed)
    now, names = cycle(rng, policy), _names(rng)
    owner = rng.integers(-1, len(PODS), len(names))
    ranges = HashRanges.of(names).owned(PODS, owner)
    own, statistics, failed = rng.random() < 0.3, rng.random() < 0.3, rng.random(2) < 0.15
    rows: list[Row] = []
    for number, pod in enumerate(PODS):
        if not failed[number % 2] and rng.random() < 0.8:
            ours = _bundles_on(rng, names) if own else _topics_on(rng)
            rows += [{"shard": number % 2, "pod": pod, **row} for row in ours]
    answered = {"answered": [pod for pod in PODS if rng.random() < 0.7]} if statistics else {}
    rows += [{"shard": k, "report": report(k, ok=not failed[k], **answered)} for k in range(2)]
    samples = pa.Table.from_pylist([{"policy": policy, **row} for row in rows], BUNDLE_SAMPLES)
    return Bundles(now, samples, ranges, _pod_times(rng, now), _state(rng, now, names))


def _names(rng: Rng) -> list[str]:
    """Bundles of three namespaces with uneven ranges and holes."""
    names: list[str] = []
    for namespace in ("t/a", "t/b", "ü/c"):
        inner = np.unique(rng.integers(1, LAST_HASH, int(rng.integers(0, 7))) >> int(rng.choice([0, 0, 8, 24])))
        names += bundle_names(namespace, np.unique([0, *inner, LAST_HASH]))
    return [name for name in names if rng.random() < 0.9]


def _load(rng: Rng, missing: float, columns: Sequence[str]) -> Row:
    return {name: float(rng.uniform(0, 1e5)) for name in columns if rng.random() >= missing}


def _bundles_on(rng: Rng, names: Sequence[str]) -> list[Row]:
    columns = (*TRAFFIC, "topics", "producers", "consumers")
    picked = [name for name in [*names, "unknown/x/0x00000000_0xffffffff"] if rng.random() < 0.4]
    return [{"bundle": name, **_load(rng, 0.03, columns)} for name in picked]


def _topics_on(rng: Rng) -> list[Row]:
    odd = ["persistent://t/a/b/v1", "t/a/x", "", "persistent://t/a", "/////", ":////", "a:b/c/d/e", "persistent://t//x"]
    odd += [
        "://t/a/x",
        "a/b/t/a/x",
        "persistent://t/d/x",
        "x/://t/a/x",
        "persistent://t/a/",
        "p:////a",
        "segment://t/a/x",
        "topic://t/a/x",
    ]
    names = [str(name) for name in rng.choice(odd, int(rng.integers(0, 4)), replace=False)]
    spaces = ["persistent://t/a", "non-persistent://t/a", "persistent://t/b", "persistent://ü/c"]
    names += [f"{rng.choice(spaces)}/topic-ö-{rng.integers(0, 10**6)}" for _ in range(int(rng.integers(0, 12)))]
    return [{"topic": name, **_load(rng, 0.1, (*TRAFFIC, "producers", "consumers"))} for name in dict.fromkeys(names)]


def _pod_times(rng: Rng, now: Cycle) -> pa.Table:
    rows = [
        {
            "policy": now.policy,
            "shard": number % 2,
            "pod": pod,
            "traffic_time": None if rng.random() < 0.1 else now.at - float(rng.choice([0, 7, 100, -20])),
            "young": bool(rng.random() < 0.7),
        }
        for number, pod in enumerate(PODS)
        if rng.random() < 0.9
    ]
    return pa.Table.from_pylist(rows, POD_TIMES)


def _state(rng: Rng, now: Cycle, names: Sequence[str]) -> pa.Table:
    rows: list[Row] = []
    for name in [*names, "gone/x/0x00000000_0xffffffff"]:
        if rng.random() < 0.6:
            age = float(rng.choice([0, 10, 60, 2000, 12000]))
            known = rng.random() < 0.9
            past = _load(rng, 0.0, (*SHORT, *LONG)) if known else {}
            past |= {"time": now.at - age, "count": float(rng.choice([2, 3, 9, 10, 11, 999, 1000]))} if known else {}
            more = {**_load(rng, 0.1, (*TRAFFIC, "topics", "sessions")), "seen": now.at - age}
            rows.append({"policy": now.policy, "bundle": name, "pod": str(rng.choice(PODS)), **past, **more})
    return pa.Table.from_pylist(rows, BUNDLE_STATE)
