"""Where an object's name is fixed, the Role names it: other objects of its kind are out of reach."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shipped_role import shipped_kubeconfig
from trimtab_operator.kube.client import CONFIG_MAPS, LEASES, Api, RefusedError, ResourceRef
from trimtab_operator.kube.leader_election import LEASE
from trimtab_operator.kube.naming import PULSAR_FOUND
from trimtab_operator.pulsar.client.dynamic_config import SHEDDING, FoundSettings
from trimtab_operator.pulsar.own_balancer.restore import found_settings_store
from trimtab_operator.resources import rbac
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver


def as_the_operator(
    plane: ControlPlane, namespace: str, scenario: Callable[[Api], Awaitable[None]], lease: str = LEASE
) -> None:
    """Run `scenario` with the rights of the Role for `namespace` and `lease`, and no others."""
    kubeconfig = shipped_kubeconfig(plane, rbac.rendered_rbac(namespace, lease=lease))

    async def run_policy() -> None:
        async with Api.connect(str(kubeconfig), None, patience=3.0) as api:
            await scenario(api)

    asyncio.run(run_policy())


def make(plane: ControlPlane, namespace: str, ref: ResourceRef, name: str) -> None:
    group = f"apis/{ref.api_version}" if ref.group else "api/v1"
    body = {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": {"name": name}}
    plane.rest.create(f"/{group}/namespaces/{namespace}/{ref.plural}", body)


def test_the_names_in_the_role_are_those_that_the_program_uses() -> None:
    assert (rbac.LEASE, rbac.PULSAR_FOUND) == (LEASE, PULSAR_FOUND)


def test_only_the_configmap_with_pulsars_settings_can_be_deleted(
    control_plane: ControlPlane, kube_namespace: str
) -> None:
    make(control_plane, kube_namespace, CONFIG_MAPS, "theirs")

    async def scenario(api: Api) -> None:
        store = found_settings_store(api, kube_namespace)
        found = FoundSettings(PulsarSpec(admin_url="http://pulsar:8080")).noting([SHEDDING], {})
        await store.save(found)
        assert await store.load() == found
        await store.delete()
        assert await store.load() is None
        with pytest.raises(RefusedError, match="cannot delete resource"):
            await api.delete(CONFIG_MAPS, kube_namespace, "theirs")

    as_the_operator(control_plane, kube_namespace, scenario)


@pytest.mark.parametrize("name", [LEASE, "another"])
def test_only_the_lease_of_the_operator_can_be_read_and_taken(
    control_plane: ControlPlane, kube_namespace: str, name: str
) -> None:
    make(control_plane, kube_namespace, LEASES, "theirs")

    async def scenario(api: Api) -> None:
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": name}}
        await api.create(LEASES, kube_namespace, body)
        taken = {"spec": {"holderIdentity": "me"}}
        await api.patch(LEASES, kube_namespace, name, taken)
        assert (await api.get(LEASES, kube_namespace, name))["spec"] == taken["spec"]
        with pytest.raises(RefusedError, match="cannot get resource"):
            await api.get(LEASES, kube_namespace, "theirs")
        with pytest.raises(RefusedError, match="cannot patch resource"):
            await api.patch(LEASES, kube_namespace, "theirs", taken)

    as_the_operator(control_plane, kube_namespace, scenario, lease=name)
