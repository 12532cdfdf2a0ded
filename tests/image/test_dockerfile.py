"""A lint of the Dockerfile and its scripts: one user, one version, every package with its hash, no host in a file."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "image"
PROVE = IMAGE / "prove.sh"
STEPS = sorted(set(IMAGE.glob("*.sh")) - {PROVE, IMAGE / "buildah.sh"})
FILES = [ROOT / "Dockerfile", ROOT / ".dockerignore", *IMAGE.glob("*.*"), *(ROOT / "examples" / "kind").glob("*.*")]
KNOWN = {"ARG", "FROM", "RUN", "COPY", "ENV", "LABEL", "USER", "WORKDIR", "ENTRYPOINT"}


def lines(text: str) -> list[str]:
    """Lines of a Dockerfile or a script without comments, continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", text)
    return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


INSTRUCTIONS = [line.split(maxsplit=1) for line in lines((ROOT / "Dockerfile").read_text())]


def stages() -> dict[str, list[list[str]]]:
    """The instructions of each stage by its name (empty for the last one), those of the stages it begins with first."""
    found: dict[str, list[list[str]]] = {}
    for name, rest in INSTRUCTIONS:
        if name == "FROM":
            begin, _, called = rest.partition(" AS ")
            found[called] = list(found.get(begin, []))
        elif found:
            found[called].append([name, rest])
    return found


FINAL = stages()[""]
SLIM = stages()["slim"]


def all_of(name: str, instructions: list[list[str]] = INSTRUCTIONS) -> list[str]:
    return [rest for each, rest in instructions if each == name]


def pairs(name: str, instructions: list[list[str]] = FINAL) -> dict[str, str]:
    """ENV or LABEL of the last stage, or of another one."""
    return dict(word.split("=", 1) for rest in all_of(name, instructions) for word in shlex.split(rest))


def mounts() -> list[dict[str, str]]:
    words = [word for rest in all_of("RUN") for word in rest.split() if word.startswith("--mount=")]
    return [dict(part.split("=", 1) for part in word.removeprefix("--mount=").split(",")) for word in words]


def project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def tag() -> str:
    return f"localhost/trimtab:{pairs('LABEL')['org.opencontainers.image.version']}"


def test_every_instruction_is_known_and_every_step_is_a_script_that_is_there() -> None:
    assert {name for name, _ in INSTRUCTIONS} <= KNOWN
    step = r"(?:--mount=\S+ )+ *sh /build/(\w+\.sh)(?: run| slim)?"
    named = [re.fullmatch(step, re.sub(r"\s+", " ", run)) for run in all_of("RUN")]
    assert all(named), all_of("RUN")
    called = {match[1] for match in named if match}
    called |= {name for step in STEPS for name in re.findall(r'sh "\$\(dirname "\$0"\)/(\w+\.sh)"', step.read_text())}
    assert called == {step.name for step in STEPS}


def test_what_is_copied_mounted_or_let_through_is_there() -> None:
    stages = [rest.split()[-1] for rest in all_of("FROM")]
    assert all(rest.split()[0].removeprefix("--from=") in stages for rest in all_of("COPY"))
    assert all((ROOT / mount.get("source", "")).is_dir() for mount in mounts() if mount["type"] == "bind")
    let_through = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert [path for path in let_through if not (ROOT / path).exists()] == []


def test_the_base_is_pinned_by_a_tag_or_a_digest() -> None:
    (base,) = [rest.removeprefix("BASE=") for rest in all_of("ARG") if rest.startswith("BASE=")]
    name, _, pinned = re.sub("@", ":", base, count=1).partition(":")
    assert name
    assert pinned not in {"", "latest"}
    begun = [rest.split()[0] for rest in all_of("FROM")]
    assert begun == ["${BASE}", "base", "base", "base", "base", "runtime", "runtime"]


def test_the_user_is_the_chart_s_and_has_a_name() -> None:
    pod = yaml.safe_load((ROOT / "charts" / "trimtab" / "values.yaml").read_text())["podSecurityContext"]
    assert all_of("USER", FINAL) == [f"{pod['runAsUser']}:{pod['runAsGroup']}"] == ["10001:10001"]
    assert all_of("USER", SLIM) == all_of("USER", FINAL)
    assert "'trimtab:x:10001:10001:" in (IMAGE / "base.sh").read_text()
    assert "--reuid=10001 --regid=10001" in PROVE.read_text()


def test_it_is_called_as_the_chart_and_the_project_are() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "trimtab" / "Chart.yaml").read_text())
    labels = {key.rpartition(".")[2]: value for key, value in pairs("LABEL").items()}
    assert tag() == f"localhost/{chart['name']}:{chart['appVersion']}"
    assert [labels[key] for key in ("version", "description")] == [project()[key] for key in ("version", "description")]
    assert labels["licenses"] == project()["license"]


