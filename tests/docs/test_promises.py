"""What pages, help and the chart promise of a new policy is what it keeps to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEXTS = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.*"),
        *ROOT.glob("charts/**/*.*"),
        *ROOT.glob("crds/*.yaml"),
        *ROOT.glob("operator/src/**/*.py"),
    }
    - {ROOT / "CHANGELOG.md"}
)
TOO_MUCH = re.compile(
    r"nothing\s+moves\s+before\s+you"
    r"|dry[ -]run\s+moves\s+nothing|`?DryRun`?\s+moves\s+nothing|would\s+move\s+and\s+moves\s+nothing"
    r"|acts?\s+on\s+nothing|without\s+`mode`\s+moves\s+nothing|least\s+a\s+policy\s+takes[.:]\s+it\s+moves\s+nothing",
    re.IGNORECASE,
)
"""More than is so: in every mode bundles that have no living owner get one."""


def test_no_text_promises_that_a_dry_run_moves_nothing() -> None:
    found = {str(text.relative_to(ROOT)): TOO_MUCH.findall(text.read_text(errors="ignore")) for text in TEXTS}

    assert len(found) > 300
    assert {text: promises for text, promises in found.items() if promises} == {}


@pytest.mark.parametrize(
    "page", ["README.md", "docs/index.md", "docs/how-to/roll-out.md", "charts/trimtab/README.md", "docs/concepts.md"]
)
def test_pages_that_introduce_it_say_what_a_dry_run_does_not_do(page: str) -> None:
    assert re.search(r"balances\s+nothing", (ROOT / page).read_text())


def test_the_field_itself_says_so() -> None:
    """To `kubectl explain balancingpolicy.spec`, too."""
    crd = yaml.safe_load((ROOT / "crds" / "trimtab.dev_balancingpolicies.yaml").read_text())

    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert "balances nothing" in spec["description"]
    assert "without an owner" in spec["description"]
