"""Clusters for plans of moves: pods with controllers, and budgets."""

from typing import Any

from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod


def replica(
    name: str, node_name: str, *, owner: str = "ReplicaSet", app: str = "web", **fields: Any
) -> JsonObject:
    """A running pod of a controller, with the label `app`."""
    pod = make_pod(name, node_name=node_name, labels={"app": app}, **fields)
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": app, "uid": f"uid-{app}"}
    pod["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    pod["status"] = {"phase": "Running"}
    return pod


def budget(app: str, allowed: int) -> JsonObject:
    """A PodDisruptionBudget of the pods with that label."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }
