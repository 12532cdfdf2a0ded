"""The options that add labels and URL parameters to every query of Prometheus, as `source.prometheus` of a policy does.

It is not in `flags`, because `flags` loads the Pulsar client, and not in `cluster_flags`, which every start loads.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from trimtab_operator.cli.common import CommandError
from trimtab_pipeline.query_additions import check_matcher, check_parameter

MATCHER, PARAMETER = "--matcher", "--parameter"


def add_query_options(parser: argparse._ActionsContainer) -> None:
    """Add the options that `matchers` and `parameters` read."""
    parser.add_argument(
        MATCHER,
        action="append",
        type=_pair("LABEL", check_matcher),
        metavar="LABEL=VALUE",
        help="label that all metrics must have, for a Prometheus with several Kubernetes clusters; repeatable",
    )
    parser.add_argument(
        PARAMETER,
        action="append",
        type=_pair("NAME", check_parameter),
        metavar="NAME=VALUE",
        help="URL parameter of each query, such as a tenant's; not for secrets; repeatable",
    )


def _pair(what: str, check: Callable[[str, str], None]) -> Callable[[str], tuple[str, str]]:
    """The type of an argument ``what=VALUE``. Messages do not show the value."""

    def pair(text: str) -> tuple[str, str]:
        name, equals, value = text.partition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"{name!r} has no value: write {what}=VALUE")
        try:
            check(name, value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return name, value

    return pair


def matchers(arguments: argparse.Namespace) -> dict[str, str]:
    """Label -> value. Raises `CommandError` if a label is given twice."""
    return _once(MATCHER, arguments.matcher or [])


def parameters(arguments: argparse.Namespace) -> dict[str, str]:
    """Name -> value. Raises `CommandError` if a name is given twice."""
    return _once(PARAMETER, arguments.parameter or [])


def _once(option: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise CommandError(f"{option} {twice[0]} is given more than once: give it once")
    return dict(pairs)


def added(source: Mapping[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """`spec.source.prometheus` of a policy, with the matchers and parameters of the command line in addition."""
    given = {"matchers": matchers(arguments), "parameters": parameters(arguments)}
    return {**source, **{name: {**source.get(name, {}), **pairs} for name, pairs in given.items() if pairs}}
