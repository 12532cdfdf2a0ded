"""The page on proposals: how people use them, and the drawing and tables of their states, made from the code's own."""  # noqa: INP001 - a part of a script

from __future__ import annotations

from collections.abc import Iterator

from trimtab_operator.control.proposal_states import COMMANDS, MEANINGS, REFUSALS, TRANSITIONS, Event
from trimtab_operator.resources.proposal import ProposalState

USE = """\
# Proposals

<!-- made by docs/generate.py: drawing and tables from the code, the text in docs/proposals_page.py; `make docs` -->

A policy of `mode: Approve` moves nothing by itself. A cycle that plans something *offers* it as a proposal; a person
approves it, and exactly what was shown is carried out.

```console
$ trimtab status main -n messaging                                  # what is proposed, before and after, what it costs
$ trimtab approve main -n messaging --proposal 3f9c01d2 --wait      # carry out that one, and see it through
```

The same with kubectl, and for whatever waits on it:

```console
$ kubectl wait bpol/main --for=condition=ProposalReady
$ kubectl get bpol main -o jsonpath='{.status.proposal}'
$ kubectl annotate bpol main trimtab.dev/rebalance=approve trimtab.dev/proposal=3f9c01d2
$ kubectl wait bpol/main --for=condition=Rebalancing=false --timeout=1h
```

## What a proposal shows
`status.proposal` has the first 50 moves and splits and how many there are in all; the whole is in the ConfigMap
`trimtab-proposal-<policy>`, which the policy owns (long names are shortened with a hash).

| field | says |
|---|---|
| `id` | eight digits that stand for this proposal alone: the policy's text, the time of the measurement, the moves |
| `madeAt`, `expiresAt` | when the load was measured; `spec.approval.expiresAfter` (15m) later nobody can approve it |
| `ranges`, `cpuBefore`, `cpuAfter` | the least and the most used broker of each resource, measured and predicted |
| `brokers` | CPU of the 50 brokers that change most |
| `cost` | producers and consumers that connect again, topics interrupted, and bundles of which that is unknown |
| `message` | what to do next |

In mode `DryRun` the same is shown anew after each cycle, without `state`, `id` and `expiresAt`: nothing waits, and
nothing can be approved. In mode `Auto` it is what the cycle did.

## States
"""

RULES = """\
`kubectl get bpol` shows the state; the conditions are `ProposalReady` and `Rebalancing`, each with the state as its
reason, and `CommandTaken`: what became of the last annotation, or why it was refused. The annotation is removed once it
was taken. Each state is an Event, and so is each refusal. A command given twice does nothing more.

## Rules
- **What is shown stays.** While a proposal waits, cycles measure and report, and leave it as it is.
- **It is withdrawn** when it expires, when the policy's spec is edited, or when a broker it takes bundles from or gives
  bundles to is gone or not ready, or one it gives bundles to has `schedulable: false`. The next cycle offers what is
  right then.
- **The id counts.** With the annotation `trimtab.dev/proposal` an approval is for that proposal alone, and is refused
  (with both ids) when another one waits. `trimtab approve` always sends it; without it, what waits is meant.
- **Each move is validated again when it is written.** What has changed for one bundle costs that move alone, with its
  reason: `Conflict` (on another broker by now, or deleted), `InFlight`, `Pinned`, `Splitting`, `Quarantined`,
  `Excluded` (`balanced: false`), `Isolation`, `UnknownBroker`, `NotReady`, `Unschedulable`, `Untrusted` (its
  destination), `TwoHands`, `HourCap`, and `MassFailure` when the brake takes hold. What can't be done at its turn is
  not made up for later: the plan would rest on a load that is gone. A bundle that is on its destination already counts
  as landed.
- **`limits.maxMovesInFlight`** (10) moves are open at once; the next is written when one has landed. Splits are asked
  for first, and count as landed once their BundleSplit objects exist, which tell the rest.
- **`status.progress`** tells how many have landed, failed and are in flight, percent, and the time left at the pace so
  far. It stays after the end. Failures are listed (the first 20) and told as Events.
- **`stop`** writes nothing more. Open moves land or are withdrawn after `limits.moveTimeout`, so that every bundle is
  whole; `status.progress.finishedAt` says when that is so.
- **`paused`** holds: no further move is written until it is taken back, and nothing can be approved meanwhile.
- **`spec.windows`** bind mode Auto alone: who approves decides when, and the moves begin at once.
- **An edit in the middle of an execution** does not end it: what was approved was approved, within the limits as they
  are now. Only another `mode` does, as `stop` would; a proposal that waits is dropped, and `approve` is refused.
- **The operator may die** at any moment. State, proposal and progress are in the ConfigMap; what was written and not
  noted is seen on the bundles and not written twice.

By hand: `trimtab move BUNDLE BROKER`, `trimtab drain BROKER`, `trimtab split BUNDLE`, `trimtab pause POLICY` and
`trimtab resume POLICY`; `trimtab VERB --help` explains each.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([USE + drawing(), *states(), "", *commands(), "", RULES])


def drawing() -> str:
    """The transitions as a Mermaid state diagram."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {ProposalState.PENDING_PROPOSAL}"]
    for state, ways in TRANSITIONS.items():
        for end in dict.fromkeys(ways.values()):
            if end is not state:
                words = ", ".join(event for event, to in ways.items() if to is end)
                lines.append(f"    {state} --> {end}: {words}")
    return "\n".join([*lines, "```", ""])


def states() -> Iterator[str]:
    """A row for each state."""
    yield "| state | means |"
    yield "|---|---|"
    for state, meaning in MEANINGS.items():
        yield f"| `{state}` | {meaning} |"


def commands() -> Iterator[str]:
    """What each command does in each state."""
    yield f"| in state | {' | '.join(f'`{word}`' for word in COMMANDS)} |"
    yield f"|---|{'---|' * len(COMMANDS)}"
    for state in ProposalState:
        cells = (cell(state, event) for event in COMMANDS.values())
        yield f"| `{state}` | {' | '.join(cells)} |"


def cell(state: ProposalState, event: Event) -> str:
    """Where a command leads from `state`, or why it is refused there."""
    if (end := TRANSITIONS[state].get(event)) is not None:
        return f"`{end}`" if end is not state else f"stays `{end}`"
    return f"refused: {REFUSALS[state][event]}"
