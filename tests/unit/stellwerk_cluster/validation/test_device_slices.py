"""Which slices a driver may publish: each rule by what breaks it, and the words for that."""

from typing import Any

import pytest

from stellwerk_cluster.validation.device_slices import validate_slice, validate_slice_update
from stellwerk_kube.json_values import JsonObject

POLICY = {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}}


def slice_of(*devices: JsonObject, **spec: Any) -> JsonObject:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    found: JsonObject = {"driver": "d.example.com", "nodeName": "n", "pool": pool, **spec}
    if devices:
        found["devices"] = list(devices)
    return {"metadata": {"name": "s"}, "spec": found}


def device(name: str = "d", **fields: Any) -> JsonObject:
    return {"name": name, **fields}


def capacity(value: str, policy: JsonObject | None = None, *, shared: bool = True) -> JsonObject:
    amount: JsonObject = {"value": value}
    if policy is not None:
        amount["requestPolicy"] = policy
    return device(allowMultipleAllocations=shared, capacity={"memory": amount})


def said(written: JsonObject) -> list[str]:
    return [f"{error.field}: {error.message}" for error in validate_slice(written)]


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(slice_of(device()), id="a device"),
        pytest.param(slice_of(), id="no device"),
        pytest.param(slice_of(capacity("4", POLICY)), id="a range"),
        pytest.param(
            slice_of(capacity("4", {"default": "1", "validValues": ["1", "2"]})), id="values"
        ),
        pytest.param(slice_of(device(attributes={"a": {"version": "1.2.3-rc.1+b"}})), id="version"),
        pytest.param(slice_of(device(attributes={"x.com/a": {"bool": False}})), id="a domain"),
        pytest.param(
            slice_of(device(allNodes=True), nodeName=None, perDeviceNodeSelection=True),
            id="devices that say where they are",
        ),
        pytest.param(
            slice_of(sharedCounters=[{"name": "c", "counters": {"n": {"value": "1"}}}]),
            id="counters",
        ),
        pytest.param(slice_of(pool={"name": "a/b", "resourceSliceCount": 1}), id="a pool's path"),
    ],
)
def test_what_may_be_published(written: JsonObject) -> None:
    assert said(written) == []


@pytest.mark.parametrize(
    ("written", "beginning"),
    [
        (slice_of(driver="D_"), "spec.driver: Invalid value"),
        (slice_of(driver=""), "spec.driver: Required value"),
        (slice_of(driver="d" * 64), "spec.driver: Too long: may not be more than 63 bytes"),
        (
            slice_of(pool={"name": "", "resourceSliceCount": 1}),
            "spec.pool.name: Required value",
        ),
        (
            slice_of(pool={"name": "n", "resourceSliceCount": 0}),
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
        ),
        (
            slice_of(pool={"name": "n", "resourceSliceCount": 1, "generation": -1}),
            "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
        ),
        (
            slice_of(nodeName=None),
            (
                "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, "
                "`perDeviceNodeSelection` is required"
            ),
        ),
        (
            slice_of(allNodes=True),
            'spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`',
        ),
        (
            slice_of(allNodes=False),
            "spec.allNodes: Invalid value: false: must be either unset or set to true",
        ),
        (
            slice_of(nodeName=None, nodeSelector={"nodeSelectorTerms": []}),
            "spec.nodeSelector.nodeSelectorTerms: ",
        ),
        (
            slice_of(device(), sharedCounters=[]),
            'spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed',
        ),
        (slice_of(device("A")), "spec.devices[0].name: Invalid value"),
        (slice_of(device(), device()), 'spec.devices[1]: Duplicate value: "d"'),
        (
            slice_of(*(device(f"d{n}") for n in range(129))),
            "spec.devices: Too many: 129: must have at most 128 items",
        ),
        (
            slice_of(*(device(f"d{n}", taints=[{}]) for n in range(65))),
            "spec.devices: Too many: 65: must have at most 64 items",
        ),
        (
            slice_of(device(attributes={f"a{n}": {"int": n} for n in range(33)})),
            "spec.devices[0]: Invalid value: 33: the total number of attributes and capacities",
        ),
        (
            slice_of(device(attributes={"a-b": {"int": 1}})),
            'spec.devices[0].attributes: Invalid value: "a-b": a valid C identifier',
        ),
        (
            slice_of(device(attributes={"/a": {"int": 1}})),
            'spec.devices[0].attributes: Invalid value: "": the domain must not be empty',
        ),
        (
            slice_of(device(attributes={"a": {}})),
            'spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified',
        ),
        (
            slice_of(device(attributes={"a": {"string": "x" * 65}})),
            "spec.devices[0].attributes[a].string: Too long: may not be more than 64 bytes",
        ),
        (
            slice_of(device(attributes={"a": {"version": "v1.0"}})),
            (
                'spec.devices[0].attributes[a].version: Invalid value: "v1.0": must be a string '
                "compatible with semver.org spec 2.0.0"
            ),
        ),
        (
            slice_of(device(taints=[{"key": "k", "effect": "Never"}])),
            'spec.devices[0].taints[0].effect: Unsupported value: "Never"',
        ),
        (
            slice_of(device(taints=[{"key": "k"}])),
            "spec.devices[0].taints[0].effect: Required value",
        ),
        (
            slice_of(device(consumesCounters=[{"counterSet": "c"}])),
            "spec.devices[0].consumesCounters[0].counters: Required value",
        ),
        (
            slice_of(sharedCounters=[{"name": "c", "counters": {"n": {"value": "1"}}}] * 9),
            "spec.sharedCounters: Too many: 9: must have at most 8 items",
        ),
        (
            slice_of(device(bindingConditions=["ready"])),
            (
                "spec.devices[0].bindingFailureConditions: Invalid value: []: "
                "bindingFailureConditions are required to use bindingConditions"
            ),
        ),
        (
            slice_of(device(bindingConditions=["x"], bindingFailureConditions=["x"])),
            (
                'spec.devices[0].bindingFailureConditions[0]: Invalid value: "x": '
                "bindingFailureConditions must not overlap with bindingConditions"
            ),
        ),
        (
            slice_of(device(allNodes=True)),
            "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can",
        ),
        (
            slice_of(device(), nodeName=None, perDeviceNodeSelection=True),
            "spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or",
        ),
        (
            slice_of(capacity("4", POLICY, shared=False)),
            "spec.devices[0].capacity[memory].requestPolicy: Forbidden: allowMultipleAllocations",
        ),
        (
            slice_of(capacity("4", {"validValues": ["1"]})),
            "spec.devices[0].capacity[memory].requestPolicy.default: Required value: required when",
        ),
        (
            slice_of(capacity("4", {"default": "1", "validValues": ["2", "1"]})),
            (
                "spec.devices[0].capacity[memory].requestPolicy.validValues[1]: Invalid value: "
                '"1": values must be sorted in ascending order'
            ),
        ),
        (
            slice_of(capacity("4", {"default": "1", "validValues": ["8"]})),
            (
                "spec.devices[0].capacity[memory].requestPolicy.validValues[0]: Invalid value: "
                '"8": option is larger than capacity value: 4'
            ),
        ),
        (
            slice_of(capacity("4", {"default": "1", "validRange": {"min": "2"}})),
            (
                "spec.devices[0].capacity[memory].requestPolicy.validRange.default: Invalid value: "
                '"1": default is less than min: 2'
            ),
        ),
        (
            slice_of(capacity("9", {"default": "2", "validRange": {"min": "1", "step": "2"}})),
            (
                "spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "
                '"2": value is not a multiple of a given step (2) from (1)'
            ),
        ),
    ],
)
def test_what_may_not(written: JsonObject, beginning: str) -> None:
    found = said(written)
    assert any(each.startswith(beginning) for each in found), found


