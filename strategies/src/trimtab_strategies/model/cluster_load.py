"""`ClusterLoad`: one snapshot of the cluster, as read-only numpy arrays.

Rows are brokers or bundles; ``names`` has the name of each row. Arrays are float64 and made read-only on construction,
so a strategy can't change the input of the next one. NaN means *unknown* everywhere, never zero.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab_strategies.model.constraints import NO_POLICY, UNKNOWN_TRAITS, BrokerTraits, NamespacePolicy
from trimtab_strategies.model.quality import DataQuality
from trimtab_strategies.model.reason import Reason

FloatArray = npt.NDArray[np.float64]
SmallFloatArray = npt.NDArray[np.float32]
"""Half as large as `FloatArray`, for data of every bundle that is kept for minutes."""
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

RESOURCES = ("cpu", "memory", "directMemory", "networkIn", "networkOut")
"""Columns of `Brokers.usage` and `Brokers.limit`, in this order. Pulsar calls the last two bandwidthIn/bandwidthOut."""
CPU, MEMORY, DIRECT_MEMORY, NETWORK_IN, NETWORK_OUT = range(5)

TRAFFIC = ("rateIn", "rateOut", "throughputIn", "throughputOut")
"""Columns of every traffic array: msg/s, msg/s, bytes/s, bytes/s."""
RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT = range(4)

SAMPLED = ("throughputIn", "throughputOut", "rate")
"""Columns of `RecentSamples`: bytes/s, bytes/s, msg/s in both directions together."""


class InvalidLoadError(ValueError):
    """A `ClusterLoad` whose parts contradict each other (lengths, a name twice, an owner that is not a broker)."""


def _freeze(owner: object) -> None:
    for name, value in [*vars(owner).items()]:
        if isinstance(value, np.ndarray) and value.flags.writeable:
            view = value.view()
            view.flags.writeable = False
            object.__setattr__(owner, name, view)


def _check_shape(what: str, array: npt.NDArray[Any], expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise InvalidLoadError(f"{what} has shape {array.shape}, expected {expected}")


_VALID: deque[tuple[IntArray, int, int]] = deque(maxlen=6)
"""Read-only rows that were found valid lately, with their bounds. Most snapshots share them with the previous one."""


def _check_rows(what: str, rows: IntArray, least: int, count: int, meaning: str) -> None:
    if any(rows is known and (least, count) == (low, high) for known, low, high in tuple(_VALID)):
        return
    if rows.size and (rows.min() < least or rows.max() >= count):
        wrong = rows[(rows < least) | (rows >= count)][0]
        raise InvalidLoadError(f"{what} has {wrong}: it must be {meaning}, of which there are {count}")
    _VALID.append((rows, least, count))


_UNIQUE: deque[tuple[str, ...]] = deque(maxlen=4)
"""Names that were found to be unique lately. Most snapshots share the tuple of names with the previous one."""


def _check_unique(what: str, names: tuple[str, ...]) -> None:
    if any(names is known for known in tuple(_UNIQUE)):  # a copy: other threads add to it
        return
    if len(set(names)) != len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise InvalidLoadError(f"{what} has {twice!r} twice: each name must stand for one row")
    _UNIQUE.append(names)


_INDEX: deque[tuple[tuple[str, ...], Mapping[str, int]]] = deque(maxlen=4)
"""Tuples of names that were used lately, with the row of each name. Most snapshots share them with the previous one."""


def _index(names: tuple[str, ...]) -> Mapping[str, int]:
    for known, index in tuple(_INDEX):
        if known is names:
            return index
    index = MappingProxyType({name: row for row, name in enumerate(names)})
    _INDEX.append((names, index))
    return index


@dataclass(frozen=True)
class Brokers:
    """Data of the brokers; n rows.

    usage, limit:  (n, 5) columns `RESOURCES`, in each resource's own unit (CPU in cores, memory in bytes, network in
                   bytes/s; a source that only knows percent uses limit 100). A limit of 0 or less means "not measured",
                   which counts as 0 % (Pulsar does the same); NaN usage means unknown.
    traffic:       (n, 4) columns `TRAFFIC`, the broker's own totals, which may differ from the sum over its bundles.
    age:           (n,) seconds since the newest sample, +inf if there never was one.
    ready, schedulable, trusted: (n,) whether the broker is alive; may receive bundles; has reliable data.
    """

    names: tuple[str, ...]
    usage: FloatArray
    limit: FloatArray
    traffic: FloatArray
    age: FloatArray
    ready: BoolArray
    schedulable: BoolArray
    trusted: BoolArray

    def __post_init__(self) -> None:
        n = len(self.names)
        _check_unique("brokers.names", self.names)
        _check_shape("brokers.usage", self.usage, (n, len(RESOURCES)))
        _check_shape("brokers.limit", self.limit, (n, len(RESOURCES)))
        _check_shape("brokers.traffic", self.traffic, (n, len(TRAFFIC)))
        for name in ("age", "ready", "schedulable", "trusted"):
            _check_shape(f"brokers.{name}", getattr(self, name), (n,))
        _freeze(self)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Row of each name."""
        return _index(self.names)


