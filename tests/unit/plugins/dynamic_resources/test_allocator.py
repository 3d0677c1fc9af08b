"""Searches end, by the clock and by their steps; and they decide as the release does."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from stellwerk.plugins.dynamic_resources.allocator import FilterTimeout, FilterTimeoutError
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, Release
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import decide
from tests.support.builders import make_node, make_pod


def test_steps_are_counted() -> None:
    timeout = FilterTimeout(lambda: 0.0, 0.0, 100)
    for _ in range(100):
        timeout.step()
    with pytest.raises(FilterTimeoutError):
        timeout.step()


def test_now_and_then_it_is_time_for_a_pause() -> None:
    timeout = FilterTimeout(lambda: 0.0, 0.0, 1000)
    pauses = sum(timeout.step() for _ in range(640))
    assert 5 <= pauses <= 64


def test_all_searches_have_their_time_by_the_clock() -> None:
    now = 0.0
    timeout = FilterTimeout(lambda: now, 10.0, 1_000_000)
    for _ in range(3):
        for _ in range(200):
            timeout.step()
        now += 3.0
    now += 1.5
    until_the_next_look = 64
    with suppress(FilterTimeoutError):
        for _ in range(until_the_next_look):
            timeout.step()
        pytest.fail("the clock is not looked at")


# --- what 1.37 mends, and 1.36 has as a fault ---------------------------------------------------

AS_1_37 = Compatibility.with_release(Release.V1_37)
AUTO_ON_1_33 = Compatibility.with_server(Release.V1_33)
DRIVER = "gpu.example.com"
MEMORY = f"{DRIVER}/memory"


def device(name: str, **fields: Any) -> JsonObject:
    attributes = {f"{DRIVER}/{key}": {"int": value} for key, value in fields.pop("of", {}).items()}
    return {"name": name, "attributes": attributes, **fields}


def consuming(amount: str, **fields: Any) -> JsonObject:
    counters = {"memory": {"value": amount}}
    return {**fields, "consumesCounters": [{"counterSet": "card", "counters": counters}]}


def shared(total: str, **policy: Any) -> JsonObject:
    capacity: JsonObject = {"value": total}
    if policy:
        capacity["requestPolicy"] = policy
    return {"allowMultipleAllocations": True, "capacity": {MEMORY: capacity}}


def slices(devices: Sequence[JsonObject], counters: str = "", of: str = "n1") -> list[JsonObject]:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2 if counters else 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "n1"}
    found: list[JsonObject] = [
        {"metadata": {"name": "devices"}, "spec": {**spec, "devices": devices}}
    ]
    if counters:
        sets = [{"name": "card", "counters": {"memory": {"value": counters}}}]
        counting = {**spec, "nodeName": of, "sharedCounters": sets}
        found.append({"metadata": {"name": "counters"}, "spec": counting})
    return found


def claim(name: str, *requests: JsonObject, **spec: Any) -> JsonObject:
    named = [
        {"name": f"r{number}", "exactly": {"deviceClassName": "any", **request}}
        for number, request in enumerate(requests)
    ]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": named, **spec}},
    }


def holding(device_name: str, **result: Any) -> JsonObject:
    """A claim that has a device already."""
    place = {"request": "r0", "driver": DRIVER, "pool": "p", "device": device_name, **result}
    return claim("held", {}) | {"status": {"allocation": {"devices": {"results": [place]}}}}


def decided(
    rules: Compatibility, published: Sequence[JsonObject], *claims: JsonObject, **case: Any
) -> JsonObject:
    """The decision on a pod that has the first claim."""
    name = claims[0]["metadata"]["name"]
    return decide(
        {
            "id": "x",
            "nodes": [make_node("n1")],
            "pod": make_pod("p", resourceClaims=[{"name": "c", "resourceClaimName": name}]),
            "deviceclasses": [{"metadata": {"name": "any"}, "spec": {}}],
            "resourceslices": published,
            "resourceclaims": claims,
            **case,
        },
        rules,
    )


def given_devices(
    rules: Compatibility, published: Sequence[JsonObject], *claims: JsonObject, **case: Any
) -> list[str] | None:
    """The devices of the first claim; None: it does not get any."""
    result = decided(rules, published, *claims, **case)
    assert result["error"] is None, result["error"]
    allocation = (result.get("allocations") or {}).get("n1")
    if allocation is None:
        return None
    results = allocation[claims[0]["metadata"]["name"]]["devices"]["results"]
    return [each["device"] for each in results]


BROKEN = {"taints": [{"key": "broken", "effect": "NoSchedule"}]}
SHARE = {"shareID": "00000000-0000-0000-0000-000000000000"}
DISTINCT = {"constraints": [{"distinctAttribute": f"{DRIVER}/group"}]}
MATCH = {"constraints": [{"matchAttribute": f"{DRIVER}/group"}]}

MENDS = (
    pytest.param(
        slices([device("a", **consuming("3", **BROKEN)), device("b", **consuming("3"))], "4"),
        [claim("c", {})],
        None,
        ["b"],
        id="a device that is refused for its taint gives its counters back",
    ),
    pytest.param(
        slices(
            [
                device("a", of={"group": 1}, **consuming("1")),
                device("b", of={"group": 2}, **consuming("2")),
                device("c", of={"group": 1}, **consuming("2")),
            ],
            "4",
        ),
        [claim("c", {"count": 2}, **MATCH)],
        None,
        ["a", "c"],
        id="a device that a constraint refuses gives its counters back",
    ),
    pytest.param(
        slices(
            [
                device("a", of={"group": 1}, **consuming("3"), **shared("8")),
                device("b", of={"group": 2}, **consuming("2")),
                device("c", of={"group": 2}, **consuming("2")),
            ],
            "4",
        ),
        [claim("c", {"count": 2}, **MATCH)],
        None,
        ["b", "c"],
        id="a shared device that is given back gives its counters back",
    ),
    pytest.param(
        slices([device("a", allowMultipleAllocations=True, **consuming("4"))], "4"),
        [claim("c", {}), holding("a", **SHARE)],
        None,
        ["a"],
        id="a stored share without capacity has paid its counters",
    ),
    pytest.param(
        slices([device(name, of={"group": of}) for name, of in (("a", 1), ("b", 2), ("c", 1))]),
        [claim("c", {"count": 3}, **DISTINCT)],
        ["a", "b", "c"],
        None,
        id="all devices of a request have different values",
    ),
    pytest.param(
        slices([device(n, of={"group": of}) for n, of in (("a", 1), ("b", 2), ("c", 1), ("d", 3))]),
        [claim("c", {"count": 2}, {"count": 1}, **DISTINCT)],
        ["a", "b", "c"],
        ["a", "b", "d"],
        id="the devices of all requests have different values",
    ),
    pytest.param(
        slices([device("a", **shared("2")), device("b", **shared("2"))]),
        [
            claim("c", {"allocationMode": "All", "capacity": {"requests": {MEMORY: "1"}}}),
            holding("a", **SHARE, consumedCapacity={MEMORY: "2"}),
        ],
        ["b"],
        None,
        id="All fails where a matching device has too little left",
    ),
    pytest.param(
        slices([device("a", **shared("2"))]),
        [claim("c", {"capacity": {"requests": {MEMORY: "-1"}}})],
        ["a"],
        None,
        id="a negative amount is refused",
    ),
    pytest.param(
        slices(
            [device("a", **shared("1", validRange={"min": "100m", "max": "600m", "step": "50m"}))]
        ),
        [claim("c", {"capacity": {"requests": {MEMORY: "120m"}}})],
        None,
        ["a"],
        id="a range of fractions is compared in thousandths",
    ),
    pytest.param(
        slices([device("a", **consuming("2")), device("b", **consuming("2"))], "4", of="n2"),
        [claim("c", {}), holding("a")],
        ["b"],
        ["b"],
        id="counters in a slice for another node count",
    ),
)


@pytest.mark.parametrize(("published", "claims", "before", "after"), MENDS)
def test_the_allocator_is_as_that_of_the_release_and_mended_with_auto(
    published: list[JsonObject],
    claims: list[JsonObject],
    before: list[str] | None,
    after: list[str] | None,
) -> None:
    assert given_devices(AS_RECORDED, published, *claims) == before
    assert given_devices(AS_1_37, published, *claims) == after
    assert given_devices(AUTO_ON_1_33, published, *claims) == after


@pytest.mark.parametrize(
    ("asked", "consumed"),
    [("10m", "100m"), ("100m", "100m"), ("101m", "150m"), ("960m", "1"), ("1500u", "100m")],
)
def test_an_amount_is_rounded_up_to_the_next_step_of_a_fraction(asked: str, consumed: str) -> None:
    in_steps = shared("1", validRange={"min": "100m", "max": "1", "step": "50m"})
    request = {"capacity": {"requests": {MEMORY: asked}}}
    result = decided(AS_1_37, slices([device("a", **in_steps)]), claim("c", request))
    (given,) = result["allocations"]["n1"]["c"]["devices"]["results"]
    assert given["consumedCapacity"] == {MEMORY: consumed}


def test_an_error_of_a_selector_names_the_device_in_1_37() -> None:
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].no == 1'}}
    wanted = claim("c", {"selectors": [selector]})
    published = slices([device("a", of={"group": 1})])
    assert decided(AS_1_37, published, wanted)["error"].endswith(
        f"claim default/c: selector #0 on device {DRIVER}/p/a: CEL runtime error: no such key: no. "
        "consider using CEL optional chaining (.? followed by orValue()) or guarding the check "
        "with has() for optional fields"
    )
    assert decided(AS_RECORDED, published, wanted)["error"].endswith(
        "claim default/c: selector #0: CEL runtime error: no such key: no"
    )


@pytest.mark.parametrize(
    ("values", "expression"),
    [
        ({"strings": ["a", "b"]}, '"b" in {}'),
        ({"ints": [1, 2]}, "{}.exists(each, each > 1)"),
        ({"bools": [False, True]}, "{}.size() == 2 && {}[1]"),
        ({"strings": ["a", "b"]}, '{}.includes("b") && !{}.includes("c")'),
        ({"ints": [1, 2]}, "{}.includes(2)"),
        ({"versions": ["1.2.3"]}, '{}[0].isGreaterThan(semver("1.0.0"))'),
    ],
)
def test_selectors_read_attributes_that_are_lists(values: JsonObject, expression: str) -> None:
    attribute = f'device.attributes["{DRIVER}"].values'
    selector = {"cel": {"expression": expression.replace("{}", attribute)}}
    published = slices([{"name": "a", "attributes": {f"{DRIVER}/values": values}}])
    wanted = claim("c", {"selectors": [selector]})
    assert given_devices(AUTO_ON_1_33, published, wanted) == ["a"]
    before = decided(AS_RECORDED, published, wanted)["error"]
    assert "unsupported attribute value" in before or "undeclared reference" in before


def test_a_single_value_includes_itself_in_1_37_and_the_word_is_unknown_before() -> None:
    attribute = f'device.attributes["{DRIVER}"].group'
    published = slices([device("a", of={"group": 1}), device("b", of={"group": 2})])
    wanted = claim("c", {"selectors": [{"cel": {"expression": f"{attribute}.includes(2)"}}]})
    assert given_devices(AS_1_37, published, wanted) == ["b"]
    assert "undeclared reference" in decided(AS_RECORDED, published, wanted)["error"]


def rule(effect: str, **selector: str) -> JsonObject:
    taint = {"key": "maintenance", "effect": effect}
    return {"metadata": {"name": "t"}, "spec": {"deviceSelector": selector, "taint": taint}}


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([rule("NoSchedule", driver=DRIVER, pool="p", device="a")], ["b"], id="one"),
        pytest.param([rule("NoExecute", pool="p")], None, id="a pool"),
        pytest.param([rule("NoSchedule")], None, id="whatever there is"),
        pytest.param([rule("None")], ["a"], id="no effect"),
        pytest.param([rule("NoSchedule", driver="other")], ["a"], id="another driver"),
        pytest.param([{"metadata": {"name": "t"}, "spec": {}}], ["a"], id="a malformed rule"),
    ],
)
def test_rules_taint_devices(rules: list[JsonObject], expected: list[str] | None) -> None:
    published, wanted = slices([device("a"), device("b")]), claim("c", {})
    assert given_devices(AS_1_37, published, wanted, devicetaintrules=rules) == expected
    assert given_devices(AS_RECORDED, published, wanted, devicetaintrules=rules) == ["a"]
    tolerating = claim("c", {"tolerations": [{"key": "maintenance", "operator": "Exists"}]})
    assert given_devices(AS_1_37, published, tolerating, devicetaintrules=rules) == ["a"]


def test_a_pod_without_claims_hears_nothing_of_devices_in_1_37() -> None:
    case = {"id": "x", "nodes": [make_node("n1", cpu="1")], "pod": make_pod("p", cpu="2")}
    assert "no new claims to deallocate" in decide(case)["message"]
    assert decide(case, AS_1_37)["message"].startswith(
        "0/1 nodes are available: 1 Insufficient cpu. preemption: "
    )
