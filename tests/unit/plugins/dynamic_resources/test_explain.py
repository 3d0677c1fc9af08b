"""Which devices were considered, and why each was not taken."""

from typing import Any

import pytest

from stellwerk.answers.answer import codec
from stellwerk.answers.pod import DevicesOfPod
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import decide
from tests.support.device_cases import DRIVER, case, claim, device, held, request, selecting

LARGE = f'device.attributes["{DRIVER}"].model == "large"'


def row(written: JsonObject) -> Any:
    (found,) = decide(written)["devices"]["requests"]
    return found


def reasons(written: JsonObject) -> dict[str, int]:
    return {each["reason"]: each["devices"] for each in row(written)["notTaken"]}


def test_each_device_has_the_first_reason_against_it() -> None:
    devices = [
        device("gpu-0"),
        device("gpu-1", "small"),
        device("gpu-2", taints=[{"key": "broken", "effect": "NoSchedule"}]),
        device("gpu-3"),
    ]
    wanted = claim("mine", request(count=2, **selecting(LARGE)))
    found = row(case(wanted, held("other", "gpu-0", by="q"), devices=devices))
    assert {each["reason"]: each["examples"] for each in found["notTaken"]} == {
        "in use": [f"{DRIVER}/a/gpu-0 by default/other"],
        f"selector #0: {LARGE}": [f"{DRIVER}/a/gpu-1"],
        "taint broken:NoSchedule is not tolerated": [f"{DRIVER}/a/gpu-2"],
    }
    assert (found["considered"], found["free"], found["nodesWithEnough"]) == (4, 1, 0)


@pytest.mark.parametrize(
    ("devices", "asked", "reason"),
    [
        pytest.param(
            [device("gpu-0", capacity={"memory": {"value": "1Gi"}})],
            request(capacity={"requests": {"memory": "2Gi"}}),
            "too little of its capacity is left",
            id="a capacity that is too small",
        ),
        pytest.param(
            [device("gpu-0")],
            request(capacity={"requests": {"memory": "2Gi"}}),
            "it has no capacity memory",
            id="a capacity that the device lacks",
        ),
    ],
)
def test_what_a_device_lacks(devices: list[JsonObject], asked: JsonObject, reason: str) -> None:
    assert reasons(case(claim("mine", asked), devices=devices)) == {reason: 1}


def test_a_device_without_the_attribute_that_a_constraint_compares() -> None:
    constraints = [{"matchAttribute": f"{DRIVER}/link"}]
    wanted = claim("mine", request(), constraints=constraints)
    text = f"it has no attribute {DRIVER}/link, which a constraint compares"
    assert reasons(case(wanted, devices=[device("gpu-0")])) == {text: 1}


def test_enough_for_each_request_alone_is_said_where_both_together_find_too_few() -> None:
    wanted = claim("mine", request("x", 2), request("y", 2))
    found = decide(case(wanted, devices=[device("gpu-0"), device("gpu-1"), device("gpu-2")]))
    enough = [each["nodesWithEnough"] for each in found["devices"]["requests"]]
    assert enough == [1, 1]
    assert found["selected"] == []


def test_a_selector_that_fails_is_named_with_claim_and_request() -> None:
    failing = selecting(f'device.attributes["{DRIVER}"].absent == 1')
    wanted = claim("mine", request("r", **failing))
    found = decide(case(wanted, devices=[device("gpu-0")]))
    error = "claim default/mine: selector #0: CEL runtime error: no such key: absent"
    assert found["error"] == f'running "DynamicResources" filter plugin: {error}'
    (told,) = found["devices"]["requests"]
    assert told["errors"] == [{"claim": "default/mine", "request": "r", "error": error, "nodes": 1}]


@pytest.mark.parametrize(
    ("change", "beginning"),
    [
        ({"devices": [device("gpu-0"), device("gpu-0")]}, "it contradicts itself"),
        ({"pool": {"name": "a", "generation": 1, "resourceSliceCount": 2}}, "it is being updated"),
    ],
)
def test_pools_that_contradict_themselves_are_named(change: JsonObject, beginning: str) -> None:
    written = case(claim("mine", request()), devices=[device("gpu-0")])
    (published,) = written["resourceslices"]
    published["spec"] |= change
    (left_out,) = decide(written)["devices"]["poolsLeftOut"]
    assert left_out["pool"] == f"{DRIVER}/a"
    assert left_out["reason"].startswith(beginning)


def test_a_claim_that_is_missing_is_said() -> None:
    written = case(claim("mine", request()), devices=[device("gpu-0")])
    found = decide({**written, "resourceclaims": []})
    assert found["devices"]["claims"] == [{"claim": "default/mine", "state": "missing"}]


def test_lines_name_request_class_and_counts() -> None:
    found = decide(case(claim("mine", request(count=2)), devices=[device("gpu-0")]))
    assert "\n".join(codec(DevicesOfPod).read(found["devices"]).lines()) == (
        "Claim default/mine is needed.\n"
        "Request r of default/mine needs 2 devices of class gpu: 1 considered, 1 available. 0 "
        "of 2 nodes have enough for this request alone."
    )


def test_a_decision_without_devices_has_no_such_field() -> None:
    written = case(claim("mine", request()), devices=[device("gpu-0")])
    assert "devices" not in decide(written)
