"""CapacityScheduling: which changes wake a pod, and what an explanation says."""

from typing import Any

import pytest

from stellwerk.answers.pod import PluginFacts
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.events import QUEUE, Action, ClusterChange, Resource
from stellwerk.framework.types import CycleState
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_plugins.quotas.plugin import CapacityScheduling
from tests.support.builders import make_cache, make_node, make_pod, pod_info
from tests.support.plugin_runs import PluginHandle


def quota(namespace: str, cpu: str, used: str = "0") -> dict[str, Any]:
    return {
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": {"min": {"cpu": cpu}, "max": {"cpu": "40"}},
        "status": {"used": {"cpu": used}},
    }


def plugin_on(*pods: dict[str, Any]) -> tuple[CapacityScheduling, NodeView]:
    cache, objects = make_cache([make_node("n", cpu="99")], pods), IndexedObjectStore()
    for namespace in ("a", "b"):
        objects.set("ElasticQuota", quota(namespace, "10"))
    handle: Any = PluginHandle(cache.snapshot, objects)
    handle.recorder, handle.preempting = None, frozenset()
    plugin = CapacityScheduling(handle)
    cache.update_snapshot()
    return plugin, NodeView(cache.snapshot)


@pytest.mark.parametrize(
    ("change", "wakes"),
    [
        pytest.param(("a", "1"), True, id="a pod of the same quota ends"),
        pytest.param(("b", "1"), True, id="one of another quota"),
        pytest.param(("free", "1"), False, id="one without a quota"),
        pytest.param(("a", None), False, id="one that used nothing"),
    ],
)
def test_only_what_frees_quota_wakes(change: tuple[str, str | None], *, wakes: bool) -> None:
    plugin, _ = plugin_on()
    on_pod, on_quota = plugin.events_to_register()
    namespace, cpu = change
    gone = pod_info("gone", namespace=namespace, cpu=cpu)
    event = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, gone, None)
    assert on_pod.queueing_hint_fn is not None
    assert on_quota.queueing_hint_fn is not None
    waiting = pod_info("web", namespace="a", cpu="1")
    assert (on_pod.queueing_hint_fn(waiting, event) is QUEUE) is wakes
    for new, expected in ((quota("b", "10", used="5"), False), (quota("b", "20"), True)):
        written = ClusterChange("ElasticQuota", Action.UPDATE_OTHER, quota("b", "10"), new)
        assert (on_quota.queueing_hint_fn(waiting, written) is QUEUE) is expected


def test_what_others_free_does_not_wake_a_pod_beyond_its_own_maximum() -> None:
    plugin, _ = plugin_on(make_pod("a", namespace="a", cpu="40", node_name="n"))
    on_pod, _ = plugin.events_to_register()
    assert on_pod.queueing_hint_fn is not None
    waiting = pod_info("web", namespace="a", cpu="1")
    for namespace, wakes in (("b", False), ("a", True)):
        gone = pod_info("gone", namespace=namespace, cpu="1")
        event = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, gone, None)
        assert (on_pod.queueing_hint_fn(waiting, event) is QUEUE) is wakes


def test_an_explanation_says_what_is_used_and_who_has_borrowed() -> None:
    of_a = make_pod("a", namespace="a", cpu="40", node_name="n")
    of_b = make_pod("b", namespace="b", cpu="22", node_name="n")
    plugin, nodes = plugin_on(of_a, of_b)
    facts = plugin.explain(CycleState(), pod_info("web", namespace="a", cpu="1"), nodes)
    assert isinstance(facts, PluginFacts)
    assert "40 of 40 cpu used (10 guaranteed, 12 borrowed by b)" in facts.lines[0]


def test_pods_that_are_placed_together_count_until_that_is_undone() -> None:
    cache, objects = make_cache([make_node("n", cpu="99")]), IndexedObjectStore()
    objects.set("ElasticQuota", quota("a", "40"))
    handle: Any = PluginHandle(cache.snapshot, objects)
    handle.recorder, handle.preempting = None, frozenset()
    plugin = CapacityScheduling(handle)
    cache.update_snapshot()
    member = pod_info("member", namespace="a", cpu="30")
    nodes = NodeView(cache.snapshot)
    with cache.trial() as trial:
        trial.add_pod(pod_info("first", namespace="a", cpu="30"), "n")
        assert not plugin.pre_filter(CycleState(), member, nodes).status.ok
    assert plugin.pre_filter(CycleState(), member, nodes).status.ok
