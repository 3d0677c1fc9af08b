"""Repairs of kube-scheduler after 1.36.2: what cases answer before and after each, by release."""

from collections.abc import Mapping
from typing import Any

import pytest

from stellwerk_kube.compatibility import Compatibility, FeatureGates, Release, release_named
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import decide
from tests.support.builders import make_node, make_pod

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
DRIVER = "d.io"
NOT_ALLOCATED = "cannot allocate all claims"
AUTO_ON_1_34 = Compatibility.with_server(Release.V1_34)


def as_release(name: str) -> Compatibility:
    return Compatibility.with_release(release_named(name))


def verdicts(case: JsonObject, rules: Compatibility) -> dict[str, str]:
    """Why each node does not fit; empty: it does."""
    result = decide({"id": "case", **case}, rules)
    if result["error"]:
        return {"error": result["error"]}
    return {name: ", ".join(each.get("reasons", ())) for name, each in result["filter"].items()}


def host(name: str, **fields: Any) -> JsonObject:
    return make_node(name, labels={HOSTNAME: name}, **fields)


# --- namespaceSelectors of the pending pod --------------------------------------------------------

ANTI = "node(s) didn't match pod anti-affinity rules"
AFFINITY = "node(s) didn't match pod affinity rules"
NAME = "kubernetes.io/metadata.name"


def beside(kind: str, *expressions: JsonObject, **term: Any) -> JsonObject:
    """A pod of `wa` with a term, beside one that runs on n0 in `wa`."""
    fields = {
        "topologyKey": HOSTNAME,
        "labelSelector": {"matchExpressions": [{"key": "id", "operator": "Exists"}]},
        "namespaceSelector": {"matchExpressions": list(expressions)},
        **term,
    }
    pod = make_pod("new", namespace="wa", affinity={kind: {REQUIRED: [fields]}})
    namespaces = [
        {"metadata": {"name": name, "labels": {NAME: name}}} for name in ("wa", "wb", "default")
    ]
    return {
        "nodes": [host("n0")],
        "pods": [make_pod("old", namespace="wa", labels={"id": "1"}, node_name="n0")],
        "pod": pod,
        "namespaces": namespaces,
    }


def not_in(*values: str) -> JsonObject:
    return {"key": NAME, "operator": "NotIn", "values": list(values)}


NAMESPACES = [
    pytest.param(beside("podAntiAffinity", not_in("wa")), ANTI, "", id="NotIn of its namespace"),
    pytest.param(
        beside("podAntiAffinity", {"key": NAME, "operator": "DoesNotExist"}),
        ANTI,
        "",
        id="DoesNotExist of a label that all have",
    ),
    pytest.param(
        beside("podAffinity", not_in("wa")), "", AFFINITY, id="affinity is not met by them either"
    ),
    pytest.param(
        beside("podAntiAffinity", not_in("wb")), ANTI, ANTI, id="NotIn of another namespace"
    ),
    pytest.param(
        beside("podAntiAffinity", {"key": NAME, "operator": "In", "values": ["wa"]}),
        ANTI,
        ANTI,
        id="In",
    ),
    pytest.param(beside("podAntiAffinity"), ANTI, ANTI, id="an empty selector is for all"),
    pytest.param(
        beside("podAntiAffinity", not_in("wa"), namespaces=["wa"]),
        ANTI,
        ANTI,
        id="a namespace that is listed counts whatever the selector",
    ),
    pytest.param(
        beside("podAntiAffinity", namespaceSelector=None), ANTI, ANTI, id="no selector: its own"
    ),
    pytest.param(
        {**beside("podAntiAffinity", not_in("wb")), "namespaces": []},
        ANTI,
        "",
        id="a namespace that is not known has no labels to compare",
    ),
    pytest.param(
        {**beside("podAntiAffinity"), "namespaces": []},
        ANTI,
        ANTI,
        id="an empty selector is for namespaces that are not known as well",
    ),
]


@pytest.mark.parametrize(("case", "before", "after"), NAMESPACES)
def test_a_namespace_selector_is_compared_with_labels_of_namespaces_alone(
    case: JsonObject, before: str, after: str
) -> None:
    for release in ("1.34.11", "1.36.2", "1.37.0"):
        assert verdicts(case, as_release(release)) == {"n0": before}
    for release in ("1.33", "1.34", "1.36", "1.37", "1.38"):
        assert verdicts(case, as_release(release)) == {"n0": after}
    assert verdicts(case, AUTO_ON_1_34) == {"n0": after}


