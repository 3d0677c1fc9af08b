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
from stellwerk_kube.pod_templates import CONTROLLER_KINDS, POD, template_of

POD_KINDS: Final = (POD, *CONTROLLER_KINDS)
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
    if obj["kind"] == DAEMON_SET:
        template = (obj.get("spec") or {}).get("template") or {}
        wanted = {**template, "spec": template.get("spec") or {}}
        names = [node["metadata"]["name"] for node in nodes if wanted_and_allowed(node, wanted)[0]][
            : most + 1
        ]
        made = _defaulted(_pod_of_daemon_set({**obj, "metadata": metadata}))
        found = [{**_numbered(made, name), "spec": for_node(made["spec"], name)} for name in names]
        for pod in found:
            admission.pod(pod)
        return found
    number = min(template_of(obj, namespace).count, most + 1)
    if not number:
        return []
    made = pod_of_controller(obj, namespace, admission)
    return [deepcopy(_numbered(made, index)) for index in range(number)]


def pod_of_controller(obj: JsonObject, namespace: str, admission: Admission) -> JsonObject:
    """The pod that a controller makes, as the API server shows it, named as the controller.

    `namespace`: of an object that names none.

    Raises:
        ConfigurationError: the API server would refuse the pod.
    """
    made = _defaulted(template_of(obj, namespace).pod)
    admission.pod(made)
    return made


def is_written(obj: JsonObject) -> bool:
    """Whether a controller's manifest was written, and not read from a cluster with its pods."""
    makes_pods = obj.get("kind") in CONTROLLER_KINDS or obj.get("kind") == DAEMON_SET
    return makes_pods and not (obj.get("metadata") or {}).get("uid")


def _pod_of_daemon_set(obj: JsonObject) -> JsonObject:
    """The pod of a DaemonSet's template, without defaults."""
    metadata = obj["metadata"]
    template = (obj.get("spec") or {}).get("template") or {}
    name = metadata.get("name") or "pod"
    owner = {"kind": DAEMON_SET, "name": metadata.get("name", ""), "controller": True}
    named = {"namespace": metadata["namespace"], "name": name}
    named["ownerReferences"] = [{**owner, "apiVersion": obj.get("apiVersion", ""), "uid": ""}]
    return {
        "apiVersion": "v1",
        "kind": POD,
        "metadata": {**(template.get("metadata") or {}), **named},
        "spec": template.get("spec") or {},
    }


def _defaulted(pod: JsonObject) -> JsonObject:
    """A pod as the API server shows it: with the defaults of its fields."""
    from stellwerk_kube.schema.decoder import decode  # noqa: PLC0415 large tables
    from stellwerk_kube.schema.defaults import default_of, merge_label_keys  # noqa: PLC0415

    made, _ = decode(POD, pod)
    default_of(POD)(made)
    merge_label_keys(made)
    return made


def _numbered(pod: JsonObject, which: object) -> JsonObject:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "name": f"{metadata['name']}-{which}"}}
