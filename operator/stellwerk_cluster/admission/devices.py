"""The rules of resource.k8s.io: claims, templates of claims, classes and slices of devices.

Called through their strategies. Invariant: what a claim asks for is said once; an allocation is
written once, and taken away only while no pod has the claim reserved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.cel.devices import MOST_BYTES, device_program
from stellwerk.cel.errors import CompileError
from stellwerk_cluster.admission.checks import IMMUTABLE, label, subdomain
from stellwerk_cluster.apimachinery.failures import (
    Cause,
    bad_value,
    duplicate,
    forbidden,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Reader
    from stellwerk_cluster.apimachinery.kinds import ResourceKind

MOST_REQUESTS: Final = 32
MOST_ALTERNATIVES: Final = 8
MOST_CONSUMERS: Final = 256
MOST_DEVICES: Final = 128
_MODES: Final = ("All", "ExactCount")
_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"


def too_many(field: str, given: int, most: int) -> Cause:
    """A list with more items than it may have."""
    message = f"Too many: {given}: must have at most {most} item{'s' if most != 1 else ''}"
    return Cause(field, "FieldValueTooMany", message)


# --- claims and templates -----------------------------------------------------------------------


def default_claim(claim: JsonObject) -> None:
    """One device for each request, and tolerations that compare."""
    _default_devices(claim["spec"].get("devices") or {})


def default_template(template: JsonObject) -> None:
    """The same for the claims that are made from it."""
    _default_devices((template["spec"].get("spec") or EMPTY).get("devices") or {})


def _default_devices(devices: JsonObject) -> None:
    for request in devices.get("requests") or ():
        for choice in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if choice is None:
                continue
            if not choice.get("allocationMode"):
                choice["allocationMode"] = "ExactCount"
            if choice["allocationMode"] == "ExactCount" and not choice.get("count"):
                choice["count"] = 1
            for toleration in choice.get("tolerations") or ():
                if not toleration.get("operator"):
                    toleration["operator"] = "Equal"


def admit_claim(claim: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Requests for adminAccess are for namespaces that are labelled for it.

    Raises:
        StatusError: the claim's namespace is not (403).
    """
    requests = _devices_of(claim).get("requests") or ()
    if not any((each.get("exactly") or EMPTY).get("adminAccess") for each in requests):
        return
    metadata = claim["metadata"]
    namespace = cluster.find("namespaces", "", metadata["namespace"]) or EMPTY
    labels = (namespace.get("metadata") or EMPTY).get("labels") or EMPTY
    if labels.get(_ADMIN_LABEL) != "true":
        why = (
            f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the "
            "containing namespace"
        )
        raise forbidden(kind, metadata.get("name") or "", why)


def _devices_of(obj: JsonObject) -> JsonObject:
    spec = obj["spec"]
    devices: JsonObject = (spec.get("spec") or spec).get("devices") or EMPTY
    return devices


def validate_claim(claim: JsonObject) -> Iterator[Cause]:
    """What is wrong with what a claim asks for."""
    yield from _device_causes(_devices_of(claim), "spec.devices")


def validate_template(template: JsonObject) -> Iterator[Cause]:
    """What is wrong with what its claims would ask for."""
    yield from _device_causes(_devices_of(template), "spec.spec.devices")


def _device_causes(devices: JsonObject, at: str) -> Iterator[Cause]:
    requests = devices.get("requests") or ()
    if len(requests) > MOST_REQUESTS:
        yield too_many(f"{at}.requests", len(requests), MOST_REQUESTS)
    seen: set[str] = set()
    for index, request in enumerate(requests):
        yield from _request_causes(request, f"{at}.requests[{index}]")
        if request["name"] in seen:
            yield duplicate(f"{at}.requests[{index}].name", request["name"])
        seen.add(request["name"])
    names = seen | {
        f"{request['name']}/{each['name']}"
        for request in requests
        for each in request.get("firstAvailable") or ()
    }
    for index, constraint in enumerate(devices.get("constraints") or ()):
        where = f"{at}.constraints[{index}]"
        yield from _named(constraint, names, where)
        if not constraint.get("matchAttribute") and not constraint.get("distinctAttribute"):
            yield required(f"{where}.matchAttribute")
    for index, config in enumerate(devices.get("config") or ()):
        yield from _named(config, names, f"{at}.config[{index}]")


