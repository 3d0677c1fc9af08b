"""Selectors: what they see of a device, what of it they read, and how they fail."""

from typing import Any

import pytest

from stellwerk.plugins.dynamic_resources.selectors import Selector, SelectorError, paths_read
from stellwerk_kube.cel.parser import parse
from stellwerk_kube.resource_slice import Device, parse_slice

DRIVER = "gpu.example.com"
ATTRIBUTES = {
    "model": {"string": "large"},
    "index": {"int": 3},
    "driverVersion": {"version": "1.10.0"},
    "vendor.example.org/tier": {"string": "gold"},
}


def device(**fields: Any) -> Device:
    described = {
        "name": "gpu-0",
        "attributes": ATTRIBUTES,
        "capacity": {"memory": {"value": "40Gi"}},
        **fields,
    }
    spec = {
        "driver": DRIVER,
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [described],
    }
    (found,) = parse_slice({"metadata": {"name": "s"}, "spec": spec}).devices()
    return found


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        (f'device.driver == "{DRIVER}"', True),
        ("device.allowMultipleAllocations", False),
        (f'device.attributes["{DRIVER}"].model == "large"', True),
        ('device.attributes["vendor.example.org"].tier == "silver"', False),
        ('has(device.attributes["other.example"].x)', False),
        ('device.attributes[?"other.example"].hasValue()', True),
        ('"other.example" in device.attributes', False),
        (f'device.attributes["{DRIVER}"].driverVersion.isGreaterThan(semver("1.9.0"))', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) == 0', True),
    ],
)
def test_what_a_selector_sees(expression: str, *, matches: bool) -> None:
    assert Selector(expression).matches(device()) is matches


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (f'device.attributes["{DRIVER}"].none == 1', "CEL runtime error: no such key: none"),
        (f'device.attributes["{DRIVER}"].model > 1', "CEL runtime error: no such overload"),
        (
            f'device.attributes["{DRIVER}"].model',
            (
                "CEL runtime error: CEL result of type string could not be converted to bool: "
                "unsupported native conversion from string to 'bool'"
            ),
        ),
        (
            f'device.attributes["{DRIVER}"].index',
            (
                "CEL runtime error: CEL result of type int could not be converted to bool: "
                "unsupported type conversion from 'int' to bool"
            ),
        ),
    ],
)
def test_how_a_selector_fails(expression: str, text: str) -> None:
    with pytest.raises(SelectorError) as failure:
        Selector(expression).matches(device())
    assert str(failure.value) == text


def test_an_expression_that_does_not_compile_says_so() -> None:
    with pytest.raises(SelectorError, match="CEL compile error"):
        Selector('"text"').matches(device())


@pytest.mark.parametrize(
    ("expression", "paths"),
    [
        ("device.driver == 'x'", (("driver",),)),
        (
            'device.attributes["a.b"].c.d && device.capacity["a.b"].m.isInteger()',
            (("attributes", "a.b", "c"), ("capacity", "a.b", "m")),
        ),
        ('device.attributes["a.b"][?"c"].orValue(1) == 1', (("attributes", "a.b", "c"),)),
        ('"c" in device.attributes["a.b"]', None),
        ("device.attributes.exists(d, d == 'x')", None),
        ("[device].size() == 1", None),
        ("true", ()),
    ],
)
def test_what_an_expression_reads(expression: str, paths: Any) -> None:
    assert paths_read(parse(expression)) == paths


def test_true_and_one_are_told_apart() -> None:
    selector = Selector(f'device.attributes["{DRIVER}"].x == 1')
    assert selector.matches(device(attributes={"x": {"int": 1}}))
    assert not selector.matches(device(attributes={"x": {"bool": True}}))
