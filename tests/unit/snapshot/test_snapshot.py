"""The snapshot's rows: growth, re-use, what the change logs name, and what nobody may write."""

from typing import Any

import numpy as np
import pytest

from stellwerk.backend.cache import Cache
from stellwerk.snapshot.columns import ABSENT, MAX_REQUESTED
from stellwerk_kube.node import parse_node
from tests.support.builders import make_cache, make_node, make_pod, pod_info


def set_node(cache: Cache, name: str, uid: str = "", **fields: Any) -> int:
    """Set a node and write it; returns its row."""
    obj = make_node(name, **fields)
    obj["metadata"]["uid"] = uid or obj["metadata"]["uid"]
    cache.set_node(parse_node(obj))
    return cache.update_snapshot().row_of[name]


# --- rows ---------------------------------------------------------------------------------------


def test_a_node_keeps_its_row() -> None:
    cache = make_cache([make_node("n1"), make_node("n2")])
    assert set_node(cache, "n2", cpu="9") == 1
    assert set_node(cache, "n1", cpu="9") == 0


def test_a_free_row_is_used_again_and_remembers_nothing() -> None:
    cache = make_cache(
        [
            make_node(
                "n1",
                labels={"disk": "ssd"},
                taints=[{"key": "k", "effect": "NoSchedule"}],
                allocatable={"example.com/gpu": "4"},
                images=[{"names": ["app:1"], "sizeBytes": 5}],
                unschedulable=True,
            ),
            make_node("n2"),
        ],
        [make_pod("p", node_name="n1", cpu="1", requests={"example.com/gpu": "1"})],
    )
    snapshot = cache.snapshot
    assert snapshot.label("disk").ids[0] != ABSENT
    cache.remove_pod("uid-default-p")
    cache.remove_node("n1")
    cache.update_snapshot()
    assert snapshot.alive.tolist() == [False, True]
    assert snapshot.node_count == 1
    assert not list(snapshot.images)
    with pytest.raises(LookupError, match="row 0 of the snapshot holds no node"):
        snapshot.node_at(0)
    assert set_node(cache, "n3") == 0
    assert "example.com/gpu" not in snapshot.resource_row, "no node offers it any more"
    assert snapshot.size == 2
    assert snapshot.node_at(0).name == "n3"
    assert not snapshot.requested[:, 0].any()
    assert snapshot.label("disk").ids[0] == ABSENT
    assert snapshot.taint_sets[snapshot.taint_set[0]] == ()
    assert not snapshot.unschedulable[0]
    assert not snapshot.pods[0]


def test_a_node_made_again_under_its_name_is_a_new_one() -> None:
    cache = make_cache([make_node("n1", labels={"disk": "ssd"})])
    assert cache.snapshot.label("disk").ids[0] != ABSENT
    row = set_node(cache, "n1", uid="again")
    assert cache.snapshot.node_at(row).uid == "again"
    assert cache.snapshot.label("disk").ids[row] == ABSENT
    assert cache.snapshot.node_count == 1


def test_capacity_grows_and_columns_keep_what_they_held() -> None:
    cache = make_cache([make_node("first", cpu="7", labels={"disk": "ssd"}, unschedulable=True)])
    snapshot = cache.snapshot
    disk, cpu = snapshot.label("disk"), snapshot.resource_row["cpu"]
    cache.set_pod(pod_info("p", node_name="first", cpu="2"))
    for number in range(100):
        cache.set_node(parse_node(make_node(f"n{number}", cpu="1")))
    cache.update_snapshot()
    assert snapshot.size == snapshot.node_count == 101
    for column in (snapshot.allocatable, snapshot.requested, snapshot.nonzero_requested):
        assert column.shape[1] == 101
    for mask in (snapshot.alive, snapshot.unschedulable, snapshot.taint_set):
        assert mask.shape == (101,)
    assert snapshot.allocatable[cpu].tolist() == [7000] + [1000] * 100
    assert snapshot.requested[cpu].tolist() == [2000] + [0] * 100
    assert snapshot.unschedulable.tolist() == [True] + [False] * 100
    assert disk.values[disk.ids[0]] == "ssd"
    assert (disk.ids[1:101] == ABSENT).all()


def test_a_resource_has_a_row_once_it_is_offered_and_asked_for() -> None:
    cache = make_cache([make_node("n1")])
    snapshot = cache.snapshot
    cache.set_pod(pod_info("p", node_name="n1", requests={"example.com/gpu": "1"}))
    cache.update_snapshot()
    assert snapshot.resource_index("example.com/gpu") is None
    set_node(cache, "n2", allocatable={"example.com/gpu": "2"})
    assert list(snapshot.resource_row) == ["cpu", "memory", "ephemeral-storage", "pods"]
    gpu = snapshot.resource_index("example.com/gpu")
    assert gpu is not None
    assert snapshot.allocatable[gpu].tolist() == [0, 2]
    assert snapshot.requested[gpu].tolist() == [1, 0], "counted before any node offered it"


def test_a_resource_that_a_node_lost_has_no_row() -> None:
    cache = make_cache([make_node("n1", allocatable={"example.com/gpu": "2"})])
    assert cache.snapshot.resource_index("example.com/gpu") is not None
    set_node(cache, "n1")
    assert cache.snapshot.resource_index("example.com/gpu") is None


