"""The text of docs/metrics.md: every metric of the operator, as the code registers it."""

from __future__ import annotations

from trimtab_operator.telemetry.metrics import Described, Metrics

_HEAD = """\
# Metrics
`trimtab run` serves these at `/metrics` (`--http-host`, `--http-port`), beside `/healthz` and `/readyz`. None has a
label per bundle: at 60,000 bundles that would cost more than the operator itself. A `reason` or `outcome` is a word of
the closed vocabulary that conditions, Events and logs use, too.

| metric | type | labels | what it is |
|---|---|---|---|
"""


def page() -> str:
    """The page, made from the registered metrics."""
    return _HEAD + "\n".join(map(_row, sorted(Metrics().described))) + "\n"


def _row(metric: Described) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    return f"| `{metric.name}` | {metric.type} | {labels} | {metric.text} |"
