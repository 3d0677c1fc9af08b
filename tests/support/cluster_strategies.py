"""Small random clusters whose labels, taints, ports and amounts collide often."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from stellwerk.backend.cache import Cache
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo
from tests.support.builders import make_cache, make_node, make_pod

KEYS = ("zone", "disk", "size")
VALUES = ("a", "b", "5", "10", "-3")
GPU = "example.com/gpu"
IMAGES = ("registry.example/app", "registry.example/app:1", "tool:latest")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TAINT_KEYS = ("dedicated", "spot", "node.kubernetes.io/unschedulable")


@dataclass
class Cluster:
    """A cluster, a pod to place, and a view of some rows with pods added and taken away."""

    cache: Cache
    pod: PodInfo
    rows: list[int]
    added: list[tuple[int, PodInfo]]
    """(position in `rows`, pod)."""
    removed: list[tuple[int, PodInfo]]

    @property
    def snapshot(self) -> Snapshot:
        """Return what the cache wrote."""
        return self.cache.snapshot

    def views(self) -> list[NodeView]:
        """Return all rows; each of `rows` alone; `rows`; and `rows` with the overlay."""
        rows = np.array(self.rows, dtype=np.intp)
        alone = [NodeView(self.snapshot, rows[index : index + 1]) for index in range(len(rows))]
        crowded = NodeView(self.snapshot, rows).with_overlay()
        assert crowded.overlay is not None
        for position, pod in self.added:
            crowded.overlay.add_pod(position, pod)
        for position, pod in self.removed:
            crowded.overlay.remove_pod(position, pod)
        return [NodeView(self.snapshot), *alone, NodeView(self.snapshot, rows), crowded]

    def nodes(self, view: NodeView) -> dict[str, tuple[NodeInfo, list[PodInfo]]]:
        """Return the nodes of a view by name, each with the pods on it, the overlay's counted."""
        found: dict[str, tuple[NodeInfo, list[PodInfo]]] = {}
        for position, (row, node) in enumerate(
            zip(view.row_numbers().tolist(), view.nodes(), strict=True)
        ):
            if node is None:
                continue
            pods = dict(self.cache.pods_on(node.name))
            if view.overlay is not None:
                pods |= {pod.uid: pod for where, pod in self.added if where == position}
                gone = {pod.uid for where, pod in self.removed if where == position}
                pods = {uid: pod for uid, pod in pods.items() if uid not in gone}
            assert row == self.snapshot.row_of[node.name]
            found[node.name] = (node, list(pods.values()))
        return found


labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=3)

taints = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(TAINT_KEYS),
            "effect": st.sampled_from(EFFECTS),
        },
        optional={"value": st.sampled_from(VALUES)},
    ),
    max_size=3,
)

tolerations = st.lists(
    st.one_of(
        st.just({"operator": "Exists"}),
        st.fixed_dictionaries(
            {"key": st.sampled_from(TAINT_KEYS)},
            optional={
                "operator": st.sampled_from(["Exists", "Equal"]),
                "value": st.sampled_from(VALUES),
                "effect": st.sampled_from(EFFECTS),
            },
        ),
    ),
    max_size=3,
)

requests = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["0", "1m", "100m", "700m", "1", "2500m", "9"]),
        "memory": st.sampled_from(["0", "1", "1Mi", "200Mi", "1Gi", "3Gi", "40Gi"]),
        "ephemeral-storage": st.sampled_from(["1Gi", "5Gi"]),
        GPU: st.sampled_from(["0", "1", "3"]),
        "hugepages-2Mi": st.sampled_from(["2Mi", "8Mi"]),
    },
)

host_ports = st.lists(
    st.fixed_dictionaries(
        {"hostPort": st.sampled_from([80, 443]), "containerPort": st.just(1)},
        optional={
            "hostIP": st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2"]),  # noqa: S104
            "protocol": st.sampled_from(["TCP", "UDP"]),
        },
    ),
    max_size=2,
)

images = st.lists(
    st.fixed_dictionaries(
        {
            "names": st.lists(st.sampled_from([*IMAGES[1:], f"{IMAGES[0]}:latest"]), max_size=2),
            "sizeBytes": st.sampled_from([10 << 20, 300 << 20, 2500 << 20]),
        }
    ),
    max_size=2,
    unique_by=lambda image: str(image["names"]),
)


