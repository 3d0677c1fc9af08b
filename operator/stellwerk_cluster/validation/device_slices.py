"""The rules of ResourceSlices: pools, devices, their attributes, capacities, taints and counters.

Called through their strategy. Invariant: a slice that is accepted says where its devices are, and
each amount that its policies allow can be asked for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    forbidden_field,
    required,
    too_long,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import (
    IMMUTABLE,
    label,
    qualified_name,
    subdomain,
    too_many,
    unique,
)
from stellwerk_cluster.validation.device_checks import (
    EFFECTS,
    attribute_name,
    binding_condition_errors,
    driver_name,
    label_value,
    pool_name,
)
from stellwerk_cluster.validation.placement import node_selector_errors
from stellwerk_cluster.validation.scheduling import condition_errors
from stellwerk_kube.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stellwerk_kube.json_values import JsonObject, JsonValue

MAX_DEVICES: Final = 128
"""Devices of a ResourceSlice (`ResourceSliceMaxDevices`)."""
_MAX_ADVANCED_DEVICES: Final = 64
"""Devices of a ResourceSlice if any has taints or consumes counters."""
_MAX_ATTRIBUTES: Final = 32
"""Attributes and capacities of a device together."""
_MAX_CONDITIONS: Final = 8
"""Conditions in the status of a ResourceSlice."""
_MAX_TAINTS: Final = 16
"""Taints of a device (`DeviceTaintsMaxLength`)."""
_MAX_COUNTER_SETS: Final = 8
"""Counter sets of a ResourceSlice."""
_MAX_COUNTERS: Final = 32
"""Counters of a set."""
_MAX_CONSUMED_SETS: Final = 2
"""Counter sets that a device may consume from."""
_MAX_VALUES: Final = 10
"""Values of a list in a request policy."""
_MAX_VALUE_BYTES: Final = 64
"""Bytes of an attribute's text or version (`DeviceAttributeMaxValueLength`)."""
_WHERE: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_PRE_RELEASE: Final = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION: Final = re.compile(
    r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)"
    rf"(?:-{_PRE_RELEASE}(?:\.{_PRE_RELEASE})*)?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)


def validate_slice(slice_: JsonObject) -> Iterator[FieldError]:
    """Errors of the devices that a driver publishes."""
    return _slice_errors(slice_["spec"], EMPTY)


def validate_slice_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[FieldError]:
    """Errors of a change: the driver, the pool and the node of a slice stay."""
    yield from _slice_errors(new["spec"], old["spec"])
    if new["spec"]["pool"]["name"] != old["spec"]["pool"]["name"]:
        yield bad_value("spec.pool.name", new["spec"]["pool"]["name"], IMMUTABLE)
    for name in ("driver", "nodeName"):
        if new["spec"].get(name) != old["spec"].get(name):
            yield bad_value(f"spec.{name}", new["spec"].get(name), IMMUTABLE)


