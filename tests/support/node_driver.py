"""An embedded cluster on a virtual clock that a test moves by hand: no sockets, no scheduler."""

from typing import Any

from stellwerk_cluster.apimachinery.objects import pick
from stellwerk_cluster.registry.lease_cache import LEASE_NAMESPACE
from stellwerk_kube.json_values import JsonObject
from tests.support.cluster_driver import HeldCluster


class ClusterDriver(HeldCluster):
    """For tests of nodes and their pods, in the default namespace."""

    def annotate(self, plural: str, name: str, **annotations: str | None) -> None:
        """Set annotations of this project's prefix; underscores of the names are dashes."""
        given = {f"stellwerk.dev/{k.replace('_', '-')}": text for k, text in annotations.items()}
        self.patch(plural, name, {"metadata": {"annotations": given}})

    def advance(self, seconds: float, step: float = 0.5) -> None:
        """Let time pass in steps, with all work that falls due."""
        self.run(seconds, step)

    def pod(self, name: str) -> JsonObject:
        found = self.api.find("pods", "default", name)
        assert found is not None, f"no pod {name}"
        return found

    def gone(self, name: str) -> bool:
        return self.api.find("pods", "default", name) is None

    def phase(self, name: str) -> str:
        return str(self.pod(name)["status"]["phase"])

    def node(self, name: str) -> JsonObject:
        found = self.api.find("nodes", "", name)
        assert found is not None, f"no node {name}"
        return found

    def lease(self, name: str) -> JsonObject:
        """The lease of a node, as a client would read it now."""
        kind = self.api.kinds.resource("leases", "coordination.k8s.io")
        self.api.lease_cache.before_read(kind, LEASE_NAMESPACE, name, watch=False)
        found = self.api.find(kind.storage_name, LEASE_NAMESPACE, name)
        assert found is not None, f"no lease of {name}"
        return found

    def taints(self, name: str) -> set[tuple[str, str]]:
        """(key, effect) of a node's taints."""
        taints = pick(self.node(name), ("spec", "taints")) or ()
        return {(each["key"], each["effect"]) for each in taints}

    def condition(self, name: str, type_: str) -> str:
        """The status of a node's condition."""
        by_type = {each["type"]: each["status"] for each in self.node(name)["status"]["conditions"]}
        return str(by_type.get(type_, ""))

    def events(self, name: str) -> list[tuple[str, str]]:
        """(reason, message) of what was reported about an object, oldest first."""
        found = [
            each for each in self.api.all("events") if each["involvedObject"].get("name") == name
        ]
        found.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
        return [(each["reason"], each["message"]) for each in found]


def hollow_pod(name: str, node_name: str = "node-1", **spec: Any) -> JsonObject:
    """A pod that is bound already, with one container; keywords are fields of the spec."""
    annotations = spec.pop("annotations", {})
    resources = {"requests": spec.pop("requests", {}), "limits": spec.pop("limits", {})}
    container = {"name": "c", "image": "registry.example/c:1", "resources": resources}
    return {
        "metadata": {
            "name": name,
            "annotations": {f"stellwerk.dev/{key}": text for key, text in annotations.items()},
        },
        "spec": {"nodeName": node_name, "containers": [container], **spec},
    }
