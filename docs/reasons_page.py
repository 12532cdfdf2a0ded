"""The reference of reasons, from the vocabulary's own source, and of conditions."""  # noqa: INP001 - a part of a script

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from trimtab_operator.resources.conditions import CONDITIONS, REASONS
from trimtab_strategies.model import reason

_HEAD = """\
# Reasons and conditions

<!-- made by docs/generate.py from trimtab_strategies/model/reason.py and
     trimtab_operator/resources/conditions.py: `make docs` -->

One closed vocabulary is used unchanged in conditions, Events, logs, labels of metrics, `trimtab explain` and the
history. Pulsar's words are kept where it has one. [How it works](../concepts.md#reasons) says which you meet first.
"""

_GROUP = re.compile(r"^    # (.+)$")
_MEMBER = re.compile(r'^    [A-Z_]+ = "(\w+)"  # (.+)$')


def page() -> str:
    """The whole page."""
    rows = [f"| {row.kind} | `{row.type}` | {row.true} | {row.false} |" for row in CONDITIONS]
    head = [_HEAD, "## Conditions\n", "| of a | condition | True | False |", "|---|---|---|---|", *rows, ""]
    wait = ["They are made for `kubectl wait`:\n", *_WAIT, "## Reasons\n"]
    return "\n".join([*head, *wait, *_reasons(), *_of_conditions(), ""])


_WAIT = (
    "```sh",
    "kubectl wait bpol/balance --for=condition=Ready --timeout=2m",
    "```\n",
)


def _of_conditions() -> Iterator[str]:
    """The reasons that only conditions have."""
    yield "\n### Only in conditions\n\n| reason | what it means |\n|---|---|"
    for word, meaning in REASONS.items():
        of = ", ".join(dict.fromkeys(f"`{row.type}`" for row in CONDITIONS if word in row.reasons))
        yield f"| `{word}` | of {of}: {meaning} |"


def _reasons() -> Iterator[str]:
    """A table for each group of the vocabulary."""
    for line in inspect.getsource(reason.Reason).splitlines():
        if group := _GROUP.match(line):
            yield f"\n### {group[1][0].upper()}{group[1][1:]}\n\n| reason | what it means |\n|---|---|"
        elif member := _MEMBER.match(line):
            yield f"| `{member[1]}` | {member[2]} |"
