"""What plugins that people add do to a cluster, simulated: the three pictures of docs/plugins.md.

    python -m tests.benchmarks.study_plugins --out docs/plugins

Does scoring by load flatten hot nodes, how much does lending between quotas raise use, and what
does alignment to NUMA zones cost in placed pods. Everything is seeded: the pictures come out the
same.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, Final

from stellwerk.plugins.registry import add_installed, installed_points, known_plugins
from stellwerk.profiles.spec.profile import LoadedProfile, load_profile
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.arrivals import Arrivals
from stellwerk_simulation.cluster_objects import ClusterObjects
from stellwerk_simulation.manifests import pod_of
from stellwerk_simulation.simulation import Simulation, SimulationOptions
from stellwerk_simulation.trace import TraceNode, TracePod
from tests.benchmarks.chart import Points, line_chart

HOUR: Final = 3600.0
TIMED: Final = SimulationOptions(timed=True, queues=True)
OFFICE: Final = "07:00=100%,19:00=25%"
NIGHTLY: Final = "07:00=20%,19:00=100%"


def profile(**spec: Any) -> LoadedProfile:
    add_installed(installed_points())
    whole = {"schedulerName": "study", **spec}
    return load_profile({"metadata": {"name": "study"}, "spec": whole}, known_plugins())


def nodes(number: int, cpus: int) -> list[TraceNode]:
    return [TraceNode(f"node-{each}", cpus * 1000, cpus * 4096, 0, "") for each in range(number)]


def pod(
    name: str,
    cpu_millis: int,
    arrives: float,
    runs: float | None,
    *,
    namespace: str = "default",
    usage: str = "",
    load: str = "",
) -> TracePod:
    amounts = {"cpu": f"{cpu_millis}m", "memory": "64Mi"}
    annotations = {"stellwerk.dev/usage": usage, "stellwerk.dev/load": load}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]
        },
    }
    made = pod_of(manifest)
    return TracePod(name, made.cpu_millis, made.memory_mib, 0, 0, (), arrives, runs, manifest)


def over_time(
    loaded: LoadedProfile,
    of_nodes: Sequence[TraceNode],
    pods: Sequence[TracePod],
    objects: Sequence[JsonObject] = (),
) -> list[tuple[float, Mapping[str, float]]]:
    """Each reading: the hour, and what every node used of its CPU, in percent."""
    readings: list[tuple[float, Mapping[str, float]]] = []
    arrivals = Arrivals(pods, of_nodes, ClusterObjects.among(objects, "the study"))
    simulation = Simulation(arrivals, loaded, [], 1, TIMED)
    simulation.usages.on_reading = lambda at, used: readings.append((at / HOUR, used))
    simulation.run(pods, lambda _: None)
    return [each for each in readings if 0.5 <= each[0] <= 24]


def thinned(points: Points, hours: float = 0.25) -> list[tuple[float, float]]:
    """The mean of each quarter of an hour."""
    by_step: dict[int, list[float]] = {}
    for at, value in points:
        by_step.setdefault(int(at / hours), []).append(value)
    return [((step + 0.5) * hours, mean(values)) for step, values in sorted(by_step.items())]


# --- load -----------------------------------------------------------------------------------------


def day_of_pods(number: int, seed: int) -> list[TracePod]:
    """Pods of three kinds, whose use has little to do with what they request."""
    numbers, pods = Random(seed), []
    for each in range(number):
        kind = numbers.choice(("web", "web", "batch", "idle"))
        request = numbers.choice((500, 1000, 2000))
        share = {"web": numbers.uniform(0.8, 2.2), "batch": numbers.uniform(0.5, 1.8)}.get(
            kind, 0.1
        )
        pods.append(
            pod(
                f"{kind}-{each}",
                request,
                numbers.uniform(0, 22 * HOUR),
                numbers.uniform(1, 8) * HOUR,
                usage=f"cpu={int(request * share)}m,memory=32Mi",
                load={"web": OFFICE, "batch": NIGHTLY}.get(kind, ""),
            )
        )
    return sorted(pods, key=lambda each: each.arrives_seconds)


def load_study() -> tuple[str, dict[str, Points]]:
    scores = {"score": {"enabled": [{"name": "LoadVariationRiskBalancing", "weight": 10}]}}
    pods, of_nodes = day_of_pods(1800, seed=7), nodes(40, 16)
    lines: dict[str, Points] = {}
    for name, spec in (("default", {}), ("by load", {"plugins": scores})):
        readings = over_time(profile(**spec), of_nodes, pods)
        lines[f"{name}, hottest"] = thinned([(at, max(used.values())) for at, used in readings])
        hot = mean(100 * sum(v > 80 for v in used.values()) / len(used) for _, used in readings)
        highest = max(max(used.values()) for _, used in readings)
        print(f"load, {name}: hottest node {highest:.0f} %, above 80 %: {hot:.2f} % of node time")
    lines["mean of all"] = thinned([(at, mean(used.values())) for at, used in readings])
    return "CPU use of the hottest of 40 nodes over a day", lines


# --- quotas ---------------------------------------------------------------------------------------


def quotas(*, lends: bool) -> list[JsonObject]:
    amounts = {"cpu": "160", "memory": "1Ti"}
    most = {"cpu": "320" if lends else "160", "memory": "1Ti"}
    return [
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "quota", "namespace": namespace},
            "spec": {"min": amounts, "max": most},
        }
        for namespace in ("office", "night")
    ]


def team_pods(seed: int) -> list[TracePod]:
    """Two teams whose busy hours are not the same."""
    numbers, pods = Random(seed), []
    for namespace, busy in (("office", range(7, 19)), ("night", (*range(19, 24), *range(7)))):
        for hour in range(24):
            pods += [
                pod(
                    f"{namespace}-{hour}-{each}",
                    8000,
                    (hour + numbers.random()) * HOUR,
                    numbers.uniform(0.5, 3) * HOUR,
                    namespace=namespace,
                    usage="cpu=8000m,memory=32Mi",
                )
                for each in range(16 if hour in busy else 2)
            ]
    return sorted(pods, key=lambda each: each.arrives_seconds)


def quota_study() -> tuple[str, dict[str, Points]]:
    plugins = {
        "multiPoint": {"enabled": [{"name": "CapacityScheduling"}]},
        "postFilter": {"disabled": [{"name": "DefaultPreemption"}]},
    }
    lines: dict[str, Points] = {}
    for name, lends in (("without lending", False), ("with lending", True)):
        readings = over_time(
            profile(plugins=plugins), nodes(20, 16), team_pods(3), quotas(lends=lends)
        )
        lines[name] = thinned([(at, mean(used.values())) for at, used in readings])
        print(f"quotas, {name}: {mean(value for _, value in lines[name]):.1f} % of CPU in use")
    return "CPU in use of two teams with 160 cores each", lines


# --- NUMA zones -----------------------------------------------------------------------------------


def topologies(number: int, zones: int, cpus: int) -> list[JsonObject]:
    resources = [
        {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
        for name, amount in (("cpu", str(cpus // zones)), ("memory", "1Ti"))
    ]
    return [
        {
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": f"node-{each}"},
            "zones": [
                {"name": f"node-{zone}", "type": "Node", "resources": resources}
                for zone in range(zones)
            ],
            "attributes": [
                {"name": "topologyManagerPolicy", "value": "single-numa-node"},
                {"name": "topologyManagerScope", "value": "pod"},
            ],
        }
        for each in range(number)
    ]


MEMORY: Final = {"name": "memory", "capacity": "1Ti", "allocatable": "1Ti", "available": "1Ti"}


class Kubelets:
    """Give pods to zones as kubelets under single-numa-node do, and report what is left."""

    def __init__(self, number: int, zones: int, cpus: int) -> None:
        self.left = {f"node-{each}": [cpus // zones] * zones for each in range(number)}

    def admits(self, node: str, cpus: int) -> bool:
        """Take the lowest zone that holds the pod; False: TopologyAffinityError."""
        for zone, left in enumerate(self.left[node]):
            if left >= cpus:
                self.left[node][zone] -= cpus
                return True
        return False

    def reported(self, node: str, topology: JsonObject) -> JsonObject:
        zones = [
            {**zone, "resources": [{**zone["resources"][0], "available": str(left)}, MEMORY]}
            for zone, left in zip(topology["zones"], self.left[node], strict=True)
        ]
        return {**topology, "zones": zones}


def numa_study() -> tuple[str, dict[str, Points]]:
    match = {"multiPoint": {"enabled": [{"name": "NodeResourceTopologyMatch"}]}}
    numbers, objects = Random(11), topologies(60, 2, 16)
    cpus = [numbers.choice((1, 2, 3, 5)) for _ in range(420)]
    pods = [pod(f"pod-{each}", cpu * 1000, 0, None) for each, cpu in enumerate(cpus)]
    arrivals = Arrivals(pods, nodes(60, 16), ClusterObjects.among(objects, "the study"))
    by_node = {each["metadata"]["name"]: each for each in objects}
    lines: dict[str, Points] = {}
    for name, spec in (("default", {}), ("aligned", {"plugins": match})):
        simulation = Simulation(arrivals, profile(**spec), [], 1)
        kubelets = Kubelets(60, 2, 16)
        asked = placed = running = 0
        of_placed, of_running = [], []
        for each, cpu in zip(pods, cpus, strict=True):
            asked += cpu
            if node := simulation.arrive(each):
                placed += cpu
                running += cpu if kubelets.admits(node, cpu) else 0
                topology = kubelets.reported(node, by_node[node])
                simulation.world.objects.set("NodeResourceTopology", topology)
            of_placed.append((100 * asked / 960, 100 * placed / 960))
            of_running.append((100 * asked / 960, 100 * running / 960))
        lines[f"{name}: bound"] = of_placed[4::5]
        lines[f"{name}: admitted"] = of_running[4::5]
        print(
            f"zones, {name}: {100 * placed / 960:.1f} % of CPU bound, "
            f"{100 * running / 960:.1f} % admitted by the kubelet"
        )
    return "CPU of pods by arrival, 60 nodes with two zones of 8 cores", lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/plugins"))
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, study, across in (
        ("load", load_study, "hour of the day"),
        ("quotas", quota_study, "hour of the day"),
        ("zones", numa_study, "CPU that arrived pods ask for, %"),
    ):
        title, lines = study()
        (out / f"{name}.svg").write_text(line_chart(title, across, "%", lines, linear=True))


if __name__ == "__main__":
    main()
