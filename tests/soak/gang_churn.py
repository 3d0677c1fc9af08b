"""`make soak-gangs`: groups, claims and Jobs that come and go for long, and the audit at the end.

`python -m tests.soak.gang_churn --minutes N` runs a cluster of 200 nodes and its operator in time
that is skipped, with a new seed each round, until the minutes are over; now and then the operator
is restarted. When a round has come to rest, each pod is on a node or known to the queue, no node
and no device is given twice, and nothing that waits would find a node. A round can be repeated
alone: `--seed N --rounds 1`. The exit status is 1 if anything was wrong.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from stellwerk.backend.queued_pod import Place
from stellwerk.explain.pod_groups import explain_group
from stellwerk.explain.steps import finished
from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk.world.decide import decide
from stellwerk_cluster.apimachinery.feature_gates import CLAIMS, GANGS
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_cluster.hollow.device_descriptions import read_description
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

NODES: Final = 200
STEPS: Final = 50
"""Changes of one round."""
REST_SECONDS: Final = 60.0
"""Backoffs end within this; what waits for longer is flushed only after five minutes."""
_MINUTES: Final = 10.0
_DEVICE_CLASS: Final = "gpu.example.com"
_CLAIMS: Final = "resourceclaims.resource.k8s.io"


@dataclass
class Churn:
    """One round: what was made, and what goes next."""

    world: VirtualCluster
    random: Random
    made: list[str] = field(default_factory=list)
    """Names of groups and Jobs, which share theirs."""
    groups: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    """Names of the nodes that take no pods."""
    restarts: int = 0
    number: int = 0

    def step(self) -> None:
        """Make something, or take something away."""
        acts = [self.gang] * 4 + [self.job] * 2 + [self.sharers, self.take] + [self.lose] * 2
        acts += [self.cordon, self.take]
        self.random.choice(acts)()

    def gang(self) -> None:
        """A group with a Job of its size or more, at times in one zone, or with a shared claim."""
        name, size = self._name("gang"), self.random.randint(2, 24)
        spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": size}}}
        kind = self.random.choice(["", "", "zone", "claim", "whole"])
        pod: dict[str, Any] = {"schedulingGroup": {"podGroupName": name}}
        if kind == "zone":
            spec["schedulingConstraints"] = {"topology": [{"key": "zone"}]}
        elif kind == "whole":
            spec["disruptionMode"] = "PodGroup"
        elif kind == "claim":
            entry = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
            spec["resourceClaims"] = pod["resourceClaims"] = entry
        group = {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }
        self.groups.add(name)
        self.world.apply(group)
        self._job(name, size + self.random.choice([0, 0, 0, 2]), pod)

    def job(self) -> None:
        """A Job whose pods are each for itself, some with a claim of their own."""
        pod: dict[str, Any] = {}
        if self.random.random() < 0.4:
            pod["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
        self._job(self._name("job"), self.random.randint(1, 30), pod)

    def sharers(self) -> None:
        """Pods that share one claim, and come at once."""
        name = self._name("shared")
        wanted = {"deviceClassName": _DEVICE_CLASS, "count": 1}
        requests = [{"name": "gpus", "exactly": wanted}]
        self.world.apply(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"devices": {"requests": requests}},
            }
        )
        entry = [{"name": "gpus", "resourceClaimName": name}]
        self._job(name, self.random.randint(2, 12), {"resourceClaims": entry}, cpu="100m")

    def take(self) -> None:
        """Delete a Job, and its group."""
        if not self.made:
            return
        name = self.made.pop(self.random.randrange(len(self.made)))
        if self._is_there("jobs.batch", name):
            self.world.delete("jobs", name, "batch")
        if name in self.groups:
            self.groups.discard(name)
            self.world.delete("podgroups", name, "scheduling.k8s.io")

    def lose(self) -> None:
        """Delete a pod; its Job makes another one."""
        names = sorted(self.world.pods)
        if names:
            self.world.delete("pods", self.random.choice(names))

    def cordon(self) -> None:
        """Close a node, or open it again."""
        name = f"n{self.random.randrange(NODES)}"
        self.closed ^= {name}
        self.world.patch("nodes", name, {"spec": {"unschedulable": name in self.closed}})

    def _job(self, name: str, size: int, pod: JsonObject, cpu: str = "") -> None:
        requests = {"cpu": cpu or self.random.choice(["500m", "1", "2", "3"])}
        container: dict[str, Any] = {"name": "main", "image": "app", "resources": {}}
        container["resources"]["requests"] = requests
        if "resourceClaims" in pod:
            container["resources"]["claims"] = [{"name": "gpus"}]
        seconds = self.random.choice([5, 30, 120, 600])
        annotations = {"stellwerk.dev/run-seconds": str(seconds)}
        template = {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [container], **pod},
        }
        if self.random.random() < 0.2:
            template["spec"]["priorityClassName"] = "urgent"
        self.made.append(name)
        self.world.apply(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "completionMode": "Indexed",
                    "completions": size,
                    "parallelism": size,
                    "backoffLimit": 1000,
                    "template": template,
                },
            }
        )

    def _name(self, kind: str) -> str:
        self.number += 1
        return f"{kind}-{self.number}"

    def _is_there(self, storage_name: str, name: str) -> bool:
        objects = self.world.api.all(storage_name, "default")
        return any(each["metadata"]["name"] == name for each in objects)


# --- the audit ------------------------------------------------------------------------------------


def wrongs(world: VirtualCluster) -> Iterator[str]:
    """What must not be once nothing changes any more, beside the invariants of each flow."""
    yield from _lost(world)
    yield from _given_twice(world)
    yield from _asleep(world)


def _lost(world: VirtualCluster) -> Iterator[str]:
    operator = world.operator.world
    for name, pod in world.pods.items():
        if pod["status"].get("phase") in {"Succeeded", "Failed"} or pod["spec"].get("nodeName"):
            continue
        if pod["metadata"]["uid"] not in operator.queue.entries:
            yield f"{name} is on no node, and the queue does not know it"
    for uid in operator.preempting:
        if uid not in operator.queue.entries:
            yield f"a preemption is under way for {uid}, which is gone"


def _given_twice(world: VirtualCluster) -> Iterator[str]:
    holders: Counter[tuple[str, str, str]] = Counter()
    for claim in world.api.all(_CLAIMS, "default"):
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for each in (allocation.get("devices") or {}).get("results") or ():
            holders[each["driver"], each["pool"], each["device"]] += 1
    yield from (f"{device} is held {count} times" for device, count in holders.items() if count > 1)


def _asleep(world: VirtualCluster) -> Iterator[str]:
    """What rests although it would find a node: an event that should have woken it did not."""
    operator = world.operator.world
    groups = set()
    for uid, entry in list(operator.queue.entries.items()):
        pod = entry.newest
        if entry.place is not Place.UNSCHEDULABLE or uid in operator.preempting:
            continue
        if pod.group is not None:
            groups.add(pod.group)
            continue
        fork = operator.fork(Random(0))
        fork.cache.update_snapshot()
        profile = fork.profiles.of(pod)
        if profile is not None and decide(fork, pod, profile).failure is None:
            yield f"{pod.key} rests, and would find a node"
    for key in groups:
        steps = explain_group(operator, key.namespace, key.name)
        forecast = finished(steps).would_happen if steps is not None else None
        if forecast is not None and forecast.placed:
            yield f"the group {key.shown} rests, and would be placed"


# --- rounds ---------------------------------------------------------------------------------------


def node(number: int) -> JsonObject:
    """One of the nodes, in one of four zones; most are small, so that there is too little room."""
    cpu = "3" if number % 10 == 0 else "500m"
    return make_node(f"n{number}", cpu=cpu, labels={"zone": f"z{number % 4}"})


def play(seed: int) -> str:
    """One round; what came of it, in a line.

    Raises:
        AssertionError: something was lost, given twice, or not woken.
    """
    told = ""

    async def flow(clock: VirtualClock) -> None:
        nonlocal told
        kubelet = KubeletOptions(devices=(read_description("gpus"),))
        gates = GANGS | {CLAIMS}
        options = ClusterOptions(seed=seed, heartbeats=False, kubelet=kubelet, feature_gates=gates)
        async with open_virtual_cluster(clock, map(node, range(NODES)), options) as world:
            world.patch(PLURAL, "default-scheduler", {"spec": {"gangScheduling": True}}, GROUP)
            world.apply(*_prepared())
            churn = Churn(world, Random(seed))
            for _ in range(STEPS):
                churn.step()
                await asyncio.sleep(churn.random.choice([0.0, 0.1, 1.0, 7.0]))
                if churn.random.random() < 0.02:
                    churn.restarts += 1
                    await world.restart_operator()
            await asyncio.sleep(REST_SECONDS)
            found = list(wrongs(world))
            if found:
                # Pods end all the time: what is on its way now is there a little later.
                await asyncio.sleep(5.0)
                found = sorted(set(found) & set(wrongs(world)))
            assert not found, "\n".join(found)
            states = Counter(pod["status"].get("phase", "") for pod in world.pods.values())
            told = (
                f"seed {seed}: {churn.number} groups and Jobs, {len(world.pods)} pods "
                f"({', '.join(f'{count} {phase}' for phase, count in sorted(states.items()))}), "
                f"{churn.restarts} restarts, {clock.monotonic():.0f} s of the cluster's time"
            )

    run_skipping(flow)
    return told


def _prepared() -> Iterator[JsonObject]:
    yield {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    wanted = {"deviceClassName": _DEVICE_CLASS, "count": 1}
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpus", "exactly": wanted}]}}},
    }


def main() -> int:
    """Play rounds until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=_MINUTES)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--rounds", type=int, default=sys.maxsize)
    given = parser.parse_args()
    ends, seed = time.monotonic() + 60 * given.minutes, given.seed
    failed = played = 0
    while played < given.rounds and (time.monotonic() < ends or not played):
        own = seed if seed is not None and not played else random.randrange(1 << 32)
        played += 1
        try:
            print(play(own), flush=True)
        except AssertionError as wrong:
            failed += 1
            print(f"seed {own}: {wrong}", flush=True)
    print(f"{played} rounds, {failed} of them wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
