"""`trimtab lint`: what it finds, on which line, with value, bound and fix; and how each output says it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import broker, bundle, policy, topic_namespace
from trimtab_operator.cli import main
from trimtab_operator.cli.lint.rules import RULES

Captured = pytest.CaptureFixture[str]

LIMITS = {"coolDown": "30m", "maxMovesPerHour": 40, "maxMovesPerCycle": 5}
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def found(capsys: Captured, folder: Path, *manifests: dict[str, Any], options: tuple[str, ...] = ()) -> Any:
    """What lint finds in `manifests`, as data."""
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(manifests, sort_keys=False))
    main(["lint", str(file), "-o", "json", *options])
    return json.loads(capsys.readouterr().out)


def rules(capsys: Captured, folder: Path, *manifests: dict[str, Any]) -> list[str]:
    return [finding["rule"] for finding in found(capsys, folder, *manifests)]


def prometheus(**more: Any) -> dict[str, Any]:
    return {"prometheus": {"url": "https://prometheus.monitoring.svc:9090", **more}}


CLUSTER = {"adminUrl": "http://pulsar-broker.messaging.svc:8080"}
FINE = policy(mode="Auto", limits=LIMITS, shedder={"type": "WeightedBalancer"}, pulsar=CLUSTER)


def changed(**spec: Any) -> dict[str, Any]:
    return {**FINE, "spec": {**FINE["spec"], **spec}}


def test_a_policy_to_be_proud_of_is_passed_over_in_silence(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(FINE))
    assert main(["lint", str(file)]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "1 object in 1 file: nothing found\n")


SPLIT = {"split": {"type": "WeightedSplitter"}}
SECRET = {"auth": {"bearerToken": {"secretKeyRef": {"name": "s", "key": "k"}}}}
NIGHT = {"start": "22:00", "duration": "4h"}

UNWISE = {
    "auto-without-limits": (
        {k: v for k, v in FINE["spec"].items() if k != "limits"},
        "twice as many moves in a cycle as there are brokers",
    ),
    "caps": ({"limits": {**LIMITS, "maxMovesPerHour": 3}}, "below maxMovesPerCycle (5)"),
    "short-cool-down": ({"limits": {**LIMITS, "coolDown": "90s"}}, "is 90s, less than two intervals (60s)"),
    "acts-blindly": ({"limits": {**LIMITS, "minTrustedBrokersPercent": 20}}, "is 20: it would move bundles while most"),
    "no-brake": ({"limits": {**LIMITS, "maxLostBrokersPercent": 90}}, "is 90: with most brokers lost"),
    "rare-cycles": ({"interval": "5m", "shedder": {"type": "Trim"}}, "Trim needs eight cycles in 36 minutes"),
    "interval-below-scrape": ({"interval": "10s", "brokerInterval": "10s"}, "scraped every 15 s"),
    "window-below-scrapes": ({"source": prometheus(window="20s")}, "less than two scrapes (15 s each)"),
    "url-not-allowed": ({"source": {"prometheus": {"url": "https://mimir.example.com"}}}, "--allow-url"),
    "credentials-in-clear": (
        {"source": {"prometheus": {"url": "http://prometheus.monitoring.svc:9090", **SECRET}}},
        "credentials are sent there unencrypted: use https",
    ),
    "never-open": ({"windows": [NIGHT, {"kind": "Deny", **NIGHT}]}, "each Allow is covered by a Deny"),
    "windows-without-auto": ({"mode": "Approve", "windows": [NIGHT]}, "apply only to mode Auto and to approval.auto"),
    "short-window": ({"windows": [{"start": "22:00", "duration": "90s"}]}, "may contain no cycle"),
    "approval-too-short": ({"mode": "Approve", "approval": {"expiresAfter": "1m"}}, "too short for a person to decide"),
    "dry-run": ({"mode": "DryRun"}, "it balances nothing, and shows its plan"),
    "auto-approval-without-approve": ({"mode": "Auto", "approval": {"auto": {}}}, "applies only to mode Approve, and"),
    "auto-approval-never": (
        {"mode": "Approve", "approval": {"auto": {}}, "shedder": {"type": "AvgShedder"}},
        "AvgShedder makes no predictions: nothing is ever approved; set it to false",
    ),
    "paused": ({"paused": True}, "decides nothing until this is changed"),
    "never-splits": ({**SPLIT, "limits": {**LIMITS, "maxSplitsPerCycle": 0}}, "never splits"),
    "known-defects": ({"shedder": {"type": "ThresholdShedder"}}, "2 known defects, first: The amount to shed"),
}


@pytest.mark.parametrize("rule", UNWISE)
def test_what_would_raise_an_alert_is_told_with_value_and_fix(rule: str, tmp_path: Path, capsys: Captured) -> None:
    spec, words = UNWISE[rule]
    manifest = {**FINE, "spec": spec if rule == "auto-without-limits" else {**FINE["spec"], **spec}}
    told = [f for f in found(capsys, tmp_path, manifest) if f["rule"] == rule]
    assert told, f"{rule} was not found"
    assert any(words in finding["message"] for finding in told), told


def test_every_rule_of_policies_has_a_case_here() -> None:
    assert len(RULES) <= len(UNWISE)


def test_a_dry_run_may_be_as_it_likes(tmp_path: Path, capsys: Captured) -> None:
    reckless = {"minTrustedBrokersPercent": 0, "maxLostBrokersPercent": 100}
    assert rules(capsys, tmp_path, changed(mode="DryRun", limits={**LIMITS, **reckless})) == ["dry-run"]


def test_topics_that_nobody_looks_at_are_divided_by_nobody(tmp_path: Path, capsys: Captured) -> None:
    assert rules(capsys, tmp_path, changed(**SPLIT, source=prometheus(hotBundles=0))) == ["never-splits"]


def test_what_the_operator_is_allowed_may_be_told(tmp_path: Path, capsys: Captured) -> None:
    manifest = changed(source={"prometheus": {"url": "https://mimir.example.com"}})
    allowed = ("--allow-url", "https://*.example.com", "--allow-url", "*.svc")
    assert found(capsys, tmp_path, manifest, options=allowed) == []


def test_how_often_brokers_are_scraped_may_be_told(tmp_path: Path, capsys: Captured) -> None:
    told = found(capsys, tmp_path, FINE, options=("--scrape-interval", "1m"))
    assert [finding["field"] for finding in told] == ["spec.source.prometheus.window"]


def ours(name: str, **spec: Any) -> dict[str, Any]:
    return {**changed(**spec), "metadata": {"name": name}}


def declared(**spec: Any) -> dict[str, Any]:
    """A policy without a Pulsar cluster."""
    return policy(**{key: value for key, value in FINE["spec"].items() if key != "pulsar"} | spec)


TOGETHER = {
    "the same object twice": ([FINE, FINE], ["twice"]),
    "both select everything": ([FINE, changed() | {"metadata": {"name": "b"}}], ["overlapping-policies"]),
    "one takes all, one some": (
        [FINE, ours("b", brokers={"podLabels": {"app": "pulsar"}})],
        ["overlapping-policies"],
    ),
    "labels within labels": (
        [
            ours("a", brokers={"podLabels": {"app": "pulsar"}}),
            ours("b", brokers={"podLabels": {"app": "pulsar", "tier": "hot"}}),
        ],
        ["overlapping-policies"],
    ),
    "labels that exclude each other": (
        [ours("a", brokers={"podLabels": {"tier": "cold"}}), ours("b", brokers={"podLabels": {"tier": "hot"}})],
        [],
    ),
    "a name in both": (
        [ours("a", brokers={"names": ["x", "y"]}), ours("b", brokers={"names": ["y"]})],
        ["overlapping-policies"],
    ),
    "other names": ([ours("a", brokers={"names": ["x"]}), ours("b", brokers={"names": ["y"]})], []),
    "one namespace cut twice": ([topic_namespace("a"), topic_namespace("b")], ["same-topic-namespace"]),
    "ranges across each other": (
        [bundle("a"), bundle("b", "0x20000000", "0x60000000")],
        ["overlapping-bundles"],
    ),
    "ranges side by side": ([bundle("a"), bundle("b", "0x40000000", "0x60000000")], []),
    "a pattern that is none": ([topic_namespace(isolation={"primary": ["a("]})], ["pattern"]),
    "a pattern with a back-reference": ([topic_namespace(isolation={"primary": [r"(a)\1"]})], ["pattern"]),
    "a weight that no policy uses": (
        [changed(shedder={"type": "Trim"}), broker(pod="x", weight=2)],
        ["weight-unheeded"],
    ),
    "a weight beside a policy without a shedder": (
        [changed(shedder=None, placement=None), broker(pod="x", weight=2)],
        ["weight-unheeded"],
    ),
    "no Pulsar, and nothing declared": ([declared()], ["nothing-to-balance"]),
    "no Pulsar, but bundles of one's own": ([declared(), topic_namespace()], []),
    "a broker that is not among those declared": (
        [declared(brokers={"names": ["x", "y"]}), topic_namespace(), broker("x", pod="x")],
        ["unknown-broker"],
    ),
    "brokers that are declared": ([declared(brokers={"names": ["x"]}), topic_namespace(), broker("x", pod="x")], []),
    "a weight that is heeded": ([FINE, broker(pod="x", weight=2)], []),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_what_is_wrong_with_objects_beside_each_other_is_told(case: str, tmp_path: Path, capsys: Captured) -> None:
    manifests, expected = TOGETHER[case]
    assert rules(capsys, tmp_path, *manifests) == expected


def test_policies_of_different_namespaces_share_nothing(tmp_path: Path, capsys: Captured) -> None:
    apart = [{**FINE, "metadata": {"name": "main", "namespace": space}} for space in ("a", "b")]
    assert rules(capsys, tmp_path, *apart) == []


def test_an_object_may_silence_a_rule_but_no_error(tmp_path: Path, capsys: Captured) -> None:
    noted = {"name": "main", "annotations": {"trimtab.dev/lint-ignore": "paused, maximum"}}
    assert rules(capsys, tmp_path, {**changed(paused=True), "metadata": noted}) == []
    wrong = {**changed(limits={"minTrustedBrokersPercent": 101}), "metadata": noted}
    assert rules(capsys, tmp_path, wrong) == ["maximum"]


def test_an_object_silences_rules_for_itself_and_not_for_its_namesake(tmp_path: Path, capsys: Captured) -> None:
    noted = {"name": "main", "annotations": {"trimtab.dev/lint-ignore": "paused, twice"}}
    loud = changed(paused=True)
    assert rules(capsys, tmp_path, loud, {**loud, "metadata": noted}) == ["paused"]


# -- places and outputs --

WRONG = """\
# a comment
apiVersion: trimtab.dev/v1alpha1
kind: BalancingPolicy
metadata:
  name: main
