"""A pod that could be placed now is woken: random changes of nodes, classes and slices."""

import itertools
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
)
from stellwerk.models.pod import PodInfo
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo, parse_node
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.preemption_cases import Arena, make_arena

GPU, FPGA = "example.com/gpu", "example.com/fpga"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpus"
POD_RESOURCES = {Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD}
NODES = ("a", "b")


def node(rng: Random, name: str) -> JsonObject:
    amounts = {GPU: rng.choice("0012"), FPGA: rng.choice("001")}
    return make_node(
        name,
        cpu=rng.choice("12"),
        pods=rng.choice(("1", "10")),
        allocatable={key: value for key, value in amounts.items() if value != "0" or rng.random()},
    )


def device_class(rng: Random) -> JsonObject:
    spec = rng.choice(({}, {"extendedResourceName": GPU}, {"extendedResourceName": FPGA}))
    return {"metadata": {"name": "gpus"}, "spec": spec}


def device_slice(rng: Random, name: str, generation: int) -> JsonObject:
    devices = [{"name": f"d{number}"} for number in range(rng.randint(0, 3))]
    pool = {"name": name, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": {"name": name}, "spec": spec}


def pending(rng: Random) -> PodInfo:
    requests = {"cpu": rng.choice("12")}
    for resource in (GPU, FPGA, IMPLICIT):
        if rng.random() < 0.4:
            requests[resource] = rng.choice("12")
    return pod_info("pending", requests=requests)


class Cluster:
    """A cluster that changes, and what the plugins of the pending pod are told of it."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        pods = [
            make_pod(f"on-{name}", node_name=name, requests={"cpu": "1", GPU: rng.choice("01")})
            for name in NODES
            if rng.random() < 0.7
        ]
        args = rng.choice(({}, {"ignoredResources": [FPGA]}))
        profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}
        self.arena: Arena = make_arena([node(rng, name) for name in NODES], pods, profile=profile)
        self.generation = 1
        for _ in range(3):
            self.change_devices()

    def change_devices(self) -> ClusterChange:
        rng, objects = self.rng, self.arena.objects
        self.generation += 1
        if rng.random() < 0.4:
            kind, resource, new = "DeviceClass", Resource.DEVICE_CLASS, device_class(rng)
        else:
            kind, resource = "ResourceSlice", Resource.RESOURCE_SLICE
            new = device_slice(rng, rng.choice(NODES), self.generation)
        old = objects.get(kind, "", new["metadata"]["name"])
        objects.set(kind, new)
        return ClusterChange(resource, Action.UPDATE_OTHER if old else Action.ADD, old, new)

    def change(self) -> ClusterChange:
        rng, cache = self.rng, self.arena.cache
        placed = list(cache.pods())
        match rng.randrange(4):
            case 0 if placed:
                gone = cache.remove_pod(rng.choice(placed).uid)
                found = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, gone, None)
            case 1 | 2:
                name = rng.choice((*NODES, "c"))
                row = cache.snapshot.row_of.get(name)
                old: NodeInfo | None = None if row is None else cache.snapshot.node_at(row)
                new = parse_node(node(rng, name))
                cache.set_node(new)
                action = Action.ADD if old is None else Action.UPDATE_NODE_ALLOCATABLE
                found = ClusterChange(Resource.NODE, action, old, new)
            case _:
                return self.change_devices()
        cache.update_snapshot()
        return found

    def rejectors(self, pod: PodInfo) -> set[str]:
        """The plugins that reject the pod somewhere; none: it could be placed."""
        filtering = self.arena.framework.filtering
        found = filtering.find_feasible(pod, sample=False)
        if found.fits.any():
            return set()
        if not found.pre_filter.ok:
            return {found.pre_filter.plugin}
        return {status.plugin for status in filtering.diagnose(found, pod).statuses}

    def is_woken(self, pod: PodInfo, change: ClusterChange, rejectors: set[str]) -> bool:
        every = itertools.chain.from_iterable(self.arena.framework.plugins.values())
        hints = [
            hint
            for plugin in {each.name: each for each in every}.values()
            if plugin.name in rejectors and hasattr(plugin, "events_to_register")
            for hint in plugin.events_to_register()
            if covers(hint, change)
        ]
        return any(
            hint.queueing_hint_fn is None
            or hint.queueing_hint_fn(pod, change) is QueueingHint.QUEUE
            for hint in hints
        )


def covers(hint: ClusterEventWithHint, change: ClusterChange) -> bool:
    same = hint.resource is change.resource
    of_pods = hint.resource is Resource.POD and change.resource in POD_RESOURCES
    return (same or of_pods) and bool(hint.action & change.action)


@given(st.integers(0, 2**32))
def test_a_pod_that_could_be_placed_after_a_change_is_woken_by_it(seed: int) -> None:
    rng = Random(seed)
    cluster, pod = Cluster(rng), pending(rng)
    for _ in range(6):
        rejectors = cluster.rejectors(pod)
        change = cluster.change()
        if rejectors and not cluster.rejectors(pod):
            assert cluster.is_woken(pod, change, rejectors), (rejectors, change)
