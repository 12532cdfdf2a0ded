"""`trimtab migrate`: prints the BalancingPolicy that matches the configuration of a running Pulsar cluster."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import yaml

from trimtab_operator.aio import at_most
from trimtab_operator.cli.commands.migration import TRIM_NOTES, Migration, differing, migrate
from trimtab_operator.cli.common import FINE, CommandError, add_verb
from trimtab_operator.cli.flags import add_pulsar_options, asked_pulsar
from trimtab_operator.cli.query_options import add_query_options, added
from trimtab_operator.cli.url_option import check_url
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.urls import parse

_PROMETHEUS = "http://prometheus.monitoring.svc:9090"
_SECRET = {
    "--token-file": "token",
    "--ca-file": "tls.ca",
    "--certificate-file": "tls.certificate",
    "--key-file": "tls.key",
}
"""Option -> the policy's field that names the Secret with the same content."""
_DESCRIPTION = """\
Read the runtime configuration of all brokers of a Pulsar cluster (the file, and dynamic values), and print the
BalancingPolicy that balances in the same way: shedder, placement, selection, split rule, cool-down. Notes list settings
without an equivalent, differences between brokers, and what to expect of Trim instead. Nothing is changed: the policy
is in mode DryRun. With --trim, the policy balances by Trim.

examples:
  trimtab migrate --admin-url http://pulsar-broker:8080 > policy.yaml
  trimtab migrate --admin-url http://localhost:8080 --policy-admin-url http://pulsar-broker.pulsar:8080 > policy.yaml
  trimtab migrate --admin-url http://pulsar-broker:8080 --trim > policy.yaml
  trimtab migrate --admin-url https://pulsar:8443 --token-file token --ca-file ca.pem -o json
"""


def _register(subparsers: Any) -> None:
    parser = add_verb(subparsers, "migrate", _DESCRIPTION, _run)
    add_pulsar_options(parser, required=True)
    parser.add_argument("--name", default="main", help="name of the BalancingPolicy (%(default)s)")
    parser.add_argument(
        "--policy-admin-url",
        metavar="URL",
        help="URL at which the operator reaches a broker, for the policy (default: --admin-url)",
    )
    parser.add_argument(
        "--prometheus-url", metavar="URL", help=f"URL of the Prometheus that scrapes the brokers ({_PROMETHEUS})"
    )
    add_query_options(parser)
    parser.add_argument(
        "--trim",
        action="store_true",
        help="let Trim balance, the default strategy, instead of Pulsar's shedder and placement",
    )
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="output format (%(default)s)")


def _run(arguments: argparse.Namespace) -> int:
    url = arguments.prometheus_url or _PROMETHEUS
    admin_url = arguments.policy_admin_url or arguments.admin_url
    check_url("--admin-url", arguments.admin_url)
    check_url("--policy-admin-url", admin_url)
    check_url("--prometheus-url", url, like=_PROMETHEUS)
    leader, runtimes = asyncio.run(asked_pulsar(arguments, _read))
    found = migrate(runtimes[leader], admin_url=admin_url, prometheus=url, trim=arguments.trim)
    spec = {**found.spec, "source": {"prometheus": added(found.spec["source"]["prometheus"], arguments)}}
    differences = differing(runtimes)
    if differences:
        differences.append(f"where brokers differ, the values of the leader {leader} were used")
    head = TRIM_NOTES if arguments.trim else ()
    notes = [*head, *differences, *unfinished(arguments), *found.notes, _comparison(found.shedder)]
    _show(arguments, replace(found, spec=spec, notes=notes))
    return FINE


def unfinished(arguments: argparse.Namespace) -> list[str]:
    """Notes on fields that a user must still set, because the operator does not run on this machine."""
    given = {
        "pulsar.adminUrl": ("--policy-admin-url", arguments.policy_admin_url or arguments.admin_url),
        "source.prometheus.url": ("--prometheus-url", arguments.prometheus_url),
    }
    notes = [
        f"spec.{path} ({url}) points to this machine: give {option} with a Service that the operator can reach"
        for path, (option, url) in given.items()
        if url and _is_this_machine(url)
    ]
    if not arguments.prometheus_url:
        notes.append(f"spec.source.prometheus.url ({_PROMETHEUS}) is a guess: give --prometheus-url")
    return notes + [
        f'{option} is not copied: put it into a Secret with the label trimtab.dev/credentials: "true", and name '
        f"that in spec.pulsar.auth.{entry}"
        for option, entry in _SECRET.items()
        if vars(arguments)[option.strip("-").replace("-", "_")]
    ]


def _comparison(shedder: str) -> str:
    """The note that names the command with which a user compares Trim with the shedder that Pulsar runs."""
    command = f"trimtab simulate skewed --against {shedder}/Pulsar"
    return f"compare {shedder} with Trim, the default without spec.shedder and spec.placement: {command}"


def _is_this_machine(url: str) -> bool:
    host = parse(url).host.strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _read(admin: Admin) -> tuple[str, Mapping[str, Mapping[str, str]]]:
    """Id of the leader, and the configuration of each broker by id."""
    brokers = sorted(await admin.brokers())
    if not brokers:
        raise CommandError("Pulsar lists no active broker: start one, or name another cluster")
    runtimes = dict(zip(brokers, await at_most(8, admin.runtime, brokers), strict=True))
    leader = await admin.leader()
    return (leader if leader in runtimes else brokers[0]), runtimes


def _show(arguments: argparse.Namespace, found: Migration) -> None:
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "BalancingPolicy",
        "metadata": {"name": arguments.name},
        "spec": found.spec,
    }
    if arguments.output == "json":
        print(json.dumps(manifest, indent=2))
        for note in found.notes:
            print(f"note: {note}", file=sys.stderr)
        return
    for note in found.notes:
        print(f"# {note}")
    print(yaml.safe_dump(manifest, sort_keys=False), end="")
