"""Checks of what several kinds of resource.k8s.io hold: names, selectors, tolerations, parameters.

Called by the validation of claims, classes and slices. Invariant: each function yields what is
wrong with one value, in the API server's words, and nothing if it is right.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    required,
    too_long,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import label_value_errors, subdomain_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import label, qualified_name, subdomain, too_many, unique
from stellwerk_kube.cel.environment import MAX_SELECTOR_BYTES, device_program
from stellwerk_kube.cel.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stellwerk_kube.json_values import JsonObject

MAX_SELECTORS: Final = 32
"""Selectors of a request or a class (`DeviceSelectorsMaxSize`)."""
EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_MAX_BINDING_CONDITIONS: Final = 4
"""Conditions that a device may wait for before its pod is bound (`BindingConditionsMaxSize`)."""
_MAX_DRIVER_BYTES: Final = 63
"""Bytes of a driver's name (`DriverNameMaxLength`)."""
_MAX_POOL_BYTES: Final = 253
"""Bytes of a pool's name (`PoolNameMaxLength`)."""
_MAX_IDENTIFIER_BYTES: Final = 32
"""Bytes of an identifier in C (`DeviceMaxIDLength`)."""
_MAX_PARAMETERS_BYTES: Final = 10 * 1024
"""Bytes of opaque parameters (`OpaqueParametersMaxLength`)."""
_OPERATORS: Final = ("Equal", "Exists")
_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"


def driver_name(name: str, field: str) -> Iterator[FieldError]:
    """The name of a driver."""
    if not name:
        yield required(field)
        return
    if len(name.encode()) > _MAX_DRIVER_BYTES:
        yield too_long(field, _MAX_DRIVER_BYTES)
    for error in subdomain_errors(name.lower()):
        yield bad_value(field, name, error)


def pool_name(name: str, field: str) -> Iterator[FieldError]:
    """The name of a pool: subdomains between slashes."""
    if not name:
        yield required(field)
        return
    if len(name.encode()) > _MAX_POOL_BYTES:
        yield too_long(field, _MAX_POOL_BYTES)
    for part in name.split("/"):
        yield from subdomain(part, field)


def identifier(name: str, field: str) -> Iterator[FieldError]:
    """A name as C has them."""
    if len(name.encode()) > _MAX_IDENTIFIER_BYTES:
        yield too_long(field, _MAX_IDENTIFIER_BYTES)
    if not re.fullmatch(_IDENTIFIER, name):
        yield bad_value(
            field,
            name,
            "a valid C identifier must start with alphabetic character or '_', followed by a "
            "string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
            f"'MyName', regex used for validation is '{_IDENTIFIER}')",
        )


def attribute_name(name: str, field: str) -> Iterator[FieldError]:
    """The name of an attribute or a capacity, with a domain or without."""
    domain, slash, short = name.rpartition("/")
    if slash:
        if domain:
            yield from driver_name(domain, field)
        else:
            yield bad_value(field, "", "the domain must not be empty")
    if short or not slash:
        yield from identifier(short, field)
    else:
        yield bad_value(field, "", "the name must not be empty")


def full_attribute_name(name: str, field: str) -> Iterator[FieldError]:
    """The name of an attribute with its domain."""
    yield from attribute_name(name, field)
    if "/" not in name:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        yield bad_value(field, name, text)


# --- selectors, tolerations, conditions ---------------------------------------------------------
def selector_errors(selectors: Sequence[JsonObject], at: str) -> Iterator[FieldError]:
    """CEL expressions over devices."""
    if len(selectors) > MAX_SELECTORS:
        yield too_many(at, len(selectors), MAX_SELECTORS)
        return
    for index, selector in enumerate(selectors):
        where = f"{at}[{index}].cel"
        if selector.get("cel") is None:
            yield required(where)
        else:
            yield from _expression(selector["cel"].get("expression") or "", f"{where}.expression")


def _expression(expression: str, field: str) -> Iterator[FieldError]:
    if not expression:
        yield required(field)
    elif len(expression.encode()) > MAX_SELECTOR_BYTES:
        yield too_long(field, MAX_SELECTOR_BYTES)
    else:
        try:
            device_program(expression)
        except CompileError as error:
            yield bad_value(field, expression, f"compilation failed: {error}")


