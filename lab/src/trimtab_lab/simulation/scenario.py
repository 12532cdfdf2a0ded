"""A scenario as a person writes it, in YAML: machines, tenants, events, and what the metrics show.

All amounts are relative to one machine or one bundle. Ratios are 0-1, times are rounds of one minute. `build.build`
draws the arrays of a run from a scenario.
"""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from trimtab_lab.simulation.events import Crowd, Failover, Happening, HotBundle, Joins, last_round
from trimtab_lab.simulation.realism import Realism
from trimtab_lab.simulation.refusals import refusals
from trimtab_lab.simulation.scenario_fields import BrokerRows, Ratio, Round, ScenarioPart, loads
from trimtab_lab.simulation.tenants import Machines, Tenant
from trimtab_operator.cli.lint.files import UnreadableError, documents_of
from trimtab_strategies.model.cluster_load import IntArray

CATALOGUE = Path(__file__).with_name("catalogue")
"""Folder of the scenarios that come with the lab."""

CATALOGUE_FILE = "*.yaml"

MOST_BROKERS, MOST_TENANTS = 10_000, 1000
"""Maximum number of brokers and of tenants in a scenario: a run has a row for each pair of a broker and a tenant."""


class InvalidScenarioError(ValueError):
    """A scenario that can't be built. The message names each field, its value, the bound and the fix."""


class Goal(StrEnum):
    """What is right in a scenario: to bring the cluster level, or to leave it alone."""

    LEVEL = "level"
    STILL = "still"


class MetricsOptions(ScenarioPart):
    """How the metrics of brokers differ from what happens. Bundles are measured exactly, but perhaps late."""

    noise: Ratio = 0
    """Standard deviation of a factor on the CPU, as a ratio."""
    spikes: Ratio = 0
    """Chance per broker and round of a false reading of 100 % CPU."""
    missing: Ratio = 0
    """Chance per broker and round that its CPU is not measured."""
    stale: Ratio = 0
    """Chance per broker and round that the metrics show its last report again."""
    newest: Annotated[float, Field(gt=0, le=1)] = 1
    """Weight of the newest sample in the shown figures of brokers; the earlier average has the rest."""
    bundles_late: Annotated[int, Field(ge=0, le=30)] = 0
    """Rounds by which the figures of bundles are older than those of brokers."""
    scrape: Annotated[int, Field(ge=0, le=59)] = 0
    """Each broker shows a rate over a minute that ended earlier, by at most this many seconds."""


class SplittingOptions(ScenarioPart):
    """Limits of a bundle for strategies without a splitter of their own."""

    bandwidth: Annotated[int, Field(ge=1, le=100000)]
    """MiB/s, in and out together, above which a bundle is too large."""


