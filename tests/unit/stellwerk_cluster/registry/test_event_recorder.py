"""Events of kubelets and node controllers."""

from stellwerk_cluster.registry.event_recorder import WARNING, StoreEventRecorder
from tests.support.node_driver import ClusterDriver, hollow_pod


def test_what_is_reported_again_is_counted_and_other_things_are_not() -> None:
    cluster = ClusterDriver(heartbeats=False, kubelet=None)
    cluster.create("pods", hollow_pod("p"))
    recorder = StoreEventRecorder(cluster.api, "kubelet")
    for message in ("one", "one", "two"):
        recorder.record(cluster.pod("p"), "BackOff", message, WARNING)
        cluster.advance(1)
    events = {each["message"]: each for each in cluster.api.all("events")}
    assert {message: each["count"] for message, each in events.items()} == {"one": 2, "two": 1}
    one = events["one"]
    assert one["source"] == {"component": "kubelet", "host": "node-1"}
    assert one["lastTimestamp"] > one["firstTimestamp"]
    assert one["type"] == "Warning"


def test_an_event_of_a_node_lies_in_the_default_namespace_and_a_deleted_one_is_made_anew() -> None:
    cluster = ClusterDriver(heartbeats=False)
    recorder = StoreEventRecorder(cluster.api, "node-controller")
    for _ in range(2):
        recorder.record(cluster.node("node-1"), "NodeNotReady", "gone")
        (event,) = cluster.api.all("events", "default")
        assert event["count"] == 1
        cluster.delete("events", event["metadata"]["name"])
