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

EVENTS = (
    ("BalancingPolicy", "Assigned", "bundles without an owner, or of a lost broker, got owners"),
    ("BalancingPolicy", "Refused", "an annotation is not carried out; the message says why"),
    ("BalancingPolicy", "Released", "a person ended the retreat before a competing balancer: it moves bundles again"),
    ("BalancingPolicy", "SwitchedOff", "Pulsar's own shedding or automatic split was switched off"),
    ("BalancingPolicy", "PulsarBalancerRestored", "Pulsar's own balancer is as it was found"),
    ("Bundle", "InactiveDestination", "its destination is not among the active brokers: it is not unloaded"),
    ("Bundle", "UnloadFailed", "Pulsar did not answer, or refused"),
    ("Bundle", "UnloadUnassigned", "it was released, and no broker took it in time"),
    (
        "Bundle",
        "UnloadReturned",
        "its old owner took it back before it had released it: it was moved to another broker",
    ),
    ("Bundle", "UnloadStale", "Pulsar has no bundle of these boundaries any more"),
    ("Bundle", "UnknownTopicNamespace", "its TopicNamespace does not exist: it gets no owner"),
    ("Lease", "LeaderElected", "an operator leads from now on"),
    ("Lease", "LeaderResigned", "an operator ends leading"),
)
"""Kind and reason of the Events whose reason is none of the vocabulary, and what they say."""

_GROUP = re.compile(r"^    # (.+)$")
_MEMBER = re.compile(r'^    [A-Z_]+ = "(\w+)"  # (.+)$')


def page() -> str:
    """The whole page."""
    rows = [f"| {row.kind} | `{row.type}` | {row.true} | {row.false} |" for row in CONDITIONS]
    head = [_HEAD, "## Conditions\n", "| of a | condition | True | False |", "|---|---|---|---|", *rows, ""]
    events = [f"| {kind} | `{reason}` | {text} |" for kind, reason, text in EVENTS]
    told = [_EVENTS, "| of a | Event | what it says |", "|---|---|---|", *events, ""]
    wait = ["They are made for `kubectl wait`:\n", *_WAIT, "## Reasons\n"]
    return "\n".join([*head, *wait, *_reasons(), *_of_conditions(), *told, ""])


_EVENTS = """
## Events

Most Events have a word of the vocabulary as their reason, or the new state of a proposal or of a split. The others:
"""


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
