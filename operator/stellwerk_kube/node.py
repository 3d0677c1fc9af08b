"""A node as the scheduler sees it: parsed once per change, small, immutable.

The cache keeps one per node; raw objects are not kept. Invariant: two parses of nodes that differ
only in what a scheduler does not read (heartbeats, addresses) compare equal, so that a heartbeat
dirties nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from stellwerk_kube.json_values import JsonObject, packed, text, text_map, text_or_empty, texts
from stellwerk_kube.quantity import resource_amount, whole_units
from stellwerk_kube.taints import Taint, parse_taints

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
BETA_ZONE_LABEL: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION_LABEL: Final = "failure-domain.beta.kubernetes.io/region"
_KUBERNETES_DOMAINS: Final = ("kubernetes.io", "k8s.io")
_FREE_DOMAINS: Final = ("node-restriction.kubernetes.io", "node-role.kubernetes.io")
"""Domains of Kubernetes whose labels administrators choose."""
_DESCRIBING_DOMAINS: Final = (
    "amazonaws.com",
    "k8s.aws",
    "azure.com",
    "cloud.google.com",
    "gke.io",
    "alibabacloud.com",
    "csi.hetzner.cloud",
    "karpenter.sh",
    "nvidia.com",
    "amd.com",
    "gpu.intel.com",
)
"""Domains, with those below them, whose labels clouds and device drivers set."""
_NOTHING: Final[Mapping[str, Any]] = {}
_TOPOLOGY_DOMAIN: Final = "topology."
"""With this a domain begins whose labels say where a node is, as those of CSI drivers."""
_MAX_SHARED_TEXTS: Final = 1 << 16
"""Texts of nodes that are shared at a time. Above it, all are forgotten, and shared anew."""
_MAX_SHARED_AMOUNTS: Final = 1 << 10
"""Amounts that are shared at a time; nodes that make up more cost their own memory."""
_MAX_SHARED_CHARACTERS: Final = 512
"""Characters of a text that is shared. Longer ones are each node's own."""
_MAX_SHARED_AMOUNTS_BYTES: Final = 4096
"""Bytes of JSON of the amounts that are shared."""
_texts: dict[str, str] = {}
_conditions_of: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
_MAX_CONDITION_CHARACTERS: Final = 1 << 10
"""Characters of a node's conditions that are shared; a kubelet reports five conditions with 100,
and problem detectors add a dozen."""
_amounts_of: dict[bytes, Mapping[str, int]] = {}


def describes_node(label: str) -> bool:
    """Whether a label says which node it is on, where that is, or what it is made of.

    The kubelet, the cloud and device drivers set such labels: name, zone and region, provider,
    instance type, operating system, architecture and devices. Another value would be a lie.
    """
    domain, slash, _ = label.rpartition("/")
    if not slash or _is_within(domain, _FREE_DOMAINS):
        return False
    return domain.startswith(_TOPOLOGY_DOMAIN) or _is_within(
        domain, (*_KUBERNETES_DOMAINS, *_DESCRIBING_DOMAINS)
    )


def _is_within(domain: str, domains: Iterable[str]) -> bool:
    return any(domain == each or domain.endswith(f".{each}") for each in domains)


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
    """Amount by resource name, at least 0; cpu in millicores, all else in whole units."""
    capacity: Mapping[str, int]
    """The amounts of status.capacity, which no default plugin reads."""
    images: Mapping[str, int]
    """Bytes by image name (every name of the image); of a repeated name, the first counts."""
    declared_features: frozenset[str]
    conditions: Mapping[str, str]
    """Status by type, of status.conditions; their times change with each heartbeat."""

    def same_for_scheduling(self, other: "NodeInfo") -> bool:
        """Whether nothing that a plugin reads differs."""
        return (
            self.uid == other.uid
            and self.allocatable == other.allocatable
            and self.capacity == other.capacity
            and self.labels == other.labels
            and self.taints == other.taints
            and self.unschedulable == other.unschedulable
            and self.images == other.images
            and self.annotations == other.annotations
            and self.declared_features == other.declared_features
            and self.conditions == other.conditions
        )


