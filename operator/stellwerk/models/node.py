"""A node as the scheduler sees it: parsed once per change, small, immutable.

The cache keeps one per node; raw objects are not kept. Invariant: two parses of nodes that differ
only in what a scheduler does not read (heartbeats, addresses) compare equal, so that a heartbeat
dirties nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stellwerk.models.quantity import resource_amount, whole_units
from stellwerk.models.taints import Taint, parse_taints

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
_LEGACY_ZONE_LABEL: Final = "failure-domain.beta.kubernetes.io/zone"
_LEGACY_REGION_LABEL: Final = "failure-domain.beta.kubernetes.io/region"


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """The scheduler's view of one v1.Node."""

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    """Only annotations that a plugin reads (scheduler.alpha.kubernetes.io/…)."""
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Mapping[str, int]
    """Amount by resource name; cpu in millicores, all else in whole units."""
    images: Mapping[str, int]
    """Bytes by image name (every name of the image); of a repeated name, the first counts."""
    declared_features: frozenset[str]

    def same_for_scheduling(self, other: "NodeInfo") -> bool:
        """Whether nothing that a plugin reads differs."""
        return (
            self.uid == other.uid
            and self.allocatable == other.allocatable
            and self.labels == other.labels
            and self.taints == other.taints
            and self.unschedulable == other.unschedulable
            and self.images == other.images
            and self.annotations == other.annotations
            and self.declared_features == other.declared_features
        )


def zone_key(labels: Mapping[str, str]) -> str:
    """The key that interleaves zones in the visiting order (`GetZoneKey`).

    The beta labels first, as upstream.
    """
    region = labels.get(_LEGACY_REGION_LABEL) or labels.get(REGION_LABEL) or ""
    zone = labels.get(_LEGACY_ZONE_LABEL) or labels.get(ZONE_LABEL) or ""
    return f"{region}:\x00:{zone}" if region or zone else ""


def parse_node(obj: Mapping[str, Any]) -> NodeInfo:
    """Parse a v1.Node.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object is malformed.
    """
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    return NodeInfo(
        name=metadata["name"],
        uid=metadata.get("uid") or metadata["name"],
        resource_version=metadata.get("resourceVersion") or "",
        labels=metadata.get("labels") or {},
        annotations={
            key: value
            for key, value in (metadata.get("annotations") or {}).items()
            if key.startswith("scheduler.alpha.kubernetes.io/")
        },
        taints=parse_taints(spec.get("taints")),
        unschedulable=bool(spec.get("unschedulable")),
        allocatable={
            resource: resource_amount(resource, quantity)
            for resource, quantity in (status.get("allocatable") or {}).items()
        },
        images=_image_sizes(status.get("images") or ()),
        declared_features=frozenset(status.get("declaredFeatures") or ()),
    )


def _image_sizes(images: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for image in images:
        for name in image.get("names") or ():
            sizes.setdefault(name, whole_units(image.get("sizeBytes") or 0))
    return sizes
