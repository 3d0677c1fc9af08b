"""After any change, each pod that would fit now is in activeQ or backoffQ within a second."""

import asyncio
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Final

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from stellwerk.backend.queued_pod import Place
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.examples import examples
from tests.support.in_process import InProcess, make_profile, running
from tests.support.skipped_time import run_skipping

ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
NAMESPACES: Final = ("default", "other")
TAINT: Final = {"key": "kept", "value": "", "effect": "NoSchedule"}
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def affinity(kind: str, key: str, app: str, **more: Any) -> JsonObject:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    return {"affinity": {kind: {REQUIRED: [term]}}}


OF_QUIET_NAMESPACES: Final = {"namespaceSelector": {"matchLabels": {"quiet": "yes"}}}
SPREAD: Final = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
PORT: Final = {
    "containers": [
        {
            "name": "main",
            "image": "registry.example/app:1",
            "ports": [{"containerPort": 80, "hostPort": 80}],
        }
    ]
}
CLAIM: Final = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "once"}}]}
KINDS: Final[list[tuple[str, JsonObject]]] = [
    ("web", {"cpu": "1"}),
    ("web", {"cpu": "3"}),
    ("web", affinity("podAffinity", ZONE, "web")),
    ("web", affinity("podAffinity", HOST, "web")),
    ("db", affinity("podAffinity", HOST, "web")),
    ("db", affinity("podAntiAffinity", ZONE, "web")),
    ("web", affinity("podAntiAffinity", HOST, "web")),
    ("db", affinity("podAntiAffinity", ZONE, "web", **OF_QUIET_NAMESPACES)),
    ("db", affinity("podAffinity", ZONE, "web", **OF_QUIET_NAMESPACES)),
    ("web", {"topologySpreadConstraints": [SPREAD]}),
    (
        "web",
        {
            "topologySpreadConstraints": [
                SPREAD | {"nodeTaintsPolicy": "Honor", "topologyKey": HOST, "minDomains": 2}
            ]
        },
    ),
    ("web", PORT),
    ("db", {"tolerations": [{"key": "kept", "operator": "Exists"}], "cpu": "2"}),
    ("db", {"nodeSelector": {ZONE: "a"}}),
    ("db", CLAIM),
    ("db", {"schedulingGates": [{"name": "later"}], "cpu": "1"}),
    ("web", {"cpu": "3", "nominated_node_name": "n0"}),
]
"""(label `app`, fields of `make_pod`)."""


class Story:
    """A small cluster and what may happen to it."""

    def __init__(self, world: InProcess) -> None:
        self.world = world
        self.nodes: list[str] = []
        self.pods: list[tuple[str, str]] = []
        """(namespace, name) of those that are there."""
        self._made = 0
        for name in NAMESPACES:
            self.namespace(name, quiet=False)
        for number in range(2):
            self.add_node(number, number)

    def stored(self, namespace: str, name: str) -> JsonObject:
        return deepcopy(self.world.client.objects[f"/api/v1/namespaces/{namespace}/pods/{name}"])

    def namespace(self, name: str, *, quiet: bool) -> None:
        labels = {"quiet": "yes"} if quiet else {}
        metadata = {"name": name, "uid": f"ns-{name}", "labels": labels}
        self.world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def add_node(self, number: int, zone: int) -> None:
        name = f"n{number % 4}"
        if name not in self.nodes:
            self.nodes.append(name)
            self.world.apply(make_node(name, cpu="4", pods="4", zone="ab"[zone % 2]))

    def change_node(self, number: int, change: Callable[[JsonObject], object]) -> None:
        if self.nodes:
            name = self.nodes[number % len(self.nodes)]
            node = deepcopy(self.world.client.objects[f"/api/v1/nodes/{name}"])
            change(node)
            self.world.apply(node)

    def remove_node(self, number: int) -> None:
        if self.nodes:
            self.world.delete("Node", self.nodes.pop(number % len(self.nodes)))

    def add_pod(self, kind: int, namespace: int) -> None:
        app, fields = KINDS[kind % len(KINDS)]
        name, where = f"p{self._made}", NAMESPACES[namespace % 2]
        self._made += 1
        self.pods.append((where, name))
        self.world.apply(make_pod(name, namespace=where, labels={"app": app}, **deepcopy(fields)))

    def change_pod(self, number: int, change: Callable[[JsonObject], object]) -> None:
        if self.pods:
            pod = self.stored(*self.pods[number % len(self.pods)])
            change(pod)
            self.world.apply(pod)

    def remove_pod(self, number: int) -> None:
        if self.pods:
            namespace, name = self.pods.pop(number % len(self.pods))
            self.world.delete("Pod", name, namespace)

    def finish_pod(self, number: int) -> None:
        self.change_pod(number, lambda pod: pod["status"].update(phase="Succeeded"))
        if self.pods:
            self.pods.pop(number % len(self.pods))

    def bind_by_hand(self, number: int, node: int) -> None:
        def bind(pod: JsonObject) -> None:
            if self.nodes and not pod["spec"].get("schedulingGates"):
                pod["spec"].setdefault("nodeName", self.nodes[node % len(self.nodes)])

        self.change_pod(number, bind)

    def nominate(self, number: int, node: int) -> None:
        """Keep room for a pod that waits, as preemption does."""
        if self.pods and self.nodes:
            namespace, name = self.pods[number % len(self.pods)]
            pod = self.world.queue.pod(f"uid-{namespace}-{name}")
            nominator = self.world.operator.world.nominator
            if pod is not None and not nominator.node_of(pod.uid):
                self.world.queue.nominate(pod, self.nodes[node % len(self.nodes)])

    def claim(self, *, there: bool) -> None:
        path = "/api/v1/namespaces/default/persistentvolumeclaims/once"
        if not there and path in self.world.client.objects:
            self.world.delete("PersistentVolumeClaim", "once")
        elif there:
            annotations = {"pv.kubernetes.io/bind-completed": "yes"}
            self.world.apply(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {
                        "name": "once",
                        "namespace": "default",
                        "uid": "once",
                        "annotations": annotations,
                    },
                    "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": "pv"},
                    "status": {"phase": "Bound"},
                },
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": "pv", "uid": "pv"},
                    "spec": {"accessModes": ["ReadWriteOncePod"]},
                },
            )

    def forgotten(self) -> list[str]:
        """Pods in unschedulablePods that some node would take now."""
        world = self.world.operator.world
        world.cache.update_snapshot()
        found = []
        for entry in world.queue.entries.values():
            profile = world.profiles.of(entry.pod)
            if entry.place is Place.UNSCHEDULABLE and profile and not entry.pod.terminating:
                fits = profile.framework.feasible(entry.pod)
                if fits.any():
                    by = sorted(entry.unschedulable_plugins)
                    found.append(f"{entry.pod.key} (rejected by {by})")
        return found


