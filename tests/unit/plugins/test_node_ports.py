"""NodePorts: which host ports clash."""

from typing import Any

import pytest

from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.node_ports import NodePorts
from stellwerk.snapshot.snapshot import NodeView
from tests.support.builders import make_cache, make_node, make_pod, pod_info
from tests.support.plugin_runs import make_plugin, reasons_on, statuses

TAKEN = ("node(s) didn't have free ports for the requested pod ports",)


def with_ports(name: str, *ports: dict[str, Any], node_name: str | None = None) -> dict[str, Any]:
    pod = make_pod(name, node_name=node_name)
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 1, **port} for port in ports]
    return pod


def wanting(*ports: dict[str, Any]) -> PodInfo:
    return pod_info("new", containers=with_ports("new", *ports)["spec"]["containers"])


@pytest.mark.parametrize(
    ("used", "wanted", "fits"),
    [
        pytest.param({"hostPort": 80}, {"hostPort": 80}, False, id="the same port"),
        pytest.param({"hostPort": 80}, {"hostPort": 81}, True, id="another port"),
        pytest.param(
            {"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, True, id="another protocol"
        ),
        pytest.param(
            {"hostPort": 80, "hostIP": "10.0.0.1"},
            {"hostPort": 80, "hostIP": "10.0.0.2"},
            True,
            id="another address",
        ),
        pytest.param(
            {"hostPort": 80, "hostIP": "10.0.0.1"},
            {"hostPort": 80, "hostIP": "10.0.0.1"},
            False,
            id="the same address",
        ),
        pytest.param(
            {"hostPort": 80, "hostIP": "10.0.0.1"},
            {"hostPort": 80, "hostIP": "0.0.0.0"},  # noqa: S104
            False,
            id="every address wanted",
        ),
        pytest.param(
            {"hostPort": 80},
            {"hostPort": 80, "hostIP": "10.0.0.1"},
            False,
            id="every address in use",
        ),
        pytest.param({}, {"hostPort": 80}, True, id="a container port is no host port"),
    ],
)
def test_clashes(used: dict[str, Any], wanted: dict[str, Any], *, fits: bool) -> None:
    bound = [with_ports("old", used, node_name="a")]
    nodes = [make_node("a"), make_node("b")]
    found = reasons_on(NodePorts, wanting(wanted), nodes, bound)
    assert found == ({} if fits else {"a": TAKEN})


def test_a_pod_without_host_ports_is_skipped() -> None:
    nodes = NodeView(make_cache([make_node("a")]).snapshot)
    assert make_plugin(NodePorts).pre_filter(CycleState(), pod_info("p"), nodes).status.skip


def test_a_port_that_two_pods_use_is_free_when_one_of_them_goes() -> None:
    # Two pods with one port get onto a node only behind the scheduler's back.
    bound = [with_ports(name, {"hostPort": 80}, node_name="a") for name in ("one", "two")]
    cache = make_cache([make_node("a")], bound)
    nodes = NodeView(cache.snapshot).with_overlay()
    assert nodes.overlay is not None
    nodes.overlay.remove_pod(0, next(iter(cache.pods())))
    assert statuses(make_plugin(NodePorts), wanting({"hostPort": 80}), nodes) == {}


def test_taking_the_pod_away_frees_its_port() -> None:
    cache = make_cache([make_node("a")], [with_ports("old", {"hostPort": 80}, node_name="a")])
    nodes = NodeView(cache.snapshot).with_overlay()
    plugin, pod = make_plugin(NodePorts), wanting({"hostPort": 80})
    assert statuses(plugin, pod, nodes).keys() == {"a"}
    assert nodes.overlay is not None
    (old,) = cache.pods()
    nodes.overlay.remove_pod(0, old)
    assert statuses(plugin, pod, nodes) == {}
    assert statuses(plugin, pod, NodeView(cache.snapshot)).keys() == {"a"}