def test_rows_of_resources_are_freed_and_room_for_them_too() -> None:
    many = {f"example.com/r{number}": "1" for number in range(100)}
    cache = make_cache([make_node("n1", allocatable={"example.com/gpu": "2"})])
    snapshot = cache.snapshot
    set_node(cache, "n2", allocatable=many)
    cache.set_pod(pod_info("p", node_name="n2", requests={"example.com/gpu": "1", **many}))
    cache.update_snapshot()
    assert None not in [snapshot.resource_index(name) for name in (*many, "example.com/gpu")]
    assert len(snapshot.allocatable) == 105
    set_node(cache, "n2")
    assert len(snapshot.allocatable) == 5
    gpu = snapshot.resource_index("example.com/gpu")
    assert gpu is not None
    assert snapshot.allocatable[gpu].tolist() == [2, 0]
    assert snapshot.requested[gpu].tolist() == [0, 1]
    assert snapshot.usage(1).extended == {"example.com/gpu": 1, **dict.fromkeys(many, 1)}


def test_a_taint_set_that_no_node_has_makes_room() -> None:
    cache = make_cache([make_node("n1"), make_node("n2")])
    snapshot = cache.snapshot
    for number in range(100):
        taints = [{"key": f"key-{number}", "effect": "NoSchedule"}]
        set_node(cache, "n1", taints=taints)
        set_node(cache, "n2", taints=taints)
    assert len(snapshot.taint_sets) < 5
    assert snapshot.taint_set[0] == snapshot.taint_set[1]
    assert snapshot.taint_sets[snapshot.taint_set[0]][0].key == "key-99"


def test_usage_beyond_all_measure_stops_short_of_overflow() -> None:
    pods = [make_pod(f"p{number}", node_name="n1", memory="4Ei") for number in range(3)]
    cache = make_cache([make_node("n1")], pods)
    memory = cache.snapshot.resource_row["memory"]
    assert cache.snapshot.requested[memory, 0] == MAX_REQUESTED
    for number in range(3):
        cache.remove_pod(f"uid-default-p{number}")
    cache.update_snapshot()
    assert cache.snapshot.requested[memory, 0] == 0, "sums are exact, only the column is cut off"


def test_published_columns_are_read_only() -> None:
    snapshot = make_cache([make_node("n1")]).snapshot
    for column in (
        snapshot.allocatable,
        snapshot.requested,
        snapshot.nonzero_requested,
        snapshot.alive,
        snapshot.unschedulable,
        snapshot.taint_set,
    ):
        with pytest.raises(ValueError, match="read-only"):
            column[...] = 0


def test_equal_taints_have_one_id() -> None:
    taints = [{"key": "k", "effect": "NoSchedule"}]
    cache = make_cache([make_node(name, taints=taints) for name in ("a", "b")] + [make_node("c")])
    assert cache.snapshot.taint_set.tolist() == [1, 1, 0]


def test_a_label_column_follows_from_when_it_is_asked_for() -> None:
    cache = make_cache([make_node("n1", labels={"disk": "ssd"}), make_node("n2")])
    column = cache.snapshot.label("disk")
    assert column is cache.snapshot.label("disk")
    set_node(cache, "n2", labels={"disk": "hdd"})
    assert [column.values[each] for each in column.ids[:2]] == ["ssd", "hdd"]
    set_node(cache, "n1")
    assert column.ids[0] == ABSENT


# --- change logs --------------------------------------------------------------------------------


def test_the_logs_name_the_rows_that_changed() -> None:
    cache = make_cache([make_node("n1"), make_node("n2")])
    snapshot = cache.snapshot
    nodes, usage = snapshot.node_changes.position, snapshot.usage_changes.position
    cache.set_pod(pod_info("p", node_name="n2", cpu="1"))
    cache.update_snapshot()
    assert snapshot.node_changes.since(nodes) == []
    assert snapshot.usage_changes.since(usage) == [1]
    set_node(cache, "n1", cpu="9")
    assert snapshot.node_changes.since(nodes) == [0]
    assert set(snapshot.usage_changes.since(usage) or ()) == {0, 1}


def test_without_changes_nothing_is_written() -> None:
    cache = make_cache([make_node("n1")])
    position = cache.snapshot.usage_changes.position
    cache.update_snapshot()
    assert cache.snapshot.usage_changes.position == position


# --- what is counted by key ---------------------------------------------------------------------


def test_host_ports_and_volumes_are_counted_by_row() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}]
    claim = {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}
    pod = make_pod("p", node_name="n2", volumes=[claim])
    pod["spec"]["containers"][0]["ports"] = ports
    cache = make_cache([make_node("n1"), make_node("n2")], [pod])
    snapshot = cache.snapshot
    (port,) = snapshot.host_ports.keys()
    assert snapshot.host_ports.rows(port) == {1: 1}
    (key,) = snapshot.volume_users.keys()
    assert snapshot.volume_users.rows(key) == {1: 1}
    assert snapshot.volume_users.on_row(1) == {key: 1}
    cache.remove_pod("uid-default-p")
    cache.update_snapshot()
    assert not list(snapshot.host_ports.keys())
    assert not list(snapshot.volume_users.keys())
    assert not snapshot.volume_users.on_row(1)


def test_visit_order_leaves_out_free_rows() -> None:
    cache = make_cache([make_node(name, zone=name[0]) for name in ("a1", "a2", "b1")])
    cache.remove_node("a1")
    snapshot = cache.update_snapshot()
    assert snapshot.names(snapshot.visit_order) == ["a2", "b1"]
    assert snapshot.visit_order.dtype == np.intp
    set_node(cache, "a2", zone="c")
    set_node(cache, "b2", zone="b")
    assert snapshot.names(snapshot.visit_order) == ["a2", "b1", "b2"]