@dataclass(frozen=True)
class Bundles:
    """Data of the bundles; m rows.

    names:       ``tenant/namespace/0xLLLLLLLL_0xUUUUUUUU`` (Pulsar's spelling).
    namespace:   (m,) row of `ClusterLoad.namespaces`.
    owner:       (m,) row of the broker that owns it, or will own it once its pending move lands; -1 if none.
    short, long: (m, 4) columns `TRAFFIC`, short-term and long-term averages; NaN when never measured. Such a bundle
                 counts as owned, but is never moved for balance.
    topics, sessions: (m,) numbers of topics, and of producers plus consumers.
    last_unload: (m,) epoch seconds of its last move, NaN if never moved.
    pinned:      (m,) whether a user pinned it to its owner.
    in_flight:   (m,) whether a move of it is pending.
    moving_from: (m,) row of the broker whose *measured* load still contains this bundle's traffic, -1 if none.
    moving_share: (m,) ratio 0-1 of the bundle's load that is still measured on the broker `moving_from` (1 while the
                 move is pending, then falling to 0 within the averaging window of the rates).
    newest:      (m, 4) columns `TRAFFIC`, the newest sample before any averaging; NaN when it is not known.
    """

    names: tuple[str, ...]
    namespace: IntArray
    owner: IntArray
    short: FloatArray
    long: FloatArray
    topics: FloatArray
    sessions: FloatArray
    last_unload: FloatArray
    pinned: BoolArray
    in_flight: BoolArray
    moving_from: IntArray
    moving_share: FloatArray
    newest: FloatArray = field(default_factory=lambda: np.empty((0, len(TRAFFIC))))

    def __post_init__(self) -> None:
        m = len(self.names)
        if not len(self.newest):
            object.__setattr__(self, "newest", np.full((m, len(TRAFFIC)), np.nan))
        _check_unique("bundles.names", self.names)
        _check_shape("bundles.short", self.short, (m, len(TRAFFIC)))
        _check_shape("bundles.long", self.long, (m, len(TRAFFIC)))
        _check_shape("bundles.newest", self.newest, (m, len(TRAFFIC)))
        one_column = ("namespace", "owner", "topics", "sessions", "last_unload", "pinned", "in_flight")
        for name in (*one_column, "moving_from", "moving_share"):
            _check_shape(f"bundles.{name}", getattr(self, name), (m,))
        _freeze(self)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Row of each name."""
        return _index(self.names)

    @cached_property
    def _by_owner(self) -> tuple[IntArray, IntArray]:
        order = np.argsort(self.owner, kind="stable")
        top = int(self.owner.max(initial=-1)) + 1
        return order, np.searchsorted(self.owner[order], np.arange(top + 1))

    @cached_property
    def by_newest(self) -> tuple[FloatArray, FloatArray]:
        """Bytes/s in and out, (k, 2) each, summed by owner (a row): the short averages, and the newest samples.

        A bundle counts only if both are known. k is the largest owner plus 1.
        """
        short, newest = (rows[:, [THROUGHPUT_IN, THROUGHPUT_OUT]] for rows in (self.short, self.newest))
        known = np.isfinite(short).all(axis=1) & np.isfinite(newest).all(axis=1) & (self.owner >= 0)
        count = int(self.owner.max(initial=-1)) + 1

        def summed(values: FloatArray) -> FloatArray:
            owner = self.owner[known]
            return np.stack([np.bincount(owner, values[known, c], minlength=count) for c in range(2)], axis=1)

        return summed(short), summed(newest)

    @cached_property
    def short_throughput(self) -> FloatArray:
        """Bytes/s in and out (2,) of all bundles with an owner, by their short averages."""
        owned = self.short[self.owner >= 0][:, [THROUGHPUT_IN, THROUGHPUT_OUT]]
        return np.asarray(np.where(np.isfinite(owned), owned, 0.0).sum(axis=0))

    def owned_by(self, broker: int) -> IntArray:
        """Rows of the bundles that `broker` (a row) owns, ascending."""
        order, start = self._by_owner
        return order[start[broker] : start[broker + 1]] if broker + 1 < len(start) else order[:0]


@dataclass(frozen=True)
class Topics:
    """The topics of the bundles whose topics are known (usually the hot ones); t rows. Splits are weighted by them.

    names:   full topic names, ``persistent://tenant/namespace/topic``.
    bundle:  (t,) row of the bundle.
    place:   (t,) hash of the name on the namespace's ring, 0 to 0xffffffff.
    traffic: (t, 4) columns `TRAFFIC`.
    """

    names: tuple[str, ...]
    bundle: IntArray
    place: IntArray
    traffic: FloatArray

    def __post_init__(self) -> None:
        t = len(self.names)
        _check_shape("topics.bundle", self.bundle, (t,))
        _check_shape("topics.place", self.place, (t,))
        _check_shape("topics.traffic", self.traffic, (t, len(TRAFFIC)))
        _freeze(self)

    def __len__(self) -> int:
        return len(self.names)


NO_TOPICS = Topics((), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty((0, len(TRAFFIC))))
"""The value of `ClusterLoad.topics` if no bundle's topics are known."""


