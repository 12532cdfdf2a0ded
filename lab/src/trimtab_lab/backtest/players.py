"""The replays of a backtest: policies from files, the policy that really ran, and what really happened."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from trimtab_lab.backtest.history import ReplayWindow
from trimtab_lab.backtest.replay import HistoryReplay, LiveReplay, PolicyReplay, Remembered
from trimtab_lab.backtest.replayed_splits import ReplayedSplits
from trimtab_lab.backtest.sweep import InvalidSweepError, Sweep, Variant, variants
from trimtab_lab.simulation.budget import PlayedBudget
from trimtab_lab.simulation.deciders import UnderTrimtab
from trimtab_lab.simulation.policy import KIND, policies
from trimtab_operator.cli.common import CommandError
from trimtab_operator.cli.lint.files import spelt
from trimtab_operator.cli.lint.schema import refusals
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.state.settings import InvalidPolicyError, Settings
from trimtab_operator.state.strategy_state import PolicyState, StrategyNames
from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.history.recording import RecordedPolicy
from trimtab_strategies.model import some

RECORDED = "recorded"

ACTING = "Auto"
"""The mode of a policy that makes its moves without approval."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the user chose to replay.

    judged, against: files of policies. sweeps: they make variants of the judged policies. samples: how many values to
    take from each range.
    """

    judged: Sequence[str]
    against: Sequence[str]
    sweeps: Sequence[Sweep] = ()
    samples: int = 10
    splits: bool = False


@dataclass(frozen=True, slots=True)
class Players:
    """The replays of a backtest.

    judged: the policies of --policy. against: those of --against. recorded: the policy that really ran; None if the
    history does not have it, or if it can't be replayed. mode: the mode in which that policy ran. live: what really
    happened. followed: the recorded policy again, deciding in each cycle from the real owners; None unless it ran in
    mode Auto. specs: all versions of the recorded policy that were in force, oldest first; the last one is replayed.
    unusable: why the recorded policy can't be replayed; empty if it can.
    """

    judged: Sequence[PolicyReplay]
    against: Sequence[PolicyReplay]
    recorded: PolicyReplay | None
    mode: str
    live: LiveReplay
    followed: PolicyReplay | None = None
    specs: Sequence[RecordedPolicy] = ()
    unusable: str = ""

    @classmethod
    def of(cls, window: ReplayWindow, chosen: Chosen, seed: int) -> Players:
        """The replays that the user chose. Raises `CommandError`.

        Without --policy, the recorded policy is judged. With --policy, the recorded policy is replayed, too: its replay
        shows how far a backtest of this history can be trusted.
        """
        specs = _recorded(window)
        manifest = _manifest(window, specs[-1].spec) if specs else None
        if not chosen.judged and manifest is None:
            raise CommandError(f"{window.folder} does not say which policy ran: name one with --policy")
        judged = {_distinct(player.name, "policy"): player.manifest for player in policies(chosen.judged)}
        if chosen.sweeps:
            judged = _varied(judged or {RECORDED: manifest or {}}, chosen, seed)
        mine = [policy_replay(name, each, seed, splits=chosen.splits) for name, each in judged.items()]
        names = {one.name for one in mine}
        others = [
            policy_replay(_distinct(player.name, "against", names), player.manifest, seed, splits=chosen.splits)
            for player in policies(chosen.against)
        ]
        live = LiveReplay()
        if manifest is None:
            return cls(mine, others, None, "", live)
        try:
            recorded, mode = _replay_of_recorded(window, manifest, splits=chosen.splits), Settings.of(manifest).mode
        except InvalidPolicyError as error:
            why = f"this version can't run the recorded policy: {error}"
            if not mine:
                raise CommandError(f"{why}; name another one, or a corrected copy, with --policy") from error
            return cls(mine, others, None, "", live, specs=specs, unusable=why)
        followed = _followed(recorded, manifest) if mode == ACTING else None
        return cls(mine, others, recorded, mode, live, followed, specs)

    @property
    def replays(self) -> list[HistoryReplay]:
        """All replays."""
        checks = [one for one in (self.recorded, self.followed) if one]
        return [*self.judged, *self.against, *checks, self.live]

    @property
    def shown(self) -> list[HistoryReplay]:
        """The replays in the table, the judged ones first."""
        first = self.judged or [one for one in (self.recorded,) if one]
        return [*first, *self.against, self.live]


def _recorded(window: ReplayWindow) -> list[RecordedPolicy]:
    """The versions of the recorded policy, oldest first. The first one was in force when the window began.

    Raises `CommandError` if one can't be read.
    """
    try:
        specs = window.recording.specs(window.begin, window.end)
    except ForeignFileError as error:
        raise CommandError(f"the policy that ran can't be read: {error}") from error
    return [one._replace(at=max(one.at, window.begin)) for one in specs]


def _manifest(window: ReplayWindow, spec: Mapping[str, Any]) -> dict[str, Any]:
    space, _, name = window.recording.policy.partition("/")
    kind = {"apiVersion": API_VERSION, "kind": KIND}
    return {**kind, "metadata": {"name": name, "namespace": space}, "spec": spec}


def _replay_of_recorded(window: ReplayWindow, manifest: Mapping[str, Any], *, splits: bool) -> PolicyReplay:
    """The replay of the policy that really ran.

    It continues from the recorded memory of the policy, if there is one. It chooses between equally good brokers as the
    operator did.
    """
    replay, strategies = policy_replay(RECORDED, manifest, None, splits=splits), Settings.of(manifest).strategies
    replay.past = [one for part in window.parts if (one := _remembered(window, part.act, strategies))]
    return replay


def _followed(recorded: PolicyReplay, manifest: Mapping[str, Any]) -> PolicyReplay:
    """The replay that decides in each cycle from the real owners.

    It plans splits even if ``--splits`` is not ``on``, but carries none out: the recorded cycles have the real splits.
    """
    settings = Settings.of(manifest)
    decider = UnderTrimtab(settings.pair, settings.limits)
    return replace(deepcopy(recorded), decider=decider, follows=True, replayed_splits=None)


def _remembered(window: ReplayWindow, act: float, strategies: StrategyNames) -> Remembered | None:
    """The memory that strategies of these types had before the first cycle at or after `act` (epoch s).

    None if it was not recorded, or was written by a version whose memory had other content. Then the strategies begin
    with what they learn during the warm-up. Raises `CommandError` for a file that can't be read.
    """
    times = window.recording.times(act, window.end)
    try:
        found = window.recording.memory(times[0]) if times else None
        state = None if found is None else PolicyState.from_json(found.text)
    except ForeignFileError as error:
        raise CommandError(f"what the policy remembered can't be read: {error}") from error
    except UnreadableContentError:
        return None
    if found is None or state is None:
        return None
    return Remembered(found.at, state.memory_for(strategies), state.moves)


def _distinct(name: str, option: str, taken: Container[str] = ()) -> str:
    """A policy's name in the report, with its `option` as a suffix if another replay has this name."""
    return f"{name} ({option})" if name in taken or name in {LiveReplay().name, RECORDED} else name


