"""Extended resources that classes back: one claim for all that a node has no device plugin for.

PreFilter asks whether a pod has any, Filter which of them a node leaves to devices, PreBind how the
containers' requests are called. Invariant: what is asked for depends on the pod's containers and on
which resources are left to devices, so that nodes which leave the same share it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import ContainerRequests, is_device_resource
from stellwerk.plugins.shared.device_classes import DeviceClasses
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo

CLAIM_NAME = "<extended-resources>"
"""The name of the claim before it exists."""
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """The spec of the claim, and which container uses which of its requests."""

    requests: tuple[JsonObject, ...]
    mappings: tuple[JsonObject, ...]


def backed_resources(pod: PodInfo, classes: DeviceClasses) -> tuple[str, ...]:
    """The extended resources that a pod requests and a class backs."""
    return tuple(
        resource
        for resource, amount in pod.amounts.requests.items()
        if amount > 0 and is_device_resource(resource) and classes.backing(resource) is not None
    )


def left_to_devices(node: NodeInfo, backed: Sequence[str]) -> tuple[str, ...]:
    """Those of which the node itself offers nothing."""
    return tuple(resource for resource in backed if not node.allocatable.get(resource))


def is_offered(node: NodeInfo, pod: PodInfo, backed: Sequence[str]) -> bool:
    """Whether the node knows every extended resource of the pod that no class backs."""
    return all(
        resource in backed or resource in node.allocatable
        for resource, amount in pod.amounts.requests.items()
        if amount > 0 and is_device_resource(resource)
    )


def stale_claim(pod: PodInfo, claims: Iterable[JsonObject]) -> JsonObject | None:
    """The claim that an earlier attempt has made for the pod's extended resources."""
    for claim in claims:
        metadata = claim["metadata"]
        if (metadata.get("annotations") or {}).get(ANNOTATION) == "true" and any(
            owner.get("controller")
            and owner.get("uid") == pod.uid
            and owner.get("name") == pod.name
            for owner in metadata.get("ownerReferences") or ()
        ):
            return claim
    return None


def extended_claim(
    containers: Sequence[ContainerRequests], resources: Sequence[str], classes: DeviceClasses
) -> ExtendedClaim:
    """The requests of containers for the resources that are left to devices."""
    requests: list[JsonObject] = []
    mappings: list[JsonObject] = []
    for resource in sorted(resources):
        device_class = classes.backing(resource)
        if device_class is None:
            continue
        needs = _Needs(containers, resource)
        mappings += needs.mappings
        requests += [
            {
                "name": name,
                "exactly": {
                    "deviceClassName": device_class.name,
                    "allocationMode": "ExactCount",
                    "count": count,
                },
            }
            for name, count in needs.requests.items()
        ]
    requests.sort(key=lambda request: str(request["name"]))
    return ExtendedClaim(tuple(requests), tuple(mappings))


class _Needs:
    """The requests for one resource, and the containers that use them.

    A container that ends before others start leaves its devices to them: of such containers only
    the one that needs most beside what later ones request has a request of its own.
    """

    def __init__(self, containers: Sequence[ContainerRequests], resource: str) -> None:
        self._resource = resource
        lasting = {
            each.index: (each, each.amounts[resource])
            for each in containers
            if not each.short_lived and resource in each.amounts
        }
        self.requests: dict[str, int] = {
            self._name(each): amount for each, amount in lasting.values()
        }
        """Count by name."""
        self.mappings = [self._mapping(each, self._name(each)) for each, _ in lasting.values()]
        short_lived = [each for each in containers if each.short_lived and resource in each.amounts]
        extra: dict[str, int] = {}
        uses: list[tuple[ContainerRequests, str]] = []
        for each in short_lived:
            needed = each.amounts[resource]
            for index, (other, amount) in lasting.items():
                if index >= each.index and needed > 0:
                    uses.append((each, self._name(other)))
                    needed -= amount
            if needed > 0:
                extra[self._name(each)] = needed
                uses.append((each, self._name(each)))
        if extra:
            largest = max(extra, key=lambda name: extra[name])
            self.requests[largest] = extra[largest]
            uses = [(each, largest if name in extra else name) for each, name in uses]
        self.mappings += [self._mapping(each, name) for each, name in uses]

    def _name(self, container: ContainerRequests) -> str:
        position = container.resources.index(self._resource)
        return f"container-{container.index}-request-{position}"

    def _mapping(self, container: ContainerRequests, request: str) -> JsonObject:
        return {
            "containerName": container.name,
            "resourceName": self._resource,
            "requestName": request,
        }


def claim_for(pod: PodInfo, extended: ExtendedClaim) -> JsonObject:
    """The claim as it is to be made."""
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.name,
        "uid": pod.uid,
        "controller": True,
    }
    return {
        "metadata": {
            "name": CLAIM_NAME,
            "namespace": pod.namespace,
            "annotations": {ANNOTATION: "true"},
            "ownerReferences": [owner],
        },
        "spec": spec_of(extended),
    }


def spec_of(claim: ExtendedClaim) -> JsonObject:
    """The claim's spec as the API has it."""
    return {"devices": {"requests": list(claim.requests)} if claim.requests else {}}
