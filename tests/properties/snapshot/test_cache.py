"""The cache and its snapshot as a state machine: columns always equal a rebuild from scratch."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stellwerk.backend.cache import Cache
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk_kube.node import NodeInfo, parse_node
from tests.support.builders import make_node, make_pod
from tests.support.snapshot_contents import scored_amounts

NODE_NAMES = st.sampled_from([f"node-{letter}" for letter in "abcdef"])
POD_NAMES = st.sampled_from([f"pod-{number}" for number in range(8)])
CPU = st.sampled_from(["0", "100m", "1", "2500m"])
LABELS = st.dictionaries(st.sampled_from(["zone", "disk"]), st.sampled_from(["x", "y"]))
IMAGES = st.lists(st.sampled_from(["app:1", "db:2"]), unique=True)


class CacheMachine(RuleBasedStateMachine):
    """Adds, updates, removes, assumes and forgets at will; a plain model says what must be true."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.nodes: dict[str, NodeInfo] = {}
        self.pods: dict[str, PodInfo] = {}
        self.assumed: set[str] = set()
        self.generation = 0

    @rule(name=NODE_NAMES, cpu=CPU, labels=LABELS, images=IMAGES, unschedulable=st.booleans())
    def set_node(
        self, *, name: str, cpu: str, labels: dict[str, str], images: list[str], unschedulable: bool
    ) -> None:
        listed = [{"names": [image], "sizeBytes": 1000} for image in images]
        extra = {"example.com/gpu": "2"} if "disk" in labels else {}
        node = parse_node(
            make_node(
                name,
                cpu=cpu,
                labels=labels,
                images=listed,
                unschedulable=unschedulable,
                allocatable=extra,
            )
        )
        before = self.cache.set_node(node)
        assert before == self.nodes.get(name)
        self.nodes[name] = node

    @rule(name=NODE_NAMES)
    def remove_node(self, name: str) -> None:
        removed = self.cache.remove_node(name)
        assert removed == self.nodes.pop(name, None)

    @rule(name=NODE_NAMES)
    def recreate_node_under_the_same_name(self, name: str) -> None:
        self.generation += 1
        obj = make_node(name)
        obj["metadata"]["uid"] = f"again-{self.generation}"
        node = parse_node(obj)
        self.cache.set_node(node)
        self.nodes[name] = node

    @rule(name=POD_NAMES, node_name=NODE_NAMES, cpu=CPU, terminating=st.booleans())
    def set_pod(self, *, name: str, node_name: str, cpu: str, terminating: bool) -> None:
        pod = _pod(name, node_name, cpu)
        if terminating:
            pod.terminating = True
        assert self.cache.set_pod(pod) is self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        self.assumed.discard(pod.uid)

    @rule(name=POD_NAMES)
    def remove_pod(self, name: str) -> None:
        uid = f"uid-default-{name}"
        assert self.cache.remove_pod(uid) is self.pods.pop(uid, None)
        self.assumed.discard(uid)

    @rule(name=POD_NAMES, node_name=NODE_NAMES, cpu=CPU)
    def assume(self, name: str, node_name: str, cpu: str) -> None:
        pod = _pod(name, node_name, cpu)
        if pod.uid in self.pods:
            return
        self.cache.assume_pod(pod)
        self.pods[pod.uid] = pod
        self.assumed.add(pod.uid)

    @rule(name=POD_NAMES)
    def forget(self, name: str) -> None:
        uid = f"uid-default-{name}"
        forgotten = self.cache.forget_pod(uid)
        assert (forgotten is not None) == (uid in self.assumed)
        if uid in self.assumed:
            del self.pods[uid]
            self.assumed.discard(uid)

    @rule()
    def update_snapshot(self) -> None:
        self.cache.update_snapshot()
        self.compare()

    @invariant()
    def knows_what_was_told(self) -> None:
        assert {pod.uid: pod for pod in self.cache.pods()} == self.pods
        assert {node.name: node for node in self.cache.nodes()} == self.nodes
        assert set(self.cache.assumed_pods) == self.assumed

    def compare(self) -> None:
        snapshot = self.cache.snapshot
        rebuilt = Cache()
        for node in self.nodes.values():
            rebuilt.set_node(node)
        for pod in self.pods.values():
            rebuilt.set_pod(pod)
        fresh = rebuilt.update_snapshot()
        assert set(snapshot.row_of) == set(fresh.row_of) == set(self.nodes)
        assert snapshot.node_count == fresh.node_count == int(snapshot.alive.sum())
        rows = [snapshot.row_of[name] for name in self.nodes]
        fresh_rows = [fresh.row_of[name] for name in self.nodes]
        for resource, row in fresh.resource_row.items():
            for ours, theirs in (
                (snapshot.allocatable, fresh.allocatable),
                (snapshot.requested, fresh.requested),
            ):
                mine = snapshot.resource_row.get(resource)
                column = ours[mine][rows] if mine is not None else np.zeros(len(rows))
                assert column.tolist() == theirs[row][fresh_rows].tolist(), resource
        nonzero, fresh_nonzero = snapshot.nonzero_requested, fresh.nonzero_requested
        assert nonzero[:, rows].tolist() == fresh_nonzero[:, fresh_rows].tolist()
        for row, fresh_row in zip(rows, fresh_rows, strict=True):
            assert scored_amounts(snapshot, row) == scored_amounts(fresh, fresh_row)
        unschedulable = snapshot.unschedulable[rows].tolist()
        assert unschedulable == fresh.unschedulable[fresh_rows].tolist()
        for key in ("zone", "disk"):
            assert _labels(snapshot, key, rows) == _labels(fresh, key, fresh_rows)
        assert _images(snapshot) == _images(fresh)
        assert sorted(snapshot.names(snapshot.visit_order)) == sorted(self.nodes)


def _pod(name: str, node_name: str, cpu: str) -> PodInfo:
    ports = [{"containerPort": 80, "hostPort": 8080}] if cpu == "1" else []
    obj = make_pod(name, cpu=cpu, node_name=node_name)
    obj["spec"]["containers"][0]["ports"] = ports
    return parse_pod(obj)


def _labels(snapshot: Any, key: str, rows: list[int]) -> list[str | None]:
    column = snapshot.label(key)
    return [column.values[column.ids[row]] if column.ids[row] >= 0 else None for row in rows]


def _images(snapshot: Any) -> dict[str, set[str]]:
    images = snapshot.images
    return {image: set(snapshot.names(images.rows(image))) for image in images}


TestCacheMachine = CacheMachine.TestCase
