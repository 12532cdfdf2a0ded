"""Lets a BalancingPolicy from a file take part in a simulation, with its strategies, limits and interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from trimtab_lab.simulation.budget import PlayedBudget
from trimtab_lab.simulation.deciders import Orders, UnderTrimtab
from trimtab_lab.simulation.world import MINUTE, World
from trimtab_operator.cli.common import CommandError
from trimtab_operator.cli.lint.files import Document, UnreadableError, documents, manifest_files
from trimtab_operator.cli.lint.schema import valid_manifest
from trimtab_operator.state.settings import Settings
from trimtab_strategies.model import ClusterLoad, some
from trimtab_strategies.planner.drain import NO_DRAINS, Drains

KIND = "BalancingPolicy"

FROM_SCENARIO = ("brokers", "source")
"""Fields of a policy that the scenario replaces."""

NOT_SIMULATED = (
    *("pulsar", "brokerInterval", "windows", "approval", "paused", "advice"),
    *("limits.maxUndoneMoves", "limits.maxMovesInFlight"),
    *("limits.moveTimeout", "limits.lostAfter", "limits.forgetAfter"),
)
"""Fields of a policy that have no effect in a simulation."""


@dataclass(frozen=True, eq=False, slots=True)
class PolicyPlayer:
    """A policy that takes part in a simulation.

    manifest: the BalancingPolicy (JSON values). notes: which of its settings have no effect in a simulation.
    """

    name: str
    manifest: Mapping[str, Any]
    notes: str

    def decider(self, world: World) -> UnderPolicy:  # noqa: ARG002 - a policy has its own splitter
        """A new decider without memory."""
        settings = Settings.of(self.manifest)
        decider = UnderTrimtab(settings.pair, settings.limits)
        return UnderPolicy(decider, rounds(settings.interval), PlayedBudget.of(settings))


@dataclass
class UnderPolicy:
    """Decides every `every` rounds, within a budget.

    Bundles without an owner get one in rounds without a decision, too, as under the operator.
    """

    inner: UnderTrimtab
    every: int
    budget: PlayedBudget | None = None
    _round: int = 0

    def decide(self, cluster: ClusterLoad, rng: np.random.Generator, *, drains: Drains = NO_DRAINS) -> Orders:
        """See `Decider`."""
        due, self._round = self._round % self.every == 0, self._round + 1
        if self.budget is None:
            return (
                self.inner.decide(cluster, rng, drains=drains)
                if due
                else Orders(self.inner.assign(cluster, rng, drains))
            )
        admit = partial(self.budget.admitted, load=cluster)
        if not due:
            return admit(Orders(self.inner.assign(cluster, rng, drains)))
        return self.inner.decide(self.budget.withheld(cluster), rng, drains=drains, admit=admit)

    def forget(self) -> None:
        """See `Decider`."""
        self.inner.forget()


def rounds(interval: float) -> int:
    """Rounds (minutes) from one decision to the next. interval: in seconds."""
    return max(1, round(interval / MINUTE))


def policies(files: Sequence[str]) -> list[PolicyPlayer]:
    """The policies in manifests. A name that occurs twice gets its file as a prefix. Raises `CommandError`."""
    found = [player for file in files for player in _of_file(file)]
    names = [player.name for _, player in found]
    return [replace(p, name=f"{file}:{p.name}") if names.count(p.name) > 1 else p for file, p in found]


def _of_file(file: str) -> Iterator[tuple[str, PolicyPlayer]]:
    if file != "-":
        manifest_files([file])
    try:
        found = list(documents(file))
    except UnreadableError as error:
        raise CommandError(f"{file}:{error.line}: it {error}") from error
    wanted = [document for document in found if _kind(document) == KIND]
    others = [f"{_kind(document)} {_name(document)}" for document in found if document not in wanted]
    if not wanted:
        held = some(others, 3) if others else "nothing"
        raise CommandError(f"{file} must hold a {KIND}, but it holds {held}: give the file of a policy")
    for document in wanted:
        yield file, _player(document, others)


def _kind(document: Document) -> str:
    return str(document.data.get("kind", "(no kind)")) if isinstance(document.data, dict) else "(no object)"


def _name(document: Document) -> str:
    meta = document.data.get("metadata") if isinstance(document.data, dict) else None
    return str(meta.get("name", "")) if isinstance(meta, dict) else ""


def _player(document: Document, others: Sequence[str]) -> PolicyPlayer:
    manifest = valid_manifest(document)
    manifest["metadata"].setdefault("namespace", "default")
    name = manifest["metadata"]["name"]
    return PolicyPlayer(name, manifest, f"policy {name}: {'; '.join(_notes(manifest, others))}")


def _notes(manifest: Mapping[str, Any], others: Sequence[str]) -> Iterator[str]:
    """Say which settings of a policy do not count in a simulation."""
    spec, settings = manifest["spec"], Settings.of(manifest)
    written = {*spec, *(f"{group}.{name}" for group in ("limits", "budget") for name in spec.get(group) or ())}
    yield f"the scenario replaces {' and '.join(name for name in FROM_SCENARIO if name in written)}"
    if left_out := [*(name for name in NOT_SIMULATED if name in written), *others]:
        yield f"not simulated: {', '.join(left_out)}"
    if settings.mode != "Auto":
        yield f"mode {settings.mode} counts as Auto"
    if (counted := rounds(settings.interval) * MINUTE) != settings.interval:
        yield f"interval {settings.interval:g}s counts as {counted:g}s, as a round is a minute"
