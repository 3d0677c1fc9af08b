"""What happens in a simulated week: rollouts, drains, failures of nodes and containers, jobs.

`tests/flows/test_simulated_week.py` lets it pass. Invariant: what is done is drawn from one seed,
and every disturbance ends before the week does.
"""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating
from stellwerk_cluster.apimachinery.pods import is_finished, is_ready
from stellwerk_cluster.registry.eviction import evict
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node
from tests.support.virtual_cluster import VirtualCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

NODES = 20
_HOUR = 3600.0
_MACHINE = "stellwerk.dev/machine"
_USAGE = "stellwerk.dev/usage"
_DRAIN_TRIES = 200
_REPLICAS = {"web": 100, "api": 50, "cache": 20}
_DATABASES = 10
_STORAGE_CLASS: JsonObject = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "disks"},
    "provisioner": "disks.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}
_WORKLOADS = ("deployments.apps", "statefulsets.apps", "daemonsets.apps")


def week_nodes() -> list[JsonObject]:
    """Twenty nodes in three zones."""
    return [_node(number) for number in range(1, NODES + 1)]


def _node(number: int) -> JsonObject:
    return make_node(f"node-{number}", cpu="8", zone=f"zone-{'abc'[number % 3]}")


class Week:
    """The people and accidents of a cluster."""

    def __init__(self, world: VirtualCluster, seed: int) -> None:
        self._world = world
        self._random = random.Random(seed)
        self._version = 1
        self.done: Counter[str] = Counter()
        """How often each thing has been done."""
        self._acts: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "rollout": self._roll_out,
            "drain": self._drain,
            "failed machine": self._fail,
            "cut off": self._cut_off,
            "replaced node": self._replace_node,
            "crashes": self._crash,
            "pressure": self._press,
            "job": self._run_job,
            "failing job": self._run_failing_job,
            "scaling": self._scale,
        }

    async def begin(self) -> None:
        """Apply what runs all week, and let it start."""
        for name, replicas in _REPLICAS.items():
            self._world.apply(_deployment(name, replicas, 1), _budget(name))
        self._world.apply(
            _STORAGE_CLASS, _stateful_set(), _budget("db"), _daemon_set(), _cron_job()
        )
        await self._rest()
        assert len(self._world.pods) == sum(_REPLICAS.values()) + _DATABASES + NODES

    async def hour(self) -> None:
        """Do one thing, and let an hour pass."""
        until = self._world.clock.monotonic() + _HOUR
        name = self._random.choice(sorted(self._acts))
        await self._acts[name]()
        self.done[name] += 1
        await asyncio.sleep(max(0.0, until - self._world.clock.monotonic()))

    async def end(self) -> None:
        """Let everything come to rest, and look at it."""
        self._world.patch("cronjobs", "often", {"spec": {"suspend": True}}, "batch")
        await asyncio.sleep(2 * _HOUR)
        await self._rest()
        assert self._world.cluster.work.busy == []
        self._check_workloads()
        self._check_pods()
        self._check_jobs()
        self._check_leftovers()

    async def _rest(self) -> None:
        until = self._world.clock.monotonic() + _HOUR
        while self._world.cluster.work.busy or not self._is_complete():
            assert self._world.clock.monotonic() < until, self._what_is_missing()
            await asyncio.sleep(1)

    # What is done.

    async def _roll_out(self) -> None:
        self._version += 1
        name = self._random.choice([*_REPLICAS, "db", "agent"])
        plural = {"db": "statefulsets", "agent": "daemonsets"}.get(name, "deployments")
        image = {"spec": {"containers": _containers(name, self._version)}}
        self._world.patch(plural, name, {"spec": {"template": image}}, "apps")

    async def _drain(self) -> None:
        name = self._any_node()
        self._world.patch("nodes", name, {"spec": {"unschedulable": True}})
        api = self._world.api
        for _ in range(_DRAIN_TRIES):
            left = [pod for pod in self._on(name) if not _owned_by(pod, "DaemonSet")]
            for pod in left:
                key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
                with suppress(StatusError):  # 429: the budget is spent, until the next round
                    evict(api, api.kinds.resource("pods"), key, {}, {})
            if not left:
                break
            await asyncio.sleep(5)
        else:
            raise AssertionError(f"{name} is not drained: {self._on(name)}")
        await asyncio.sleep(self._random.uniform(60, 1200))
        self._world.patch("nodes", name, {"spec": {"unschedulable": None}})

    async def _fail(self) -> None:
        await self._silence("failed")

    async def _cut_off(self) -> None:
        await self._silence("cut-off")

    async def _silence(self, machine: str) -> None:
        """For some seconds, or long enough for all of its pods to be given up."""
        name = self._any_node()
        self._annotate("nodes", name, _MACHINE, machine)
        await asyncio.sleep(self._random.choice((20, 100, 1500)))
        self._annotate("nodes", name, _MACHINE, None)

    async def _replace_node(self) -> None:
        name = self._any_node()
        self._world.delete("nodes", name)
        await asyncio.sleep(self._random.choice((5, 200)))
        self._world.apply(_node(int(name.removeprefix("node-"))))

    async def _crash(self) -> None:
        for name in self._random.sample(sorted(self._world.pods), 5):
            if not is_finished(self._world.pods[name]):
                self._annotate("pods", name, "stellwerk.dev/end-now", "1")

    async def _press(self) -> None:
        """One resource of a node after the other runs short, and is given back."""
        name = self._any_node()
        for used in ("memory=32700Mi", "nodefs=95Gi", "pids=32700"):
            self._annotate("nodes", name, _USAGE, used)
            await asyncio.sleep(self._random.choice((15, 60)))
        self._annotate("nodes", name, _USAGE, None)

    async def _run_job(self) -> None:
        name = f"batch-{self.done['job']}"
        self._world.apply(_job(name, completions=10, parallelism=4, completionMode="Indexed"))

    async def _run_failing_job(self) -> None:
        name = f"failing-{self.done['failing job']}"
        self._world.apply(_job(name, annotations={"stellwerk.dev/exit-code": "3"}, backoffLimit=2))

    async def _scale(self) -> None:
        name = self._random.choice(sorted(_REPLICAS))
        for replicas in (_REPLICAS[name] * 3 // 2, _REPLICAS[name] // 2, _REPLICAS[name]):
            self._world.patch("deployments", name, {"spec": {"replicas": replicas}}, "apps")
            await asyncio.sleep(self._random.choice((1, 60, 600)))

    def _any_node(self) -> str:
        return str(self._random.choice(list(self._world.api.all("nodes")))["metadata"]["name"])

    def _on(self, node_name: str) -> list[JsonObject]:
        return [each.obj for each in self._world.api.store.collection("pods").on_node(node_name)]

    def _annotate(self, plural: str, name: str, key: str, value: str | None) -> None:
        self._world.patch(plural, name, {"metadata": {"annotations": {key: value}}})

    # What must be true.

    def _what_is_missing(self) -> str:
        waiting = [
            (name, pod["status"]) for name, pod in self._world.pods.items() if not is_ready(pod)
        ]
        return f"busy: {self._world.cluster.work.busy}; {waiting[:3]}"

    def _is_complete(self) -> bool:
        return all(
            each["status"].get(ready, 0) == wanted
            for plural in _WORKLOADS
            for each in self._world.api.all(plural)
            for ready, wanted in (_readiness(each),)
        )

    def _check_workloads(self) -> None:
        """Every workload has exactly what it wants, of its last revision."""
        assert self._is_complete()
        for plural in ("deployments.apps", "statefulsets.apps"):
            for each in self._world.api.all(plural):
                assert each["status"]["updatedReplicas"] == each["spec"]["replicas"], each["status"]
        (daemons,) = self._world.api.all("daemonsets.apps")
        assert daemons["status"]["updatedNumberScheduled"] == NODES

    def _check_pods(self) -> None:
        """Each pod that is there is wanted, bound, ready, and not on its way out."""
        pods = self._world.pods.values()
        running = [pod for pod in pods if not is_finished(pod)]
        assert len(running) == sum(_REPLICAS.values()) + _DATABASES + NODES
        assert all(is_ready(pod) and not is_terminating(pod) for pod in running)
        ids = [pod["metadata"]["uid"] for pod in pods]
        assert len(ids) == len(set(ids))

    def _check_jobs(self) -> None:
        for job in self._world.api.all("jobs.batch"):
            types = [each["type"] for each in job["status"].get("conditions") or ()]
            name, status = job["metadata"]["name"], job["status"]
            assert ("Failed" if name.startswith("failing") else "Complete") in types, job
            assert not status.get("active"), job
            uncounted = status.get("uncountedTerminatedPods") or EMPTY
            assert not any(uncounted.values()), job

    def _check_leftovers(self) -> None:
        """Nodes are well, and neither events nor old revisions have piled up."""
        api = self._world.api
        for node in api.all("nodes"):
            assert not node["spec"].get("taints"), node
            by_type = {each["type"]: each["status"] for each in node["status"]["conditions"]}
            assert by_type["Ready"] == "True"
            assert "True" not in {by_type[type_] for type_ in by_type if type_ != "Ready"}
        assert len(list(api.all("replicasets.apps"))) <= len(_REPLICAS) * 11
        assert len(list(api.all("controllerrevisions.apps"))) <= 2 * 11
        assert len(list(api.all("events"))) < 5000


def _readiness(workload: JsonObject) -> tuple[str, int]:
    """The field of the status that says how many are ready, and what it should say."""
    if workload["kind"] == "DaemonSet":
        return "numberAvailable", NODES
    return "readyReplicas", workload["spec"]["replicas"]


def _owned_by(pod: JsonObject, kind: str) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(each["kind"] == kind for each in owners)


def _containers(name: str, version: int) -> list[JsonObject]:
    requests = {"cpu": "200m", "memory": "256Mi"}
    image = f"registry.example/{name}:{version}"
    return [{"name": "main", "image": image, "resources": {"requests": requests}}]


def _workload(kind: str, name: str, annotations: JsonObject, **spec: Any) -> JsonObject:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {"containers": _containers(name, 1)},
            },
            **spec,
        },
    }


