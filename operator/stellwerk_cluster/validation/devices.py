"""The rules of resource.k8s.io: claims, templates of claims, and classes of devices.

Called through their strategies. Invariant: what a claim asks for is said once; an allocation is
written once, and taken away only while no pod has the claim reserved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import IMMUTABLE, label, subdomain, too_many, unique
from stellwerk_cluster.validation.device_checks import (
    binding_condition_errors,
    devices_of,
    driver_name,
    full_attribute_name,
    names_of_requests,
    opaque_errors,
    pool_name,
    request_reference,
    request_reference_errors,
    selector_errors,
    toleration_errors,
)
from stellwerk_cluster.validation.placement import node_selector_errors
from stellwerk_kube.names import is_extended_resource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stellwerk_kube.json_values import JsonObject

MAX_REQUESTS: Final = 32
"""Requests of a claim; also its constraints, its configurations, and the devices of an
allocation."""
MAX_ALTERNATIVES: Final = 8
"""Alternatives of a request (`FirstAvailableDeviceRequestMaxSize`)."""
MAX_CONSUMERS: Final = 256
"""Entries that a claim's reservedFor may have (`ResourceClaimReservedForMaxSize`)."""
_MAX_CONDITIONS: Final = 8
"""Conditions of an allocated device."""
_MODES: Final = ("All", "ExactCount")
_SOURCES: Final = ("FromClaim", "FromClass")


def validate_resource_claim(claim: JsonObject) -> Iterator[FieldError]:
    """Errors of what a claim asks for."""
    yield from _device_errors(devices_of(claim), "spec.devices")


def validate_claim_template(template: JsonObject) -> Iterator[FieldError]:
    """Errors of what its claims would ask for."""
    yield from _device_errors(devices_of(template), "spec.spec.devices")


def _device_errors(devices: JsonObject, at: str) -> Iterator[FieldError]:
    known = names_of_requests(devices)
    requests = devices.get("requests") or ()
    if len(requests) > MAX_REQUESTS:
        yield too_many(f"{at}.requests", len(requests), MAX_REQUESTS)
    else:
        for index, request in enumerate(requests):
            yield from _request_errors(request, f"{at}.requests[{index}]")
        yield from unique([each["name"] for each in requests], f"{at}.requests[{{}}]".format)
    constraints = devices.get("constraints") or ()
    if len(constraints) > MAX_REQUESTS:
        yield too_many(f"{at}.constraints", len(constraints), MAX_REQUESTS)
    else:
        for index, constraint in enumerate(constraints):
            yield from _constraint_errors(constraint, known, f"{at}.constraints[{index}]")
    yield from _config_errors(devices.get("config") or (), known, f"{at}.config")


def _constraint_errors(constraint: JsonObject, known: set[str], at: str) -> Iterator[FieldError]:
    named = constraint.get("requests") or ()
    yield from request_reference_errors(named, known, f"{at}.requests", MAX_REQUESTS)
    for field in ("matchAttribute", "distinctAttribute"):
        if constraint.get(field) is not None:
            yield from full_attribute_name(constraint[field], f"{at}.{field}")
            return
    text = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields'
    yield required(at, f"{text} are set")


def _config_errors(configs: Sequence[JsonObject], known: set[str], at: str) -> Iterator[FieldError]:
    if len(configs) > MAX_REQUESTS:
        yield too_many(at, len(configs), MAX_REQUESTS)
        return
    for index, config in enumerate(configs):
        where = f"{at}[{index}]"
        named = config.get("requests") or ()
        yield from request_reference_errors(named, known, f"{where}.requests", MAX_REQUESTS)
        yield from opaque_errors(config, where)


def _request_errors(request: JsonObject, at: str) -> Iterator[FieldError]:
    yield from label(request["name"], f"{at}.name")
    alternatives, exactly = request.get("firstAvailable") or (), request.get("exactly")
    text = "exactly one of `exactly` or `firstAvailable` is required"
    if alternatives and exactly is not None:
        yield bad_value(at, None, f"{text}, but multiple fields are set")
    elif exactly is not None:
        yield from _choice_errors(exactly, f"{at}.exactly")
    elif not alternatives:
        yield required(at, text)
    elif len(alternatives) > MAX_ALTERNATIVES:
        yield too_many(f"{at}.firstAvailable", len(alternatives), MAX_ALTERNATIVES)
    else:
        for index, each in enumerate(alternatives):
            where = f"{at}.firstAvailable[{index}]"
            yield from label(each["name"], f"{where}.name")
            yield from _choice_errors(each, where)
        names = [each["name"] for each in alternatives]
        yield from unique(names, f"{at}.firstAvailable[{{}}]".format)


def _choice_errors(choice: JsonObject, at: str) -> Iterator[FieldError]:
    if not choice["deviceClassName"]:
        yield required(f"{at}.deviceClassName")
    else:
        yield from subdomain(choice["deviceClassName"], f"{at}.deviceClassName")
    yield from selector_errors(choice.get("selectors") or (), f"{at}.selectors")
    mode, count = choice.get("allocationMode"), choice.get("count") or 0
    if mode not in _MODES:
        yield unsupported(f"{at}.allocationMode", mode, _MODES)
    elif mode == "ExactCount" and count <= 0:
        yield bad_value(f"{at}.count", count, "must be greater than zero")
    elif mode == "All" and count:
        yield bad_value(f"{at}.count", count, "must not be specified when allocationMode is 'All'")
    yield from toleration_errors(choice.get("tolerations") or (), f"{at}.tolerations")


# --- what becomes of a claim --------------------------------------------------------------------
def validate_resource_claim_update(
    new: JsonObject, old: JsonObject, subresource: str
) -> Iterator[FieldError]:
    """The spec never changes; the status follows the life of an allocation."""
    if subresource == "status":
        yield from _status_errors(new, old)
    elif new["spec"] != old["spec"]:
        yield bad_value("spec", new["spec"], IMMUTABLE)


