"""Output of `trimtab status`: policies as data or in one table, or all details of one policy."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from trimtab_operator.cli.commands.proposal import progress_text
from trimtab_operator.cli.common import spoken
from trimtab_operator.cli.tables import Grid, console, print_grid
from trimtab_operator.proposals.model import Cost
from trimtab_operator.resources.budget import BudgetStatus
from trimtab_operator.resources.policy_status import PAUSE_ANNOTATION, PredictionScore, ProposalState
from trimtab_strategies.model import counted

Data = Mapping[str, Any]

_MARGIN = 23
"""Characters before the message of a condition."""

_KEPT = (
    "observedGeneration",
    "conditions",
    "lastCycle",
    "inFlight",
    "proposal",
    "progress",
    "predictions",
    "budget",
)

_ALWAYS = ("Ready", "Valid", "DataTrusted", "Balanced", "Acting", "Led", "CommandTaken")
"""Conditions that are shown whenever the policy has them, in this order."""
_TROUBLE = {"CompetingBalancer": "True", "RightSized": "False", "HistoryWritable": "False"}
"""Conditions that are shown when they have this status."""
_PULSAR = {"Linked": "Pulsar: linked", "PulsarBalancerDisabled": "Pulsar's own balancer: off"}
"""Conditions of a policy with a Pulsar cluster, and what is shown when they are True."""


def as_data(policy: Data, left_alone: str = "") -> dict[str, Any]:
    """A BalancingPolicy object as plain data: its name, its mode, whether it is paused, and its status.

    left_alone: why no operator manages it, empty while one does.
    """
    spec, status = policy["spec"], policy.get("status") or {}
    annotations = policy["metadata"].get("annotations") or {}
    return {
        "policy": policy["metadata"]["name"],
        "namespace": policy["metadata"].get("namespace", ""),
        "mode": spec.get("mode", "DryRun"),
        "shedder": (spec.get("shedder") or {}).get("type", ""),
        "placement": (spec.get("placement") or {}).get("type", ""),
        "paused": bool(spec.get("paused")) or annotations.get(PAUSE_ANNOTATION) == "true",
        "leftAlone": left_alone,
        "generation": policy["metadata"].get("generation"),
        **{key: status.get(key) for key in _KEPT},
    }


def edited(data: Data) -> str:
    """A note if the status is older than the last edit of the policy; empty if not, or if there is no status."""
    seen, generation = data["observedGeneration"] or 0, data["generation"] or 0
    known = not seen or seen >= generation or data["leftAlone"]  # the text of leftAlone names the generations
    return "" if known else f"edited: its status is of generation {seen}, before the edit (now {generation})"


def condition(data: Data, kind: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition; empty if it is absent."""
    found = next((c for c in data["conditions"] or () if c["type"] == kind), None)
    return (found["status"], found["reason"], found.get("message", "")) if found else ("", "", "")


def print_all(policies: Sequence[Data], namespace: str, color: str = "auto", *, wide: bool = False) -> None:
    """Print one row for each policy. namespace: empty for all. wide: also strategies and CPU."""
    screen = console(color)
    if not policies:
        where = f"in namespace {namespace}; -A shows all namespaces" if namespace else "in this cluster"
        screen.print(Text(f"there is no BalancingPolicy {where}"), soft_wrap=True)
        return
    print_grid(screen, policy_grid(policies, everywhere=not namespace, wide=wide))
    for text in unready(policies, everywhere=not namespace):
        screen.print(text, soft_wrap=True)


def unready(policies: Iterable[Data], *, everywhere: bool) -> Iterator[Text]:
    """A line for each policy that is not Ready, that no operator manages, or whose status is of an older generation.

    Also one for each approved proposal whose moves wait.

    everywhere: also its namespace.
    """
    for data in policies:
        status, reason, message = condition(data, "Ready")
        name = f"{data['namespace']}/{data['policy']}" if everywhere else data["policy"]
        if data["leftAlone"]:
            yield Text(f"{name}: {spoken(data['leftAlone'])}", style="red")
        elif status == "False":
            yield Text(f"{name}: {reason}: {spoken(message)}", style="red")
        for told in filter(None, (edited(data), (data["progress"] or {}).get("waits"))):
            yield Text(f"{name}: {told}", style="yellow")