class Scenario(ScenarioPart):
    """A simulated cluster and what happens to it."""

    title: Annotated[str, Field(min_length=1, max_length=60)]
    """A few words."""
    description: Annotated[str, Field(min_length=1)]
    """What the cluster is like and what happens, in one or two sentences."""
    goal: Goal = Goal.LEVEL
    """What is right: bring the cluster level, or leave it alone."""
    rounds: Annotated[int, Field(ge=1, le=20160)] = 60
    """Length of a run."""
    machines: Annotated[tuple[Machines, ...], Field(json_schema_extra={"minItems": 1})]
    """Groups of equal machines."""
    tenants: Annotated[tuple[Tenant, ...], Field(json_schema_extra={"minItems": 1})] = (Tenant(),)
    """The namespaces that share the brokers."""
    events: tuple[Happening, ...] = ()
    """What happens."""
    metrics: MetricsOptions = MetricsOptions()
    """What the metrics show."""
    landing: Annotated[int, Field(ge=1, le=60)] = 1
    """Rounds from a decision until its moves have landed; 1: by the next snapshot."""
    splitting: SplittingOptions | None = None
    """Limits for a splitter. Without them, only strategies with a splitter of their own split bundles."""
    realism: Realism = Realism()
    """Further effects of real clusters."""
    settled: Round | None = None
    """The round from which the minutes until the brokers are balanced are counted. Without it, they are counted from
    the end of the last event."""

    @model_validator(mode="after")
    def check_brokers(self) -> Self:
        """Refuse parts that do not fit each other, such as a list that is too short, and a cluster without load."""
        for name in ("machines", "tenants"):
            if not getattr(self, name):
                raise ValueError(f"{name}: is empty, but there must be at least 1: add one")
        if self.count > MOST_BROKERS:
            raise ValueError(f"machines: are {self.count} in all, but at most {MOST_BROKERS} are simulated: use fewer")
        if len(self.tenants) > MOST_TENANTS:
            raise ValueError(f"tenants: are {len(self.tenants)}, but at most {MOST_TENANTS} are simulated: use fewer")
        self._check_names()
        self._check_lengths()
        self._check_load()
        for number, event in enumerate(self.events):
            self._check_rounds(f"events[{number}]", getattr(event, "round", 0), getattr(event, "until", None))
        return self

    def _check_names(self) -> None:
        groups = {group.name for group in self.machines} - {""}
        for place, given in self._brokers_named():
            if isinstance(given, str) and given not in groups:
                raise ValueError(f"{place}: no group of machines is called {given!r}: use {self._group_names()}")
            rows = () if isinstance(given, str) else given
            if any(row >= self.count for row in rows):
                raise ValueError(f"{place}: there is no broker {max(rows)}: use 0 to {self.count - 1}")
        names = [tenant.name for tenant in self.tenants]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise ValueError(f"tenants[{number}].name: is {name!r} again: give each tenant a name of its own")

    def _check_lengths(self) -> None:
        for number, group in enumerate(self.machines):
            self._check_length(f"machines[{number}].usage", group.usage, group.count)
        for number, tenant in enumerate(self.tenants):
            self._check_length(f"tenants[{number}].share", tenant.share, self.count)
            if tenant.drift is not None:
                self._check_length(f"tenants[{number}].drift.to", tenant.drift.to, self.count)

    def _brokers_named(self) -> list[tuple[str, BrokerRows]]:
        events = [(f"events[{k}].brokers", _brokers_of(event)) for k, event in enumerate(self.events)]
        tenants = [(f"tenants[{k}].brokers", tenant.brokers) for k, tenant in enumerate(self.tenants)]
        return [*events, *((place, given) for place, given in tenants if given is not None)]

    def _group_names(self) -> str:
        names = [group.name for group in self.machines if group.name]
        return ", ".join(names) or "numbers, as no group has a name"

    @staticmethod
    def _check_length(place: str, given: Any, count: int) -> None:
        if isinstance(given, tuple) and len(given) != count:
            raise ValueError(f"{place}: has {len(given)} values for {count} brokers: give one each")

    def _check_load(self) -> None:
        groups = (loads(np.random.default_rng(0), group.usage, group.count) for group in self.machines)
        usage = np.concatenate(list(groups))
        usage[self.joining] = 0
        if not usage.any():
            raise ValueError("machines: usage is 0 on all, but there must be load: give at least one group a usage")
        for broker in np.flatnonzero((usage > 0) & (self.bundles.sum(axis=0) == 0)).tolist():
            raise ValueError(
                f"machines: broker {broker} has a usage, but no bundles, as its part of them rounds to 0: give it more"
                " bundles, or a tenant a larger share there"
            )
        for number, event in enumerate(self.events):
            if isinstance(event, Crowd | HotBundle) and usage[event.broker] == 0:
                raise ValueError(
                    f"events[{number}].broker: is {event.broker}, but that broker has no bundles: use one with usage"
                )

    def _check_rounds(self, place: str, first: int, until: int | None) -> None:
        if first >= self.rounds:
            last = self.rounds - 1
            raise ValueError(
                f"{place}.round: is {first}, but it must be at most {last}, as rounds is {self.rounds}: write {last} or"
                " less"
            )
        if until is not None and until <= first:
            raise ValueError(
                f"{place}.until: is {until}, but it must be after round {first}: write {first + 1} or more"
            )

    @property
    def count(self) -> int:
        """Number of brokers."""
        return sum(group.count for group in self.machines)

    @property
    def bundles(self) -> IntArray:
        """Number of bundles of each tenant on each broker that has load, (tenants, n)."""
        per_broker = np.concatenate([np.full(group.count, group.bundles) for group in self.machines])
        shares = np.array([np.broadcast_to(tenant.share, self.count) for tenant in self.tenants])
        counts: IntArray = np.rint(shares * per_broker).astype(np.int64)
        return counts

    def rows(self, given: BrokerRows) -> IntArray:
        """Rows of the named brokers."""
        if not isinstance(given, str):
            return np.array(given, dtype=np.int64)
        ends = list(accumulate(group.count for group in self.machines))
        number = [group.name for group in self.machines].index(given)
        return np.arange(ends[number] - self.machines[number].count, ends[number])

    @property
    def event(self) -> int:
        """The round from which the minutes until the brokers are balanced are counted.

        It is `settled`, or else the round in which the last event is over.
        """
        if self.settled is not None:
            return self.settled
        ends = [last_round(event, len(self.rows(_brokers_of(event)))) for event in self.events]
        return min(max(ends, default=0), self.rounds - 1)

    @property
    def joining(self) -> IntArray:
        """Rows of the brokers that join later."""
        later = [self.rows(event.brokers) for event in self.events if isinstance(event, Joins)]
        return np.concatenate([np.empty(0, dtype=np.int64), *later])