def _varied(manifests: Mapping[str, Mapping[str, Any]], chosen: Chosen, seed: int) -> dict[str, Mapping[str, Any]]:
    """The variants of each policy, by policy name and changed values. Raises `CommandError` for an invalid one."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, manifest in manifests.items():
        try:
            made = variants(manifest, chosen.sweeps, chosen.samples, seed)
        except InvalidSweepError as error:
            raise CommandError(f"--sweep: {error}") from error
        for variant in made:
            require_valid(variant)
            found[variant.name if len(manifests) == 1 else f"{name} {variant.name}"] = variant.manifest
    return found


def require_valid(variant: Variant) -> None:
    """Raise `CommandError` for a variant that the API server would refuse."""
    if wrong := [f"{spelt(one.at)} {one.text}" for one in refusals(variant.manifest)]:
        raise CommandError(f"{variant.name} is not a valid policy: {some(wrong, 3, '; ')}")


def policy_replay(name: str, manifest: Mapping[str, Any], seed: int | None, *, splits: bool = False) -> PolicyReplay:
    """A replay of a policy (JSON values). It decides as in mode Auto, whatever the policy's mode is.

    splits: whether its splits are replayed; else it plans none.
    """
    settings = Settings.of(manifest)
    divides = settings.pair.splitter is not None
    pair = settings.pair if splits else replace(settings.pair, splitter=None)
    return PolicyReplay(
        name,
        UnderTrimtab(pair, settings.limits),
        settings.interval,
        seed,
        replayed_splits=ReplayedSplits() if splits and divides else None,
        windows=settings.windows,
        budget=PlayedBudget.of(settings),
        lacks_splits=divides and not splits,
    )
