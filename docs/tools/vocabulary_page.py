"""The pages of reasons and conditions, and of the states of a proposal."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from page_text import filled, table

from trimtab_operator.proposals.states import COMMANDS, REFUSALS, TRANSITIONS, Event
from trimtab_operator.resources.policy_status import ProposalState
from trimtab_strategies.model import Reason

_GROUP = re.compile(r"^    # (.+)$")
_MEMBER = re.compile(r'^    [A-Z_]+ = "(\w+)"  # (.+)$')


def reasons() -> str:
    """docs/reference/reasons.md: tables of the vocabulary by group. The meanings are the comments in its source."""
    return filled("reference/reasons.md", REASONS="\n".join(_reasons()))


def _reasons() -> Iterator[str]:
    for line in inspect.getsource(Reason).splitlines():
        if group := _GROUP.match(line):
            yield f"\n### {group[1][0].upper()}{group[1][1:]}\n\n| reason | what it means |\n|---|---|"
        elif member := _MEMBER.match(line):
            yield f"| `{member[1]}` | {member[2]} |"


def proposals() -> str:
    """docs/proposals.md: a drawing of the states of a proposal, and a table of the commands."""
    head = f"in state | {' | '.join(f'`{word}`' for word in COMMANDS)}"
    rows = [[f"`{state}`", *(_cell(state, event) for event in COMMANDS.values())] for state in ProposalState]
    return filled("proposals.md", DRAWING="\n".join(_drawing()), COMMANDS=table(head, rows))


def _drawing() -> Iterator[str]:
    """The transitions as a Mermaid state diagram."""
    yield f"```mermaid\nstateDiagram-v2\n    [*] --> {ProposalState.PENDING_PROPOSAL}"
    for state, ways in TRANSITIONS.items():
        for end in dict.fromkeys(ways.values()):
            if end is not state:
                yield f"    {state} --> {end}: {', '.join(event for event, to in ways.items() if to is end)}"
    yield "```"


def _cell(state: ProposalState, event: Event) -> str:
    """State after a command, or why the command is refused."""
    if (end := TRANSITIONS[state].get(event)) is not None:
        return f"`{end}`" if end is not state else f"stays `{end}`"
    return f"refused: {REFUSALS[state][event]}"
