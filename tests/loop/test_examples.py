"""Every example is a policy (or another resource) that Trimtab takes as it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab_operator.state.settings import Settings
from trimtab_testbed.servers.kube import ControlPlane

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
README = Path(__file__).parents[2] / "README.md"


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def readme_policy() -> str:
    return README.read_text().split("```yaml\n")[1].split("```")[0]


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_policy_becomes_settings(example: Path) -> None:
    for document in documents(example.read_text()):
        if document["kind"] == "BalancingPolicy":
            document["metadata"]["namespace"] = "messaging"
            assert Settings.of(document).pair


@pytest.mark.apiserver
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_api_server_takes_every_example(example: Path, trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    trimtab_crds.kubectl("-n", kube_namespace, "apply", "--validate=strict", "-f", str(example))


@pytest.mark.apiserver
def test_the_api_server_takes_the_policy_of_the_readme(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    (policy,) = documents(readme_policy())

    trimtab_crds.kubectl("-n", kube_namespace, "apply", "--validate=strict", "-f", "-", stdin=json.dumps(policy))
