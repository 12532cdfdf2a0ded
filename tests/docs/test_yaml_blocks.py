"""The API server accepts every object of ours that a page shows, as a reader's kubectl would send it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from doc_blocks import blocks
from trimtab_testbed.servers.kube import ControlPlane

ROOT = Path(__file__).parents[2]
DOCS = list(ROOT.glob("docs/**/*.md"))
PAGES = sorted({*ROOT.glob("*.md"), *DOCS})


def objects(page: Path) -> list[str]:
    """The blocks of a page that are whole objects of ours."""
    shown = [block.text for block in blocks(page) if block.language == "yaml"]
    return [text for text in shown if "apiVersion: trimtab.dev/" in text]


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "page", [page for page in PAGES if objects(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_objects_on_a_page_are_accepted_as_they_stand(
    page: Path, trimtab_crds: ControlPlane, kube_namespace: str
) -> None:
    """Nothing is made: the server validates, strictly, and says what it would have done."""
    kubectl = [str(trimtab_crds.binaries.kubectl), "--kubeconfig", str(trimtab_crds.kubeconfig), "-n", kube_namespace]

    sent = subprocess.run(
        [*kubectl, "create", "--dry-run=server", "--validate=strict", "-f", "-"],
        input="\n---\n".join(objects(page)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert sent.returncode == 0, sent.stderr
    assert sent.stdout.count("created (server dry run)") >= len(objects(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_yaml_block_is_yaml(page: Path) -> None:
    for block in blocks(page):
        if block.language == "yaml":
            assert list(yaml.safe_load_all(block.text)), f"{page.name}:{block.line}"
