"""Templates of pods: the kinds that have one, how many pods each runs at once, and a pod of it.

What-if questions, simulations, plans and `decide` read manifests of controllers with it. Invariant:
a pod is named after its controller, belongs to it, and has what the template says and nothing else:
defaults and admission are the reader's.
"""

from dataclasses import dataclass
from typing import Any, Final

from stellwerk_kube.json_values import JsonObject

POD: Final = "Pod"
DEPLOYMENT: Final = "Deployment"
REPLICA_SET: Final = "ReplicaSet"
STATEFUL_SET: Final = "StatefulSet"
_REPLICATION_CONTROLLER: Final = "ReplicationController"
_JOB: Final = "Job"
_CRON_JOB: Final = "CronJob"
_POD_TEMPLATE: Final = "PodTemplate"
_REPLICAS: Final = {
    DEPLOYMENT: "replicas",
    REPLICA_SET: "replicas",
    _REPLICATION_CONTROLLER: "replicas",
    STATEFUL_SET: "replicas",
    _JOB: "parallelism",
    _CRON_JOB: "parallelism",
}
"""The field that says how many pods a kind has at once; a CronJob's run is a Job."""
CONTROLLER_KINDS: Final = tuple(_REPLICAS)
"""The controllers whose number of pods does not depend on the nodes."""
TEMPLATE_KINDS: Final = (POD, _POD_TEMPLATE, *_REPLICAS)
"""The kinds of which a question takes a template."""
PODS_OF_TEMPLATE: Final = "PodsOfTemplate"
"""The kind that a document `{template, count}` in a file has, which names none."""
TEMPLATE_HASH_LABEL: Final = "pod-template-hash"
_SUPPOSED_HASH: Final = "supposed"
"""The hash of a supposed Deployment's template: the real one is made by its controller."""


@dataclass(frozen=True, slots=True)
class Template:
    """A pod of a template, without defaults, and how many there are at once."""

    pod: JsonObject
    count: int
    controllers: tuple[JsonObject, ...] = ()
    """The objects whose selectors plugins read: the pods' ReplicaSet, StatefulSet and so on."""


def template_of(obj: JsonObject, namespace: str) -> Template:
    """The template in a manifest: a pod's own, a controller's, or one without a kind.

    `namespace`: of an object that names none.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object is malformed.
    """
    kind = obj.get("kind") or POD
    metadata = {"namespace": namespace, **(obj.get("metadata") or {})}
    metadata["namespace"] = metadata["namespace"] or namespace
    spec = obj.get("spec") or {}
    if kind == POD:
        # Of a pod that was read from a cluster: its copies are further pods of its controller.
        owned = {key: metadata[key] for key in ("ownerReferences",) if metadata.get(key)}
        return Template(_pod({**_named(metadata, metadata), **owned}, obj), 1)
    if kind == _POD_TEMPLATE:
        template = obj.get("template") or {}
        return Template(_pod(_named(metadata, template.get("metadata") or {}), template), 1)
    if kind == _CRON_JOB:
        kind, spec = _JOB, (spec.get("jobTemplate") or {}).get("spec") or {}
    return _controlled(kind, metadata, spec, obj)


def _controlled(kind: str, metadata: JsonObject, spec: JsonObject, obj: JsonObject) -> Template:
    """The template of a controller, with what the controller adds to its pods."""
    template = spec.get("template") or {}
    named = _named({"namespace": metadata["namespace"]}, template.get("metadata") or {})
    named["name"] = str(metadata.get("name") or metadata.get("generateName") or kind.lower())
    count = pods_at_once(kind, spec)
    usual = "v1" if kind == _REPLICATION_CONTROLLER else "apps/v1"
    api_version, owner = str(obj.get("apiVersion") or usual), named["name"]
    selecting: JsonObject = {"metadata": {**metadata, "name": owner}, "spec": spec}
    if kind == DEPLOYMENT:
        # The ReplicaSet that its controller makes: default spreading goes by its selector.
        api_version, kind, owner = "apps/v1", REPLICA_SET, f"{owner}-{_SUPPOSED_HASH}"
        labels = {TEMPLATE_HASH_LABEL: _SUPPOSED_HASH}
        named["labels"] = {**(named.get("labels") or {}), **labels}
        selector = dict(spec.get("selector") or {})
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **labels}
        selecting = {
            "metadata": {"name": owner, "namespace": metadata["namespace"]},
            "spec": {"replicas": count, "selector": selector, "template": template},
        }
    reference = {"apiVersion": api_version, "kind": kind, "name": owner, "uid": ""}
    named["ownerReferences"] = [{**reference, "controller": True}]
    return Template(_pod(named, template), count, ({"kind": kind, **selecting},))


def with_template(controller: JsonObject, template: JsonObject) -> JsonObject:
    """A controller's manifest with another template of its pods."""
    spec = controller.get("spec") or {}
    if controller.get("kind") != _CRON_JOB:
        return {**controller, "spec": {**spec, "template": template}}
    job = spec.get("jobTemplate") or {}
    job = {**job, "spec": {**(job.get("spec") or {}), "template": template}}
    return {**controller, "spec": {**spec, "jobTemplate": job}}


def pods_at_once(kind: str, spec: JsonObject) -> int:
    """The number of a controller's pods that run at once; 1 where it does not say."""
    wanted = spec.get(_REPLICAS[kind])
    most = spec.get("completions") if kind == _JOB else None
    count = 1 if wanted is None else int(wanted)
    return max(0, count if most is None else min(count, int(most)))


def _named(metadata: JsonObject, of_template: JsonObject) -> dict[str, Any]:
    """The metadata of a pod: a template's, in the namespace and under the name of what has it."""
    name = metadata.get("name") or of_template.get("name") or metadata.get("generateName")
    kept = {key: of_template[key] for key in ("labels", "annotations") if of_template.get(key)}
    namespace = of_template.get("namespace") or metadata["namespace"]
    return {**kept, "namespace": namespace, "name": str(name or "pod").rstrip("-")}


def _pod(metadata: JsonObject, template: JsonObject) -> JsonObject:
    spec = template.get("spec") or {}
    return {"apiVersion": "v1", "kind": POD, "metadata": metadata, "spec": spec}
