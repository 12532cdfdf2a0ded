"""The reference of reasons, from the vocabulary's own source, and of conditions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from trimtab_strategies.model import reason

_HEAD = """\
# Reasons and conditions

<!-- made by docs/tools/reasons_page.py from trimtab_strategies/model/reason.py: `make docs` -->

One closed vocabulary is used unchanged in conditions, Events, logs, labels of metrics, `trimtab explain` and the
history. Pulsar's words are kept where it has one. [How it works](../concepts.md#reasons) says which you meet first.
"""

CONDITIONS = (
    ("BalancingPolicy", "Ready", "the last cycle could be run", "it was refused; reason and message say why"),
    ("BalancingPolicy", "Valid", "it can be run as written", "something in it can't be kept to; nothing is decided"),
    (
        "BalancingPolicy",
        "DataTrusted",
        "every broker's metrics are believed",
        "some are not: those brokers neither give nor take",
    ),
    ("BalancingPolicy", "Balanced", "no broker is far enough from the others", "something should move, or can't"),
    ("BalancingPolicy", "Acting", "plans are carried out", "they are only shown: mode, pause, window, brake"),
    ("BalancingPolicy", "Led", "an operator leads; it names it and its epoch", "-"),
    ("BalancingPolicy", "ProposalReady", "mode `Approve`: a proposal waits for a person", "none waits"),
    ("BalancingPolicy", "Rebalancing", "an approved proposal is carried out", "none is under way"),
    (
        "BalancingPolicy",
        "CommandTaken",
        "the last annotation, within the hour, was obeyed",
        "it was refused; the message says why",
    ),
    ("BalancingPolicy", "RightSized", "the number of brokers fits the load", "more or fewer would fit it better"),
    ("BalancingPolicy", "HistoryWritable", "the last cycle is in the history", "it is not; averages go on in memory"),
    ("BalancingPolicy", "Flapping", "bundles that came back again and again are left alone", "none is"),
    ("BalancingPolicy", "Contested", "somebody else undoes its moves: it only advises", "nobody does"),
    ("BalancingPolicy", "Linked", "actuator `Pulsar`: the cluster answers", "it does not; nothing is moved"),
    (
        "BalancingPolicy",
        "OneHand",
        "actuator `Pulsar`: its own shedding and automatic split are off",
        "one is on, or could not be read; nothing is moved",
    ),
    (
        "Broker",
        "Drained",
        "closed, and owns nothing any more",
        "it still has bundles; the message says why",
    ),
    ("BundleSplit", "Accepted", "it can be done", "it can't: a person's mistake, or a cap"),
    ("BundleSplit", "Complete", "its children have taken the bundle's place", "it failed; the bundle is whole"),
    ("TopicNamespace", "Ready", "all of its bundles exist", "they do not, or Pulsar no longer has it"),
    ("TopicNamespace", "Valid", "its isolation can be kept to", "it can't, until it is mended"),
)
"""Kind, type, and what True and False mean."""

_GROUP = re.compile(r"^    # (.+)$")
_MEMBER = re.compile(r'^    [A-Z_]+ = "(\w+)"  # (.+)$')


def page() -> str:
    """The whole page."""
    conditions = [f"| {kind} | `{name}` | {true} | {false} |" for kind, name, true, false in CONDITIONS]
    head = [_HEAD, "## Conditions\n", "| of a | condition | True | False |", "|---|---|---|---|", *conditions, ""]
    wait = ["They are made for `kubectl wait`:\n", *_WAIT, "## Reasons\n"]
    return "\n".join([*head, *wait, *_reasons(), ""])


_WAIT = (
    "```sh",
    "kubectl wait bpol/balance --for=condition=Ready --timeout=2m",
    "```\n",
)


def _reasons() -> Iterator[str]:
    """A table for each group of the vocabulary."""
    for line in inspect.getsource(reason.Reason).splitlines():
        if group := _GROUP.match(line):
            yield f"\n### {group[1][0].upper()}{group[1][1:]}\n\n| reason | what it means |\n|---|---|"
        elif member := _MEMBER.match(line):
            yield f"| `{member[1]}` | {member[2]} |"
