"""The fields of objects that decisions read, which alone are recorded, and no credentials.

The journal's writer leaves out the rest, and `journal.hashing` hides what is left where names
are to be hashed. Invariant: a field that stands in no tree below is in no recording, so that a new
field of the API is not recorded before a tree says that decisions read it; a test fills every field
of every kind, and holds that what is read of what is kept is what is read of the whole.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from stellwerk.models.gpu import DEVICE_IDS
from stellwerk.models.in_tree_volumes import MIGRATIONS
from stellwerk.models.volumes import DISK_NAMES
from stellwerk.profiles.spec.profile import KIND as PROFILE
from stellwerk_kube.deletion_cost import DELETION_COST
from stellwerk_kube.destinations import without_user
from stellwerk_kube.json_values import JsonObject

Tree: TypeAlias = Mapping[str, "Tree | None"]
"""Fields that are kept below each field; None: all of them. Lists have the tree of their items."""

KEPT_ANNOTATIONS: Final = (
    "scheduling.stellwerk.dev/",
    "volume.",
    "pv.kubernetes.io/",
    "storage.alpha.kubernetes.io/migrated-plugins",
    "resource.kubernetes.io/",
    "scheduler.alpha.kubernetes.io/",
    "topology.node.k8s.io/",
    DEVICE_IDS,
    DELETION_COST,
)
"""Prefixes of the annotations that are read."""

_CREDENTIAL: Final = re.compile(
    r"token|passw|secret|credential|private|apikey|accesskey|keydata|certdata", re.IGNORECASE
)
"""Names of plugins' arguments that are not recorded."""

_METADATA: Final = (
    "name namespace uid resourceVersion generation creationTimestamp deletionTimestamp labels* "
    "annotations* ownerReferences{apiVersion kind name uid controller}"
)
_CONDITIONS: Final = "conditions{type status reason observedGeneration lastTransitionTime}"
_RESOURCES: Final = "resources{requests* limits* claims{name request}}"
_CONTAINER: Final = (
    f"name image {_RESOURCES} ports{{hostPort hostIP protocol containerPort}} restartPolicy "
    "restartPolicyRules{action}"
)
_REPORTED: Final = f"name {_RESOURCES} allocatedResources*"
_DISKS: Final = " ".join(
    f"{kind}{{{field} readOnly}}"
    for kind, field in ({k: m.id_field for k, m in MIGRATIONS.items()} | DISK_NAMES).items()
)
"""Volumes in the tree, each by the field that names its disk."""
_REQUESTED: Final = (
    "name deviceClassName selectors{cel{expression}} allocationMode count adminAccess tolerations* "
    "capacity{requests*}"
)
_DEVICES: Final = (
    f"devices{{requests{{{_REQUESTED} exactly{{{_REQUESTED}}} firstAvailable{{{_REQUESTED}}}}} "
    "constraints{requests matchAttribute distinctAttribute} config{requests}}"
)
_DEVICE: Final = (
    "attributes* capacity* consumesCounters* allowMultipleAllocations nodeName nodeSelector* "
    "allNodes taints{key value effect timeAdded} bindsToNode bindingConditions "
    "bindingFailureConditions"
)
_CLAIM: Final = (
    f"spec{{{_DEVICES}}} status{{allocation{{devices{{results{{request driver pool device "
    "adminAccess tolerations* bindingConditions bindingFailureConditions shareID "
    "consumedCapacity*} config{requests source}} nodeSelector* allocationTimestamp} "
    "reservedFor{apiGroup resource name uid} "
    f"devices{{driver pool device shareID {_CONDITIONS}}}}}"
)
_SELECTS: Final = "spec{selector*}"

