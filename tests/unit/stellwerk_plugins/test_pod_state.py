"""PodState counts terminating pods for a node, and nominated ones against it."""

from stellwerk.framework.types import CycleState
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_plugins.pod_state import PodState, TerminatingPods
from tests.support.builders import make_cache, make_node, make_pod, pod_info
from tests.support.plugin_runs import make_plugin


def test_terminating_pods_that_end_are_counted_no_more() -> None:
    going = make_pod("going", node_name="a")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cache = make_cache([make_node("a"), make_node("b")], [going])
    plugin = make_plugin(PodState, cache.snapshot)
    cache.update_snapshot()
    nodes = NodeView(cache.snapshot)
    assert plugin.score(CycleState(), pod_info("web"), nodes).tolist() == [1, 0]
    cache.remove_pod(going["metadata"]["uid"])
    cache.update_snapshot()
    assert plugin.score(CycleState(), pod_info("web"), nodes).tolist() == [0, 0]


def test_a_fork_counts_for_itself() -> None:
    book = TerminatingPods()
    going = make_pod("going")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    from stellwerk.models.pod import parse_pod  # noqa: PLC0415

    book.fork().count_pod(0, parse_pod(going), 1)
    assert not book.by_row
