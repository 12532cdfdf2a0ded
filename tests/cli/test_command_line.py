"""The command line as people type it: flags before the verb, `help`, `version`, and what they load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimtab_operator import __version__
from trimtab_operator.cli import main
from trimtab_operator.cli.cluster_flags import verb_first
from trimtab_operator.cli.common import spoken
from trimtab_operator.cli.parser import VERBS, parser_for

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("status main", "status main"),
        ("-n messaging status main", "status -n messaging main"),
        ("--namespace=messaging -A status", "status --namespace=messaging -A"),
        ("--context a --as jane --as-group ops --request-timeout 5s plan", "plan --context a --as jane --as-group ops"),
        ("-o json --color never status", "status -o json --color never"),
        ("--help status", "status --help"),
        ("-n messaging", "-n messaging"),
        ("--version", "--version"),
        ("-n", "-n"),
        ("", ""),
    ],
)
def test_the_verb_comes_first_whatever_stands_before_it(typed: str, read: str) -> None:
    assert verb_first(typed.split())[: len(read.split())] == read.split()
    assert sorted(verb_first(typed.split())) == sorted(typed.split()), "no word is lost"


def test_a_dry_run_without_a_value_takes_no_word_as_one() -> None:
    assert verb_first(["move", "--dry-run", "bundle", "broker"]) == ["move", "--dry-run=client", "bundle", "broker"]
    assert verb_first(["--dry-run", "pause", "main"]) == ["pause", "--dry-run=client", "main"]
    assert verb_first(["move", "bundle", "--dry-run=server"]) == ["move", "bundle", "--dry-run=server"]


@pytest.mark.parametrize("flag", ["--namespace", "--kubeconfig", "--context", "--as", "--as-group", "-o", "--color"])
def test_a_flag_before_the_verb_is_read_like_one_behind_it(flag: str) -> None:
    value = {"-o": "json", "--color": "never"}.get(flag, "x")
    before = verb_first([flag, value, "status", "main"])
    behind = ["status", "main", flag, value]
    assert parser_for(before).parse_args(before) == parser_for(behind).parse_args(behind)


def test_a_time_limit_is_seconds_or_a_duration() -> None:
    def limit(text: str) -> float:
        words = ["status", "--request-timeout", text]
        found: float = parser_for(words).parse_args(words).request_timeout
        return found

    assert [limit(text) for text in ("5", "5s", "1m", "0")] == [5.0, 5.0, 60.0, float("inf")]


def test_a_time_limit_that_is_none_is_refused_with_an_example(capsys: Captured) -> None:
    assert main(["status", "--request-timeout", "soon"]) == 2
    assert "'soon' is not a time: write seconds, or a duration such as 5s or 1m" in capsys.readouterr().err


def test_a_flag_of_one_verb_before_it_is_not_taken_for_the_verb(capsys: Captured) -> None:
    assert main(["--wait", "status"]) == 2
    assert "unrecognized arguments: --wait" in capsys.readouterr().err


# -- help --


@pytest.mark.parametrize("verb", sorted({*VERBS} - {"help"}))
def test_help_of_a_verb_is_what_its_flag_shows(verb: str, capsys: Captured) -> None:
    assert main([verb, "--help"]) == 0
    by_flag = capsys.readouterr().out
    assert main(["help", verb]) == 0
    assert capsys.readouterr().out == by_flag


def test_help_alone_lists_the_verbs_and_an_unknown_one_is_told(capsys: Captured) -> None:
    assert main(["help"]) == 0
    assert "  undrain       end the drain of a broker\n" in capsys.readouterr().out
    assert main(["help", "undrian"]) == 2
    assert "there is no verb undrian; did you mean undrain" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("public-default-0x0-0x4", "explain bundle public-default-0x0-0x4"),
        ("public/default/0x0_0x4", "explain bundle public/default/0x0_0x4"),
        ("pulsar-broker-0", "explain bundle|broker pulsar-broker-0"),
        ("bundle/x", "explain bundle x"),
        ("Brokers x", "explain broker NAME"),
    ],
)
def test_a_name_without_its_kind_gets_the_whole_command(words: str, advice: str, capsys: Captured) -> None:
    assert main(["explain", *words.split(), "-n", "messaging"]) == 2
    assert f"is neither bundle nor broker; write: trimtab {advice}\n" in capsys.readouterr().err


# -- version --


def test_the_version_of_the_client_needs_no_cluster(tmp_path: Path, capsys: Captured) -> None:
    nowhere = str(tmp_path / "none")
    assert main(["version", "--client", "--kubeconfig", nowhere]) == 0
    assert capsys.readouterr().out.startswith(f"client:     trimtab {__version__} (Python 3.")

    assert main(["--kubeconfig", nowhere, "version"]) == 0, "without a cluster it says so, and shows the rest"
    client, cluster = capsys.readouterr().out.splitlines()
    assert __version__ in client
    assert cluster == f"cluster:    not asked: kubeconfig {nowhere} does not exist"

    assert main(["version", "--kubeconfig", nowhere, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["client"]["version"], "does not exist" in found["cluster"]["error"]) == (__version__, True)


def test_a_group_to_act_as_needs_a_user(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "config"
    file.write_text("{contexts: [{name: c, context: {cluster: c, user: u}}], current-context: c}")
    assert main(["status", "--as-group", "ops", "--kubeconfig", str(file)]) == 2
    assert capsys.readouterr().err == "trimtab: --as-group ops needs a user: add --as USER\n"


def test_a_restore_can_not_be_checked_by_the_server(capsys: Captured) -> None:
    assert main(["restore", "-n", "messaging", "--dry-run=server"]) == 2
    assert "whose API checks no write in advance: use --dry-run=client" in spoken(capsys.readouterr().err)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--lease-nam=other"],
        ["status", "--namesp", "messaging"],
        ["simulate", "--lis"],
        ["history", "--di", "/tmp"],
        ["history", "export", "--di", "/tmp", "a.tar"],
        ["--vers"],
    ],
)
def test_a_flag_has_one_spelling(words: list[str], capsys: Captured) -> None:
    assert main(words) == 2
    assert "--" in capsys.readouterr().err
