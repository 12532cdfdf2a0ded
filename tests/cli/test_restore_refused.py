"""`trimtab restore` refuses arguments that it can't use before it writes anything."""

from __future__ import annotations

import pytest

from pulsar_settings import defaults, settings_brokers
from restored_namespace import AbandonedNamespace
from trimtab_operator.cli import main
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--admin-url", "http://pulsar:808080"],
            "--admin-url http://pulsar:808080: the url can't be read: its port must",
        ),
        (
            ["--admin-url", "http://[::1"],
            "--admin-url http://[::1: the url can't be read: its port must be 1 to 65535, and",
        ),
        (["--stop-deployment", "trimtab", "--lease-name="], "it needs a --lease-name that is not empty"),
    ],
)
def test_nothing_is_written_for_arguments_that_are_wrong(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    with settings_brokers(defaults()) as brokers:
        env = AbandonedNamespace(trimtab_crds, kube_namespace, brokers)
        env.operate(lasts=1)
        assert main([*env.words, *words]) == 2
        assert told in capsys.readouterr().err
        assert (env.mode(), env.kept(), env.replicas()) == ("Auto", True, 2)