_TEXTS: Final[Mapping[str, str]] = {
    "Pod": (
        "spec{nodeName schedulerName schedulingGates{name} priority priorityClassName "
        "preemptionPolicy activeDeadlineSeconds nodeSelector* affinity* tolerations* "
        f"topologySpreadConstraints* overhead* {_RESOURCES} hostNetwork hostUsers "
        "resourceClaims{name resourceClaimName resourceClaimTemplateName podGroupResourceClaim} "
        f"schedulingGroup* containers{{{_CONTAINER}}} initContainers{{{_CONTAINER}}} "
        "volumes{name persistentVolumeClaim{claimName readOnly} ephemeral{} csi{driver readOnly} "
        "image{reference} rbd{monitors pool image readOnly} azureFile{readOnly} "
        f"vsphereVolume{{}} {_DISKS}}}}} "
        f"status{{phase startTime nominatedNodeName qosClass {_CONDITIONS} "
        "resourceClaimStatuses{name resourceClaimName} "
        "extendedResourceClaimStatus{resourceClaimName "
        "requestMappings{containerName requestName resourceName}} "
        f"containerStatuses{{{_REPORTED}}} initContainerStatuses{{{_REPORTED}}} "
        f"{_RESOURCES} allocatedResources*}}"
    ),
    "Node": (
        "spec{taints{key value effect timeAdded} unschedulable} "
        "status{allocatable* capacity* images{names sizeBytes} declaredFeatures "
        "conditions{type status}}"
    ),
    "Namespace": "",
    "PriorityClass": "value globalDefault preemptionPolicy",
    "Service": _SELECTS,
    "ReplicationController": _SELECTS,
    "ReplicaSet": _SELECTS,
    "StatefulSet": _SELECTS,
    "PodDisruptionBudget": f"{_SELECTS} status{{disruptionsAllowed disruptedPods*}}",
    "PersistentVolumeClaim": (
        "spec{accessModes resources{requests*} selector* storageClassName volumeMode volumeName "
        "volumeAttributesClassName} status{phase}"
    ),
    "PersistentVolume": (
        "spec{accessModes capacity* claimRef{apiVersion kind namespace name uid resourceVersion} "
        f"csi{{driver volumeHandle}} nodeAffinity* storageClassName volumeMode "
        f"volumeAttributesClassName {_DISKS}}} status{{phase}}"
    ),
    "StorageClass": "provisioner volumeBindingMode allowedTopologies*",
    "CSINode": "spec{drivers{name allocatable{count}}}",
    "CSIDriver": "spec{storageCapacity preventPodSchedulingIfMissing}",
    "CSIStorageCapacity": "storageClassName nodeTopology* capacity maximumVolumeSize",
    "VolumeAttachment": "spec{attacher nodeName source{persistentVolumeName}} status{attached}",
    "ResourceClaim": _CLAIM,
    # What DynamicResources keeps of a claim whose allocation is under way.
    "AllocationInFlight": (
        f"{_CLAIM} group joined doubtful "
        f"written{{apiVersion kind metadata{{{_METADATA}}} {_CLAIM}}}"
    ),
    "ResourceSlice": (
        "spec{driver pool{name generation resourceSliceCount} nodeName nodeSelector* allNodes "
        f"perDeviceNodeSelection sharedCounters* devices{{name {_DEVICE} basic{{{_DEVICE}}}}}}}"
    ),
    "DeviceClass": "spec{selectors{cel{expression}} extendedResourceName}",
    "DeviceTaintRule": (
        "spec{deviceSelector{driver pool device} taint{key value effect timeAdded}}"
    ),
    "PodGroup": (
        "spec{schedulingPolicy* schedulingConstraints* disruptionMode* priority priorityClassName "
        "parentCompositePodGroupName "
        "resourceClaims{name resourceClaimName resourceClaimTemplateName}} "
        f"status{{{_CONDITIONS} resourceClaimStatuses{{name resourceClaimName}}}}"
    ),
    "CoschedulingPodGroup": (
        "spec{minMember minResources* scheduleTimeoutSeconds} status{phase scheduleStartTime}"
    ),
}
"""The fields beside metadata, apiVersion and kind."""

