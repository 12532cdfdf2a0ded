"""What the comparison says in words. Each sentence has a condition; a page with an untrue sentence is not made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace

from trimtab_lab.simulation import Contender, Score
from trimtab_strategies.params import Compatibility

Table = Mapping[str, Mapping[Contender, Score]]
"""Scores by the scenario's title, then by contender."""

WORDS: Mapping[str, str] = {
    "ThresholdShedder": "threshold",
    "OverloadShedder": "overload",
    "UniformLoadShedder": "uniform",
    "AvgShedder": "average",
    "TransferShedder": "transfer",
    "WeightedBalancer": "weighted",
}
"""How sentences call a shedder: ``threshold`` as Pulsar runs it, ``our_threshold`` corrected and under Trimtab."""


def told(scenario: str, table: Table) -> list[str]:
    """The sentences about a scenario. Raises ValueError when one of them is not true."""
    words = SimpleNamespace(**dict(_words(table[scenario])))
    return [_checked(scenario, claim, words) for claim in CLAIMS[scenario]]


def _words(scores: Mapping[Contender, Score]) -> Iterator[tuple[str, Score]]:
    for who, score in scores.items():
        if who.compatibility in (None, Compatibility.CORRECTED if who.guarded else Compatibility.JAVA):
            yield ("our_" if who.guarded else "") + WORDS[who.shedder], score


def _checked(scenario: str, claim: Claim, words: SimpleNamespace) -> str:
    text = claim.text.format(**vars(words))
    if not claim.holds(words):
        raise ValueError(f"{scenario}: not true, mend it in docs/tools/comparison_claims.py: {text}")
    return text


def sooner(one: Score, other: Score) -> bool:
    """Whether `one` was balanced, and in fewer rounds than `other`, if that was at all."""
    return one.balanced is not None and (other.balanced is None or one.balanced < other.balanced)


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence with the scores' numbers in it, and when it is true."""

    text: str
    holds: Callable[[SimpleNamespace], bool]


