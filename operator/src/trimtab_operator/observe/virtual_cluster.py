"""The cluster of a policy in mode Shadow: as measured, but with the owners that the policy's moves would have set.

Virtual owners begin as the real ones. The moves of a cycle count as landed in the next one. If a broker is lost, the
shadow's placement immediately gives its bundles new owners. A pinned bundle has its real owner. Children of a split
begin with the virtual owner of their parent. The brokers' usage is what these owners would have caused
(`counterfactual.recorded_cycle`). The virtual cluster is compared with the real one. Real moves under way count as
landed on both sides of the comparison.

The comparison begins again, with the real owners, when it would no longer be valid: the shadow or the acting policy was
edited, another policy acts, nothing was measured for `STALE`, or more than half of the bundles are new or gone. It also
begins again after a restart if a ConfigMap could not hold all virtual owners that differ from the real ones.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab_operator.observe.snapshot import Snapshot
from trimtab_operator.state.shadow_state import ShadowReport, ShadowState
from trimtab_strategies.counterfactual.comparison import Comparison, cycle_sums, seconds_of
from trimtab_strategies.counterfactual.ownership import OwnerChange, RealOwners, VirtualOwners
from trimtab_strategies.counterfactual.recorded_cycle import CycleReader, RecordedCycle
from trimtab_strategies.model import ClusterLoad, Move
from trimtab_strategies.model.cluster_load import IntArray
from trimtab_strategies.shedding.trim.samples import SampleRing
from trimtab_strategies.usage import with_moves_in_flight

STALE = 86400.0
"""Seconds without a cycle after which virtual owners are of no use any more."""

_KNOWN = 0.5  # fraction of the bundles that the last cycle must have had too


@dataclass(frozen=True, slots=True)
class VirtualSnapshot:
    """A snapshot with virtual owners. recorded: the cycle as it really was. owner: (m,) rows of the virtual owners."""

    snapshot: Snapshot
    recorded: RecordedCycle
    owner: IntArray

    @property
    def orphans(self) -> tuple[str, ...]:
        """Names of the bundles that have no virtual owner and are not being split."""
        bundles = self.snapshot.load.bundles
        return tuple(bundles.names[row] for row in np.flatnonzero((self.owner < 0) & ~bundles.in_flight).tolist())


@dataclass
class VirtualCluster:
    """The virtual cluster of one policy.

    of: fingerprint of the shadow and the acting policy. acting: name of the acting policy. begun: why the comparison
    began.
    """

    of: str = ""
    acting: str = ""
    begun: str = ""
    comparison: Comparison | None = None
    _owners: VirtualOwners = field(default_factory=VirtualOwners)
    _real: RealOwners = field(default_factory=RealOwners)
    _reader: CycleReader = field(default_factory=CycleReader)
    _ring: SampleRing = field(default_factory=SampleRing)

    def see(
        self, real: Snapshot, ring: SampleRing, of: str, acting: str, stored: ShadowState | None
    ) -> VirtualSnapshot:
        """The virtual snapshot of the next cycle. real: the measured one, with recent samples, which come from `ring`.

        of, acting: as for the class, but current. stored: the state that another process has stored; None if none.
        """
        load = _settled(real)
        if self.comparison is None and stored is not None:
            self._restore(stored, load)
        if why := self._why_anew(load, of, acting, stored):
            self.begun, self.comparison = why, Comparison(load.now, load.now)
            self._owners, self._real = VirtualOwners(), RealOwners()
        self.of, self.acting = of, acting
        recorded = self._reader.read(load)
        if recorded is None:
            raise ValueError("a snapshot without recent samples has no virtual cluster")
        owner = self._owners.rows(load)
        if np.array_equal(owner, load.bundles.owner):
            self._ring = copy.copy(ring)  # the virtual cluster has the real past until the owners differ
        bundles = replace(load.bundles, owner=owner, last_unload=self._owners.moved)
        virtual = replace(load, brokers=recorded.brokers_with(owner), bundles=bundles, recent=None)
        return VirtualSnapshot(replace(real, load=self._ring.add(virtual)), recorded, owner)

    def take(self, seen: VirtualSnapshot, given: Sequence[Move], moves: Sequence[Move], interval: float) -> None:
        """Let moves land before the next cycle, and add this cycle to the comparison.

        given: moves that gave an owner to bundles without one. interval: seconds from one cycle to the next.
        """
        assert self.comparison is not None
        real, virtual = seen.recorded.load, seen.snapshot.load
        changes = self._real.changes(real)
        self._owners.take([*given, *moves], virtual)
        counted = [OwnerChange(move.bundle, move.source, move.destination) for move in moves if move.source]
        sums = cycle_sums(
            real,
            (real.brokers, changes),
            (virtual.brokers, counted),
            seconds=seconds_of(real.now, self.comparison.last, interval),
            measured=seen.recorded.measured_there(seen.owner),
        )
        self.comparison = self.comparison.after(sums, real.now)

    def state(self, seen: VirtualSnapshot, epoch: int) -> ShadowState:
        """The state that must survive a restart. Call it after `take`."""
        assert self.comparison is not None
        displaced = self._owners.displaced(seen.recorded.load)
        return ShadowState(self.of, self.acting, self.begun, self.comparison, displaced, epoch)

    def report(self, state: ShadowState) -> ShadowReport:
        """What the policy's status reports."""
        return ShadowReport(self.acting, self.begun, state.comparison, len(state.displaced or ()))

    def _restore(self, stored: ShadowState, load: ClusterLoad) -> None:
        self.of, self.acting, self.begun, self.comparison = stored.of, stored.acting, stored.begun, stored.comparison
        self._owners = VirtualOwners.restored(stored.displaced or {}, load)

    def _why_anew(self, load: ClusterLoad, of: str, acting: str, stored: ShadowState | None) -> str:
        """Why the comparison begins again; empty if it goes on."""
        compared = self.comparison
        if compared is None:
            return "the shadow is new"
        unstored = stored is not None and stored.displaced is None and compared == stored.comparison
        causes = (
            (self.acting != acting, f"policy {acting} acts now"),
            (self.of != of, f"the shadow or policy {acting} was edited"),
            (load.now - compared.last > STALE, "nothing was compared for a day"),
            (unstored, "more virtual owners differed than a ConfigMap holds, and the operator was restarted"),
            (self._strange(load), "more than half of the bundles are new or gone"),
        )
        return next((text for holds, text in causes if holds), "")

    def _strange(self, load: ClusterLoad) -> bool:
        """Whether more than half of the bundles in `load` are new, or more than half of the last cycle's are gone."""
        names = self._owners.names
        known = len({*load.bundles.names} & {*names})
        return bool(names) and known < _KNOWN * max(len(load.bundles), len(names))


def _settled(real: Snapshot) -> ClusterLoad:
    """The load as if all real moves under way had landed. Only bundles that are being split are in flight."""
    load = with_moves_in_flight(real.load)
    splitting = np.array([bool(real.records[name].split) for name in load.bundles.names], dtype=bool)
    count = len(load.bundles)
    bundles = replace(load.bundles, in_flight=splitting, moving_from=np.full(count, -1), moving_share=np.zeros(count))
    return replace(load, bundles=bundles)
