"""After a rolling restart of plain pods, or any failover, balancing goes on at once."""

from __future__ import annotations

import time
from itertools import cycle

import pytest

from faulty_api import until
from policy_environment import PolicyEnvironment, RunPolicy
from restarting_pods import RestartingPods
from strategy_testing.clusters import cluster
from trimtab_operator.app import discover_once
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.state.pulsar_link import OwnBalancerState

pytestmark = [pytest.mark.apiserver, pytest.mark.long]

NAMES = ("p-0", "p-1", "p-2", "p-3")
LOAD = cluster(bundles=6, **dict.fromkeys(NAMES, 0.4))


async def begun(env: PolicyEnvironment) -> RestartingPods:
    """Plain pods, whose Pulsar moves bundles itself. The operator's clock shows the time of the API server."""
    env.wall_step = time.time() - env.clock
    env.cluster.link.spec = PulsarSpec(admin_url="http://pulsar:8080")
    env.cluster.link.ids = {name: f"{name}:8080" for name in NAMES}
    env.cluster.link.own_balancer = OwnBalancerState(disabled=True)
    pods = RestartingPods(env)
    await pods.all_serve()
    for _ in range(3):
        await pods.act(after=60)
    return pods


def serve(env: PolicyEnvironment, name: str, owner: str) -> None:
    """Pulsar gives a bundle to a broker, and the cluster sync writes what it sees."""
    status = {"owner": owner, "state": "Owned", "since": timestamp(env.clock + env.wall_step)}
    env.rest.patch(env.path("bundles", name, "status"), {"status": status})


def fail_over(env: PolicyEnvironment, gone: str) -> None:
    others = cycle([name for name in NAMES if name != gone])
    for name, owner in env.owners().items():
        if owner == gone:
            serve(env, name, next(others))


async def restarted(env: PolicyEnvironment, pods: RestartingPods, name: str, *, watched: bool) -> None:
    """A pod restarts, and its bundles go to the others. watched: whether the operator looks in the meantime."""
    await pods.gone(name)
    fail_over(env, name)
    if watched:
        await pods.act()
    await pods.start(name)
    await pods.becomes_ready(name)
    await pods.act()


@pytest.mark.parametrize("watched", [True, False], ids=["looked at meanwhile", "back between two looks"])
def test_after_a_rolling_restart_of_plain_pods_the_empty_broker_is_filled(
    run_policy: RunPolicy,
    watched: bool,  # noqa: FBT001
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        pods = await begun(env)
        for name in reversed(NAMES):
            await restarted(env, pods, name, watched=watched)
        assert "p-0" not in env.owners().values()
        assert "CoolDown" not in env.held_back()

        for _ in range(4):
            env.clock += 55
            await pods.act()
        assert sum(owner == "p-0" for owner in env.owners().values()) >= 3
        assert env.condition("CompetingBalancer") in {("", ""), ("False", "Alone")}

    run_policy(LOAD, scenario, shedder=None, placement=None, limits={"maxUndoneMoves": 1})


def test_what_another_client_moves_while_the_broker_is_there_cools_down(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        pods = await begun(env)
        env.clock += 700
        await pods.act()
        moved = [name for name, owner in env.owners().items() if owner == "p-0"]
        for name in moved:
            serve(env, name, "p-1")
        await pods.act()
        await pods.act(after=60)

        assert env.held_back()["CoolDown"] == len(moved)

    run_policy(LOAD, scenario, shedder=None, placement=None)


def test_a_failover_does_not_count_as_a_reverted_move(run_policy: RunPolicy) -> None:
    """The policy moves bundles to p-0; it restarts, is back at once, and Pulsar gave its bundles to the old owners."""

    async def scenario(env: PolicyEnvironment) -> None:
        pods = await begun(env)
        await restarted(env, pods, "p-0", watched=True)
        before = env.owners()
        for _ in range(4):
            env.clock += 55
            await pods.act()
        filled = [name for name, owner in env.owners().items() if owner == "p-0"]
        assert filled

        await pods.gone("p-0")
        for name in filled:
            serve(env, name, before[name])
        await pods.start("p-0")
        await pods.becomes_ready("p-0")
        await until("the change is seen", lambda: not env.cluster.served.get("p-0"))
        await discover_once(env.cluster)
        await pods.act()
        assert env.condition("CompetingBalancer") in {("", ""), ("False", "Alone")}

    run_policy(LOAD, scenario, shedder=None, placement=None, limits={"maxUndoneMoves": 1})
