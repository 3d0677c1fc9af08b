"""DaemonSets: one pod for each node that fits.

Invariant: a pod is bound by the scheduler, through a node affinity for the name of its node, and
never by this controller; a taint NoSchedule keeps new pods away and ends none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating, key_of, labels_of, pick
from stellwerk_cluster.apimachinery.pods import is_finished
from stellwerk_cluster.controllers.revisions import RevisionHistory
from stellwerk_cluster.controllers.workload import (
    REVISION_LABEL,
    WorkloadController,
    absolute,
    ready_count,
    seconds_until_available,
)
from stellwerk_cluster.defaults.workload_defaults import TEMPLATE_GENERATION
from stellwerk_cluster.registry.entries import DELETED
from stellwerk_cluster.registry.event_recorder import WARNING
from stellwerk_kube.daemon_pods import REQUIRED, for_node, wanted_and_allowed

if TYPE_CHECKING:
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import StoreEvent
    from stellwerk_kube.json_values import JsonObject

_MAX_BACKOFF_SECONDS: Final = 900.0
"""Longest pause before a failed pod of a DaemonSet is replaced."""
_GENERATION_LABEL: Final = "pod-template-generation"
"""The label by which kube-controller-manager takes a pod for up to date, besides the hash."""


@dataclass(slots=True)
class _Plan:
    """The result of one pass over all nodes."""

    wanted: list[str] = field(default_factory=list)
    """Nodes that should have a pod."""
    by_node: dict[str, list[JsonObject]] = field(default_factory=dict)
    misplaced: int = 0
    """Nodes with a pod that they should not have got."""


class DaemonSetController(WorkloadController):
    """Keeps one pod for each node whose labels and taints the template accepts."""

    plural = "daemonsets"

    def __init__(self, api: Api, index: Index) -> None:
        """Follow DaemonSets, pods and nodes."""
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}
        """(DaemonSet uid, node) → pods that failed there one after the other, and when the last."""
        super().__init__(api, index)
        self._history = RevisionHistory(api, index, REVISION_LABEL)
        api.store.collection("nodes").listeners.append(self._on_node)

    def _on_node(self, event: StoreEvent) -> None:
        before = event.previous.obj if event.previous else EMPTY
        node = event.entry.obj
        changed = labels_of(before) != labels_of(node) or before.get("spec") != node["spec"]
        if changed or event.type == DELETED:
            for entry in self.api.store.collection(self.kind.storage_name).entries():
                self.queue.add(entry.key)

    @override
    def sync(self, workload: JsonObject) -> None:
        revision = self._history.current(workload, self.owner_reference(workload))
        digest = labels_of(revision)[REVISION_LABEL]
        plan = _Plan()
        for pod in self.owned_pods(workload):
            plan.by_node.setdefault(target_of(pod), []).append(pod)
        self._place(workload, plan, digest)
        if workload["spec"]["updateStrategy"]["type"] == "RollingUpdate":
            self._roll(workload, plan, digest)
        live = {
            labels_of(pod).get(REVISION_LABEL) for pods in plan.by_node.values() for pod in pods
        }
        name = workload["metadata"]["name"]
        self._history.truncate(workload, {f"{name}-{each}" for each in (digest, *live)})
        self._write_counts(workload, plan, digest)

    def _place(self, workload: JsonObject, plan: _Plan, digest: str) -> None:
        """Create missing pods, and end those of nodes that must not have one."""
        template = workload["spec"]["template"]
        for node in self.api.all("nodes"):
            name = node["metadata"]["name"]
            wanted, allowed = wanted_and_allowed(node, template)
            pods = plan.by_node.get(name, [])
            plan.misplaced += bool(pods) and not wanted
            if wanted:
                plan.wanted.append(name)
                if not pods:
                    self._create(workload, name, digest)
            if not allowed:
                self._end(workload, pods)
            else:
                self._tidy(workload, pods, digest)
        # A pod for a node that is gone is never bound, and pod garbage collection leaves it alone.
        for name, pods in plan.by_node.items():
            if self.api.find("nodes", "", name) is None:
                self._end(workload, [pod for pod in pods if not pod["spec"].get("nodeName")])

    def _end(self, workload: JsonObject, pods: list[JsonObject]) -> None:
        for pod in pods:
            if not is_terminating(pod):
                self.delete_pod(workload, pod)

    def _tidy(self, workload: JsonObject, pods: list[JsonObject], digest: str) -> None:
        """End pods that failed, and all but the oldest of one revision."""
        present = [pod for pod in pods if not is_terminating(pod)]
        for pod in present:
            if is_finished(pod):
                self._replace_failed(workload, pod)
        running = [pod for pod in present if not is_finished(pod)]
        running.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        surging = self._limits(workload, len(running))[0] > 0
        for updated in (True, False) if surging else (None,):
            same = [
                pod
                for pod in running
                if updated is None or (labels_of(pod).get(REVISION_LABEL) == digest) is updated
            ]
            self._end(workload, same[1:])

    def _replace_failed(self, workload: JsonObject, pod: JsonObject) -> None:
        """Delete a pod that failed, ever later where one after the other fails."""
        place = (workload["metadata"]["uid"], target_of(pod))
        now = self.api.clock.monotonic()
        failures, last = self._failures.get(place, (0, now))
        if now - last > 2 * _MAX_BACKOFF_SECONDS:
            failures = 0
        wait = min(2.0 ** min(failures - 1, 16), _MAX_BACKOFF_SECONDS) if failures else 0.0
        if last + wait > now:
            self.queue.add_after(key_of(workload), last + wait - now)
            return
        self._failures[place] = (failures + 1, now)
        text = f"Found failed daemon pod {'/'.join(key_of(pod))} on node"
        self.report(workload, "FailedDaemonPod", f"{text} {target_of(pod)}", WARNING)
        self.delete_pod(workload, pod)

    @override
    def _on_workload(self, event: StoreEvent) -> None:
        super()._on_workload(event)
        if event.type == DELETED:
            uid = event.entry.uid
            self._failures = {
                place: failures for place, failures in self._failures.items() if place[0] != uid
            }

    def _create(self, workload: JsonObject, node_name: str, digest: str) -> None:
        name = workload["metadata"]["name"]
        annotations = workload["metadata"].get("annotations") or EMPTY
        generation = annotations.get(TEMPLATE_GENERATION, "")
        labels = {
            REVISION_LABEL: digest,
            **({_GENERATION_LABEL: generation} if generation else {}),
        }
        pod = self.pod_from_template(workload, generateName=f"{name}-", labels=labels)
        pod["spec"] = for_node(pod["spec"], node_name)
        self.create_pod(workload, pod)

    # The rollout.

    @staticmethod
    def _limits(workload: JsonObject, wanted: int) -> tuple[int, int]:
        """(most nodes with two pods, most nodes without an available one)."""
        rolling = workload["spec"]["updateStrategy"].get("rollingUpdate") or EMPTY
        surge = absolute(rolling.get("maxSurge", 0), wanted, round_up=True)
        unavailable = absolute(rolling.get("maxUnavailable", 1), wanted, round_up=True)
        return surge, unavailable if surge or unavailable else 1

    def _roll(self, workload: JsonObject, plan: _Plan, digest: str) -> None:
        """Replace pods of older templates, on as many nodes at a time as the strategy allows."""
        surge, unavailable = self._limits(workload, len(plan.wanted))
        outdated: dict[str, JsonObject] = {}
        down: set[str] = set()
        doubled: set[str] = set()
        for name in plan.wanted:
            pods = [pod for pod in plan.by_node.get(name, []) if not is_terminating(pod)]
            old = [pod for pod in pods if labels_of(pod).get(REVISION_LABEL) != digest]
            new = [pod for pod in pods if labels_of(pod).get(REVISION_LABEL) == digest]
            if surge and old and new:
                self._finish_surge(workload, old[0], new[0], doubled, name)
            elif old:
                outdated[name] = old[0]
            if not any(self._is_available(workload, pod) for pod in pods):
                down.add(name)
        for name, pod in outdated.items():
            if surge:
                if len(doubled) < surge:
                    doubled.add(name)
                    self._create(workload, name, digest)
            elif name in down or len(down) < unavailable:
                down.add(name)
                self.delete_pod(workload, pod)

    def _finish_surge(
        self, workload: JsonObject, old: JsonObject, new: JsonObject, doubled: set[str], name: str
    ) -> None:
        """The old pod of a node goes when the new one is available."""
        if self._is_available(workload, new):
            self.delete_pod(workload, old)
        else:
            doubled.add(name)

    def _is_available(self, workload: JsonObject, pod: JsonObject) -> bool:
        seconds = workload["spec"].get("minReadySeconds", 0)
        wait = seconds_until_available(pod, seconds, self.api.now())
        if wait:
            self.queue.add_after(key_of(workload), wait)
        return wait == 0

    def _write_counts(self, workload: JsonObject, plan: _Plan, digest: str) -> None:
        first = {
            name: sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
            for name, pods in plan.by_node.items()
            if name in plan.wanted
        }
        newest = [pods[-1] for pods in first.values()]
        bound = [pod for pod in newest if pod["spec"].get("nodeName")]
        ready = ready_count([pods[0] for pods in first.values()])
        available = sum(self._is_available(workload, pods[0]) for pods in first.values())
        optional = {
            "updatedNumberScheduled": sum(
                1 for pod in bound if labels_of(pod).get(REVISION_LABEL) == digest
            ),
            "numberAvailable": available,
            "numberUnavailable": len(plan.wanted) - available,
        }
        self.write_status(
            workload,
            {
                "currentNumberScheduled": len(bound),
                "numberMisscheduled": plan.misplaced,
                "desiredNumberScheduled": len(plan.wanted),
                "numberReady": ready,
                **{name: count for name, count in optional.items() if count},
                "observedGeneration": workload["metadata"]["generation"],
            },
        )


def target_of(pod: JsonObject) -> str:
    """The node that a pod of a DaemonSet is on, or is for."""
    bound: str = pod["spec"].get("nodeName", "")
    if bound:
        return bound
    terms = pick(pod, ("spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")) or ()
    for term in terms:
        for requirement in term.get("matchFields") or ():
            if requirement["key"] == "metadata.name" and requirement["values"]:
                return str(requirement["values"][0])
    return ""