def policy_grid(policies: Sequence[Data], *, everywhere: bool = False, wide: bool = False) -> Grid:
    """The table of `print_all`. everywhere: also the namespaces."""
    names: tuple[str, ...] = ("Policy", "Mode", "Ready", "Outcome", "Proposal", "Id", "Progress")
    names = (*(("Namespace",) if everywhere else ()), *names, *(("Shedder", "Placement", "CPU") if wide else ()))
    numbers = ("Moves", "In flight")
    rows = [_row(policy, everywhere=everywhere, wide=wide) for policy in policies]
    spare = ("Id", "Progress", "CPU", "Placement", "Shedder") if wide else ("Progress", "Id")
    grid = Grid("", (*names, *numbers), rows, numbers, spare)
    return grid.without_empty("Proposal", "Id", "Progress")


def _row(data: Data, *, everywhere: bool, wide: bool) -> tuple[str | Text, ...]:
    proposal, progress = data["proposal"] or {}, data["progress"] or {}
    mode = f"{data['mode']} (paused)" if data["paused"] else data["mode"]
    outcome, state = (data["lastCycle"] or {}).get("outcome", ""), proposal.get("state") or ""
    percent = f"{progress['percent']} %" if progress else ""
    words = (data["policy"], mode, _ready(data), outcome, state, proposal.get("id") or "", percent)
    cpu = (data["lastCycle"] or {}).get("cpu")
    more = (data["shedder"], data["placement"], _range(cpu) if cpu else "-") if wide else ()
    figures = (str(proposal.get("total", 0)), str(data["inFlight"] or 0))
    return (*((data["namespace"],) if everywhere else ()), *words, *more, *figures)


def ready(data: Data) -> str:
    """Status of the condition `Ready`; ``Unknown`` if there is none, or if no operator manages the policy."""
    status = "" if data["leftAlone"] else condition(data, "Ready")[0]
    return status or "Unknown"


def _ready(data: Data) -> Text:
    status = ready(data)
    return Text(status, style=_STYLES.get(status, ""))


_STYLES = {"True": "green", "False": "red", "Unknown": "yellow"}


def print_one(data: Data, color: str = "auto") -> None:
    """Print a policy's conditions, its proposal, and the progress of an approved one."""
    screen = console(color)
    paused = ", paused" if data["paused"] else ""
    screen.print(Text(f"{data['policy']}: mode {data['mode']}{paused}", style="bold"))
    _print_conditions(screen, data)
    if predictions := data["predictions"]:
        for line in _lines(screen, f"Predictions: {PredictionScore.model_validate(predictions).text}", 2):
            screen.print(Text(f"  {line}"))
    if budget := data["budget"]:
        print_budget(screen, BudgetStatus.model_validate(budget))
    if proposal := data["proposal"]:
        _print_proposal(screen, proposal)
    if progress := data["progress"]:
        _print_progress(screen, progress)


def _print_conditions(screen: Console, data: Data) -> None:
    """Print the conditions, and before them whether they are out of date."""
    if left := data["leftAlone"]:
        _print_condition(screen, "Operator", Text(f"{'none':<7}", "red"), f"{spoken(left)}; the rest is out of date")
    if told := edited(data):
        screen.print(Text(f"  {told}", style="yellow"))
    for kind in (*_ALWAYS, *_TROUBLE):
        status, reason, message = condition(data, kind)
        if status and _TROUBLE.get(kind, status) == status:
            style = _STYLES.get(status, "") if kind == "Ready" else "yellow" if kind in _TROUBLE else ""
            _print_condition(screen, kind, Text(f"{status:<7}", style), f"{reason}: {spoken(message)}")
    _print_pulsar(screen, data)


def _print_pulsar(screen: Console, data: Data) -> None:
    """Print whether the operator is linked to Pulsar, and whether Pulsar's own balancer is off, if these are known."""
    for kind, good in _PULSAR.items():
        status, reason, message = condition(data, kind)
        if status == "True":
            screen.print(Text(f"  {good}"))
        elif status:
            for line in _lines(screen, f"{kind} {status}: {reason}: {spoken(message)}", 2):
                screen.print(Text(f"  {line}", "yellow"))


