"""How long events are kept, and how many."""

from stellwerk_cluster.apiserver.event_ttl import EventExpiry
from tests.support.node_driver import ClusterDriver


def written(cluster: ClusterDriver, name: str) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": "default"}
    cluster.create("events", {"metadata": {"name": name}, "involvedObject": about})


def names(cluster: ClusterDriver) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.api.all("events")]


def test_an_event_goes_an_hour_after_it_was_last_written() -> None:
    cluster = ClusterDriver(heartbeats=False)
    written(cluster, "once")
    written(cluster, "counted")
    cluster.advance(1800, step=60)
    cluster.patch("events", "counted", {"count": 2})
    cluster.advance(1790, step=10)
    assert names(cluster) == ["counted", "once"]
    cluster.advance(10)
    assert names(cluster) == ["counted"]
    cluster.advance(1800, step=10)
    assert names(cluster) == []
    assert cluster.cluster.work.busy == []


def test_of_too_many_events_the_oldest_go_at_once() -> None:
    cluster = ClusterDriver(0, heartbeats=False)
    expiry = EventExpiry(cluster.api, most=3)
    for name in "abcde":
        written(cluster, name)
    cluster.patch("events", "c", {"count": 2})
    key = expiry.queue.take()
    assert key is not None
    expiry.reconcile(key)
    assert names(cluster) == ["c", "d", "e"]
    written(cluster, "f")
    key = expiry.queue.take()
    assert key is not None
    expiry.reconcile(key)
    assert names(cluster) == ["c", "e", "f"]


def test_an_event_that_is_deleted_before_its_time_is_no_trouble() -> None:
    cluster = ClusterDriver(0, heartbeats=False)
    written(cluster, "a")
    cluster.delete("events", "a")
    cluster.advance(3700, step=100)
    assert cluster.cluster.work.busy == []
