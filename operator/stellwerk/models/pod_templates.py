"""The pods that a controller's manifest makes of its template.

What-if, simulations, plans and `decide` read manifests with it. Invariant: a pod has its controller
as its owner, and as many come as the controller runs at once.
"""

from copy import deepcopy
from typing import Final

from stellwerk.models.json_values import JsonObject

_REPLICAS: Final = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
}
"""The field that says how many pods a kind has at once."""
POD_KINDS: Final = ("Pod", *_REPLICAS)


def pods_of(obj: JsonObject, namespace: str, most: int) -> list[JsonObject]:
    """The pod itself, or those that a controller makes of its template, at most `most` + 1.

    `namespace`: of an object that names none.
    """
    metadata = dict(obj.get("metadata") or {})
    metadata.setdefault("namespace", namespace)
    if obj["kind"] == "Pod":
        return [{**obj, "metadata": metadata}]
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    number = min(_replicas(obj["kind"], spec), most + 1)
    owner = {"kind": obj["kind"], "name": metadata.get("name", ""), "controller": True}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **deepcopy(template.get("metadata") or {}),
                "name": f"{metadata.get('name', 'pod')}-{index}",
                "namespace": metadata["namespace"],
                "ownerReferences": [{**owner, "apiVersion": obj.get("apiVersion", ""), "uid": ""}],
            },
            "spec": deepcopy(template.get("spec") or {}),
        }
        for index in range(number)
    ]


def is_written(obj: JsonObject) -> bool:
    """Whether a controller's manifest was written, and not read from a cluster with its pods."""
    return obj.get("kind") in _REPLICAS and not (obj.get("metadata") or {}).get("uid")


def with_pods(objects: list[JsonObject], most: int) -> list[JsonObject]:
    """The objects, with their pods in place of controllers whose manifests were written."""
    found: list[JsonObject] = []
    for obj in objects:
        found += pods_of(obj, "default", most) if is_written(obj) else [obj]
    return found


def _replicas(kind: str, spec: JsonObject) -> int:
    """So many pods of the controller run at once; 1 where it does not say."""
    wanted = spec.get(_REPLICAS[kind])
    most = spec.get("completions") if kind == "Job" else None
    count = 1 if wanted is None else int(wanted)
    return max(0, count if most is None else min(count, int(most)))
