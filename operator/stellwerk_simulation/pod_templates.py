"""The pods that a controller's manifest makes of its template.

What-if, simulations, plans and `decide` read manifests with it. Invariant: a pod has its controller
as its owner, the defaults of the API and what admission gives it, and as many come as the
controller runs at once.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Final

from stellwerk_kube.admission import Admission
from stellwerk_kube.daemon_pods import DAEMON_SET, for_node, wanted_and_allowed
from stellwerk_kube.json_values import JsonObject

_REPLICAS: Final = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
}
"""The field that says how many pods a kind has at once."""
POD_KINDS: Final = ("Pod", *_REPLICAS)
"""The kinds whose number of pods does not depend on the nodes."""


def pods_of(
    obj: JsonObject,
    namespace: str,
    most: int,
    nodes: Sequence[JsonObject] = (),
    admission: Admission | None = None,
) -> list[JsonObject]:
    """The pod itself, or those that a controller makes of its template, at most `most` + 1.

    `namespace`: of an object that names none; `nodes`: on which DaemonSets have their pods;
    `admission`: of what a controller makes, by what stands beside it.

    Raises:
        ConfigurationError: the API server would refuse the pods.
    """
    admission = admission or Admission(namespace=namespace)
    metadata = dict(obj.get("metadata") or {})
    metadata.setdefault("namespace", namespace)
    if obj["kind"] == "Pod":
        return [{**obj, "metadata": metadata}]
    spec = obj.get("spec") or {}
    made = _pod_of({**obj, "metadata": metadata})
    if obj["kind"] == DAEMON_SET:
        template = spec.get("template") or {}
        wanted = {**template, "spec": template.get("spec") or {}}
        names = [node["metadata"]["name"] for node in nodes if wanted_and_allowed(node, wanted)[0]][
            : most + 1
        ]
        found = [{**_numbered(made, name), "spec": for_node(made["spec"], name)} for name in names]
        for pod in found:
            admission.pod(pod)
        return found
    number = min(_replicas(obj["kind"], spec), most + 1)
    if number:
        admission.pod(made)
    return [deepcopy(_numbered(made, index)) for index in range(number)]


def is_written(obj: JsonObject) -> bool:
    """Whether a controller's manifest was written, and not read from a cluster with its pods."""
    makes_pods = obj.get("kind") in _REPLICAS or obj.get("kind") == DAEMON_SET
    return makes_pods and not (obj.get("metadata") or {}).get("uid")


def _pod_of(controller: JsonObject) -> JsonObject:
    """A pod as the API server shows it that a controller has made, but for its name."""
    from stellwerk_kube.schema.decoder import decode  # noqa: PLC0415 large tables
    from stellwerk_kube.schema.defaults import default_of, merge_label_keys  # noqa: PLC0415

    metadata = controller["metadata"]
    template = (controller.get("spec") or {}).get("template") or {}
    raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**(template.get("metadata") or {}), "namespace": metadata["namespace"]},
        "spec": template.get("spec") or {},
    }
    pod, _ = decode("Pod", raw)
    default_of("Pod")(pod)
    merge_label_keys(pod)
    name, kind = metadata.get("name", ""), controller["kind"]
    owner = {"kind": kind, "name": name, "controller": True}
    pod["metadata"] |= {
        "name": name or "pod",
        "ownerReferences": [{**owner, "apiVersion": controller.get("apiVersion", ""), "uid": ""}],
    }
    return pod


def _numbered(pod: JsonObject, which: object) -> JsonObject:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "name": f"{metadata['name']}-{which}"}}


def _replicas(kind: str, spec: JsonObject) -> int:
    """The number of the controller's pods that run at once; 1 where it does not say."""
    wanted = spec.get(_REPLICAS[kind])
    most = spec.get("completions") if kind == "Job" else None
    count = 1 if wanted is None else int(wanted)
    return max(0, count if most is None else min(count, int(most)))