def _named(obj: JsonObject, names: set[str], at: str) -> Iterator[Cause]:
    for index, name in enumerate(obj.get("requests") or ()):
        if name not in names:
            text = "must be the name of a request in the claim or the name of a request and a "
            yield bad_value(f"{at}.requests[{index}]", name, f"{text}subrequest separated by '/'")


def _request_causes(request: JsonObject, at: str) -> Iterator[Cause]:
    yield from label(request["name"], f"{at}.name")
    alternatives, exactly = request.get("firstAvailable") or (), request.get("exactly")
    if alternatives and exactly:
        text = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are"
        yield bad_value(at, "", f"{text} set")
    elif not alternatives and exactly is None:
        yield required(at, "exactly one of `exactly` or `firstAvailable` is required")
    if exactly is not None:
        yield from _choice_causes(exactly, f"{at}.exactly")
    if len(alternatives) > MOST_ALTERNATIVES:
        yield too_many(f"{at}.firstAvailable", len(alternatives), MOST_ALTERNATIVES)
    seen: set[str] = set()
    for index, each in enumerate(alternatives):
        where = f"{at}.firstAvailable[{index}]"
        yield from label(each["name"], f"{where}.name")
        if each["name"] in seen:
            yield duplicate(f"{where}.name", each["name"])
        seen.add(each["name"])
        yield from _choice_causes(each, where)


def _choice_causes(choice: JsonObject, at: str) -> Iterator[Cause]:
    if not choice["deviceClassName"]:
        yield required(f"{at}.deviceClassName")
    else:
        yield from subdomain(choice["deviceClassName"], f"{at}.deviceClassName")
    yield from _selector_causes(choice, at)
    mode, count = choice.get("allocationMode"), choice.get("count") or 0
    if mode not in _MODES:
        yield unsupported(f"{at}.allocationMode", mode, _MODES)
    elif mode == "ExactCount" and count <= 0:
        yield bad_value(f"{at}.count", count, "must be greater than zero")
    elif mode == "All" and count:
        yield bad_value(f"{at}.count", count, "must not be specified when allocationMode is 'All'")


def _selector_causes(obj: JsonObject, at: str) -> Iterator[Cause]:
    for index, selector in enumerate(obj.get("selectors") or ()):
        where = f"{at}.selectors[{index}].cel"
        expression = (selector.get("cel") or EMPTY).get("expression") or ""
        if not expression:
            yield required(f"{where}.expression")
        elif len(expression.encode()) > MOST_BYTES:
            text = f"may not be more than {MOST_BYTES} bytes"
            yield bad_value(f"{where}.expression", expression, text)
        else:
            try:
                device_program(expression)
            except CompileError as error:
                text = f"compilation failed: {error}"
                yield bad_value(f"{where}.expression", expression, text)


def validate_claim_update(new: JsonObject, old: JsonObject, subresource: str) -> Iterator[Cause]:
    """The spec never changes; the status follows the life of an allocation."""
    if subresource == "status":
        yield from _status_causes(new, old)
    elif new["spec"] != old["spec"]:
        yield bad_value("spec", new["spec"], IMMUTABLE)


def validate_template_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[Cause]:
    """A template is what it is."""
    if new["spec"] != old["spec"]:
        yield bad_value("spec", new["spec"], IMMUTABLE)