@dataclass(frozen=True)
class RecentSamples:
    """What was measured in the last minutes, oldest first: k rows of a minute each. NaN: not measured in that minute.

    time:    (k,) epoch seconds of the newest sample of each row, ascending.
    bundles: k arrays (m, 3), columns `SAMPLED`, of each bundle on whichever broker owned it in that minute.
    cpu:     (k, n) cores that each broker used.
    traffic: (k, n, 3) columns `SAMPLED`, each broker's own totals, measured together with `cpu`.
    assumed: number of leading rows that were not measured minute by minute: they repeat the bundles' averages.
    """

    time: FloatArray
    bundles: Sequence[SmallFloatArray]
    cpu: FloatArray
    traffic: FloatArray
    assumed: int = 0

    def __post_init__(self) -> None:
        k, n = len(self.time), self.cpu.shape[-1]
        if len(self.bundles) != k:
            raise ValueError(f"recent.bundles: {len(self.bundles)} minutes, expected {k}")
        shape = (len(self.bundles[0]) if k else 0, len(SAMPLED))
        for minute in self.bundles:
            if minute.shape != shape:
                _check_shape("recent.bundles", minute, shape)
            minute.flags.writeable = False
        _check_shape("recent.cpu", self.cpu, (k, n))
        _check_shape("recent.traffic", self.traffic, (k, n, len(SAMPLED)))
        _freeze(self)

    def __len__(self) -> int:
        return len(self.time)

    def last(self, minutes: int) -> RecentSamples:
        """The newest rows, at most `minutes` of them."""
        first = max(0, len(self) - minutes)
        rows, assumed = slice(first, None), max(0, self.assumed - first)
        return RecentSamples(self.time[rows], self.bundles[rows], self.cpu[rows], self.traffic[rows], assumed)


@dataclass(frozen=True)
class ClusterLoad:
    """The whole snapshot. now: epoch seconds at which the samples were evaluated.

    traits:   broker -> its traits. policies: namespace -> its policy. A broker without traits, or a namespace without a
              policy, may be absent.
    publish_gaps: namespace -> median seconds for which a move interrupts publishers; only where that was measured.
    withheld: bundle that balancing must leave where it is -> the reason.
    recent:   the last minutes, with the rows of `brokers` and `bundles`; None if they are not kept.
    """

    brokers: Brokers
    bundles: Bundles
    namespaces: tuple[str, ...]
    now: float
    quality: DataQuality = field(default_factory=DataQuality)
    topics: Topics = NO_TOPICS
    traits: Mapping[str, BrokerTraits] = field(default_factory=dict)
    policies: Mapping[str, NamespacePolicy] = field(default_factory=dict)
    publish_gaps: Mapping[str, float] = field(default_factory=dict)
    withheld: Mapping[str, Reason] = field(default_factory=dict)
    recent: RecentSamples | None = None

    def __post_init__(self) -> None:
        bundles, brokers = self.bundles, len(self.brokers)
        if self.recent is not None:
            _check_shape("recent.cpu", self.recent.cpu, (len(self.recent), brokers))
            for minute in self.recent.bundles[:1]:  # all have the same shape
                _check_shape("recent.bundles", minute, (len(bundles), len(SAMPLED)))
        _check_rows("bundles.owner", bundles.owner, -1, brokers, "-1 (no owner) or a row of the brokers")
        _check_rows("bundles.moving_from", bundles.moving_from, -1, brokers, "-1 (nowhere) or a row of the brokers")
        _check_rows("bundles.namespace", bundles.namespace, 0, len(self.namespaces), "a row of the namespaces")
        _check_rows("topics.bundle", self.topics.bundle, 0, len(bundles), "a row of the bundles")

    def policy_of(self, bundle: int) -> NamespacePolicy:
        """The policy of the namespace of a bundle (row)."""
        return self.policies.get(self.namespaces[self.bundles.namespace[bundle]], NO_POLICY)

    def traits_of(self, broker: int) -> BrokerTraits:
        """The traits of a broker (row)."""
        return self.traits.get(self.brokers.names[broker], UNKNOWN_TRAITS)

    @cached_property
    def started(self) -> FloatArray:
        """When each broker started (n,), epoch seconds; NaN where that is unknown."""
        return np.array([self.traits_of(row).started for row in range(len(self.brokers))], dtype=np.float64)


# -- masks: numpy's own `any` and `all` go through Python, and take several times as long on small arrays --


def somewhere(mask: npt.NDArray[Any]) -> bool:
    """Whether any value is true, or a number other than 0."""
    return bool(np.count_nonzero(mask))


def everywhere(mask: BoolArray) -> bool:
    """Whether all values are true."""
    return bool(np.count_nonzero(mask) == mask.size)