def _slice_errors(spec: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    yield from driver_name(spec["driver"], "spec.driver")
    pool = spec["pool"]
    yield from pool_name(pool["name"], "spec.pool.name")
    count, generation = pool["resourceSliceCount"], pool.get("generation") or 0
    if count <= 0:
        yield bad_value("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        text = "must be greater than or equal to zero"
        yield bad_value("spec.pool.generation", generation, text)
    yield from _where_errors(spec, "spec", _WHERE)
    if "devices" in spec and "sharedCounters" in spec:
        yield bad_value("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    devices = spec.get("devices") or ()
    advanced = any(each.get("taints") or each.get("consumesCounters") for each in devices)
    most = _MAX_ADVANCED_DEVICES if advanced else MAX_DEVICES
    if len(devices) > most:
        yield too_many("spec.devices", len(devices), most)
        return
    before = {each["name"]: each for each in old.get("devices") or ()}
    per_device = bool(spec.get("perDeviceNodeSelection"))
    for index, device in enumerate(devices):
        at = f"spec.devices[{index}]"
        yield from _device_errors(device, before.get(device["name"], EMPTY), at)
        yield from _own_place_errors(device, at, per_device=per_device)
        if devices != old.get("devices"):
            # A stored slice with more terms, which older releases took, can still be updated.
            yield from _term_errors(device, at)
    yield from unique([each["name"] for each in devices], "spec.devices[{}]".format)
    yield from _counter_set_errors(spec.get("sharedCounters") or ())


# --- where it is --------------------------------------------------------------------------------
def _where_errors(obj: JsonObject, at: str, fields: Sequence[str]) -> Iterator[FieldError]:
    """Exactly one of the fields says for which nodes a slice is."""
    given = [f"`{field}`" for field in fields if obj.get(field)]
    yield from _place_errors(obj, at, "must be either unset or set to a non-empty string")
    for field in ("allNodes", "perDeviceNodeSelection"):
        if obj.get(field) is False:
            text = "must be either unset or set to true"
            yield bad_value(f"{at}.{field}", value=False, detail=text)
    yield from _term_errors(obj, at)
    text = f"exactly one of {', '.join(f'`{each}`' for each in fields)} is required"
    if not given:
        yield required(at, text)
    elif len(given) > 1:
        shown = f"{{{', '.join(given)}}}"
        yield bad_value(at, shown, f"{text}, but multiple fields are set")


def _term_errors(obj: JsonObject, at: str) -> Iterator[FieldError]:
    """A slice, and since 1.38 a device, selects its nodes by exactly one term (#141213)."""
    terms = (obj.get("nodeSelector") or EMPTY).get("nodeSelectorTerms")
    if obj.get("nodeSelector") is not None and len(terms or ()) != 1:
        field = f"{at}.nodeSelector.nodeSelectorTerms"
        yield bad_value(field, terms or [], "must have exactly one node selector term")


def _place_errors(obj: JsonObject, at: str, empty: str) -> Iterator[FieldError]:
    name = obj.get("nodeName")
    if name:
        yield from subdomain(name, f"{at}.nodeName")
    elif name is not None:
        yield bad_value(f"{at}.nodeName", name, empty)
    if obj.get("nodeSelector") is not None:
        yield from node_selector_errors(obj["nodeSelector"], f"{at}.nodeSelector")


def _own_place_errors(device: JsonObject, at: str, *, per_device: bool) -> Iterator[FieldError]:
    """A device says for which nodes it is if, and only if, the slice leaves it to its devices."""
    fields = _WHERE[:3]
    if not per_device:
        if any(device.get(field) is not None for field in fields):
            text = (
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if "
                "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            )
            yield bad_value(at, None, text)
        return
    yield from _place_errors(device, at, "must not be empty")
    if device.get("allNodes") is False:
        text = "must be either unset or set to true"
        yield bad_value(f"{at}.allNodes", value=False, detail=text)
    given = [f"`{field}`" for field in fields if device.get(field)]
    text = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
        "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
    )
    if not given:
        yield required(at, text)
    elif len(given) > 1:
        yield bad_value(at, f"{{{', '.join(given)}}}", text)


# --- one device ---------------------------------------------------------------------------------
def _device_errors(device: JsonObject, before: JsonObject, at: str) -> Iterator[FieldError]:
    yield from label(device["name"], f"{at}.name")
    attributes, capacity = device.get("attributes") or EMPTY, device.get("capacity") or EMPTY
    facts = len(attributes) + len(capacity)
    if facts > _MAX_ATTRIBUTES:
        text = f"the total number of attributes and capacities must not exceed {_MAX_ATTRIBUTES}"
        yield bad_value(at, facts, text)
    for name, attribute in attributes.items():
        yield from attribute_name(name, f"{at}.attributes")
        yield from _attribute_errors(attribute, f"{at}.attributes[{name}]")
    if capacity != (before.get("capacity") or EMPTY):
        shared = bool(device.get("allowMultipleAllocations"))
        for name, amount in capacity.items():
            yield from attribute_name(name, f"{at}.capacity")
            where = f"{at}.capacity[{name}].requestPolicy"
            policy = amount.get("requestPolicy")
            if policy is not None and not shared:
                yield forbidden_field(where, "allowMultipleAllocations must be true")
            elif policy is not None:
                yield from _policy_errors(amount["value"], policy, where)
    if device.get("taints") and device["taints"] != before.get("taints"):
        yield from _taint_errors(device["taints"], f"{at}.taints")
    yield from _consumption_errors(device.get("consumesCounters") or (), f"{at}.consumesCounters")
    yield from binding_condition_errors(device, at)


def _attribute_errors(attribute: JsonObject, at: str) -> Iterator[FieldError]:
    text = attribute.get("string")
    if text is not None and len(text.encode()) > _MAX_VALUE_BYTES:
        yield too_long(f"{at}.string", _MAX_VALUE_BYTES)
    version = attribute.get("version")
    if version is not None:
        if not _VERSION.fullmatch(version):
            why = "must be a string compatible with semver.org spec 2.0.0"
            yield bad_value(f"{at}.version", version, why)
        if len(version.encode()) > _MAX_VALUE_BYTES:
            yield too_long(f"{at}.version", _MAX_VALUE_BYTES)
    if len(attribute) != 1:
        yield bad_value(at, attribute or "", "exactly one value must be specified")


def _taint_errors(taints: Sequence[JsonObject], at: str) -> Iterator[FieldError]:
    if len(taints) > _MAX_TAINTS:
        yield too_many(at, len(taints), _MAX_TAINTS)
        return
    for index, taint in enumerate(taints):
        yield from _one_taint(taint, f"{at}[{index}]")


def _one_taint(taint: JsonObject, at: str) -> Iterator[FieldError]:
    yield from qualified_name(taint.get("key") or "", f"{at}.key")
    if taint.get("value"):
        yield from label_value(taint["value"], f"{at}.value")
    if not taint.get("effect"):
        yield required(f"{at}.effect")
    elif taint["effect"] not in EFFECTS:
        yield unsupported(f"{at}.effect", taint["effect"], EFFECTS)


def validate_taint_rule(rule: JsonObject) -> Iterator[FieldError]:
    """Errors of a DeviceTaintRule."""
    selector, at = rule["spec"].get("deviceSelector") or EMPTY, "spec.deviceSelector"
    checks = (("driver", driver_name), ("pool", pool_name), ("device", label))
    for name, check in checks:
        if selector.get(name) is not None:
            yield from check(selector[name], f"{at}.{name}")
    yield from _one_taint(rule["spec"]["taint"], "spec.taint")


def validate_taint_rule_update(
    new: JsonObject, _old: JsonObject, subresource: str
) -> Iterator[FieldError]:
    """Errors of a changed rule, or of its status."""
    if subresource != "status":
        yield from validate_taint_rule(new)
        return
    conditions = new["status"].get("conditions") or ()
    yield from condition_errors(conditions, "status.conditions")
    if len(conditions) > _MAX_CONDITIONS:
        yield too_many("status.conditions", len(conditions), _MAX_CONDITIONS)


# --- counters -----------------------------------------------------------------------------------
def _counter_set_errors(sets: Sequence[JsonObject]) -> Iterator[FieldError]:
    at = "spec.sharedCounters"
    if len(sets) > _MAX_COUNTER_SETS:
        yield too_many(at, len(sets), _MAX_COUNTER_SETS)
        return
    for index, each in enumerate(sets):
        yield from _named_counters(each, "name", f"{at}[{index}]")
    yield from unique([each.get("name") for each in sets], f"{at}[{{}}]".format)


def _consumption_errors(consumptions: Sequence[JsonObject], at: str) -> Iterator[FieldError]:
    if len(consumptions) > _MAX_CONSUMED_SETS:
        yield too_many(at, len(consumptions), _MAX_CONSUMED_SETS)
        return
    for index, each in enumerate(consumptions):
        yield from _named_counters(each, "counterSet", f"{at}[{index}]")
    yield from unique([each.get("counterSet") for each in consumptions], f"{at}[{{}}]".format)


def _named_counters(obj: JsonObject, name_field: str, at: str) -> Iterator[FieldError]:
    if not obj.get(name_field):
        yield required(f"{at}.{name_field}")
    else:
        yield from label(obj[name_field], f"{at}.{name_field}")
    counters = obj.get("counters") or EMPTY
    if not counters:
        yield required(f"{at}.counters")
    elif len(counters) > _MAX_COUNTERS:
        yield too_many(f"{at}.counters", len(counters), _MAX_COUNTERS)
    else:
        for name in counters:
            yield from label(name, f"{at}.counters")


# --- policies of capacities ---------------------------------------------------------------------
def _policy_errors(total: JsonValue, policy: JsonObject, at: str) -> Iterator[FieldError]:
    values, valid_range = policy.get("validValues") or (), policy.get("validRange")
    if values and valid_range is not None:
        text = 'exactly one policy can be specified, cannot specify "validValues" and "validRange"'
        yield forbidden_field(at, f"{text} at the same time")
    elif values:
        if policy.get("default") is None:
            yield required(f"{at}.default", "required when validValues is defined")
        else:
            yield from _value_errors(policy["default"], total, values, f"{at}.validValues")
    elif valid_range is not None:
        if policy.get("default") is None:
            yield required(f"{at}.default", "required when validRange is defined")
        else:
            yield from _range_errors(policy["default"], total, valid_range, f"{at}.validRange")


def _value_errors(
    default: JsonValue, total: JsonValue, values: Sequence[JsonValue], at: str
) -> Iterator[FieldError]:
    amounts = [parse_quantity(value) for value in values]
    for index in range(1, len(amounts)):
        if amounts[index - 1] > amounts[index]:
            text = "values must be sorted in ascending order"
            yield bad_value(f"{at}[{index}]", values[index], text)
    if len(values) > _MAX_VALUES:
        yield too_many(at, len(values), _MAX_VALUES)
        return
    for index, value in enumerate(values):
        if amounts[index] > parse_quantity(total):
            text = f"option is larger than capacity value: {total}"
            yield bad_value(f"{at}[{index}]", value, text)
    yield from unique([str(value) for value in values], f"{at}[{{}}]".format)
    if parse_quantity(default) not in amounts:
        yield bad_value(at, default, "default value is not valid according to the requestPolicy")


def _range_errors(
    default: JsonValue, total: JsonValue, limits: JsonObject, at: str
) -> Iterator[FieldError]:
    least, most = limits.get("min"), limits.get("max")
    if least is None:
        yield required(f"{at}.min", "required when validRange is defined")
        return
    whole, lowest, usual = parse_quantity(total), parse_quantity(least), parse_quantity(default)
    if lowest > whole:
        yield bad_value(f"{at}.min", least, f"min is larger than capacity value: {total}")
    if usual < lowest:
        yield bad_value(f"{at}.default", default, f"default is less than min: {least}")
    if most is not None:
        highest = parse_quantity(most)
        if lowest > highest:
            yield bad_value(f"{at}.max", least, f"min is larger than max: {most}")
        if highest > whole:
            yield bad_value(f"{at}.max", most, f"max is larger than capacity value: {total}")
        if usual > highest:
            yield bad_value(f"{at}.default", default, f"default is more than max: {most}")
    yield from _step_errors(default, total, limits, at)


def _step_errors(
    default: JsonValue, total: JsonValue, limits: JsonObject, at: str
) -> Iterator[FieldError]:
    step, least = limits.get("step"), limits["min"]
    if step is None:
        return
    width, lowest = parse_quantity(step), parse_quantity(least)
    if width <= 0:
        yield bad_value(f"{at}.step", step, "must be greater than zero")
        return
    if lowest + width > parse_quantity(total):
        text = f"one step {lowest + width} is larger than capacity value: {total}"
        yield bad_value(f"{at}.step", step, text)
    # Whole units, as the API server computes: -(-x // 1) rounds up.
    start, stride = -(-lowest // 1), -(-width // 1)
    for value in (default, limits.get("max")):
        if value is not None and (-(-parse_quantity(value) // 1) - start) % stride:
            text = f"value is not a multiple of a given step ({step}) from ({least})"
            yield bad_value(f"{at}.step", value, text)
