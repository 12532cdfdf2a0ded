"""The page on proposals: how people use them, and the drawing and tables of their states, made from the code's own."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab_operator.proposals.states import COMMANDS, MEANINGS, REFUSALS, TRANSITIONS, Event
from trimtab_operator.resources.policy_status import ProposalState

USE = """\
# Proposals

<!-- made by docs/tools/proposals_page.py, drawing and tables from the code: `make docs` -->

A policy of `mode: Approve` balances nothing by itself. When a cycle plans something it *offers* that as a proposal. A
person approves it, and exactly what was shown is carried out.

```console
$ trimtab status main -n messaging                                  # what is proposed, before and after, what it costs
$ trimtab approve main -n messaging --proposal 3f9c01d2 --wait      # carry out that one, and wait for it
```

The same with kubectl, and how a script waits for it:

```console
$ kubectl wait bpol/main --for=condition=ProposalReady
$ kubectl get bpol main -o jsonpath='{.status.proposal}'
$ kubectl annotate bpol main trimtab.dev/rebalance=approve trimtab.dev/proposal=3f9c01d2
$ kubectl wait bpol/main --for=condition=Rebalancing=false --timeout=1h
```

## What a proposal shows
`status.proposal` has the first 50 moves and splits, and how many there are in all. The ConfigMap
`trimtab-proposal-<policy>`, which the policy owns, has the whole proposal (long names are shortened with a hash).

| field | says |
|---|---|
| `id` | eight digits for this proposal alone: made from the policy's text, the measurement's time, the moves |
| `madeAt`, `expiresAt` | when the load was measured; `spec.approval.expiresAfter` (15m) later it can't be approved |
| `ranges`, `cpuBefore`, `cpuAfter` | the least and the most used broker of each resource, measured and predicted |
| `brokers` | CPU of the 50 brokers that change most |
| `cost` | producers and consumers that reconnect, topics interrupted, and bundles of which that is unknown |
| `message` | what to do next |

In mode `DryRun` the same is shown anew after each cycle, without `state`, `id` and `expiresAt`: it does not wait, and
can't be approved. In mode `Auto` it is what the cycle did.

## States
"""

RULES = """\
`kubectl get bpol` shows the state. The conditions `ProposalReady` and `Rebalancing` have the state as their reason.
The condition `CommandTaken` says what became of the last annotation, or why it was refused; a refusal stays for
an hour. The annotation is removed
once it was taken. Each state is an Event, and so is each refusal. The same command given twice does nothing more.

## Rules
- **What is shown stays.** While a proposal waits, cycles measure and report, and leave it as it is.
- **It is withdrawn** when it expires, when somebody edits the policy's spec, or when one of its brokers is gone or not
  ready, or a broker that would receive has `schedulable: false`. The next cycle offers what is right then.
- **The id counts.** An approval with the annotation `trimtab.dev/proposal` is for that proposal alone. It is refused,
  with both ids, when another one waits. `trimtab approve` always sends the id. Without it the proposal that waits is
  meant.
- **Each move is validated again when it is written.** What has changed for one bundle costs that move alone, with its
  reason: `Conflict` (on another broker by now, or deleted), `InFlight`, `Pinned`, `Splitting`, `Quarantined`,
  `Excluded` (`balanced: false`), `Isolation`, `UnknownBroker`, `NotReady`, `Unschedulable`, `Untrusted` (its
  destination), `TwoHands`, `HourCap`, and `MassFailure` when the brake takes hold. What can't be done at its turn is
  not done later: the plan would rest on a load that is gone. A bundle that is already on its destination counts as
  landed.
- **`limits.maxMovesInFlight`** (10) moves are open at once. The next is written when one has landed. Splits are asked
  for first. They count as landed once their BundleSplit objects exist, which report the rest.
- **`status.progress`** says how many have landed, failed and are in flight, the percentage, and the time left at the
  pace so far. It stays after the end. The first 20 failures are listed; each is an Event.
- **`stop`** writes nothing more. Open moves land or are withdrawn after `limits.moveTimeout`, so that every bundle is
  whole. `status.progress.finishedAt` says when that is so.
- **`paused`** writes no further move until you resume, and no approval is possible meanwhile.
- **`spec.windows`** bind mode Auto alone. A person who approves decides when, and the moves begin at once.
- **An edit in the middle of an execution** does not end it: what was approved stays approved, within the limits as
  they are now. Only another `mode` ends it, as `stop` would. A proposal that waits is then dropped, and `approve` is
  refused.
- **The operator may die** at any moment. State, proposal and progress are in the ConfigMap. A move that was written but
  not recorded is seen on the bundle and not written twice.

By hand: `trimtab move BUNDLE BROKER`, `trimtab drain BROKER`, `trimtab split BUNDLE`, `trimtab pause POLICY` and
`trimtab resume POLICY`. `trimtab VERB --help` explains each.
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