def validate_claim_template_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[FieldError]:
    """A template is what it is."""
    if new["spec"] != old["spec"]:
        yield bad_value("spec", new["spec"], IMMUTABLE)


def _status_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    status, before = new.get("status") or EMPTY, old.get("status") or EMPTY
    allocation, was = status.get("allocation"), before.get("allocation")
    yield from _consumer_errors(new, status, before)
    results = ((allocation or EMPTY).get("devices") or EMPTY).get("results") or ()
    given = {_share(each) for each in results}
    for index, device in enumerate(status.get("devices") or ()):
        yield from _reported_errors(device, given, f"status.devices[{index}]")
    yield from unique(list(map(_share, status.get("devices") or ())), "status.devices[{}]".format)
    if allocation and was:
        if allocation != was:
            yield bad_value("status.allocation", allocation, IMMUTABLE)
    elif allocation:
        yield from _allocation_errors(allocation, names_of_requests(devices_of(new)))


def _share(device: JsonObject) -> tuple[str | None, ...]:
    """The fields that name a device, or a share of one."""
    return tuple(device.get(field) for field in ("driver", "pool", "device", "shareID"))


def _consumer_errors(
    new: JsonObject, status: JsonObject, before: JsonObject
) -> Iterator[FieldError]:
    consumers = status.get("reservedFor") or ()
    if len(consumers) > MAX_CONSUMERS:
        yield too_many("status.reservedFor", len(consumers), MAX_CONSUMERS)
        return
    for index, consumer in enumerate(consumers):
        for field in ("resource", "name", "uid"):
            if not consumer.get(field):
                yield required(f"status.reservedFor[{index}].{field}")
    uids = [each.get("uid") for each in consumers]
    yield from unique(uids, "status.reservedFor[{}]".format)
    if consumers and not status.get("allocation"):
        yield forbidden_field(
            "status.reservedFor", "may not be specified when `allocated` is not set"
        )
    known = before.get("reservedFor") or ()
    if new["metadata"].get("deletionTimestamp") and any(each not in known for each in consumers):
        text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` "
        yield forbidden_field("status.reservedFor", f"{text}are set")


def _reported_errors(
    device: JsonObject, given: set[tuple[str | None, ...]], at: str
) -> Iterator[FieldError]:
    """Errors of the report of a driver on a device that the claim has."""
    yield from driver_name(device.get("driver") or "", f"{at}.driver")
    yield from pool_name(device.get("pool") or "", f"{at}.pool")
    yield from label(device.get("device") or "", f"{at}.device")
    if _share(device) not in given:
        shown = "/".join(filter(None, _share(device)))
        yield bad_value(at, shown, "must be an allocated device in the claim")
    conditions = device.get("conditions") or ()
    if len(conditions) > _MAX_CONDITIONS:
        yield too_many(f"{at}.conditions", len(conditions), _MAX_CONDITIONS)


def _allocation_errors(allocation: JsonObject, known: set[str]) -> Iterator[FieldError]:
    at = "status.allocation.devices"
    devices = allocation.get("devices") or EMPTY
    results, configs = devices.get("results") or (), devices.get("config") or ()
    if len(results) > MAX_REQUESTS:
        yield too_many(f"{at}.results", len(results), MAX_REQUESTS)
    else:
        for index, result in enumerate(results):
            yield from _result_errors(result, known, f"{at}.results[{index}]")
    if len(configs) > 2 * MAX_REQUESTS:
        yield too_many(f"{at}.config", len(configs), 2 * MAX_REQUESTS)
    else:
        for index, config in enumerate(configs):
            where = f"{at}.config[{index}]"
            source = config.get("source")
            if not source:
                yield required(f"{where}.source")
            elif source not in _SOURCES:
                yield unsupported(f"{where}.source", source, _SOURCES)
            named = config.get("requests") or ()
            yield from request_reference_errors(named, known, f"{where}.requests", MAX_REQUESTS)
            yield from opaque_errors(config, where)
    if allocation.get("nodeSelector") is not None:
        yield from node_selector_errors(
            allocation["nodeSelector"], "status.allocation.nodeSelector"
        )


def _result_errors(result: JsonObject, known: set[str], at: str) -> Iterator[FieldError]:
    yield from request_reference(result.get("request") or "", known, f"{at}.request")
    yield from driver_name(result.get("driver") or "", f"{at}.driver")
    yield from pool_name(result.get("pool") or "", f"{at}.pool")
    yield from label(result.get("device") or "", f"{at}.device")
    yield from binding_condition_errors(result, at)
    yield from toleration_errors(result.get("tolerations") or (), f"{at}.tolerations")
    share = result.get("shareID")
    if share is not None and not _is_uuid(share):
        text = (
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with "
            "lowercase hexadecimal characters"
        )
        yield bad_value(f"{at}.shareID", share, text)


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


# --- classes ------------------------------------------------------------------------------------
def validate_device_class(device_class: JsonObject) -> Iterator[FieldError]:
    """Errors of a class."""
    spec = device_class["spec"]
    yield from selector_errors(spec.get("selectors") or (), "spec.selectors")
    configs = spec.get("config") or ()
    if len(configs) > MAX_REQUESTS:
        yield too_many("spec.config", len(configs), MAX_REQUESTS)
    else:
        for index, config in enumerate(configs):
            yield from opaque_errors(config, f"spec.config[{index}]")
    resource = spec.get("extendedResourceName")
    if resource is not None and not is_extended_resource(resource):
        text = "must be a valid extended resource name"
        yield bad_value("spec.extendedResourceName", resource, text)
