"""A pod's resource claims, and the resources that claims may be made for.

`models.pod` and `models.scheduling_spec` parse it, DynamicResources reads it. Invariant: a pod that
uses neither claims nor extended resources carries nothing of this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stellwerk_kube.json_values import JsonObject, text, text_or_empty
from stellwerk_kube.names import is_extended_resource
from stellwerk_kube.quantity import whole_units

RESOURCE_CLAIM: Final = "ResourceClaim"
CLASS_RESOURCE_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""`PREFIX/class` is an extended resource that the class of that name backs."""


@dataclass(frozen=True, slots=True)
class ClaimReference:
    """One entry of spec.resourceClaims."""

    name: str
    claim_name: str
    """The claim that it names; empty: the one made from its template, which the status names."""
    template_name: str = ""


@dataclass(frozen=True, slots=True)
class GeneratedClaims:
    """The claims that controllers and schedulers have made for a pod, as its status says."""

    by_reference: Mapping[str, str]
    """Claim by the name of its reference; empty: the reference needs no claim."""
    extended: str
    """The claim for extended resources; empty: there is none."""


@dataclass(frozen=True, slots=True)
class ContainerRequests:
    """One container's requests, by the names that decide how its device requests are called."""

    index: int
    """Among init containers and containers together."""
    name: str
    short_lived: bool
    """An init container that ends before the next one starts."""
    resources: tuple[str, ...]
    """The names of everything that it requests, sorted."""
    amounts: Mapping[str, int]
    """Requests of extended resources, above 0."""


def is_device_resource(resource: str) -> bool:
    """Whether a device class may back a resource of this name (`IsDRAExtendedResourceName`)."""
    return is_extended_resource(resource) or resource.startswith(CLASS_RESOURCE_PREFIX)


def parse_claim_references(claims: Sequence[JsonObject] | None) -> tuple[ClaimReference, ...]:
    """spec.resourceClaims of a pod, or of a group."""
    return tuple(
        ClaimReference(
            text(claim["name"]),
            text_or_empty(claim.get("resourceClaimName")),
            text_or_empty(claim.get("resourceClaimTemplateName")),
        )
        for claim in claims or ()
    )


def generated_claims(status: JsonObject) -> GeneratedClaims | None:
    """The claims in a pod's status; None: there are none."""
    statuses = status.get("resourceClaimStatuses")
    extended = status.get("extendedResourceClaimStatus")
    if not statuses and not extended:
        return None
    by_reference = {
        text(each["name"]): text_or_empty(each.get("resourceClaimName")) for each in statuses or ()
    }
    name = text_or_empty(extended.get("resourceClaimName")) if extended else ""
    return GeneratedClaims(by_reference, name)


def container_requests(
    spec: JsonObject, requests: Mapping[str, int]
) -> tuple[ContainerRequests, ...]:
    """The containers' requests; empty unless the pod requests extended resources at all."""
    if not any(map(is_device_resource, requests)):
        return ()
    init_containers = spec.get("initContainers") or ()
    containers = (*init_containers, *(spec.get("containers") or ()))
    return tuple(
        _container(
            index,
            container,
            short_lived=index < len(init_containers) and container.get("restartPolicy") != "Always",
        )
        for index, container in enumerate(containers)
    )


def _container(index: int, container: JsonObject, *, short_lived: bool) -> ContainerRequests:
    requests = (container.get("resources") or {}).get("requests") or {}
    amounts = {
        resource: whole_units(quantity)
        for resource, quantity in requests.items()
        if is_device_resource(resource)
    }
    return ContainerRequests(
        index,
        text(container["name"]),
        short_lived,
        tuple(sorted(requests)),
        {resource: amount for resource, amount in amounts.items() if amount > 0},
    )
