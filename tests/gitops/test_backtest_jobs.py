"""The ready jobs that backtest a changed policy: their scripts, by a real shell and program, on a recorded history."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
import yaml

from recorded_history import RecordedHistory
from trim_world import START, World, spread
from trimtab_operator.cli.main import main

CI = Path(__file__).parents[2] / "examples" / "ci"
BIN = Path(sys.executable).parent
SOURCE = {"source": {"prometheus": {"url": "http://prometheus.messaging.svc:9090"}}}
POLICY = {
    "apiVersion": "trimtab.dev/v1alpha1",
    "kind": "BalancingPolicy",
    "metadata": {"name": "main"},
    "spec": SOURCE,
}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of twenty minutes in which nobody acted, its export without names, and that as GitHub's zip."""
    root = tmp_path_factory.mktemp("recorded")
    history, random = RecordedHistory(root / "history"), np.random.default_rng(5)
    world = World.of(spread(70, 20, 1), spread(25, 20, 2), spread(25, 20, 3))
    history.policy(START, SOURCE)
    for _ in range(20):
        history.cycle(world.cluster(random.normal(1, 0.05, len(world.load))))
        world.now += 60
    words = ["history", "export", "--dir", str(root / "history"), "--hash-names", "--from", "1h"]
    assert main([*words, str(root / "history.tar")]) == 0
    with zipfile.ZipFile(root / "history.zip", "w") as file:
        file.write(root / "history.tar", "history.tar")
    return root


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A clone with a changed policy."""
    (tmp_path / "trimtab").mkdir()
    (tmp_path / "trimtab" / "policy.yaml").write_text(json.dumps(POLICY))
    return tmp_path


def load(name: str) -> Any:
    return yaml.safe_load((CI / name).read_text())


def shell(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a step as its runner does."""
    path = f"{folder / 'tools'}:{BIN}:{os.environ['PATH']}"
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path, **env}, capture_output=True, text=True, check=False
    )


def github(
    folder: Path, history: str, require: str, *, archive: Path | None = None, silent: bool = False
) -> dict[str, Any]:
    """Run the steps of the job on GitHub, with `gh` as an imitation: codes and texts by step. silent: without the right
    to comment.
    """
    answer = f"cat {archive}" if archive else "exit 1"
    (folder / "tools").mkdir()
    (folder / "tools" / "gh").write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/asked\ncase "$2" in\n'
        f"  *name=trimtab-history*) {'echo 77' if archive else 'true'} ;;\n  */77/zip) {answer} ;;\n"
        f"  comment) exit {int(silent)} ;;\nesac\n"
    )
    (folder / "tools" / "gh").chmod(0o755)
    env = {"TRIMTAB_HISTORY": history, "REQUIRE": require, "GITHUB_REPOSITORY": "team/cluster", "NUMBER": "12"}
    env |= {name: str(folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")}
    done: dict[str, Any] = {}
    for step in load("github-backtest.yaml")["jobs"]["backtest"]["steps"]:
        wanted = "TRIMTAB_HISTORY" not in step.get("if", "") or history == "artifact"
        if "run" not in step or "pip install" in step["run"] or not wanted:
            continue
        for name in ("GITHUB_OUTPUT", "GITHUB_ENV"):
            lines = Path(env[name]).read_text().splitlines() if Path(env[name]).exists() else []
            env |= dict(line.split("=", 1) for line in lines)
        ran = shell(step["run"], folder, **env, ARTIFACT=env.get("id", ""))
        done[step["name"]] = ran
        if ran.returncode:
            break
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "require", "code"),
    [("folder", "moves<=live", 1), ("tar", "area<=live", 0), ("artifact", "moves<=live", 1)],
)
def test_github_comments_and_then_decides(
    recorded: Path, repository: Path, place: str, require: str, code: int
) -> None:
    history = {"folder": str(recorded / "history"), "tar": str(recorded / "history.tar")}.get(place, place)

    done = github(repository, history, require, archive=recorded / "history.zip")

    assert done["The gate"].returncode == code, done
    comment = (repository / "comment.md").read_text()
    assert comment.startswith("### Trimtab backtest\n")
    assert ("**Not met**: moves<=live" in comment) == bool(code)
    assert (repository / "GITHUB_STEP_SUMMARY").read_text() == comment
    assert "pr comment 12 --edit-last --create-if-none --body-file comment.md" in (repository / "asked").read_text()


@pytest.mark.slow
def test_github_decides_without_the_right_to_comment(recorded: Path, repository: Path) -> None:
    done = github(repository, str(recorded / "history"), "area<=live", silent=True)

    assert "no comment, see the summary" in done["Comment on the pull request"].stdout
    assert done["The gate"].returncode == 0


@pytest.mark.slow
def test_github_does_not_download_an_artifact_that_the_cache_has(recorded: Path, repository: Path) -> None:
    (repository / "history.tar").write_bytes((recorded / "history.tar").read_bytes())

    done = github(repository, "artifact", "area<=live", archive=recorded / "history.zip")

    assert done["The gate"].returncode == 0
    assert "zip" not in (repository / "asked").read_text()


@pytest.mark.parametrize(
    ("history", "said"), [("artifact", "there is no artifact trimtab-history yet"), ("", "TRIMTAB_HISTORY: set it to")]
)
def test_github_says_what_is_missing(repository: Path, history: str, said: str) -> None:
    done = github(repository, history, "area<=live")

    last = list(done.values())[-1]
    assert last.returncode != 0
    assert said in last.stderr
    assert not (repository / "comment.md").exists()


@pytest.mark.slow
def test_github_fails_without_a_comment_where_nothing_was_replayed(repository: Path) -> None:
    done = github(repository, str(repository / "nowhere"), "area<=live")

    assert done["The gate"].returncode == 2
    assert "pr comment" not in ((repository / "asked").read_text() if (repository / "asked").exists() else "")