def zone_key(labels: Mapping[str, str]) -> str:
    """The key that interleaves zones in the visiting order; beta labels first (`GetZoneKey`)."""
    region = labels.get(BETA_REGION_LABEL) or labels.get(REGION_LABEL) or ""
    zone = labels.get(BETA_ZONE_LABEL) or labels.get(ZONE_LABEL) or ""
    return _joined(region, zone) if region or zone else ""


@lru_cache(maxsize=4096)
def _joined(region: str, zone: str) -> str:
    """One text for all nodes of a zone."""
    return f"{region}:\x00:{zone}"


def parse_node(obj: JsonObject) -> NodeInfo:
    """Parse a v1.Node.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object is malformed.
    """
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    name = _shared(text(metadata["name"]))  # which its label of the hostname often is, too
    allocatable = _amounts(status.get("allocatable"))
    capacity = _amounts(status.get("capacity"))
    return NodeInfo(
        name=name,
        uid=text_or_empty(metadata.get("uid")) or name,
        resource_version=text_or_empty(metadata.get("resourceVersion")),
        labels={key: _shared(value) for key, value in text_map(metadata.get("labels")).items()},
        annotations={
            key: value
            for key, value in text_map(metadata.get("annotations")).items()
            if key.startswith("scheduler.alpha.kubernetes.io/")
        }
        or _NOTHING,
        taints=parse_taints(spec.get("taints")),
        unschedulable=bool(spec.get("unschedulable")),
        allocatable=allocatable,
        capacity=allocatable if capacity == allocatable else capacity,
        images=_image_sizes(status.get("images") or ()) or _NOTHING,
        declared_features=frozenset(texts(status.get("declaredFeatures"))),
        conditions=_conditions(status.get("conditions")),
    )


def _conditions(conditions: object) -> Mapping[str, str]:
    """Status by type; nearly all nodes of a cluster say the same, and share it.

    No decision of a built-in plugin reads them, so that a malformed one spoils no node.
    """
    listed = conditions if isinstance(conditions, list) else ()
    found = {
        each["type"]: each["status"]
        for each in listed
        if isinstance(each, dict)
        and isinstance(each.get("type"), str)
        and isinstance(each.get("status"), str)
    }
    key = tuple(found.items())
    if sum(len(type_) + len(status) for type_, status in key) > _MAX_CONDITION_CHARACTERS:
        return found
    if len(_conditions_of) >= _MAX_SHARED_AMOUNTS:
        _conditions_of.clear()
    return _conditions_of.setdefault(key, found)


def _shared(text: str) -> str:
    """The text as other nodes have it: of 50,000 nodes few zones, types and images are different.

    Each copy would cost 60 bytes and more. Longer ones than a node has need of are not kept.
    """
    if len(text) > _MAX_SHARED_CHARACTERS:
        return text
    if len(_texts) >= _MAX_SHARED_TEXTS:
        _texts.clear()
    return _texts.setdefault(text, text)


def _amounts(quantities: JsonObject | None) -> Mapping[str, int]:
    """Amounts by resource; nodes that say the same share them."""
    key = orjson.dumps(quantities)
    found = _amounts_of.get(key)
    if found is None:
        found = {
            resource: max(0, resource_amount(resource, quantity))
            for resource, quantity in (quantities or {}).items()
        }
        if len(_amounts_of) >= _MAX_SHARED_AMOUNTS:
            _amounts_of.clear()
        if len(key) <= _MAX_SHARED_AMOUNTS_BYTES:
            _amounts_of[packed(key)] = found
    return found


def _image_sizes(images: Iterable[JsonObject]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for image in images:
        size_bytes = whole_units(image.get("sizeBytes") or 0)
        for name in texts(image.get("names")):
            sizes.setdefault(_shared(name), size_bytes)
    return sizes