def _brokers_of(event: Happening) -> BrokerRows:
    """The brokers that an event affects."""
    if isinstance(event, Failover):
        return ()
    return (event.broker,) if isinstance(event, Crowd | HotBundle) else event.brokers


def parsed(text: str, origin: str = "scenario") -> Scenario:
    """The scenario that a YAML text describes. Raises `InvalidScenarioError`, whose message begins with `origin`."""
    try:
        found = [document.data for document in documents_of("", text)]
    except UnreadableError as error:
        raise InvalidScenarioError(f"{origin} {error} (line {error.line})") from error
    if len(found) != 1 or not isinstance(found[0], dict):
        kinds = ", ".join(type(one).__name__ for one in found[:3]) or "empty"
        raise InvalidScenarioError(f"{origin} is {kinds}, but it must be a mapping with title, machines")
    try:
        return Scenario.model_validate(found[0])
    except ValidationError as error:
        raise InvalidScenarioError(f"{origin}:\n{refusals(error, Scenario)}") from error


@cache
def catalogue() -> dict[str, Scenario]:
    """The scenarios that come with the lab, by identifier, in the order of their numbers."""
    files = sorted(CATALOGUE.glob(CATALOGUE_FILE))
    return {path.stem.split("-", 1)[1]: parsed(path.read_text(encoding="utf-8"), path.name) for path in files}


def load(name: str) -> Scenario:
    """A scenario by its name in the catalogue, or from a file that ends in .yaml. Raises `InvalidScenarioError`."""
    if not name.endswith((".yaml", ".yml")):
        return named(name)
    try:
        return parsed(Path(name).read_text(encoding="utf-8"), name)
    except OSError as error:
        raise InvalidScenarioError(f"can't read {name}: {error.strerror}: give the path of a scenario") from error
    except UnicodeDecodeError as error:
        raise InvalidScenarioError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def named(identifier: str) -> Scenario:
    """A scenario of the catalogue. Raises `InvalidScenarioError` for an unknown one."""
    if identifier not in catalogue():
        alike = get_close_matches(identifier, catalogue())
        hint = f"did you mean {' or '.join(alike)}? " if alike else ""
        raise InvalidScenarioError(f"scenario {identifier!r} is unknown: {hint}`trimtab simulate --list` shows all")
    return catalogue()[identifier]
