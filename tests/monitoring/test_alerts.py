"""Each alert is played by promtool against made-up series: it keeps quiet, waits, fires with its text, and ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.prometheus  # promtool comes with it
HERE = {"namespace": "messaging"}
MAIN = {**HERE, "policy": "main"}


def state(word: str) -> str:
    return f'trimtab_policy_state{{namespace="messaging", policy="main", state="{word}"}}'


def of_policy(name: str, labels: str = "") -> str:
    return f'{name}{{namespace="messaging", policy="main"{labels}}}'


def of_pod(name: str, pod: str = "trimtab-0", labels: str = "") -> str:
    return f'{name}{{namespace="messaging", pod="{pod}"{labels}}}'


@dataclass(frozen=True)
class Case:
    """series: values a minute (promtool's spelling), by series. quiet, fires: minutes at which it is asked.

    summary and description: what a pager shows; description None: as the rule has it. labels: beside the severity.
    """

    alert: str
    scenario: str
    series: Mapping[str, str]
    fires: tuple[int, ...] = ()
    quiet: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: MAIN)
    summary: str = ""
    description: str | None = None


NO_LEADER = "No Trimtab leads in messaging"
LEADS = of_pod("trimtab_leader")
TIMED_OUT = of_policy("trimtab_moves_total", ', reason="", result="TimedOut"')
LANDED = of_policy("trimtab_moves_total", ', reason="", result="Landed"')
UNEVEN = {of_policy("trimtab_cpu_range_ratio"): "0.31x200", of_policy("trimtab_balanced"): "0x150 1x50"}
EXPIRES = of_policy("trimtab_proposal_expires_timestamp_seconds")
FOUND = 'kube_configmap_info{namespace="messaging", configmap="trimtab-pulsar-found"}'
OFF = of_pod("trimtab_pulsar_own_balancing_off")
RESTORE = 'Start Trimtab again, or let Pulsar balance again with "trimtab restore -n messaging".'
WAITS = 'See it with "trimtab status main -n messaging", then approve it or change the policy.'
USED = of_pod("container_memory_working_set_bytes", labels=', container="operator"')
LIMIT = of_pod("kube_pod_container_resource_limits", labels=', container="operator", resource="memory"')


def stalls(slow: str) -> dict[str, str]:
    """Buckets of the event loop's delay; slow: how the number of looks that took 2 s grows."""
    name, quick = "trimtab_event_loop_delay_seconds_bucket", "0+120x200"
    return {
        of_pod(name, labels=', le="1"'): quick,
        of_pod(name, labels=', le="2.5"'): slow,
        of_pod(name, labels=', le="+Inf"'): slow,
    }


CASES = (
    Case(
        "TrimtabNoLeader",
        "a leader goes, and another comes",
        {LEADS: "1x9 0x10 1x20"},
        (13, 20),
        (9, 11, 25),
        HERE,
        NO_LEADER,
    ),
    Case(
        "TrimtabNoLeader",
        "all pods are gone",
        {LEADS: "1x9 stale", 'trimtab_leader{namespace="other"}': "1x500"},
        (13, 300),
        (11, 400),
        HERE,
        NO_LEADER,
    ),
    Case(
        "TrimtabNoLeader",
        "a standby takes over",
        {LEADS: "1x9 stale", of_pod("trimtab_leader", "trimtab-1"): "0x9 1x60"},
        quiet=(5, 30, 60),
    ),
    Case("TrimtabNoLeader", "nothing is scraped", {"up": "1x60"}, (3,), (1,), {}, "No Trimtab leads"),
    Case(
        "TrimtabSeveralLead",
        "two lead for longer than a takeover takes",
        {LEADS: "1x40", of_pod("trimtab_leader", "trimtab-1"): "0x9 1x10 0x20"},
        (13,),
        (11, 25),
        HERE,
        "2 Trimtab operators lead in messaging",
    ),
    Case(
        "TrimtabCyclesTooOld",
        "the loop stands still for twenty minutes",
        {
            of_policy("trimtab_last_cycle_timestamp_seconds"): "0+60x10 600x19 1800+60x30",
            of_policy("trimtab_cycle_interval_seconds"): "60x80",
        },
        (18, 29),
        (10, 15, 35),
        summary="Policy main in messaging has decided nothing for {age}",
    ),
    Case(
        "TrimtabCyclesTooOld",
        "a policy that decides once an hour",
        {
            of_policy("trimtab_last_cycle_timestamp_seconds"): "0x59 3600x60",
            of_policy("trimtab_cycle_interval_seconds"): "3600x120",
        },
        quiet=(30, 59, 100),
    ),
    Case(
        "TrimtabCyclesFail",
        "first the picture is not complete, then a defect",
        {state("StoreNotSynced"): "1x5 stale", state("InternalError"): "_x5 1x20 stale", state("Acting"): "_x28 1x30"},
        (11, 25),
        (3, 9, 28),
        summary="Policy main in messaging can't decide anything",
    ),
    Case("TrimtabCyclesFail", "a person paused it", {state("Paused"): "1x60"}, quiet=(30, 60)),
    Case(
        "TrimtabDataNotTrusted",
        "Prometheus does not answer, then shows old samples",
        {
            state("SourceUnavailable"): "1x9 stale",
            state("OutDatedData"): "_x9 1x20 stale",
            state("Acting"): "_x32 1x30",
        },
        (16, 29),
        (5, 14, 33),
        summary="Policy main in messaging has no trusted load data",
    ),
    Case("TrimtabDataNotTrusted", "a dry run with good data", {state("DryRun"): "1x60"}, quiet=(30, 60)),
    Case(
        "TrimtabHistoryNotWritten",
        "the volume is full for twenty minutes",
        {of_policy("trimtab_history_writable"): "1x9 0x20 1x20"},
        (21, 29),
        (9, 15, 31),
        summary="The history of policy main in messaging can't be written",
    ),
    Case(
        "TrimtabMassFailure",
        "brokers go, and come back",
        {state("Acting"): "1x4 stale", state("MassFailure"): "_x4 1x9 stale"},
        (7, 13),
        (3, 4, 20),
        summary="Too many brokers of policy main in messaging are gone, and nothing moves",
    ),
    Case(
        "TrimtabMovesFail",
        "ten of ten moves are not confirmed",
        {TIMED_OUT: "0x4 1+1x9 10x120", LANDED: "0x150"},
        (20, 60),
        (3, 100),
        summary="10 moves in messaging did not land within the hour",
    ),
    Case(
        "TrimtabMovesFail",
        "ten of five hundred are not",
        {TIMED_OUT: "0x4 1+1x9 10x120", LANDED: "0x4 50+50x9 500x120"},
        quiet=(20, 60),
    ),
    Case("TrimtabMovesFail", "two of two are not", {TIMED_OUT: "0x4 2x120", LANDED: "0x150"}, quiet=(20, 60)),
    Case(
        "TrimtabMovesFail",
        "brokers of Pulsar give bundles to others",
        {
            of_pod("trimtab_pulsar_unloads_total", labels=', result="Elsewhere"'): "0x4 6x200",
            of_pod("trimtab_pulsar_unloads_total", labels=', result="Landed"'): "0x4 4x200",
        },
        (20, 60),
        (3, 100),
        HERE,
        "6 moves in messaging did not land within the hour",
    ),
    Case(
        "TrimtabStaysUneven",
        "three hours with nothing to be done about it",
        {**UNEVEN, state("Acting"): "1x200"},
        (125, 150),
        (60, 115, 155),
        summary="The brokers of policy main in messaging differ by 31% of CPU",
    ),
    Case("TrimtabStaysUneven", "a dry run", {**UNEVEN, state("DryRun"): "1x200"}, quiet=(60, 125, 150)),
    Case(
        "TrimtabCompetingBalancer",
        "a competing balancer is found, and leaves",
        {state("Acting"): "1x4 stale", state("CompetingBalancer"): "_x4 1x20 stale"},
        (6, 20),
        (3, 30),
        summary="Another client reverts the moves of policy main in messaging",
    ),
    Case(
        "TrimtabCompetingBalancer",
        "approved moves are undone",
        {of_policy("trimtab_external_moves_total", ', kind="Reverted"'): "0x4 6x200"},
        (6, 40),
        (3, 80),
        summary="Another client reverts the moves of policy main in messaging",
    ),
    Case(
        "TrimtabCompetingBalancer",
        "bundles move without a desired owner",
        {of_policy("trimtab_external_moves_total", ', kind="External"'): "0x4 50x99"},
        quiet=(6, 40),
    ),
    Case(
        "TrimtabHashRingBroken",
        "a bundle is deleted, and made again",
        {of_pod("trimtab_hash_ring_faults", labels=', kind="Gap"'): "0x9 1x20 0x20"},
        (16, 25),
        (5, 13, 35),
        {**HERE, "kind": "Gap"},
        "Gap in the hash rings of messaging: 1",
    ),
    Case(
        "TrimtabHashRingBroken",
        "two bundles overlap others, also after a takeover",
        {
            of_pod("trimtab_hash_ring_faults", labels=', kind="Overlap"'): "0x4 2x5 stale",
            of_pod("trimtab_hash_ring_faults", "trimtab-1", ', kind="Overlap"'): "_x11 2x20",
        },
        (12, 20),
        (3, 8),
        {**HERE, "kind": "Overlap"},
        "Overlap in the hash rings of messaging: 2",
    ),
    Case(
        "TrimtabProposalWaits",
        "one is about to expire, and is approved",
        {EXPIRES: "900x12 stale"},
        (11, 12),
        (5, 9, 14),
        summary="Proposals of policy main in messaging expire without an answer",
        description=WAITS,
    ),
    Case(
        "TrimtabProposalWaits",
        "two have expired",
        {of_policy("trimtab_proposals_total", ', event="Expired"'): "0x14 1x14 2x200"},
        (35, 100),
        (20, 170),
        summary="Proposals of policy main in messaging expire without an answer",
        description=WAITS,
    ),
    Case(
        "TrimtabNoBalancer",
        "the operator is uninstalled, and comes back",
        {FOUND: "1x90", LEADS: "1x9 stale _x49 1x60"},
        (16, 50),
        (5, 14, 65),
        HERE,
        "Pulsar's own balancing is switched off in messaging, and no Trimtab leads",
        RESTORE,
    ),
    Case(
        "TrimtabNoBalancer",
        "a leader of another namespace does not count",
        {FOUND: "1x90", 'trimtab_leader{namespace="other"}': "1x90"},
        (6,),
        (3,),
        HERE,
        "Pulsar's own balancing is switched off in messaging, and no Trimtab leads",
        RESTORE,
    ),
    Case(
        "TrimtabFellSilent",
        "the operator's last word, for an hour",
        {OFF: "1x9 stale", LEADS: "1x9 stale"},
        (16, 60),
        (5, 12, 75),
        HERE,
        "Trimtab had switched off Pulsar's own balancing in messaging, and no longer leads",
        RESTORE,
    ),
    Case("TrimtabFellSilent", "it had put everything back", {OFF: "1x4 0x4 stale", LEADS: "1x9 stale"}, quiet=(16, 60)),
    Case(
        "TrimtabPulsarBalancerActive",
        "switched on again and again",
        {of_pod("trimtab_pulsar_own_balancing_undone_total"): "0x4 1x4 2x4 3x200"},
        (12, 50),
        (8, 90),
        HERE,
        "Pulsar's own balancing is switched on again and again in messaging",
    ),
    Case(
        "TrimtabStalls",
        "every fifth look is two seconds late, for half an hour",
        stalls("0+120x9 1200+150x30 5820+120x90"),
        (30,),
        (9, 15, 80),
        {**HERE, "pod": "trimtab-0"},
        "Trimtab in messaging starts its tasks {late} s late",
    ),
    Case(
        "TrimtabMemoryNearLimit",
        "it grows, and is restarted with a higher limit",
        {USED: "800x9 950x60", LIMIT: "1000x39 2000x60", of_pod("trimtab_build_info"): "1x90"},
        (21, 39),
        (9, 15, 45),
        {**HERE, "pod": "trimtab-0"},
        "Trimtab in messaging uses 95% of its memory limit",
    ),
    Case(
        "TrimtabMemoryNearLimit",
        "another program's container of that name",
        {USED: "950x60", LIMIT: "1000x60"},
        quiet=(20, 60),
    ),
)


def test_promtool_takes_the_rules(promtool: Path, rules_file: Path) -> None:
    checked = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", rules_file],
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.scenario}")
def test_alert(case: Case, promtool: Path, rules_file: Path, rules: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    rule, asked = rules[case.alert], sorted((*case.fires, *case.quiet))
    plays = [
        {
            "eval_time": f"{at}m",
            "alertname": case.alert,
            "exp_alerts": [expected(case, rule, at)] if at in case.fires else [],
        }
        for at in asked
    ]
    scenario = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "alert_rule_test": plays,
    }
    file = tmp_path / "story.yaml"
    file.write_text(json.dumps({"rule_files": [str(rules_file)], "evaluation_interval": "1m", "tests": [scenario]}))

    played = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)

    assert played.returncode == 0, played.stdout + played.stderr


def expected(case: Case, rule: dict[str, Any], at: int) -> dict[str, Any]:
    late = {"age": f"{at - 10}m 0s", "late": "2.4"}
    texts = {**rule["annotations"], "summary": case.summary.format(**late)}
    if case.description is not None:
        texts["description"] = case.description
    return {"exp_labels": {**rule["labels"], **case.labels}, "exp_annotations": texts}


def test_every_alert_is_seen_quiet_before_it_fires_and_after(rules: dict[str, dict[str, Any]]) -> None:
    whole = {c.alert for c in CASES if c.fires and min(c.quiet) < min(c.fires) and max(c.quiet) > max(c.fires)}

    assert whole == set(rules)


def test_every_alert_says_what_a_person_on_call_needs(rules: dict[str, dict[str, Any]]) -> None:
    for name, rule in rules.items():
        assert rule["labels"].keys() == {"severity"}, name
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, name
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}, name
        assert rule["annotations"]["runbook_url"] == f"{name}.md", name