def _status_causes(new: JsonObject, old: JsonObject) -> Iterator[Cause]:
    status, before = new.get("status") or EMPTY, old.get("status") or EMPTY
    allocation, was = status.get("allocation"), before.get("allocation")
    consumers = status.get("reservedFor") or ()
    if len(consumers) > MOST_CONSUMERS:
        yield too_many("status.reservedFor", len(consumers), MOST_CONSUMERS)
    if consumers and not allocation:
        yield forbidden_field(
            "status.reservedFor", "may not be specified when `allocated` is not set"
        )
    known = {each["uid"] for each in before.get("reservedFor") or ()}
    if new["metadata"].get("deletionTimestamp") and any(
        each["uid"] not in known for each in consumers
    ):
        text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` "
        yield forbidden_field("status.reservedFor", f"{text}are set")
    uids = [each["uid"] for each in consumers]
    for index, uid in enumerate(uids):
        if uid in uids[:index]:
            yield duplicate(f"status.reservedFor[{index}].uid", uid)
    if allocation and was and allocation != was:
        yield bad_value("status.allocation", allocation, IMMUTABLE)
    results = ((allocation or EMPTY).get("devices") or EMPTY).get("results") or ()
    if len(results) > MOST_REQUESTS:
        yield too_many("status.allocation.devices.results", len(results), MOST_REQUESTS)


# --- classes and slices -------------------------------------------------------------------------


def validate_class(device_class: JsonObject) -> Iterator[Cause]:
    """What is wrong with a class."""
    yield from _selector_causes(device_class["spec"], "spec")


def validate_class_update(new: JsonObject, _old: JsonObject, _subresource: str) -> Iterator[Cause]:
    """A class may change as it likes."""
    return validate_class(new)


def default_slice(slice_: JsonObject) -> None:
    """Nothing is left open but what a driver leaves open on purpose."""
    for device in slice_["spec"].get("devices") or ():
        for attribute in (device.get("attributes") or EMPTY).values():
            for unset in [name for name, value in attribute.items() if value is None]:
                del attribute[unset]


def validate_slice(slice_: JsonObject) -> Iterator[Cause]:
    """What is wrong with the devices that a driver publishes."""
    spec = slice_["spec"]
    yield from subdomain(spec["driver"], "spec.driver")
    if not spec["pool"]["name"]:
        yield required("spec.pool.name")
    if spec["pool"]["resourceSliceCount"] <= 0:
        count = spec["pool"]["resourceSliceCount"]
        yield bad_value("spec.pool.resourceSliceCount", count, "must be greater than zero")
    where = [
        name
        for name in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
        if spec.get(name)
    ]
    if len(where) != 1:
        text = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is "
        yield (
            required("spec", f"{text}required")
            if not where
            else bad_value("spec", where, f"{text}required, but multiple fields are set")
        )
    devices = spec.get("devices") or ()
    if len(devices) > MOST_DEVICES:
        yield too_many("spec.devices", len(devices), MOST_DEVICES)
    if devices and spec.get("sharedCounters"):
        text = "only one of `devices` or `sharedCounters` may be set"
        yield bad_value("spec", "", text)
    seen: set[str] = set()
    for index, device in enumerate(devices):
        at = f"spec.devices[{index}]"
        yield from label(device["name"], f"{at}.name")
        if device["name"] in seen:
            yield duplicate(f"{at}.name", device["name"])
        seen.add(device["name"])
        yield from _attribute_causes(device, at)


def _attribute_causes(device: JsonObject, at: str) -> Iterator[Cause]:
    for name, attribute in (device.get("attributes") or EMPTY).items():
        if len(attribute) != 1:
            field = f"{at}.attributes[{name}]"
            yield required(field, "exactly one value must be specified")


def validate_slice_update(new: JsonObject, old: JsonObject, _subresource: str) -> Iterator[Cause]:
    """Whose slice it is, and for which node, is said once."""
    yield from validate_slice(new)
    for name in ("driver", "nodeName"):
        if new["spec"].get(name) != old["spec"].get(name):
            yield bad_value(f"spec.{name}", new["spec"].get(name), IMMUTABLE)
    if new["spec"]["pool"]["name"] != old["spec"]["pool"]["name"]:
        yield bad_value("spec.pool.name", new["spec"]["pool"]["name"], IMMUTABLE)