def test_preferred_terms_are_compared_alike() -> None:
    case = beside("podAntiAffinity", not_in("wa"))
    [term] = case["pod"]["spec"]["affinity"]["podAntiAffinity"].pop(REQUIRED)
    preferred = [{"weight": 10, "podAffinityTerm": term}]
    terms = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    case["pod"]["spec"]["affinity"]["podAntiAffinity"] = terms
    case["nodes"].append(host("n1"))

    def chosen(release: str) -> Any:
        return decide({"id": "case", **case}, as_release(release))["scores"].get("InterPodAffinity")

    before, after = chosen("1.36.2"), chosen("1.38")
    assert {name: each["raw"] for name, each in before.items()} == {"n0": -10, "n1": 0}
    assert after is None or {each["raw"] for each in after.values()} == {0}


# --- spread constraints with an empty selector ----------------------------------------------------

SKEWED = "node(s) didn't match pod topology spread constraints"


def spread(selector: JsonObject | None, **constraint: Any) -> JsonObject:
    """Two pods on n0, none on n1, and a pod to be spread."""
    fields = {
        "maxSkew": 1,
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "DoNotSchedule",
        **constraint,
    }
    if selector is not None:
        fields["labelSelector"] = selector
    return {
        "nodes": [host("n0"), host("n1")],
        "pods": [
            make_pod("a", node_name="n0"),
            make_pod("b", labels={"app": "b"}, node_name="n0"),
            make_pod("c", namespace="other", node_name="n1"),
        ],
        "pod": make_pod("new", topologySpreadConstraints=[fields]),
    }


@pytest.mark.parametrize(
    ("case", "before", "after"),
    [
        pytest.param(spread({}), "", SKEWED, id="an empty selector"),
        pytest.param(
            spread({"matchLabels": {}, "matchExpressions": []}),
            "",
            SKEWED,
            id="a selector of empty parts",
        ),
        pytest.param(spread(None), "", "", id="no selector counts nothing"),
        pytest.param(
            spread({"matchLabels": {"app": "b"}}), "", "", id="a selector that counts one"
        ),
        pytest.param(spread({}, maxSkew=3), "", "", id="within the skew"),
    ],
)
def test_an_empty_selector_counts_every_pod_of_the_namespace(
    case: JsonObject, before: str, after: str
) -> None:
    for rules in (as_release("1.36.2"), as_release("1.37"), AUTO_ON_1_34):
        assert verdicts(case, rules) == {"n0": before, "n1": ""}
    for rules in (as_release("1.38"), Compatibility.with_server(Release.V1_38)):
        assert verdicts(case, rules) == {"n0": after, "n1": ""}


def test_scores_of_an_empty_selector_prefer_the_emptier_node() -> None:
    case = spread({}, whenUnsatisfiable="ScheduleAnyway")

    def scored(release: str) -> Mapping[str, int]:
        scores = decide({"id": "case", **case}, as_release(release))["scores"]["PodTopologySpread"]
        return {name: each["normalized"] for name, each in scores.items()}

    assert scored("1.37") == {"n0": 100, "n1": 100}
    assert scored("1.38") == {"n0": 0, "n1": 100}


# --- budgets with an empty selector ---------------------------------------------------------------


def budgeted(
    selector: JsonObject | None, *, labels: dict[str, str], allowed: int = 0
) -> JsonObject:
    """A pod that needs n0, which one of low priority fills."""
    spec = {} if selector is None else {"selector": selector}
    budget = {
        "metadata": {"name": "pdb", "namespace": "default"},
        "spec": spec,
        "status": {"disruptionsAllowed": allowed},
    }
    return {
        "nodes": [host("n0", cpu="1")],
        "pods": [make_pod("victim", cpu="1", priority=0, labels=labels, node_name="n0")],
        "pod": make_pod("new", cpu="1", priority=10),
        "pdbs": [budget],
    }