CLAIMS: Mapping[str, tuple[Claim, ...]] = {
    "Skewed load": (
        Claim(
            "ThresholdShedder moves {threshold.moves} bundles as Pulsar runs it, {threshold.backward} of them uphill,"
            " because all bundles of a round are placed on the same picture; under Trimtab the cluster is balanced"
            " after {our_threshold.balanced} of 60 rounds, with {our_threshold.moves} moves.",
            lambda v: (
                v.threshold.backward > 0
                and sooner(v.our_threshold, v.threshold)
                and v.our_threshold.moves < v.threshold.moves
            ),
        ),
        Claim(
            "UniformLoadShedder and AvgShedder move only what fits and get by with {uniform.moves} and {average.moves},"
            " in {uniform.balanced} and {average.balanced} rounds; AvgShedder waits for its counters first.",
            lambda v: (
                max(v.uniform.moves, v.average.moves) < v.threshold.moves / 2
                and None not in (v.uniform.balanced, v.average.balanced)
            ),
        ),
        Claim(
            "OverloadShedder stops as soon as nobody is above 85 %, which is all it promises.",
            lambda v: v.overload.balanced is None and v.our_overload.balanced is None,
        ),
        Claim(
            "TransferShedder stops when the standard deviation of usage is within its target of 25 points, with"
            " {transfer.imbalance:.0f} points left. WeightedBalancer swings in the original's form ({weighted.moves}"
            " moves, {weighted.repeated} of bundles that had moved before) and is balanced after"
            " {our_weighted.balanced} rounds and {our_weighted.moves} moves in the corrected one.",
            lambda v: (
                v.transfer.balanced is None
                and v.weighted.moves > 3 * v.our_weighted.moves
                and v.our_weighted.balanced is not None
            ),
        ),
    ),
    "Two brokers": (
        Claim(
            "The proposal's example of *over unloading*. ThresholdShedder believes its smoothed usage long after the"
            " load is level and moves {threshold.moves} bundles, where AvgShedder needs {average.moves}: the proposal"
            " is right.",
            lambda v: v.threshold.moves > 3 * v.average.moves and v.threshold.backward > 0,
        ),
        Claim(
            "Under Trimtab the same shedder needs {our_threshold.moves} moves and {our_threshold.balanced} rounds: a"
            " move that would make the other broker the busier one is refused.",
            lambda v: (
                v.our_threshold.moves < v.threshold.moves / 2
                and v.our_threshold.backward == 0
                and sooner(v.our_threshold, v.threshold)
            ),
        ),
        Claim(
            "WeightedBalancer takes its time ({our_weighted.balanced} rounds) and moves nothing twice; in the"
            " original's form it leaves {weighted.imbalance:.0f} points.",
            lambda v: v.our_weighted.balanced is not None and not v.our_weighted.repeated and v.weighted.imbalance > 40,  # noqa: PLR2004 - half of it
        ),
    ),
    "Two hot ones among six": (
        Claim(
            "The proposal's example of *over placement*. No broker is 10 points below the average, so the placement"
            " picks among all, and {threshold.backward} of {threshold.moves} bundles go to a broker that is busier."
            " Under Trimtab it is {our_threshold.backward} of {our_threshold.moves}.",
            lambda v: v.threshold.backward > 4 * v.our_threshold.backward,
        ),
        Claim(
            "UniformLoadShedder ({uniform.moves} moves) and AvgShedder ({average.moves}) move nothing uphill and leave"
            " {uniform.imbalance:.0f} and {average.imbalance:.0f} points. The one is quiet after {uniform.quiet}"
            " rounds, the other after {average.quiet}, as it acts when its counters are full.",
            lambda v: v.uniform.backward == v.average.backward == 0 and v.uniform.quiet < v.average.quiet,
        ),
    ),
    "A new broker": (
        Claim(
            "The average is 54 %, and hardly anybody is 10 points above it: ThresholdShedder leaves the newcomer"
            " nearly idle, and OverloadShedder quite.",
            lambda v: v.threshold.balanced is None and v.our_threshold.balanced is None and not v.overload.moves,
        ),
        Claim(
            "UniformLoadShedder fills it in {uniform.balanced} rounds, AvgShedder in {average.balanced}.",
            lambda v: sooner(v.uniform, v.average) and v.average.balanced is not None,
        ),
    ),
    "Twenty new brokers": (
        Claim(
            "UniformLoadShedder relieves one broker a round and is still at it after an hour, as the proposal says."
            " AvgShedder serves all pairs at once: {average.balanced} rounds, {average.moves} moves.",
            lambda v: v.uniform.quiet is None and sooner(v.average, v.uniform),
        ),
        Claim(
            "ThresholdShedder swings: {threshold.moves} moves as Pulsar runs it, {threshold.repeated} of bundles that"
            " had moved before. Under Trimtab it needs {our_threshold.balanced} rounds and {our_threshold.moves}.",
            lambda v: (
                v.threshold.repeated > 0
                and sooner(v.our_threshold, v.threshold)
                and v.our_threshold.moves < v.threshold.moves / 2
            ),
        ),
        Claim(
            "TransferShedder relieves three brokers a round and rests for three minutes after that: {transfer.moves}"
            " moves, {transfer.imbalance:.0f} points left. WeightedBalancer is balanced after {our_weighted.balanced}"
            " rounds and {our_weighted.moves} moves; in the original's form {weighted.moves} moves lead nowhere.",
            lambda v: (
                v.transfer.imbalance > v.our_weighted.imbalance
                and v.our_weighted.balanced is not None
                and v.weighted.balanced is None
                and v.weighted.moves > 2 * v.our_weighted.moves
            ),
        ),
    ),
    "A broker is lost and comes back": (
        Claim(
            "Its bundles found owners within the round. When it is back it is the new broker of above:"
            " UniformLoadShedder ({uniform.balanced} rounds) and AvgShedder ({average.balanced}) fill it,"
            " ThresholdShedder and OverloadShedder do not.",
            lambda v: (
                v.threshold.balanced is None
                and v.overload.balanced is None
                and sooner(v.uniform, v.average)
                and v.average.balanced is not None
            ),
        ),
    ),
    "Mixed machines": (
        Claim(
            "ThresholdShedder looks at usage and levels it in {threshold.balanced} rounds; {threshold.imbalance:.0f}"
            " points are left, {our_threshold.imbalance:.0f} under Trimtab.",
            lambda v: (
                v.threshold.balanced is not None
                and v.our_threshold.balanced is not None
                and v.our_threshold.imbalance < v.threshold.imbalance
            ),
        ),
        Claim(
            "UniformLoadShedder sees brokers that are alike in traffic and moves {uniform.moves} bundles, as the"
            " proposal says. But AvgShedder, which was made for this, does little better: it pairs brokers by usage and"
            " then asks for a difference in *traffic*, which is small or the other way round ({average.moves} moves,"
            " {average.imbalance:.0f} points left).",
            lambda v: v.uniform.moves == 0 and v.average.balanced is None and v.average.imbalance > 40,  # noqa: PLR2004 - most of it
        ),
        Claim(
            "WeightedBalancer learns what each machine can carry: {our_weighted.balanced} rounds, {our_weighted.moves}"
            " moves, {our_weighted.imbalance:.0f} points left.",
            lambda v: v.our_weighted.balanced is not None and not v.our_weighted.backward,
        ),
    ),
    "A shared machine": (
        Claim(
            "UniformLoadShedder moves {uniform.backward} bundles to the machine that is at 70 %, because its broker has"
            " no traffic: the worst answer. Under Trimtab it moves {our_uniform.moves}, as each would end on a broker"
            " that is busier than the one it leaves.",
            lambda v: v.uniform.backward > 0 and v.our_uniform.backward == 0,
        ),
        Claim(
            "ThresholdShedder does nothing, as the shared machine lifts the average; AvgShedder neither, as its pair is"
            " the idle broker and the shared one, which has nothing to give.",
            lambda v: v.threshold.moves == v.average.moves == 0,
        ),
        Claim(
            "The corrected WeightedBalancer lowers that machine's target bit by bit: {our_weighted.imbalance:.0f}"
            " points are left under Trimtab after an hour.",
            lambda v: v.our_weighted.imbalance < v.weighted.imbalance,
        ),
    ),
    "Foreign load arrives": (
        Claim(
            "ThresholdShedder makes {threshold.moves} moves away from that machine and is balanced after"
            " {threshold.balanced} rounds, late, as its smoothed usage rises slowly.",
            lambda v: v.threshold.balanced is not None and v.threshold.balanced > 5 and not v.threshold.backward,  # noqa: PLR2004 - late
        ),
        Claim(
            "UniformLoadShedder is blind to it. AvgShedder sees it and can do little ({average.moves} moves), as that"
            " broker's traffic is that of the others; OverloadShedder sheds only what is above 85 %.",
            lambda v: v.uniform.moves == 0 and v.average.balanced is None and v.overload.balanced is None,
        ),
        Claim(
            "WeightedBalancer lowers that broker's target: {our_weighted.balanced} rounds, {our_weighted.moves} moves.",
            lambda v: v.our_weighted.balanced is not None and v.our_weighted.moves > v.threshold.moves,
        ),
    ),
    "Load jitter": (
        Claim(
            "Smoothing (ThresholdShedder, {threshold.moves} moves) and counting (AvgShedder, {average.moves}) help."
            " UniformLoadShedder and OverloadShedder fall for the bursts, with {uniform.moves} and {overload.moves}.",
            lambda v: max(v.threshold.moves, v.average.moves) < min(v.uniform.moves, v.overload.moves),
        ),
        Claim(
            "TransferShedder makes {transfer.moves}. WeightedBalancer averages noise away, but not all of it:"
            " {our_weighted.moves} moves; in the original's form {weighted.moves}.",
            lambda v: v.transfer.moves < v.our_weighted.moves < v.weighted.moves / 5,
        ),
    ),
}
"""The sentences by the scenario's title, in the order of the page."""