spec:
  mode: Approve
  interval: 60
  shedder:
    type: ThresholdShedder
    thresholdShedder:
      threshold: 250
      treshold: 10
  placement: {type: RoundRobin}
  source: {prometheus: {url: "http://prometheus.monitoring.svc:9090"}}
  windows:
    - {start: 22:00, duration: 4h, days: [Mon, Mon]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: trimtab.dev/v1alpha1
kind: BalancingPolice
metadata: {name: main}
spec: {}
"""


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    return file


def test_each_finding_is_on_its_line_with_value_bound_and_fix(wrong: Path, capsys: Captured) -> None:
    assert main(["lint", str(wrong), "-o", "json"]) == 1
    shown = capsys.readouterr()
    told = {f["line"]: (f["level"], f["field"], f["message"]) for f in json.loads(shown.out)}
    assert told == {
        8: ("error", "spec.interval", 'is 60: write a string, in quotes: "60s"'),
        12: ("error", "spec.shedder.thresholdShedder.threshold", "is 250, but must be at most 100"),
        13: (
            "error",
            "spec.shedder.thresholdShedder.treshold",
            "is unknown; did you mean threshold?",
        ),
        17: ("error", "spec.windows[0].days", 'holds "Mon" twice: leave one out'),
        24: ("error", "kind", '"BalancingPolice" is not a kind of trimtab.dev/v1alpha1; did you mean BalancingPolicy?'),
    }
    assert shown.err == "2 objects in 1 file: 5 errors; 1 document of other kinds ignored\n"


def test_github_gets_annotations(wrong: Path, capsys: Captured) -> None:
    assert main(["lint", str(wrong), "-o", "github"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[1] == (
        f"::error file={wrong},line=12,title=trimtab maximum::BalancingPolicy/main: "
        "spec.shedder.thresholdShedder.threshold is 250, but must be at most 100"
    )


def test_what_would_break_an_annotation_is_escaped(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "a,b:c%.yaml"
    file.write_text(yaml.safe_dump(changed(interval="100%\nodd")))
    assert main(["lint", str(file), "-o", "github"]) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert "a%2Cb%3Ac%25.yaml,line=" in line
    assert "100%25\\nodd" in line


def test_the_table_reads_as_a_compiler_speaks(wrong: Path, capsys: Captured) -> None:
    assert main(["lint", str(wrong)]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    told = 'spec.interval is 60: write a string, in quotes: "60s" [type]'
    assert first == f"{wrong}:8: error: BalancingPolicy/main: {told}"


def test_warnings_fail_only_where_that_is_asked_for(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(changed(limits={"coolDown": "1m"})))
    assert main(["lint", str(file), "--fail-on", "warning"]) == 1
    assert main(["lint", str(file)]) == 0
    assert "1 warning" in capsys.readouterr().err


def test_notices_change_no_exit_code(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(changed(paused=True)))
    assert main(["lint", str(file)]) == 0
    assert "1 notice" in capsys.readouterr().err


def test_standard_input_and_folders_are_read(
    wrong: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(WRONG))
    assert main(["lint", "-"]) == 1
    assert capsys.readouterr().out.startswith("-:8: error")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "fine.json").write_text(json.dumps(FINE))
    (tmp_path / "notes.txt").write_text("nothing")
    assert main(["lint", str(tmp_path)]) == 1
    assert "3 objects in 2 files" in capsys.readouterr().err
    assert wrong.exists()


def test_the_items_of_a_list_are_looked_at(tmp_path: Path, capsys: Captured) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [FINE, changed(interval=60)]}
    [finding] = found(capsys, tmp_path, listed)
    assert (finding["field"], finding["rule"]) == ("spec.interval", "type")
    assert "interval" in (tmp_path / "objects.yaml").read_text().splitlines()[finding["line"] - 1]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: [1\nb: 2\n", 2, "is not YAML"),
        (
            "apiVersion: trimtab.dev/v1alpha1\nkind: Broker\nkind: Broker\nmetadata: {name: a}\n",
            3,
            "kind is given twice",
        ),
        ("apiVersion: trimtab.dev/v1\nkind: Broker\nmetadata: {name: a}\n", 1, "write trimtab.dev/v1alpha1"),
    ],
)
def test_what_is_no_manifest_is_a_finding_on_its_line(
    text: str, line: int, words: str, tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(text)
    assert main(["lint", str(file), "-o", "json"]) == 1
    told = [(f["line"], f["message"]) for f in json.loads(capsys.readouterr().out)]
    assert any(at == line and words in message for at, message in told), told


def test_a_file_of_brackets_is_a_finding(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "brackets.json"
    file.write_text("[" * 50_000)
    assert main(["lint", str(file)]) == 1
    assert "is not JSON" in (told := capsys.readouterr().out) or "nested deeper than 100 levels" in told  # 3.14: first


def test_a_bomb_of_aliases_is_refused(tmp_path: Path, capsys: Captured) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 9)]
    file = tmp_path / "bomb.yaml"
    file.write_text("\n".join(levels))
    assert main(["lint", str(file)]) == 1
    assert "more than 200,000 values" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "told"), [(["nowhere.yaml"], "no file or folder nowhere.yaml"), ([], "required")])
def test_a_mistake_is_exit_code_2(words: list[str], told: str, capsys: Captured) -> None:
    assert main(["lint", *words]) == 2
    assert told in capsys.readouterr().err


def test_a_file_without_anything_of_ours_is_a_mistake(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("kind: ConfigMap\n")
    assert main(["lint", str(file)]) == 2
    assert "no object of trimtab.dev" in capsys.readouterr().err


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_without_a_warning(example: Path, capsys: Captured) -> None:
    assert main(["lint", str(example)]) == 0, capsys.readouterr().out


def test_no_pod_labels_at_all_are_refused_as_they_would_select_every_pod(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(changed(brokers={"podLabels": {}})))
    assert main(["lint", str(file)]) == 1
    assert "spec.brokers.podLabels" in capsys.readouterr().out