@pytest.mark.parametrize(
    ("case", "before", "after"),
    [
        pytest.param(budgeted({}, labels={"app": "a"}), 0, 1, id="an empty selector"),
        pytest.param(budgeted({}, labels={}), 0, 1, id="a pod without labels"),
        pytest.param(budgeted({}, labels={}, allowed=1), 0, 0, id="a disruption is allowed"),
        pytest.param(budgeted(None, labels={"app": "a"}), 0, 0, id="no selector is for none"),
        pytest.param(
            budgeted({"matchLabels": {"app": "a"}}, labels={"app": "a"}), 1, 1, id="a selector"
        ),
        pytest.param(
            budgeted({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, labels={}),
            0,
            1,
            id="a selector that pods without labels match",
        ),
    ],
)
def test_a_budget_with_an_empty_selector_counts(case: JsonObject, before: int, after: int) -> None:
    def violations(rules: Compatibility) -> int:
        found = decide({"id": "case", **case}, rules)["preemption"]["candidates"]["n0"]
        return int(found["pdbViolations"])

    assert [violations(as_release(name)) for name in ("1.36.2", "1.37")] == [before, before]
    assert violations(as_release("1.38")) == after
    assert violations(AUTO_ON_1_34) == after


# --- devices --------------------------------------------------------------------------------------


def device_slice(
    *devices: JsonObject, node: str = "n0", pool: str = "p0", slices: int = 1
) -> JsonObject:
    generation = {"name": pool, "generation": 1, "resourceSliceCount": slices}
    return {
        "metadata": {"name": f"{pool}-{node}"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": generation, "devices": list(devices)},
    }


def request(name: str = "r0", **exactly: Any) -> JsonObject:
    return {"name": name, "exactly": {"deviceClassName": "any", **exactly}}


def claiming(*slices: JsonObject, asks: JsonObject | None = None, **case: Any) -> JsonObject:
    """A pod with one claim, on a node for each slice."""
    claim = {
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [asks or request()]}},
    }
    names = sorted({str(each["spec"]["nodeName"]) for each in slices})
    return {
        "nodes": [host(name) for name in names],
        "pod": make_pod("new", resourceClaims=[{"name": "c", "resourceClaimName": "c"}]),
        "deviceclasses": [{"metadata": {"name": "any"}, "spec": {}}],
        "resourceslices": list(slices),
        "resourceclaims": [claim, *case.pop("held", ())],
        **case,
    }


def holder(**result: Any) -> JsonObject:
    given = {"request": "r0", "driver": DRIVER, "pool": "p0", "device": "dev", **result}
    return {
        "metadata": {"name": "held", "namespace": "default"},
        "spec": {"devices": {"requests": [request()]}},
        "status": {"allocation": {"devices": {"results": [given]}}},
    }


def taint_rule(**spec: Any) -> list[JsonObject]:
    taint = {"key": "gone", "effect": "NoSchedule"}
    return [{"metadata": {"name": "t"}, "spec": {"taint": taint, **spec}}]


@pytest.mark.parametrize(
    ("rules", "in_1_37_0", "in_1_37_1"),
    [
        pytest.param(taint_rule(), NOT_ALLOCATED, "", id="absent"),
        pytest.param(taint_rule(deviceSelector=None), NOT_ALLOCATED, "", id="null is absent"),
        pytest.param(taint_rule(deviceSelector={}), NOT_ALLOCATED, NOT_ALLOCATED, id="empty"),
        pytest.param(
            taint_rule(deviceSelector={"driver": DRIVER}), NOT_ALLOCATED, NOT_ALLOCATED, id="driver"
        ),
    ],
)
def test_a_taint_rule_without_selector_taints_nothing(
    rules: list[JsonObject], in_1_37_0: str, in_1_37_1: str
) -> None:
    case = claiming(device_slice({"name": "dev"}), devicetaintrules=rules)
    assert verdicts(case, as_release("1.36")) == {"n0": ""}
    assert verdicts(case, as_release("1.37.0")) == {"n0": in_1_37_0}
    beside_1_37_0 = Compatibility.with_server(release_named("1.37.0"))
    for repaired in (as_release("1.37"), as_release("1.38"), beside_1_37_0):
        assert verdicts(case, repaired) == {"n0": in_1_37_1}


SHARED = {"name": "dev", "allowMultipleAllocations": True}


