"""The Dockerfile and its scripts: one user, one version, nothing without its hash, and no host in a file."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import archive
import dockerfile
import rooms

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "image"
SCRIPTS = sorted(IMAGE.glob("*.sh"))
STAGES = dockerfile.stages(ROOT / "Dockerfile")
FINAL = STAGES[-1]
FILES = [ROOT / "Dockerfile", ROOT / ".dockerignore", *IMAGE.glob("*.*"), *(ROOT / "examples" / "kind").glob("*.*")]


def values() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "charts" / "trimtab" / "values.yaml").read_text()))


def project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def test_every_step_is_a_script_that_is_there() -> None:
    runs = [step.words for stage in STAGES for step in stage.steps if step.name == "RUN"]
    named = [re.fullmatch(r"sh /build/(\w+\.sh)", words) for words in runs]
    assert all(named), runs
    called = {match[1] for match in named if match}
    called |= {
        name for script in SCRIPTS for name in re.findall(r'sh "\$\(dirname "\$0"\)/(\w+\.sh)"', script.read_text())
    }
    assert called == {script.name for script in SCRIPTS}


def test_what_is_copied_comes_from_an_earlier_stage() -> None:
    seen: list[str] = []
    for stage in STAGES:
        sources = [dict(step.flags)["from"] for step in stage.steps if step.name == "COPY"]
        assert all(source in seen for source in sources)
        seen.append(stage.name)


def test_the_user_is_the_chart_s_and_has_a_name() -> None:
    pod = values()["podSecurityContext"]
    assert FINAL.notes["USER"] == f"{pod['runAsUser']}:{pod['runAsGroup']}"
    assert pod["runAsUser"] == rooms.USER
    assert f":{rooms.USER}:{rooms.USER}:" in (IMAGE / "base.sh").read_text()


def test_it_is_called_as_the_chart_and_the_project_are() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "trimtab" / "Chart.yaml").read_text())
    assert archive.tag(FINAL) == f"localhost/{chart['name']}:{chart['appVersion']}"
    assert FINAL.labels["org.opencontainers.image.version"] == project()["version"]
    assert FINAL.labels["org.opencontainers.image.description"] == project()["description"]
    assert FINAL.labels["org.opencontainers.image.licenses"] == project()["license"]


def test_the_demo_takes_the_image_that_was_built_and_pulls_none() -> None:
    folder = ROOT / "examples" / "kind"
    image = yaml.safe_load((folder / "values.yaml").read_text())["image"]
    assert f"{image['repository']}:{image['tag']}" == archive.tag(FINAL)
    assert f"image={archive.tag(FINAL)}\n" in (folder / "demo.sh").read_text()
    brokers = [one for one in yaml.safe_load_all((folder / "brokers.yaml").read_text()) if one["kind"] == "StatefulSet"]
    [container] = brokers[0]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == archive.tag(FINAL)
    assert (image["pullPolicy"], container["imagePullPolicy"]) == ("Never", "Never")


def test_the_last_stage_installs_nothing_and_starts_the_program() -> None:
    assert [step.words for step in FINAL.steps if step.name == "RUN"] == ["sh /build/warm.sh"]
    assert dockerfile.entrypoint(FINAL) == ["trimtab"]
    assert FINAL.environment["TRIMTAB_CACHE"].startswith("/opt/")  # /tmp is another volume in a pod


def test_the_base_has_a_tag_that_is_not_the_latest() -> None:
    name, _, tag = STAGES[0].base.partition(":")
    assert name
    assert tag not in {"", "latest"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_ends_at_its_first_error_and_installs_only_what_it_names(script: Path) -> None:
    text = dockerfile.lines(script.read_text())
    assert "set -eu" in text
    for line in text:
        if "apt-get install" in line:
            assert {"-y", "--no-install-recommends"} <= set(shlex.split(line))
        assert not re.search(r"(^|[;&|] *)(sudo|curl|wget|apt )|apt-get \S*upgrade", line), line


def test_all_that_pip_installs_has_hashes() -> None:
    script = (IMAGE / "python.sh").read_text()
    for line in script.splitlines():
        if re.match(r"pip (--python \S+ )?(install|wheel)", line):
            assert "--require-hashes" in line or (
                "--no-deps" in line and ("--no-index" in line or line.endswith("/src"))
            )
    for name in ("build.txt", "run.txt"):
        blocks = re.split(r"\n(?=\S)", (ROOT / "requirements" / name).read_text())
        assert len(blocks) > 5
        assert all("--hash=sha256:" in block for block in blocks)


def test_the_image_holds_the_versions_that_are_tested() -> None:
    pins = {
        name: set(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("run.txt", "dev.txt")
    }
    assert pins["run.txt"] <= pins["dev.txt"]
    names = {name for name, _ in pins["run.txt"]}
    assert {re.split(r"[\[><=]", word)[0] for word in project()["dependencies"]} <= names
    assert "grpcio" in names, "the chart's Spark beside the operator is a Connect server"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_file_names_a_registry_or_an_index(file: Path) -> None:
    text = file.read_text()
    known = r"127\.0\.0\.1|kind\.sigs\.k8s\.io|prometheus\.messaging\.svc|\{HOST\}"
    assert not re.search(rf"index-url|trusted-host|find-links|://(?!{known})", text)
    assert not re.search(r"\b(docker|quay|ghcr|gcr|public\.ecr)\.(io|aws)\b|\b[\w-]+\.pkg\.dev\b", text)


@pytest.mark.parametrize("file", [ROOT / "Dockerfile", *SCRIPTS], ids=lambda file: file.name)
def test_no_step_writes_to_a_home_by_its_path(file: Path) -> None:
    """Whoever builds it may be another user than root: rootless engines have it so."""
    assert re.findall(r"(?:/root|/home)/\S*", file.read_text()) == []


def test_the_cache_that_the_dockerfile_keeps_is_the_one_that_pip_uses() -> None:
    kept = {
        mount["target"]
        for stage in STAGES
        for step in stage.steps
        for mount in dockerfile.mounts(step)
        if mount["type"] == "cache"
    }
    used = re.findall(r"PIP_CACHE_DIR=(\S+)", (IMAGE / "python.sh").read_text())

    assert kept == set(used)


def test_an_unknown_instruction_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a:1\nADD x y\n")
    with pytest.raises(dockerfile.DockerfileError, match="ADD"):
        dockerfile.stages(tmp_path / "Dockerfile")
