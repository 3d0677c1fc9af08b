"""Which claims and classes may be written, and what may become of a claim's status."""

from typing import Any

import pytest

from stellwerk_cluster.validation.devices import (
    validate_device_class,
    validate_resource_claim,
    validate_resource_claim_update,
)
from stellwerk_kube.json_values import JsonObject


def request(name: str = "r", **fields: Any) -> JsonObject:
    asked = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **fields}
    return {"name": name, "exactly": asked}


def claim(*requests: JsonObject, status: JsonObject | None = None, **devices: Any) -> JsonObject:
    spec = {"devices": {"requests": list(requests or (request(),)), **devices}}
    return {"metadata": {"name": "c", "namespace": "n"}, "spec": spec, "status": status or {}}


def selecting(expression: str) -> JsonObject:
    return request(selectors=[{"cel": {"expression": expression}}])


def opaque(**fields: Any) -> JsonObject:
    return {"opaque": {"driver": "d.example.com", "parameters": {"a": 1}, **fields}}


def said(written: JsonObject) -> list[str]:
    return [f"{error.field}: {error.message}" for error in validate_resource_claim(written)]


@pytest.mark.parametrize(
    "written",
    [
        claim(),
        claim(selecting('device.driver == "x"')),
        claim(request("a"), request("b"), constraints=[{"matchAttribute": "x.com/a"}]),
        claim(
            {"name": "r", "firstAvailable": [{"name": "s", **request()["exactly"]}]},
            config=[{"requests": ["r/s"], **opaque()}],
        ),
    ],
)
def test_what_may_be_asked_for(written: JsonObject) -> None:
    assert said(written) == []


@pytest.mark.parametrize(
    ("written", "beginning"),
    [
        (claim(request("A")), "spec.devices.requests[0].name: Invalid value"),
        (claim(request(), request()), 'spec.devices.requests[1]: Duplicate value: "r"'),
        (
            claim(*(request(f"r{n}") for n in range(33))),
            "spec.devices.requests: Too many: 33: must have at most 32 items",
        ),
        (
            claim({"name": "r"}),
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or",
        ),
        (
            claim({**request(), "firstAvailable": [{"name": "s", **request()["exactly"]}]}),
            "spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or",
        ),
        (
            claim(request(count=0)),
            "spec.devices.requests[0].exactly.count: Invalid value: 0: must be greater than zero",
        ),
        (
            claim(request(allocationMode="All")),
            "spec.devices.requests[0].exactly.count: Invalid value: 1: must not be specified",
        ),
        (
            claim(selecting("device.driver")),
            (
                "spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "
                '"device.driver": compilation failed'
            ),
        ),
        (
            claim(selecting("")),
            "spec.devices.requests[0].exactly.selectors[0].cel.expression: Required value",
        ),
        (
            claim(selecting(" " * 10241)),
            "spec.devices.requests[0].exactly.selectors[0].cel.expression: Too long: may not be",
        ),
        (
            claim(request(selectors=[{"cel": {"expression": "true"}}] * 33)),
            "spec.devices.requests[0].exactly.selectors: Too many: 33",
        ),
        (
            claim(request(tolerations=[{"key": "k", "operator": "Exists", "value": "v"}])),
            (
                "spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: "
                '"v": must be empty for operator `Exists`'
            ),
        ),
        (
            claim(request(tolerations=[{"key": "k", "operator": "Equal", "effect": "X"}])),
            'spec.devices.requests[0].exactly.tolerations[0].effect: Unsupported value: "X"',
        ),
        (
            claim(constraints=[{"matchAttribute": "a"}]),
            'spec.devices.constraints[0].matchAttribute: Invalid value: "a": a fully qualified',
        ),
        (
            claim(constraints=[{}]),
            "spec.devices.constraints[0]: Required value: exactly one of",
        ),
        (
            claim(constraints=[{"matchAttribute": "x.com/a", "requests": ["absent"]}]),
            'spec.devices.constraints[0].requests[0]: Invalid value: "absent": must be the name',
        ),
        (
            claim(config=[{}]),
            "spec.devices.config[0].opaque: Required value",
        ),
        (
            claim(config=[opaque(parameters=[1])]),
            (
                "spec.devices.config[0].opaque.parameters: Invalid value: "
                '"<value omitted>": must be a valid JSON object'
            ),
        ),
        (
            claim(config=[opaque(parameters={"a": "x" * 10240})]),
            "spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
        ),
    ],
)
def test_what_may_not(written: JsonObject, beginning: str) -> None:
    found = said(written)
    assert any(each.startswith(beginning) for each in found), found


# --- status -------------------------------------------------------------------------------------

GIVEN = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"}
POD = {"resource": "pods", "name": "p", "uid": "1"}


def allocated(**result: Any) -> JsonObject:
    return {"allocation": {"devices": {"results": [{**GIVEN, **result}]}}}


def status_said(status: JsonObject, before: JsonObject | None = None) -> list[str]:
    new, old = claim(status=status), claim(status=before)
    errors = validate_resource_claim_update(new, old, "status")
    return [f"{error.field}: {error.message}" for error in errors]


@pytest.mark.parametrize(
    "status",
    [
        allocated(),
        {**allocated(), "reservedFor": [POD]},
        {**allocated(), "devices": [{"driver": "d.example.com", "pool": "p", "device": "d"}]},
        allocated(shareID="8f3c2d1e-0000-4000-8000-000000000000"),
    ],
)
def test_what_may_become_of_a_claim(status: JsonObject) -> None:
    assert status_said(status) == []


@pytest.mark.parametrize(
    ("status", "beginning"),
    [
        ({"reservedFor": [POD]}, "status.reservedFor: Forbidden: may not be specified when"),
        (
            {**allocated(), "reservedFor": [POD, POD]},
            'status.reservedFor[1]: Duplicate value: "1"',
        ),
        (
            {**allocated(), "reservedFor": [{"resource": "pods", "name": "p"}]},
            "status.reservedFor[0].uid: Required value",
        ),
        (
            {**allocated(), "reservedFor": [{**POD, "uid": str(n)} for n in range(257)]},
            "status.reservedFor: Too many: 257: must have at most 256 items",
        ),
        (
            allocated(request="x"),
            'status.allocation.devices.results[0].request: Invalid value: "x"',
        ),
        (
            allocated(shareID="1"),
            'status.allocation.devices.results[0].shareID: Invalid value: "1"',
        ),
        (
            {**allocated(), "devices": [{"driver": "d.example.com", "pool": "p", "device": "e"}]},
            'status.devices[0]: Invalid value: "d.example.com/p/e": must be an allocated device',
        ),
    ],
)
def test_what_may_not_become_of_it(status: JsonObject, beginning: str) -> None:
    found = status_said(status)
    assert any(each.startswith(beginning) for each in found), found


def test_an_allocation_is_written_once() -> None:
    assert status_said(allocated(device="e"), allocated()) != []
    assert status_said({}, allocated()) == []


def test_the_spec_of_a_claim_does_not_change() -> None:
    errors = list(validate_resource_claim_update(claim(request(count=2)), claim(), ""))
    assert [error.field for error in errors] == ["spec"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"selectors": [{"cel": {"expression": "1 +"}}]}, "spec.selectors[0].cel.expression"),
        ({"extendedResourceName": "cpu"}, "spec.extendedResourceName"),
        ({"config": [{}]}, "spec.config[0].opaque"),
    ],
)
def test_what_a_class_may_not_say(spec: JsonObject, field: str) -> None:
    assert [error.field for error in validate_device_class({"spec": spec})] == [field]