@pytest.mark.parametrize(
    ("published", "held", "asks", "before", "after"),
    [
        pytest.param({"name": "dev"}, holder(shareID="s"), request(), "", NOT_ALLOCATED, id="one"),
        pytest.param(
            {"name": "dev", "capacity": {"memory": {"value": "16Gi"}}},
            holder(shareID="s", consumedCapacity={"memory": "1Gi"}),
            request(),
            NOT_ALLOCATED,
            NOT_ALLOCATED,
            id="a share of its capacity leaves too little of the whole",
        ),
        pytest.param(
            {"name": "dev", "capacity": {"memory": {"value": "16Gi"}}},
            holder(shareID="s", consumedCapacity={"memory": "1Gi"}),
            request(capacity={"requests": {"memory": "8Gi"}}),
            "",
            NOT_ALLOCATED,
            id="a share of its capacity",
        ),
        pytest.param(
            {"name": "dev"},
            holder(shareID="s"),
            request(allocationMode="All"),
            "",
            NOT_ALLOCATED,
            id="all devices",
        ),
        pytest.param(
            {"name": "dev"}, holder(shareID="s"), request(adminAccess=True), "", "", id="for a look"
        ),
        pytest.param(SHARED, holder(shareID="s"), request(), "", "", id="one that is shared still"),
        pytest.param(
            {"name": "dev"}, holder(shareID="s", device="other"), request(), "", "", id="another"
        ),
        pytest.param(
            {"name": "dev"}, holder(), request(), NOT_ALLOCATED, NOT_ALLOCATED, id="held whole"
        ),
    ],
)
def test_a_device_of_which_a_share_is_in_use_is_given_to_nobody_else_exclusively(
    published: JsonObject, held: JsonObject, asks: JsonObject, before: str, after: str
) -> None:
    case = claiming(device_slice(published), asks=asks, held=[held])
    for release in ("1.36.2", "1.37"):
        assert verdicts(case, as_release(release)) == {"n0": before}
    for rules in (as_release("1.38"), AUTO_ON_1_34):
        assert verdicts(case, rules) == {"n0": after}


def updating(state: str) -> str:
    return (
        "claim default/c, request r0: asks for all devices, but resource pool d.io/p0 is currently "
        f"{state}"
    )


@pytest.mark.parametrize(
    ("slice_of_n0", "state"),
    [
        pytest.param(device_slice({"name": "dev"}, slices=2), "being updated", id="incomplete"),
        pytest.param(device_slice({"name": "dev"}, {"name": "dev"}), "invalid", id="invalid"),
    ],
)
def test_all_refuses_the_node_of_a_pool_that_is_not_usable_and_no_other(
    slice_of_n0: JsonObject, state: str
) -> None:
    whole = device_slice({"name": "dev"}, node="n1", pool="p1")
    case = claiming(slice_of_n0, whole, asks=request(allocationMode="All"))
    for release in ("1.36.2", "1.37"):
        error = f'running "DynamicResources" filter plugin: {updating(state)}'
        assert verdicts(case, as_release(release)) == {"error": error}
    for rules in (as_release("1.38"), AUTO_ON_1_34):
        assert verdicts(case, rules) == {"n0": updating(state), "n1": ""}


def test_all_without_another_node_says_why_no_node_fits() -> None:
    incomplete = device_slice({"name": "dev"}, slices=2)
    case = claiming(incomplete, asks=request(allocationMode="All"))
    result = decide({"id": "case", **case}, as_release("1.38"))
    assert result["filter"]["n0"]["code"] == "UnschedulableAndUnresolvable"
    assert result["message"].startswith(f"0/1 nodes are available: 1 {updating('being updated')}.")


LONG = f"{DRIVER}/memory"


def with_memory(name: str, *more: str) -> JsonObject:
    capacity = {each: {"value": "16Gi"} for each in (name, *more)}
    return {**SHARED, "capacity": capacity}


def memory(amount: str, name: str, **more: str) -> JsonObject:
    return request(capacity={"requests": {name: amount, **more}})


def stored(amount: str, name: str, **more: str) -> list[JsonObject]:
    return [holder(shareID="s", consumedCapacity={name: amount, **more})]


