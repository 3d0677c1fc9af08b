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
CRON_JOB: Final = "CronJob"
_POD_TEMPLATE: Final = "PodTemplate"
_REPLICAS: Final = {
    DEPLOYMENT: "replicas",
    REPLICA_SET: "replicas",
    _REPLICATION_CONTROLLER: "replicas",
    STATEFUL_SET: "replicas",
    _JOB: "parallelism",
    CRON_JOB: "parallelism",
}
"""The field that says how many pods a kind has at once; a CronJob's run is a Job."""
CONTROLLER_KINDS: Final = tuple(kind for kind in _REPLICAS if kind != CRON_JOB)
"""The controllers whose number of pods does not depend on nodes, or on the time."""
TEMPLATE_KINDS: Final = (POD, _POD_TEMPLATE, *_REPLICAS)
"""The kinds of which a question takes a template."""
_COUNTED_FIELDS: Final = frozenset({"template", "count"})
"""The fields of a document `{template, count}` in a file."""
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
    if kind == CRON_JOB:
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


def maker_of(pod: JsonObject) -> str:
    """NAMESPACE/KIND/NAME of the controller of a pod that a user made; empty: none did.

    A Deployment, not its ReplicaSet, which is named after it and the hash of the template.
    """
    metadata = pod.get("metadata") or {}
    namespace = metadata.get("namespace") or "default"
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            kind, name = str(owner.get("kind")), str(owner.get("name"))
            template = (metadata.get("labels") or {}).get(TEMPLATE_HASH_LABEL)
            if kind == REPLICA_SET and template and name.endswith(f"-{template}"):
                return f"{namespace}/{DEPLOYMENT}/{name.removesuffix(f'-{template}')}"
            return f"{namespace}/{kind}/{name}"
    return ""


def with_template(controller: JsonObject, template: JsonObject) -> JsonObject:
    """A controller's manifest with another template of its pods."""
    spec = controller.get("spec") or {}
    if controller.get("kind") != CRON_JOB:
        return {**controller, "spec": {**spec, "template": template}}
    job = spec.get("jobTemplate") or {}
    job = {**job, "spec": {**(job.get("spec") or {}), "template": template}}
    return {**controller, "spec": {**spec, "jobTemplate": job}}


def is_counted(obj: JsonObject) -> bool:
    """Whether a document of a file is `{template, count}`, and not an object of the API."""
    return not obj.get("kind") and "template" in obj and _COUNTED_FIELDS.issuperset(obj)


def counted_pods(obj: JsonObject) -> JsonObject:
    """The controller that a document `{template, count}` stands for.

    A controller in it runs so many pods; of a pod, or a template without a kind, a Job does.

    Raises:
        ValueError: it is malformed.
    """
    template, count = obj["template"], obj.get("count")
    if not isinstance(template, dict):
        raise ValueError("template: an object is expected")  # noqa: TRY004 one error for all
    kind = template.get("kind") or POD
    if kind not in TEMPLATE_KINDS:
        raise ValueError(f"template: {', '.join(TEMPLATE_KINDS)} are expected, not {kind!s:.80}")
    is_number = isinstance(count, int) and not isinstance(count, bool)
    if count is not None and not (is_number and count >= 0):
        raise ValueError("count: a number from 0 on is expected")
    if kind == CRON_JOB:
        # One of its runs, which is a Job.
        run = ((template.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}
        template = {**template, "apiVersion": "batch/v1", "kind": _JOB, "spec": run}
        kind = _JOB
    if kind not in CONTROLLER_KINDS:
        made = template_of(template, "default").pod
        metadata = {key: made["metadata"][key] for key in ("name", "namespace")}
        inherited = {
            key: value
            for key, value in made["metadata"].items()
            if key in {"labels", "annotations"}
        }
        pods = {"metadata": inherited, "spec": {"restartPolicy": "Never", **made["spec"]}}
        job = {"parallelism": 1 if count is None else count, "template": pods}
        return {"apiVersion": "batch/v1", "kind": _JOB, "metadata": metadata, "spec": job}
    if count is None:
        return dict(template)
    spec = template.get("spec") or {}
    return {**template, "spec": _with_count(kind, spec, count)}


def _with_count(kind: str, spec: JsonObject, count: int) -> JsonObject:
    """The spec of a controller that runs so many pods at once."""
    kept = {key: value for key, value in spec.items() if key != "completions"}
    return {**kept, _REPLICAS[kind]: count}


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