def _deployment(name: str, replicas: int, ready_seconds: int) -> JsonObject:
    annotations = {"stellwerk.dev/ready-seconds": str(ready_seconds), _USAGE: "memory=200Mi"}
    return _workload("Deployment", name, annotations, replicas=replicas)


def _stateful_set() -> JsonObject:
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disks",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    more = {"serviceName": "db", "volumeClaimTemplates": [claim]}
    return _workload("StatefulSet", "db", {}, replicas=_DATABASES, **more)


def _daemon_set() -> JsonObject:
    return _workload("DaemonSet", "agent", {})


def _budget(name: str) -> JsonObject:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"maxUnavailable": "20%", "selector": {"matchLabels": {"app": name}}},
    }


def _job(name: str, annotations: JsonObject | None = None, **spec: Any) -> JsonObject:
    template = {
        "metadata": {"annotations": {"stellwerk.dev/run-seconds": "60", **(annotations or {})}},
        "spec": {"restartPolicy": "Never", "containers": _containers("job", 1)},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, "ttlSecondsAfterFinished": 24 * 3600, **spec},
    }


def _cron_job() -> JsonObject:
    job = _job("often", completions=3, parallelism=3)
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "often"},
        "spec": {"schedule": "*/30 * * * *", "jobTemplate": {"spec": job["spec"]}},
    }