def test_the_demo_takes_the_image_that_was_built_and_pulls_none() -> None:
    folder = ROOT / "examples" / "kind"
    image = yaml.safe_load((folder / "values.yaml").read_text())["image"]
    assert f"{image['repository']}:{image['tag']}" == tag()
    assert f"image={tag()}\n" in (folder / "demo.sh").read_text()
    brokers = [one for one in yaml.safe_load_all((folder / "brokers.yaml").read_text()) if one["kind"] == "StatefulSet"]
    [container] = brokers[0]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == tag()
    assert (image["pullPolicy"], container["imagePullPolicy"]) == ("Never", "Never")


def test_the_last_stage_installs_nothing_and_starts_the_program() -> None:
    assert [run.split()[-1] for run in all_of("RUN", FINAL)] == ["/build/base.sh", "/build/warm.sh"]
    assert [json.loads(rest) for rest in all_of("ENTRYPOINT", FINAL)] == [["trimtab"]]
    assert "-XX:SharedArchiveFile=/opt/" in pairs("ENV")["SPARK_SUBMIT_OPTS"]  # /tmp is another volume in a pod


def test_the_slim_variant_has_the_program_and_no_java() -> None:
    assert [run.split()[-1] for run in all_of("RUN", SLIM)] == ["/build/base.sh"]
    assert [rest.split() for rest in all_of("COPY", SLIM)] == [["--from=python-slim", "/opt/trimtab", "/opt/trimtab"]]
    assert [json.loads(rest) for rest in all_of("ENTRYPOINT", SLIM)] == [["trimtab"]]
    assert "java" not in str(pairs("ENV", SLIM)).lower()
    assert [run.split()[-1] for run in all_of("RUN", stages()["python-slim"])][1:] == ["slim"]


def test_no_cache_of_a_package_manager_stays_in_a_layer() -> None:
    assert lines((IMAGE / "base.sh").read_text())[-1].endswith('/tidy.sh"')
    assert {"/var/lib/apt/lists/*", "/var/cache/apt/*"} <= set((IMAGE / "tidy.sh").read_text().split())
    kept = {mount["target"] for mount in mounts() if mount["type"] == "cache"}
    assert kept == set(re.findall(r"PIP_CACHE_DIR=(\S+)", (IMAGE / "python.sh").read_text()))


@pytest.mark.parametrize("script", [*STEPS, PROVE], ids=lambda script: script.name)
def test_a_script_ends_at_its_first_error_and_installs_only_what_it_names(script: Path) -> None:
    text = lines(script.read_text())
    assert "set -eu" in text
    subprocess.run(["sh", "-n", script], check=True)
    for line in text:
        if "apt-get install" in line:
            assert {"-y", "--no-install-recommends"} <= set(shlex.split(line))
        assert not re.search(r"(^|[;&|] *)(sudo|curl|wget|apt )|apt-get \S*upgrade", line), line


def test_all_that_pip_installs_has_hashes() -> None:
    for line in (IMAGE / "python.sh").read_text().splitlines():
        if re.match(r"pip (--python \S+ )?(install|wheel)", line):
            assert "--require-hashes" in line or (
                "--no-deps" in line and ("--no-index" in line or line.endswith("/src"))
            )
    for name in ("build.txt", "run.txt", "slim.txt"):
        blocks = re.split(r"\n(?=\S)", (ROOT / "requirements" / name).read_text())
        assert len(blocks) > 5
        assert all("--hash=sha256:" in block for block in blocks)


def test_the_image_holds_the_versions_that_are_tested() -> None:
    pins = {
        name: set(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("run.txt", "slim.txt", "dev.txt")
    }
    assert pins["run.txt"] <= pins["dev.txt"]
    assert {name for name, _ in pins["slim.txt"] - pins["dev.txt"]} == {"pyspark-client"}
    for lock in ("run.txt", "slim.txt"):
        names = {name for name, _ in pins[lock]}
        assert {re.split(r"[\[><=]", word)[0] for word in project()["dependencies"]} <= names
        assert "grpcio" in names, "the chart's Spark beside the operator is a Connect server"
    assert "pyspark" not in names


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_file_names_a_registry_or_an_index(file: Path) -> None:
    text = file.read_text()
    known = r"127\.0\.0\.1|kind\.sigs\.k8s\.io|prometheus\.messaging\.svc|\{HOST\}"
    assert not re.search(rf"index-url|trusted-host|find-links|://(?!{known})", text)
    assert not re.search(r"\b(docker|quay|ghcr|gcr|public\.ecr)\.(io|aws)\b|\b[\w-]+\.pkg\.dev\b", text)


@pytest.mark.parametrize("file", [ROOT / "Dockerfile", *STEPS], ids=lambda file: file.name)
def test_no_step_writes_to_a_home_by_its_path(file: Path) -> None:
    """Rootless engines build as another user than root."""
    assert re.findall(r"(?:/root|/home)/\S*", file.read_text()) == []