@pytest.mark.parametrize("field", ["driver", "nodeName", "pool"])
def test_whose_slice_it_is_does_not_change(field: str) -> None:
    changed = {"name": "other", "resourceSliceCount": 1} if field == "pool" else "other"
    errors = validate_slice_update(slice_of(device(), **{field: changed}), slice_of(device()), "")
    shown = "spec.pool.name" if field == "pool" else f"spec.{field}"
    assert [error.field for error in errors] == [shown]


TERM: JsonObject = {
    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
}


def placed(*terms: JsonObject) -> JsonObject:
    """A slice whose one device is for the nodes of these terms."""
    own = device(nodeSelector={"nodeSelectorTerms": list(terms)})
    return slice_of(own, nodeName=None, perDeviceNodeSelection=True)


def test_a_device_selects_its_nodes_by_one_term() -> None:
    field = "spec.devices[0].nodeSelector.nodeSelectorTerms"
    assert said(placed(TERM)) == []
    (error,) = said(placed(TERM, TERM))
    assert error.startswith(f"{field}: Invalid value")
    assert "must have exactly one node selector term" in error


def test_a_stored_slice_with_two_terms_can_be_updated_while_its_devices_stay() -> None:
    old, more = placed(TERM, TERM), placed(TERM, TERM, TERM)
    renewed = {**old, "spec": {**old["spec"], "pool": {**old["spec"]["pool"], "generation": 2}}}
    assert list(validate_slice_update(renewed, old, "")) == []
    assert [each.field for each in validate_slice_update(more, old, "")] == [
        "spec.devices[0].nodeSelector.nodeSelectorTerms"
    ]


@pytest.mark.parametrize("name", ["a.io/b/c", "a.io//c", "/c", "a.io/"])
def test_a_qualified_name_has_one_slash(name: str) -> None:
    assert said(slice_of(device(attributes={name: {"bool": True}})))
    assert said(slice_of(device(capacity={name: {"value": "1"}})))


def test_what_was_accepted_once_may_stay() -> None:
    """Rules for capacities and taints became stricter: they hold for what is new."""
    old = slice_of(capacity("4", {"validValues": ["1"]}))
    assert list(validate_slice_update(old, old, "")) == []
