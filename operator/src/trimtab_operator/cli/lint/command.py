"""`trimtab lint`: checks manifests before they are merged, without a cluster."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from trimtab_operator.cli.common import FINDING, FINE, CommandError, add_output_option, add_verb, print_data
from trimtab_operator.cli.lint.files import (
    Document,
    Finding,
    Found,
    Level,
    UnreadableError,
    documents,
    manifest_files,
    spelt,
)
from trimtab_operator.cli.lint.object_rules import LintedObject, object_findings
from trimtab_operator.cli.lint.rules import LintContext, LintedPolicy, policy_findings
from trimtab_operator.cli.lint.schema import as_stored, refusals
from trimtab_operator.cli.tables import console
from trimtab_operator.cli.url_option import add_url_option, allowed_urls
from trimtab_operator.resources.common import GROUP
from trimtab_operator.resources.policy import BalancingPolicySpec
from trimtab_strategies.model import counted
from trimtab_strategies.params import seconds

_DESCRIPTION = """\
Check manifests of trimtab.dev without a cluster, for example in a pull request. The check finds everything that the API
server would refuse: wrong types, values out of bounds, unknown keys, fields that contradict each other. It also finds
risky settings that the API server accepts: policies that select the same brokers, Auto without limits, an interval
below the scrape interval, a Prometheus that the operator may not query, and others. Each finding names its rule, the
value, the bound and the fix.

FILE may be a folder (all .yaml, .yml and .json in it), or - for standard input. Documents of other kinds are ignored.
Levels: error (would be refused), warning (risky), notice (good to know). Exit code 1: an error, or with
--fail-on warning also a warning; 2: wrong usage, or a missing file. The annotation
trimtab.dev/lint-ignore: "rule, rule" on an object silences these rules for it.

examples:
  trimtab lint policies/
  kustomize build overlays/prod | trimtab lint -
  trimtab lint --output github --scrape-interval 30s --allow-url https://mimir.example.com policies/
"""


@dataclass(slots=True)
class Checking:
    """The state of a check: the objects so far, and the findings."""

    context: LintContext
    findings: list[Finding] = field(default_factory=list)
    objects: list[LintedObject] = field(default_factory=list)
    count: int = 0
    others: int = 0

    def file(self, name: str) -> None:
        """Check the documents of a file. Raises `CommandError`."""
        try:
            for document in documents(name):
                self._document(document)
        except UnreadableError as error:
            self.findings.append(Finding(Level.ERROR, "yaml", name, error.line, "", "", str(error)))

    def end(self) -> list[Finding]:
        """All findings by file and line, without those that an object silences."""
        found = [*self.findings, *object_findings(self.objects)]
        return sorted((f for f in found if not f.silenced), key=lambda f: (f.file, f.line, f.rule))

    def _document(self, document: Document) -> None:
        data = document.data
        if not isinstance(data, dict) or not str(data.get("apiVersion", "")).startswith(f"{GROUP}/"):
            self.others += 1
            return
        self.count += 1
        subject = _subject(data)
        wrong = [
            *(Found(Level.ERROR, "twice", at, f"{spelt(at)} is given twice: leave one out") for at in document.twice),
            *refusals(data),
        ]
        if not wrong:
            self.objects.append(LintedObject(document, subject))
            wrong += _advised(data, self.context)
        self.findings += [Finding.of(document, subject, found) for found in wrong]


def _register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_verb(subparsers, "lint", _DESCRIPTION, _run)
    parser.add_argument("files", nargs="+", metavar="FILE", help="files or folders to check; - for standard input")
    add_output_option(parser, shapes=("table", "json", "yaml", "github"))
    parser.add_argument(
        "--fail-on", choices=("warning", "error"), default="error", help="lowest level with exit code 1 (%(default)s)"
    )
    parser.add_argument(
        "--scrape-interval", default="15s", metavar="TIME", help="scrape interval of the brokers' metrics (%(default)s)"
    )
    add_url_option(parser, "URLs that the operator allows policies to use")


def _run(arguments: argparse.Namespace) -> int:
    checking = Checking(_context(arguments))
    files = manifest_files(arguments.files)
    for name in files:
        checking.file(name)
    found = checking.end()
    if not found and not checking.count:
        raise CommandError(f"there is no object of {GROUP} in {', '.join(arguments.files)}")
    _SHOW[arguments.output](found, arguments)
    said = f"{counted(checking.count, 'object')} in {counted(len(files), 'file')}: {_summary(found)}"
    others = f"; {counted(checking.others, 'document')} of other kinds ignored" if checking.others else ""
    print(said + others, file=sys.stderr)
    fatal = {Level.ERROR} if arguments.fail_on == "error" else {Level.ERROR, Level.WARNING}
    return FINDING if any(finding.level in fatal for finding in found) else FINE


def _context(arguments: argparse.Namespace) -> LintContext:
    try:
        scrape = seconds(arguments.scrape_interval)
    except ValueError as error:
        raise CommandError(f"--scrape-interval: {error}") from error
    return LintContext(allowed_urls(arguments), scrape, time.time())


def _advised(data: dict[str, Any], context: LintContext) -> Iterator[Found]:
    if data["kind"] != "BalancingPolicy":
        return
    raw = as_stored(data["spec"])
    spec = BalancingPolicySpec.model_validate_json(json.dumps(raw))
    yield from policy_findings(LintedPolicy(spec, raw, data["metadata"].get("namespace") or "", context))


def _subject(data: dict[str, Any]) -> str:
    meta = data.get("metadata")
    name = meta.get("name", "") if isinstance(meta, dict) else ""
    return f"{data.get('kind', '')}/{name}"


def _summary(found: Sequence[Finding]) -> str:
    counts = [(level, sum(finding.level is level for finding in found)) for level in Level]
    return ", ".join(counted(count, str(level)) for level, count in counts if count) or "nothing found"


_STYLES = {Level.ERROR: "red", Level.WARNING: "yellow", Level.NOTICE: "dim"}


def _lines(found: Sequence[Finding], arguments: argparse.Namespace) -> None:
    """Print a line for each finding, in the format of compilers, for editors. Lines are not folded, for grep."""
    screen = console(arguments.color)
    for f in found:
        subject = f": {f.subject}: " if f.subject else ": "
        head = Text.assemble(f"{f.file}:{f.line}: ", (str(f.level), _STYLES[f.level]), subject)
        field_ = f"{f.field} " if f.field and not f.text.startswith(f.field) else ""
        screen.print(head + Text(f"{field_}{f.text} [{f.rule}]"), soft_wrap=True)


def _github(found: Sequence[Finding], _arguments: argparse.Namespace) -> None:
    """Print workflow commands, which GitHub shows next to the line."""
    for f in found:
        head = f"::{f.level} file={_property(f.file)},line={f.line},title={_property(f'trimtab {f.rule}')}::"
        subject = f"{f.subject}: " if f.subject else ""
        print(head + _escaped(f"{subject}{f.field} {f.text}".replace("  ", " ").strip()))


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def _data(found: Sequence[Finding], arguments: argparse.Namespace) -> None:
    print_data([finding.as_data() for finding in found], arguments.output)


_SHOW = {"table": _lines, "github": _github, "json": _data, "yaml": _data}