def relabel(value: int) -> Callable[[JsonObject], object]:
    return lambda obj: obj["metadata"].update(
        labels=obj["metadata"]["labels"] | {"app": ("web", "db", "none")[value % 3]}
    )


def move(value: int) -> Callable[[JsonObject], object]:
    def change(node: JsonObject) -> None:
        node["metadata"]["labels"].pop(ZONE, None)
        if value % 3:
            node["metadata"]["labels"][ZONE] = "ab"[value % 2]

    return change


def taint(value: int) -> Callable[[JsonObject], object]:
    return lambda node: node["spec"].update(taints=[TAINT] if value % 2 else [])


def cordon(value: int) -> Callable[[JsonObject], object]:
    return lambda node: node["spec"].update(unschedulable=bool(value % 2))


def grow(value: int) -> Callable[[JsonObject], object]:
    return lambda node: node["status"]["allocatable"].update(cpu=str(1 + value % 6))


def shrink(pod: JsonObject) -> None:
    resources = pod["spec"]["containers"][0].get("resources", {})
    if "cpu" in (resources.get("requests") or {}):
        resources["requests"]["cpu"] = "500m"


def end(pod: JsonObject) -> None:
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def open_gate(pod: JsonObject) -> None:
    pod["spec"].pop("schedulingGates", None)


Act = tuple[str, int, int]
"""The name of an act, and two numbers that say what it is done to and how."""
ACTS: Final[dict[str, Callable[[Story, int, int], object]]] = {
    "add a pod": lambda story, one, two: story.add_pod(one, two),
    "add another pod": lambda story, one, two: story.add_pod(one + 8, two),
    "add a node": lambda story, one, two: story.add_node(one, two),
    "remove a node": lambda story, one, _: story.remove_node(one),
    "move a node": lambda story, one, two: story.change_node(one, move(two)),
    "taint a node": lambda story, one, two: story.change_node(one, taint(two)),
    "cordon a node": lambda story, one, two: story.change_node(one, cordon(two)),
    "grow a node": lambda story, one, two: story.change_node(one, grow(two)),
    "relabel a pod": lambda story, one, two: story.change_pod(one, relabel(two)),
    "shrink a pod": lambda story, one, _: story.change_pod(one, shrink),
    "end a pod": lambda story, one, _: story.change_pod(one, end),
    "remove a pod": lambda story, one, _: story.remove_pod(one),
    "finish a pod": lambda story, one, _: story.finish_pod(one),
    "nominate a pod": lambda story, one, two: story.nominate(one, two),
    "bind by hand": lambda story, one, two: story.bind_by_hand(one, two),
    "open a gate": lambda story, one, _: story.change_pod(one, open_gate),
    "label a namespace": lambda story, one, two: story.namespace(
        NAMESPACES[one % 2], quiet=bool(two % 2)
    ),
    "a claim": lambda story, one, _: story.claim(there=bool(one % 2)),
}
RANDOM_ACTS: Final = st.lists(
    st.tuples(st.sampled_from(sorted(ACTS)), st.integers(0, 8), st.integers(0, 5)),
    min_size=1,
    max_size=12,
)