def _print_progress(screen: Console, progress: Data) -> None:
    """Print the progress of an approved proposal, what it waits for, and which moves failed."""
    by = f", approved by {progress['approvedBy']}," if progress.get("approvedBy") else ""
    screen.print(Text(f"\nProposal {progress['proposal']}{by} is at {progress_text(progress)}"))
    for line in _lines(screen, progress["waits"], 2) if progress.get("waits") else ():
        screen.print(Text(f"  {line}"))
    if failures := progress.get("failures"):
        rows = [tuple(str(f.get(key, "")) for key in ("bundle", "destination", "reason", "detail")) for f in failures]
        print_grid(screen, Grid("Failed", ("Bundle", "Destination", "Reason", "Detail"), rows))


def print_budget(screen: Console, budget: BudgetStatus) -> None:
    """Print what is spent and left of each limit, and when some of it is free again."""
    rows = [
        (use.limit, use.subject, f"{use.bound:g}", f"{use.spent:g}", f"{use.left:g}", use.frees_at or "")
        for use in budget.limits
    ]
    if rows:
        columns = ("Budget", "Of", "Bound", "Spent", "Left", "Frees at")
        print_grid(screen, Grid("", columns, rows, columns[2:5], spare=("Of",)))
    if budget.overridden:
        text = f"{counted(budget.overridden, 'move')} beyond the budget in the last hour: drains, lost brokers, users"
        screen.print(Text(f"  {text}"))


def _print_condition(screen: Console, kind: str, status: Text, text: str) -> None:
    """Print one condition. A long message continues on the next lines, indented."""
    first, *rest = _lines(screen, text, _MARGIN)
    screen.print(Text.assemble(f"  {kind:<12} ", status, f" {first}"))
    for line in rest:
        screen.print(Text(" " * _MARGIN + line))


def _lines(screen: Console, text: str, margin: int) -> list[str]:
    """`text` wrapped and indented. Names and commands are not broken."""
    return textwrap.wrap(text, max(40, screen.width - margin), break_long_words=False, break_on_hyphens=False) or [""]


_STATES: Mapping[str, str] = {
    ProposalState.PROPOSAL_READY: "waits for approval",
    ProposalState.REBALANCING: "is carried out",
    ProposalState.READY: "all moves have landed",
    ProposalState.NOT_READY: "some moves failed",
    ProposalState.STOPPED: "no move is written until refresh",
}
"""What the states of proposals mean, beside their names."""


def _print_proposal(screen: Console, proposal: Data) -> None:
    state, id_, message = proposal.get("state"), proposal.get("id"), proposal.get("message") or ""
    nothing = not (state or proposal.get("total") or proposal.get("totalSplits"))
    known = _STATES.get(state or "", "")
    about = "none, nothing would move" if nothing else " ".join(filter(None, (state, id_, known and f"({known})")))
    screen.print(Text(f"\nProposal{f': {about}' if about else ''}"))
    cost = "" if nothing or "interrupts" in message else _interrupts(proposal.get("cost"))
    for text in filter(None, (message, cost)):
        for line in _lines(screen, spoken(text), 2):
            screen.print(Text(f"  {line}"))
    if ranges := proposal.get("ranges"):
        columns = ("Now",) if nothing else ("Before", "After")
        ends = [(r["resource"], *(_range(r[end]) for end in ("before", "after")[: len(columns)])) for r in ranges]
        print_grid(screen, Grid("Lowest and highest broker", ("Resource", *columns), ends, columns))
    if moves := proposal.get("moves"):
        total = proposal["total"]
        title = f"Moves ({total})" if total == len(moves) else f"Moves (the first {len(moves)} of {total})"
        rows = [(m["bundle"], m["source"] or "(no owner)", m["destination"], m["reason"]) for m in moves]
        print_grid(screen, Grid(title, ("Bundle", "Source", "Destination", "Reason"), rows, spare=("Reason",)))
    if splits := proposal.get("splits"):
        cuts = [(s["bundle"], " ".join(s.get("boundaries") or ()), s["reason"]) for s in splits]
        print_grid(screen, Grid(f"Splits ({proposal['totalSplits']})", ("Bundle", "At", "Reason"), cuts))


def _interrupts(cost: Data | None) -> str:
    if not cost:
        return ""
    unknown = f"; unknown for {cost['unknown']} of its bundles" if cost.get("unknown") else ""
    took = Cost(0, 0, **{name: cost[name] for name in ("seconds", "worst", "unmeasured") if name in cost}).duration
    return f"interrupts {cost['connections']} connections and {cost['topics']} topics{unknown}{took}"


def _range(ends: Data) -> str:
    return f"{ends['lowest']:.1f} to {ends['highest']:.1f} %"