_EXTENDER: Final = (
    "urlPrefix filterVerb prioritizeVerb preemptVerb bindVerb weight enableHTTPS httpTimeout "
    "nodeCacheCapable managedResources{name ignoredByScheduler} ignorable"
)


def kept(kind: str, obj: JsonObject) -> JsonObject:
    """The part of an object that is recorded; of kinds of plugins' own all but what hides nothing.

    What a plugin reads of its own kinds is not known here.
    """
    if kind == PROFILE:
        return _profile(obj)
    tree = trees().get(kind)
    found: JsonObject = without_credentials(obj) if tree is None else _pruned(obj, tree)
    if tree is None:
        found["metadata"] = _pruned(found.get("metadata"), _metadata())
    _keep_annotations(found)
    return found


@cache
def trees() -> Mapping[str, Tree]:
    """The fields that are kept, by kind."""
    return {
        kind: {"apiVersion": None, "kind": None, "metadata": _metadata(), **_tree(text)}
        for kind, text in _TEXTS.items()
    }


@cache
def _metadata() -> Tree:
    return _tree(_METADATA)


def _tree(text: str) -> dict[str, Tree | None]:
    return _fields(iter(_PART.findall(text)))


_PART: Final = re.compile(r"\w+\*?|[{}]")


def _fields(parts: Iterator[str]) -> dict[str, Tree | None]:
    tree: dict[str, Tree | None] = {}
    last = ""
    for each in parts:
        if each == "}":
            break
        if each == "{":
            tree[last] = {**(tree.get(last) or {}), **_fields(parts)}
        else:
            last = each.removesuffix("*")
            tree.setdefault(last, None)
    return tree


def _pruned(value: Any, tree: Tree) -> Any:  # noqa: ANN401 any JSON
    """JSON without what is not in the tree; as fast as it can be, for it is asked of each event."""
    if isinstance(value, dict):
        found = {}
        for name, each in value.items():
            if name in tree:
                below = tree[name]
                found[name] = each if below is None else _pruned(each, below)
        return found
    if isinstance(value, (list, tuple)):
        return [_pruned(each, tree) for each in value]
    # Malformed: that it is there may matter, what it says does not.
    return "" if isinstance(value, str) else value


def _keep_annotations(obj: JsonObject) -> None:
    metadata = obj.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("annotations"), Mapping):
        metadata["annotations"] = {
            key: text
            for key, text in metadata["annotations"].items()
            if key.startswith(KEPT_ANNOTATIONS)
        }


# --- profiles -------------------------------------------------------------------------------------


def _profile(obj: JsonObject) -> JsonObject:
    """A profile without annotations and conditions, and its specs without credentials."""
    found: JsonObject = _pruned(obj, _profile_tree())
    _keep_annotations(found)
    if "spec" in obj:
        found["spec"] = _spec(obj["spec"])
    status = found.get("status")
    if isinstance(status, dict) and "lastGoodSpec" in status:
        status["lastGoodSpec"] = _spec(status["lastGoodSpec"])
    return found


@cache
def _profile_tree() -> Tree:
    return {
        **_tree("apiVersion kind status{observedGeneration lastGoodGeneration lastGoodSpec*}"),
        "metadata": _metadata(),
    }


@cache
def _extender() -> Tree:
    return _tree(_EXTENDER)


def _spec(spec: Any) -> Any:  # noqa: ANN401 any JSON
    if not isinstance(spec, Mapping):
        return spec
    found = dict(spec)
    if isinstance(spec.get("extenders"), list):
        found["extenders"] = _pruned(spec["extenders"], _extender())
    return without_credentials(found)


def without_credentials(value: Any) -> Any:  # noqa: ANN401 any JSON
    """JSON without fields whose names speak of credentials, and URLs in it without their users."""
    if isinstance(value, Mapping):
        return {
            name: without_credentials(each)
            for name, each in value.items()
            if not _CREDENTIAL.search(name)
        }
    if isinstance(value, list):
        return [without_credentials(each) for each in value]
    return without_user(value) if isinstance(value, str) else value