_FIRST_ON_N0: Final = [
    ("cordon a node", 1, 1),
    ("add a pod", 0, 0),
    ("cordon a node", 1, 0),
    ("cordon a node", 0, 1),
]
"""A pod of the kind `web` is on n0, and n1 alone takes more."""
SCENES: Final = [
    pytest.param(
        [*_FIRST_ON_N0, ("add a pod", 3, 0)],
        [("remove a pod", 0, 0), ("finish a pod", 0, 0), ("relabel a pod", 0, 2)],
        id="the last match of the pod's own affinity goes",
    ),
    pytest.param(
        [*_FIRST_ON_N0, ("add a pod", 2, 0)],
        [("move a node", 0, 0), ("remove a node", 0, 0)],
        id="the node of the last match leaves the topology",
    ),
    pytest.param(
        [
            ("label a namespace", 0, 1),
            ("remove a node", 1, 0),
            ("add a pod", 7, 0),
            ("add a pod", 0, 0),
        ],
        [("label a namespace", 0, 0), ("remove a pod", 0, 0)],
        id="the namespace of the pod is no longer meant by an anti-affinity",
    ),
    pytest.param(
        [
            ("cordon a node", 1, 1),
            ("add a pod", 1, 0),
            ("add a pod", 1, 0),
            ("nominate a pod", 1, 0),
            ("add a pod", 0, 0),
        ],
        [("bind by hand", 1, 1), ("remove a pod", 1, 0)],
        id="a nominated pod goes elsewhere",
    ),
    pytest.param(
        [("cordon a node", 1, 1), ("add a pod", 9, 0), ("add a pod", 9, 0)],
        [("end a pod", 0, 0), ("remove a pod", 0, 0), ("relabel a pod", 0, 2)],
        id="a pod that a spread constraint counts ends",
    ),
    pytest.param(
        [
            ("cordon a node", 1, 1),
            ("add a pod", 0, 0),
            ("cordon a node", 1, 0),
            ("move a node", 1, 2),
            ("add a pod", 5, 0),
        ],
        [("remove a node", 0, 0), ("move a node", 0, 1), ("remove a pod", 0, 0)],
        id="the node in the domain of an anti-affinity goes",
    ),
    pytest.param(
        [("a claim", 1, 0), ("add a pod", 14, 0), ("add a pod", 14, 0)],
        [("remove a pod", 0, 0), ("finish a pod", 0, 0)],
        id="a claim for one pod is free",
    ),
    pytest.param(
        [("remove a node", 1, 0), ("add a pod", 11, 0), ("add a pod", 11, 1)],
        [("remove a pod", 0, 0), ("finish a pod", 0, 0), ("add a node", 1, 1)],
        id="a port is free",
    ),
]
"""What leads to a pod that waits, and acts of which each one ends that."""
SCENE_BEGINNINGS: Final = [scene.values[0] for scene in SCENES]


async def told(clock: VirtualClock, acts: Sequence[Act]) -> set[str]:
    """Tell a story, and look after each act; returns the pods that waited before the last one."""
    waited = set[str]()
    async with running(clock) as world:
        world.apply(make_profile("default-scheduler"))
        story = Story(world)
        await asyncio.sleep(1)
        for number, (name, one, two) in enumerate(acts):
            entries = world.queue.entries.values()
            waited = {each.pod.uid for each in entries if each.place is Place.UNSCHEDULABLE}
            ACTS[name](story, one, two)
            await asyncio.sleep(1)
            forgotten = story.forgotten()
            assert not forgotten, f"after {acts[: number + 1]}: {forgotten}"
            waited -= {
                each.pod.uid
                for each in world.queue.entries.values()
                if each.place is Place.UNSCHEDULABLE
            }
        # A hint that raises wakes the pod, and would hide what it should have said.
        assert not list(world.metrics.plugin_failures.items())
    return waited


@pytest.mark.parametrize(("beginning", "endings"), SCENES)
def test_each_end_of_a_wait_is_noticed(beginning: Sequence[Act], endings: Sequence[Act]) -> None:
    for ending in endings:
        woken = set[str]()

        async def flow(clock: VirtualClock, ending: Act = ending, woken: set[str] = woken) -> None:
            woken |= await told(clock, [*beginning, ending])

        run_skipping(flow)
        assert woken, ending


def play(acts: Sequence[Act]) -> None:
    async def flow(clock: VirtualClock) -> None:
        await told(clock, acts)

    run_skipping(flow)


@given(st.sampled_from(SCENE_BEGINNINGS), RANDOM_ACTS)
@settings(max_examples=examples(100), deadline=None)
def test_pods_that_would_fit_are_tried(beginning: Sequence[Act], acts: Sequence[Act]) -> None:
    play([*beginning, *acts])


@pytest.mark.long
@given(
    st.sampled_from(SCENE_BEGINNINGS), RANDOM_ACTS, st.sampled_from(SCENE_BEGINNINGS), RANDOM_ACTS
)
@settings(max_examples=examples(2000), deadline=None)
def test_pods_that_would_fit_are_tried_in_long_stories(
    first: Sequence[Act], acts: Sequence[Act], second: Sequence[Act], more: Sequence[Act]
) -> None:
    play([*first, *acts, *second, *more])