@pytest.mark.parametrize(
    ("published", "asks", "held", "before", "after"),
    [
        pytest.param(
            with_memory("memory"), memory("8Gi", LONG), [], NOT_ALLOCATED, "", id="cap-full-short"
        ),
        pytest.param(
            with_memory(LONG), memory("8Gi", "memory"), [], NOT_ALLOCATED, "", id="cap-short-full"
        ),
        pytest.param(
            with_memory("memory"),
            memory("8Gi", "memory"),
            stored("10Gi", LONG),
            "",
            NOT_ALLOCATED,
            id="cap-stored-full",
        ),
        pytest.param(
            with_memory(LONG),
            memory("8Gi", LONG),
            stored("10Gi", "memory"),
            "",
            NOT_ALLOCATED,
            id="a stored short name",
        ),
        pytest.param(
            with_memory("memory"),
            memory("8Gi", LONG),
            stored("6Gi", LONG, memory="3Gi"),
            NOT_ALLOCATED,
            NOT_ALLOCATED,
            id="both names stored are added up",
        ),
        pytest.param(
            with_memory("memory"),
            memory("7Gi", LONG),
            stored("6Gi", LONG, memory="3Gi"),
            NOT_ALLOCATED,
            "",
            id="and leave what is left",
        ),
        pytest.param(
            with_memory("memory"),
            memory("1Gi", LONG, memory="17Gi"),
            [],
            NOT_ALLOCATED,
            NOT_ALLOCATED,
            id="of both names asked for the larger amount counts",
        ),
        pytest.param(
            with_memory("memory"),
            memory("8Gi", "other.io/memory"),
            [],
            NOT_ALLOCATED,
            NOT_ALLOCATED,
            id="the capacity of another driver",
        ),
        pytest.param(
            with_memory("memory"),
            memory("8Gi", "memory"),
            stored("10Gi", "other.io/memory"),
            "",
            "",
            id="a stored name of another driver",
        ),
        pytest.param(
            with_memory("memory", LONG),
            memory("8Gi", LONG, memory="16Gi"),
            [],
            "",
            "",
            id="a device with both names has two capacities",
        ),
    ],
)
def test_a_capacity_is_meant_by_its_short_name_and_by_its_drivers(
    published: JsonObject, asks: JsonObject, held: list[JsonObject], before: str, after: str
) -> None:
    case = claiming(device_slice(published), asks=asks, held=held)
    for release in ("1.36.2", "1.37"):
        assert verdicts(case, as_release(release)) == {"n0": before}
    for rules in (as_release("1.38"), AUTO_ON_1_34):
        assert verdicts(case, rules) == {"n0": after}


@pytest.mark.parametrize(("name", "asked"), [("memory", LONG), (LONG, "memory")])
def test_an_allocation_names_a_capacity_as_the_device_publishes_it(name: str, asked: str) -> None:
    case = claiming(device_slice(with_memory(name)), asks=memory("8Gi", asked))
    result = decide({"id": "case", **case}, as_release("1.38"))
    [given] = result["allocations"]["n0"]["c"]["devices"]["results"]
    assert given["consumedCapacity"] == {name: "8Gi"}


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        pytest.param(as_release("1.34"), "Insufficient", id="off by default in 1.34"),
        pytest.param(as_release("1.35"), "Insufficient", id="off by default in 1.35"),
        pytest.param(Compatibility.with_server(Release.V1_35), "Insufficient", id="auto on 1.35"),
        pytest.param(as_release("1.36.2"), "", id="on by default in 1.36"),
        pytest.param(
            Compatibility.with_release(
                Release.V1_35, FeatureGates.parse("DRAExtendedResource=true")
            ),
            "",
            id="turned on",
        ),
        pytest.param(
            Compatibility.with_server(
                Release.V1_36, FeatureGates.parse("DRAExtendedResource=false")
            ),
            "Insufficient",
            id="turned off",
        ),
    ],
)
@pytest.mark.parametrize("resource", ["deviceclass.resource.kubernetes.io/any", "example.com/gpu"])
def test_classes_back_extended_resources_where_the_gate_is_on(
    rules: Compatibility, why: str, resource: str
) -> None:
    asks = {"resources": {"requests": {resource: "1"}, "limits": {resource: "1"}}}
    case = {
        "nodes": [host("n0")],
        "pod": make_pod("new", containers=[{"name": "c", **asks}]),
        "deviceclasses": [
            {"metadata": {"name": "any"}, "spec": {"extendedResourceName": "example.com/gpu"}}
        ],
        "resourceslices": [device_slice({"name": "dev"})],
    }
    assert verdicts(case, rules) == {"n0": f"{why} {resource}" if why else ""}


@pytest.mark.parametrize("release", ["1.36.2", "1.37.0", "1.38"])
def test_a_count_beyond_all_devices_falls_through_to_the_next_alternative(release: str) -> None:
    alternatives = [
        {"name": "many", "deviceClassName": "any", "count": (1 << 63) - 1},
        {"name": "one", "deviceClassName": "any", "count": 1},
    ]
    asks = {"name": "r0", "firstAvailable": alternatives}
    case = claiming(device_slice({"name": "dev"}), asks=asks)
    assert verdicts(case, as_release(release)) == {"n0": ""}


def test_too_few_devices_are_no_error_whatever_the_time() -> None:
    devices = [{"name": f"dev-{number}"} for number in range(20)]
    profile = {"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "10ms"}}]}
    case = claiming(device_slice(*devices), asks=request(count=21), profile=profile)
    assert verdicts(case, as_release("1.37")) == {"n0": NOT_ALLOCATED}