def toleration_errors(tolerations: Sequence[JsonObject], at: str) -> Iterator[FieldError]:
    """Errors of the tolerations of a request for devices."""
    for index, toleration in enumerate(tolerations):
        where = f"{at}[{index}]"
        if toleration.get("key"):
            yield from qualified_name(toleration["key"], f"{where}.key")
        operator, value = toleration.get("operator"), toleration.get("value") or ""
        if not operator:
            yield required(f"{where}.operator")
        elif operator not in _OPERATORS:
            yield unsupported(f"{where}.operator", operator, _OPERATORS)
        elif operator == "Exists" and value:
            yield bad_value(f"{where}.value", value, "must be empty for operator `Exists`")
        else:
            yield from label_value(value, f"{where}.value")
        effect = toleration.get("effect")
        if effect and effect not in EFFECTS:
            yield unsupported(f"{where}.effect", effect, EFFECTS)


def label_value(value: str, field: str) -> Iterator[FieldError]:
    """The value of a label."""
    return (bad_value(field, value, error) for error in label_value_errors(value))


def binding_condition_errors(obj: JsonObject, at: str) -> Iterator[FieldError]:
    """Conditions that a device has to reach, and those that say that it never will."""
    wanted = obj.get("bindingConditions") or ()
    failures = obj.get("bindingFailureConditions") or ()
    both = (("bindingConditions", wanted), ("bindingFailureConditions", failures))
    for field, conditions in both:
        if len(conditions) > _MAX_BINDING_CONDITIONS:
            yield too_many(f"{at}.{field}", len(conditions), _MAX_BINDING_CONDITIONS)
            continue
        for index, condition in enumerate(conditions):
            yield from qualified_name(condition, f"{at}.{field}[{index}]")
        yield from unique(conditions, f"{at}.{field}[{{}}]".format)
    for index, condition in enumerate(failures):
        if condition in wanted:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            yield bad_value(f"{at}.bindingFailureConditions[{index}]", condition, text)
    if failures and not wanted:
        text = "bindingConditions are required to use bindingFailureConditions"
        yield bad_value(f"{at}.bindingConditions", [], text)
    if wanted and not failures:
        text = "bindingFailureConditions are required to use bindingConditions"
        yield bad_value(f"{at}.bindingFailureConditions", [], text)


# --- configuration ------------------------------------------------------------------------------
def opaque_errors(config: JsonObject, at: str) -> Iterator[FieldError]:
    """Parameters that a driver alone understands."""
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{at}.opaque")
        return
    yield from driver_name(opaque.get("driver") or "", f"{at}.opaque.driver")
    parameters, field = opaque.get("parameters"), f"{at}.opaque.parameters"
    if parameters is None:
        yield required(field)
    elif len(orjson.dumps(parameters)) > _MAX_PARAMETERS_BYTES:
        yield too_long(field, _MAX_PARAMETERS_BYTES)
    elif not isinstance(parameters, dict):
        yield bad_value(field, "<value omitted>", "must be a valid JSON object")


def request_reference_errors(
    names: Sequence[str], known: set[str], at: str, most: int
) -> Iterator[FieldError]:
    """Names of requests, or of a request and one of its alternatives."""
    if len(names) > most:
        yield too_many(at, len(names), most)
        return
    for index, name in enumerate(names):
        yield from request_reference(name, known, f"{at}[{index}]")
    yield from unique(names, f"{at}[{{}}]".format)


def request_reference(name: str, known: set[str], field: str) -> Iterator[FieldError]:
    """The name of a request of the claim, or of one of its alternatives."""
    parts = name.split("/")
    if len(parts) <= 2:  # noqa: PLR2004 request and alternative
        for part in parts:
            yield from label(part, field)
    if name not in known:
        text = "must be the name of a request in the claim or the name of a request and a "
        yield bad_value(field, name, f"{text}subrequest separated by '/'")


def names_of_requests(devices: JsonObject) -> set[str]:
    """The requests of a claim, and `request/alternative` for each alternative."""
    found: set[str] = set()
    for request in devices.get("requests") or ():
        found.add(request["name"])
        alternatives: Sequence[JsonObject] = request.get("firstAvailable") or ()
        found |= {f"{request['name']}/{each['name']}" for each in alternatives}
    return found


def devices_of(obj: JsonObject) -> JsonObject:
    """The devices of a claim, or of a template of claims."""
    spec = obj["spec"]
    devices: JsonObject = (spec.get("spec") or spec).get("devices") or EMPTY
    return devices
