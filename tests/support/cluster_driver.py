"""An embedded cluster without sockets or operator whose time and work a test moves by hand.

Tests of controllers use it. Invariant: after every step, all work that is due is done.
"""

from typing import Any

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.clock import VirtualClock

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "nodeName": "node-1",
        "containers": [{"name": "c", "image": "registry.example/web:1"}],
    },
}


class HeldCluster:
    """A cluster that moves when it is told to."""

    def __init__(self, nodes: Any = 3, **options: Any) -> None:
        self.clock = VirtualClock()
        self.cluster = EmbeddedCluster(
            nodes, clock=self.clock, options=ClusterOptions(**{"seed": 1, **options})
        )
        self.api = self.cluster.api
        self.cluster.work.settle()

    def create(
        self, plural: str, body: dict[str, Any], group: str = "", namespace: str = "default"
    ) -> None:
        kind = self.api.kinds.resource(plural, group)
        self.api.create(kind, namespace if kind.namespaced else "", body)
        self.cluster.work.settle()

    def patch(
        self, plural: str, name: str, patch: dict[str, Any], group: str = "", subresource: str = ""
    ) -> None:
        kind = self.api.kinds.resource(plural, group)
        key = ("default" if kind.namespaced else "", name)
        self.api.patch(kind, key, patch, subresource=subresource)
        self.cluster.work.settle()

    def delete(self, plural: str, name: str, group: str = "", **options: Any) -> None:
        kind = self.api.kinds.resource(plural, group)
        key = ("default" if kind.namespaced else "", name)
        delete(self.api, kind, key, DeleteOptions(**options))
        self.cluster.work.settle()

    def jump(self, seconds: float) -> None:
        """Let time pass at once, and do the work that has fallen due."""
        self.clock.advance(seconds)
        self.cluster.work.settle()

    def run(self, seconds: float, step_seconds: float = 1.0) -> None:
        """Let time pass in steps, so that what follows from work can follow in turn."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.jump(min(step_seconds, end - self.clock.monotonic()))


class Driver(HeldCluster):
    """For tests of controllers: no heartbeats, and pods that end as the test says."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"heartbeats": False, **options})

    def advance(self, seconds: float) -> None:
        self.jump(seconds)

    def names(self, storage_name: str = "pods") -> list[str]:
        return [obj["metadata"]["name"] for obj in self.api.all(storage_name)]

    def report(self, name: str, phase: str, exit_code: int = 1) -> None:
        """What the kubelet says when a pod ends: its phase, and the exit code of a container."""
        terminated = {"exitCode": exit_code if phase == "Failed" else 0}
        state = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        statuses = [{**state, "state": {"terminated": terminated}}]
        ended = {"status": {"phase": phase, "containerStatuses": statuses}}
        self.patch("pods", name, ended, subresource="status")

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """(type, reason, message) of the events about an object."""
        return [
            (event["type"], event["reason"], event["message"])
            for event in self.api.all("events")
            if event["involvedObject"]["name"] == name
        ]

    def get(self, storage_name: str, name: str, namespace: str = "default") -> Any:
        return self.api.find(storage_name, namespace, name)

    def pods(self) -> list[Any]:
        return list(self.api.all("pods"))

    def phases(self) -> list[str]:
        return sorted(pod["status"]["phase"] for pod in self.pods())