def _affinities(values: Sequence[str], most_names: int) -> st.SearchStrategy[JsonObject]:
    """Node affinities whose expressions use these values, and up to so many names per field."""
    label_keys, several = st.sampled_from(KEYS), st.lists(st.sampled_from(values), min_size=1)
    bounds = st.lists(st.sampled_from(["4", "7"]), min_size=1, max_size=1)
    expressions = st.one_of(
        st.fixed_dictionaries(
            {"key": label_keys, "operator": st.sampled_from(["In", "NotIn"]), "values": several}
        ),
        st.fixed_dictionaries(
            {"key": label_keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])}
        ),
        st.fixed_dictionaries(
            {"key": label_keys, "operator": st.sampled_from(["Gt", "Lt"]), "values": bounds}
        ),
    )
    names = st.sampled_from(["n0", "n1", "n2", "nowhere"])
    fields = st.fixed_dictionaries(
        {
            "key": st.just("metadata.name"),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(names, min_size=1, max_size=most_names),
        }
    )
    terms = st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.lists(expressions, max_size=2),
            "matchFields": st.lists(fields, max_size=2),
        },
    )
    preferred = st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": terms})
    return st.fixed_dictionaries(
        {},
        optional={
            "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
                {"nodeSelectorTerms": st.lists(terms, min_size=1, max_size=3)}
            ),
            "preferredDuringSchedulingIgnoredDuringExecution": st.lists(preferred, max_size=3),
        },
    )


node_affinities = _affinities([*VALUES, "x1", "x2", "x3"], most_names=3)

profile_affinities = _affinities(["a", "b", "5", "10"], most_names=1)
"""What a profile may add: stricter than what a pod may have."""


@st.composite
def nodes(draw: st.DrawFn, name: str) -> JsonObject:
    """Draw a node; it may lack any resource."""
    node = make_node(
        name,
        labels=draw(labels),
        taints=draw(taints),
        unschedulable=draw(st.booleans()),
        images=draw(images),
    )
    node["status"]["allocatable"] = draw(
        st.fixed_dictionaries(
            {"pods": st.sampled_from(["0", "1", "3", "110"])},
            optional={
                "cpu": st.sampled_from(["0", "1", "1500m", "4", "64"]),
                "memory": st.sampled_from(["1Gi", "4Gi", "70368744177663"]),
                "ephemeral-storage": st.sampled_from(["2Gi", "10Gi"]),
                GPU: st.sampled_from(["0", "2", "8"]),
                "hugepages-2Mi": st.sampled_from(["4Mi", "64Mi"]),
            },
        )
    )
    return node


@st.composite
def pods(draw: st.DrawFn, name: str, node_name: str | None = None) -> JsonObject:
    """Draw a pod with one or two containers."""
    pod = make_pod(name, requests=draw(requests), node_name=node_name)
    spec = pod["spec"]
    spec["containers"][0] |= {"ports": draw(host_ports), "image": draw(st.sampled_from(IMAGES))}
    if draw(st.booleans()):
        second = {"name": "side", "image": draw(st.sampled_from(IMAGES))}
        spec["containers"].append(second | {"resources": {"requests": draw(requests)}})
    spec["tolerations"] = draw(tolerations)
    return pod


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Draw one to five nodes (one more came and went), up to six pods on them, a pod to place."""
    count = draw(st.integers(1, 5))
    names = [f"n{index}" for index in range(count)]
    gone = draw(st.one_of(st.none(), st.integers(0, count)))
    all_names = names if gone is None else [*names[:gone], "gone", *names[gone:]]
    bound = [
        draw(pods(f"bound-{index}", node_name=draw(st.sampled_from(names))))
        for index in range(draw(st.integers(0, 6)))
    ]
    cache = make_cache([draw(nodes(name)) for name in all_names], bound)
    if gone is not None:
        cache.remove_node("gone")
        cache.update_snapshot()
    pod = draw(pods("new"))
    pod["spec"]["affinity"] = {"nodeAffinity": draw(node_affinities)}
    pod["spec"]["nodeSelector"] = draw(st.one_of(st.just({}), labels))
    rows = draw(st.lists(st.sampled_from([cache.snapshot.row_of[name] for name in names])))
    rows = list(dict.fromkeys(rows))
    added = [
        (draw(st.integers(0, len(rows) - 1)), parse_pod(draw(pods(f"added-{index}"))))
        for index in range(draw(st.integers(0, 2)) if rows else 0)
    ]
    present = [
        (position, resident)
        for position, row in enumerate(rows)
        for resident in cache.pods_on(cache.snapshot.node_at(row).name).values()
    ]
    removed = draw(st.lists(st.sampled_from(present), unique_by=id)) if present else []
    return Cluster(cache, parse_pod(pod), rows, added, removed)
