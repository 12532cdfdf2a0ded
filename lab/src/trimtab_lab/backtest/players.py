"""Who plays in a backtest: policies from files, the policy that really ran, and what really happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab_lab.backtest.history import ReplayWindow
from trimtab_lab.backtest.replay import HistoryReplay, LiveReplay, PolicyReplay
from trimtab_lab.simulation.deciders import UnderTrimtab
from trimtab_lab.simulation.policy import policies
from trimtab_operator.cli.common import CommandError
from trimtab_operator.state.settings import InvalidPolicyError, Settings
from trimtab_pipeline.api import ForeignFileError

RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Players:
    """Who plays. judged: the policies of --policy. against: those of --against. recorded: the policy that really ran,
    None if the history does not have it. mode: in which it ran. live: what really happened.
    """

    judged: Sequence[PolicyReplay]
    against: Sequence[PolicyReplay]
    recorded: PolicyReplay | None
    mode: str
    live: LiveReplay

    @classmethod
    def of(cls, window: ReplayWindow, judged: Sequence[str], against: Sequence[str], seed: int) -> Players:
        """The players of the files `judged` and `against`. Raises `CommandError`.

        Without a file the recorded policy is judged; its replay says how far a backtest of this history can be trusted.
        """
        recorded, mode = _recorded(window, seed)
        if not judged and recorded is None:
            raise CommandError(f"{window.folder} does not say which policy ran: name one with --policy")
        mine = [_replay(player.name, player.manifest, seed) for player in policies(judged)]
        names = {one.name for one in mine}
        others = [
            _replay(f"{player.name} (against)" if player.name in names else player.name, player.manifest, seed)
            for player in policies(against)
        ]
        return cls(mine, others, recorded, mode, LiveReplay())

    @property
    def replays(self) -> list[HistoryReplay]:
        """All of them."""
        return [*self.judged, *self.against, *([self.recorded] if self.recorded else []), self.live]

    @property
    def shown(self) -> list[HistoryReplay]:
        """Those of the table, what is judged first."""
        first = self.judged or [one for one in (self.recorded,) if one]
        return [*first, *self.against, self.live]


def _recorded(window: ReplayWindow, seed: int) -> tuple[PolicyReplay | None, str]:
    """The newest policy that was in force, and its mode. Raises `CommandError` if it can't be read, or run here."""
    try:
        specs = window.recording.specs(window.begin, window.end)
    except ForeignFileError as error:
        raise CommandError(f"the policy that ran can't be read: {error}") from error
    if not specs:
        return None, ""
    space, _, name = window.recording.policy.partition("/")
    manifest = {"metadata": {"name": name, "namespace": space}, "spec": specs[-1].spec}
    try:
        return _replay(RECORDED, manifest, seed), Settings.of(manifest).mode
    except InvalidPolicyError as error:
        raise CommandError(f"this version can't run the recorded policy: {error}") from error


def _replay(name: str, manifest: Mapping[str, Any], seed: int) -> PolicyReplay:
    """A replay of a policy. It decides as in mode Auto, whatever its mode is."""
    settings = Settings.of(manifest)
    return PolicyReplay(name, UnderTrimtab(settings.pair, settings.limits), settings.interval, seed)