class GitLab:
    """A server that answers as GitLab's API does. notes: bodies of the comments, each with its token."""

    def __init__(self, archive: bytes) -> None:
        self.notes: list[tuple[str, str]] = []
        kept = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                right = self.path.endswith("/projects/5/jobs/artifacts/main/raw/history.tar?job=trimtab-export")
                self._answer(archive if right and self.headers["JOB-TOKEN"] == "mine" else None)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                kept.notes.append((self.headers["PRIVATE-TOKEN"], parse_qs(body)["body"][0]))
                right = self.path.endswith("/projects/5/merge_requests/9/notes")
                self._answer(b"{}" if right and self.headers["PRIVATE-TOKEN"] != "expired" else None)

            def _answer(self, body: bytes | None) -> None:
                self.send_response(404 if body is None else 200)
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/api/v4"


@pytest.fixture
def gitlab(recorded: Path) -> Iterator[GitLab]:
    found = GitLab((recorded / "history.tar").read_bytes())
    yield found
    found.server.shutdown()
    found.server.server_close()


def merge_request(gitlab: GitLab, folder: Path, history: str, require: str, token: str = "secret") -> Any:
    """Run the job on GitLab."""
    script = "\n".join(load("gitlab-backtest.yaml")["trimtab-backtest"]["script"])
    env = {"CI_API_V4_URL": gitlab.url, "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "9", "CI_JOB_TOKEN": "mine"}
    env |= {"CI_DEFAULT_BRANCH": "main", "TRIMTAB_COMMENT_TOKEN": token}
    return shell(script, folder, TRIMTAB_HISTORY=history, REQUIRE=require, **env)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "require", "code"),
    [("folder", "moves<=live", 1), ("tar", "area<=live", 0), ("artifact", "moves<=live", 1)],
)
def test_gitlab_comments_and_then_decides(
    gitlab: GitLab, recorded: Path, repository: Path, place: str, require: str, code: int
) -> None:
    history = {"folder": str(recorded / "history"), "tar": str(recorded / "history.tar")}.get(place, place)

    done = merge_request(gitlab, repository, history, require)

    assert done.returncode == code, done.stderr
    assert gitlab.notes == [("secret", (repository / "comment.md").read_text())]
    assert ("**Not met**: moves<=live" in gitlab.notes[0][1]) == bool(code)


@pytest.mark.slow
def test_gitlab_keeps_the_result_as_an_artifact_without_a_token(
    gitlab: GitLab, recorded: Path, repository: Path
) -> None:
    done = merge_request(gitlab, repository, str(recorded / "history"), "area<=live", token="")

    assert done.returncode == 0, done.stderr
    assert gitlab.notes == []
    assert "comment.md" in load("gitlab-backtest.yaml")["trimtab-backtest"]["artifacts"]["paths"]


@pytest.mark.slow
def test_gitlab_decides_without_the_right_to_comment(gitlab: GitLab, recorded: Path, repository: Path) -> None:
    done = merge_request(gitlab, repository, str(recorded / "history"), "area<=live", token="expired")

    assert done.returncode == 0, done.stderr
    assert "no comment: the result is the artifact comment.md" in done.stdout


def test_gitlab_says_what_is_missing(gitlab: GitLab, repository: Path) -> None:
    done = merge_request(gitlab, repository, "", "area<=live")

    assert done.returncode != 0
    assert "TRIMTAB_HISTORY: set it to" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "name"),
    [
        (load("github-backtest.yaml")["jobs"]["export"]["steps"][2]["run"], "RECORDED"),
        (load("gitlab-backtest.yaml")["trimtab-export"]["script"][0], "TRIMTAB_RECORDED"),
    ],
    ids=["github", "gitlab"],
)
def test_the_nightly_job_exports_the_load_without_names(script: str, name: str, recorded: Path, tmp_path: Path) -> None:
    done = shell(script, tmp_path, **{name: str(recorded / "history")})

    assert done.returncode == 0, done.stderr
    assert main(["observe", "--history", str(tmp_path / "history.tar")]) == 0
    found = re.findall(rb"broker-[0-2]\b", (tmp_path / "history.tar").read_bytes())  # a hashed one is broker-0123abcd
    assert found == []


@pytest.mark.parametrize("file", ["github-backtest.yaml", "gitlab-backtest.yaml"])
def test_every_flag_of_the_jobs_is_one_that_the_program_takes(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (CI / file).read_text().replace("\\\n", " ")
    for verb in ("backtest", "history export"):
        lines = [line for line in text.splitlines() if f"trimtab {verb} " in line and not line.startswith("#")]
        assert lines
        assert main([*verb.split(), "--help"]) == 0
        shown = capsys.readouterr().out
        asked = " ".join(line.split(f"trimtab {verb} ")[1].split(";")[0] for line in lines)
        assert all(word in shown for word in asked.split() if word.startswith("--"))


@pytest.mark.parametrize("file", ["github-backtest.yaml", "gitlab-backtest.yaml"])
def test_the_jobs_install_the_wheel_that_the_user_names(file: str) -> None:
    installs = [line for line in (CI / file).read_text().splitlines() if "pip install" in line]

    assert installs
    assert all('"${TRIMTAB_WHEEL:?set it' in line for line in installs)


def test_only_the_job_that_comments_may_write() -> None:
    found = load("github-backtest.yaml")

    assert found["permissions"] == {"contents": "read"}
    assert found["jobs"]["backtest"]["permissions"] == {
        "contents": "read",
        "actions": "read",
        "pull-requests": "write",
    }
    assert "permissions" not in found["jobs"]["export"]
    assert "pull_request_target" not in (CI / "github-backtest.yaml").read_text()
