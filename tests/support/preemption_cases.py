"""Small clusters with a whole profile on them, for tests of the preemption plugins."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.handle import STANDING_CLOCK
from stellwerk.framework.interface import Candidate, PostFilterResult
from stellwerk.framework.offline import offline_services
from stellwerk.framework.runtime import Framework
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.default_preemption.plugin import DefaultPreemption, EveryCandidate
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import load_profile
from stellwerk_kube.clock import Clock
from stellwerk_kube.deletion_cost import DELETION_COST
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_cache, make_pod, owned, pod_info

CROSS_NODE: Mapping[str, Any] = {
    "plugins": {"postFilter": {"enabled": [{"name": "CrossNodePreemption"}]}}
}


def make_budget(
    name: str,
    labels: Mapping[str, str],
    allowed: int = 0,
    *,
    namespace: str = "default",
    disrupted: Iterable[str] = (),
) -> JsonObject:
    """A v1.PodDisruptionBudget as its controller leaves it."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": dict(labels)}},
        "status": {
            "disruptionsAllowed": allowed,
            "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z"),
        },
    }


def victim(
    name: str, node_name: str, *, cpu: str = "1", start: str | None = None, **fields: Any
) -> JsonObject:
    """A running pod; `start` is the minute of its start."""
    pod = make_pod(name, node_name=node_name, cpu=cpu, **fields)
    pod["status"] = {"phase": "Running"}
    if start is not None:
        pod["status"]["startTime"] = f"2026-01-01T00:{start}:00Z"
    return pod


def of_daemon_set(pod: JsonObject) -> JsonObject:
    """The pod as the controller of a DaemonSet makes it for its node."""
    term = {
        "matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [pod["spec"]["nodeName"]]}
        ]
    }
    required = {"nodeSelectorTerms": [term]}
    pod["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    return owned(pod, "agents", "DaemonSet")


def costing(pod: JsonObject, cost: str) -> JsonObject:
    """The pod with a deletion cost, as its annotation has it."""
    pod["metadata"]["annotations"] = {DELETION_COST: cost}
    return pod


def preempting(**args: Any) -> JsonObject:
    """A profile whose DefaultPreemption has these arguments."""
    return {"pluginConfig": [{"name": "DefaultPreemption", "args": args}]}


@dataclass
class Arena:
    """A framework on a cluster."""

    cache: Cache
    nominator: Nominator
    objects: IndexedObjectStore
    framework: Framework

    def preempt(self, pod: PodInfo, *, every: bool = True) -> PostFilterResult:
        """Run a cycle for a pod that fits nowhere."""
        state = CycleState()
        found = self.framework.filtering.find_feasible(pod, state, sample=False)
        assert not found.fits.any(), "the pod fits without preemption"
        if every:
            state.write(DefaultPreemption.name, EveryCandidate())
        diagnosis = self.framework.filtering.diagnose(found, pod)
        return self.framework.run_post_filters(state, pod, diagnosis)


def make_arena(
    nodes: Iterable[JsonObject],
    pods: Iterable[JsonObject],
    *,
    budgets: Iterable[JsonObject] = (),
    nominated: Iterable[PodInfo] = (),
    profile: Mapping[str, Any] | None = None,
    seed: int = 0,
    clock: Clock = STANDING_CLOCK,
) -> Arena:
    """A cluster under the default profile, or one with changes."""
    cache, objects, nominator = make_cache(nodes, pods), IndexedObjectStore(), Nominator()
    for budget in budgets:
        objects.set("PodDisruptionBudget", budget)
    for pod in nominated:
        nominator.add(pod)
    services = offline_services(cache.snapshot, objects, nominator, Random(seed), clock.now)
    spec = {"schedulerName": "default-scheduler", **(profile or {})}
    loaded = load_profile({"metadata": {"name": "test"}, "spec": spec}, known_plugins())
    return Arena(cache, nominator, objects, Assembly(loaded, services).framework)


def preemptor(name: str = "preemptor", *, cpu: str = "2", **fields: Any) -> PodInfo:
    """A pod of high priority."""
    return pod_info(name, cpu=cpu, **{"priority": 1000, **fields})


def names(pods: Sequence[PodInfo]) -> list[str]:
    """Names in order."""
    return [pod.name for pod in pods]


def by_node(result: PostFilterResult) -> dict[str, tuple[list[str], int]]:
    """Victims and budget violations of each candidate."""
    return {
        candidate.node_name: (names(candidate.victims), candidate.pdb_violations)
        for candidate in result.candidates
    }


def best_nodes(result: PostFilterResult) -> set[str]:
    """The nodes that tie in the end."""
    assert result.best is not None
    best: Sequence[Candidate] = result.best(result.candidates)
    return {candidate.node_name for candidate in best}
