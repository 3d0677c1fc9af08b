"""The rules of the status of a pod, as kubelets and schedulers write it.

Called by `pod_updates`. Invariant: a container that has ended for good does not run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
)
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import (
    ip_address,
    one_of_each_family,
    parsed_ip,
    qualified_name,
    subdomain,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

_SYSTEM_CONDITIONS: Final = ("PodScheduled", "Ready", "Initialized")
_BOTH_FAMILIES: Final = 2


def pod_status_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Errors of a change of the status of a pod."""
    status, was, spec = new["status"], old["status"], old["spec"]
    for position, condition in enumerate(status.get("conditions") or ()):
        if condition.get("type") not in _SYSTEM_CONDITIONS:
            where = f"metadata.conditions[{position}].Type"
            yield from qualified_name(condition.get("type", ""), where)
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != was.get("nominatedNodeName"):
        yield from subdomain(nominated, "status.nominatedNodeName")
    policy = spec.get("restartPolicy", "Always")
    restarted = frozenset(
        each["name"]
        for each in spec.get("initContainers") or ()
        if each.get("restartPolicy") == "Always"
    )
    none: frozenset[str] = frozenset()
    for group, own_policy, exempt in (
        ("containerStatuses", policy, none),
        ("initContainerStatuses", policy, restarted),
        ("ephemeralContainerStatuses", "Never", none),
    ):
        yield from _transition_errors(status, was, group, own_policy, exempt)
    yield from _claim_errors(status, spec)
    yield from _pod_address_errors(status)
    yield from _host_address_errors(status)


def _transition_errors(
    status: JsonObject, was: JsonObject, group: str, policy: str, exempt: frozenset[str]
) -> Iterator[FieldError]:
    if policy == "Always":
        return
    running = {
        each.get("name")
        for each in status.get(group) or ()
        if "terminated" not in (each.get("state") or EMPTY)
    }
    for position, before in enumerate(was.get(group) or ()):
        ended = (before.get("state") or EMPTY).get("terminated")
        if ended is None or before.get("name") in exempt:
            continue
        if ended.get("exitCode", 0) != 0 and policy == "OnFailure":
            continue
        if before.get("name") in running:
            text = "may not be transitioned to non-terminated state"
            yield forbidden_field(f"status.{group}[{position}].state", text)


def _claim_errors(status: JsonObject, spec: JsonObject) -> Iterator[FieldError]:
    known = {each["name"] for each in spec.get("resourceClaims") or ()}
    seen = set()
    for position, claim in enumerate(status.get("resourceClaimStatuses") or ()):
        where, name = f"status.resourceClaimStatuses[{position}].name", claim.get("name", "")
        if name not in known:
            text = "must match the name of an entry in `spec.resourceClaims`"
            yield bad_value(where, name, text)
        if name in seen:
            yield duplicate(where, name)
        seen.add(name)
        if claim.get("resourceClaimName") is not None:
            yield from subdomain(claim["resourceClaimName"], where)


def _pod_address_errors(status: JsonObject) -> Iterator[FieldError]:
    yield from _address_errors(status.get("podIPs") or (), "status.podIPs")


def _host_address_errors(status: JsonObject) -> Iterator[FieldError]:
    addresses, field = status.get("hostIPs") or (), "status.hostIPs"
    if addresses and status.get("hostIP", "") != addresses[0].get("ip", ""):
        text = "must be equal to `hostIP`"
        yield bad_value(f"{field}[0].ip", addresses[0].get("ip", ""), text)
    yield from _address_errors(addresses, field)


def _address_errors(addresses: list[JsonObject] | tuple[()], field: str) -> Iterator[FieldError]:
    texts = [each.get("ip", "") for each in addresses]
    for position, text in enumerate(texts):
        yield from ip_address(text, f"{field}[{position}]")
    if len(texts) > _BOTH_FAMILIES or not one_of_each_family(texts, parsed_ip):
        shown = [{"IP": text} for text in texts]
        why = "may specify no more than one IP for each IP family"
        yield bad_value(field, shown, why)
    seen = set()
    for position, text in enumerate(texts):
        if text in seen:
            yield duplicate(f"{field}[{position}]", {"IP": text})
        seen.add(text)
