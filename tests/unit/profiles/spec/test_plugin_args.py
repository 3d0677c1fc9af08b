"""Arguments of the in-tree plugins: the defaults of v1, and what may be written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.profiles.spec import plugin_args
from stellwerk.profiles.spec.plugin_args import PluginArgs
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import (
    is_extended_resource,
    is_label_value,
    is_qualified_name,
    parse_duration,
    suggestion,
)

CPU_AND_MEMORY = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]


def args(plugin: str, written: JsonObject) -> PluginArgs:
    model: type[PluginArgs] = getattr(plugin_args, f"{plugin}Args")
    return model.model_validate(written)


def dump(plugin: str, written: JsonObject) -> JsonObject:
    return args(plugin, written).model_dump(mode="json", by_alias=True, exclude_none=True)


@pytest.mark.parametrize(
    ("plugin", "defaults"),
    [
        (
            "NodeResourcesFit",
            {
                "ignoredResources": [],
                "ignoredResourceGroups": [],
                "scoringStrategy": {"type": "LeastAllocated", "resources": CPU_AND_MEMORY},
            },
        ),
        ("NodeResourcesBalancedAllocation", {"resources": CPU_AND_MEMORY}),
        ("NodeAffinity", {}),
        (
            "InterPodAffinity",
            {"hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": False},
        ),
        (
            "PodTopologySpread",
            {"defaultConstraints": [], "defaultingType": "System", "giveWayAfterSeconds": 0},
        ),
        (
            "VolumeBinding",
            {
                "bindTimeoutSeconds": 600,
                "shape": [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}],
            },
        ),
        ("DynamicResources", {"filterTimeout": "10s", "bindingTimeout": "10m0s"}),
        (
            "DefaultPreemption",
            {
                "minCandidateNodesPercentage": 10,
                "minCandidateNodesAbsolute": 100,
                "minRunSeconds": 0,
                "spareDaemonSetPods": False,
                "orderByDeletionCost": False,
            },
        ),
        (
            "CrossNodePreemption",
            {"timeoutMilliseconds": 100, "maxVictims": 8, "ignorePodDisruptionBudgets": False},
        ),
        ("LegacyBalancedAllocation", {"balanceAttachedNodeVolumes": False}),
        ("LegacyLeastAllocated", {"resources": CPU_AND_MEMORY}),
    ],
)
def test_defaults(plugin: str, defaults: JsonObject) -> None:
    assert dump(plugin, {}) == defaults


@pytest.mark.parametrize(
    ("plugin", "written", "meant"),
    [
        pytest.param(
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "MostAllocated", "resources": []}},
            {"scoringStrategy": {"type": "MostAllocated", "resources": CPU_AND_MEMORY}},
            id="an empty list of resources means cpu and memory",
        ),
        pytest.param(
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu"}]}},
            {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 1}],
                }
            },
            id="a resource without a weight has 1",
        ),
        pytest.param(
            "NodeResourcesBalancedAllocation",
            {"resources": [{"name": "cpu", "weight": 0}]},
            {"resources": [{"name": "cpu", "weight": 1}]},
            id="a resource with weight 0 has 1",
        ),
        pytest.param(
            "PodTopologySpread",
            {"defaultingType": "List", "defaultConstraints": []},
            {"defaultingType": "List"},
            id="an empty list of constraints with List turns default spreading off",
        ),
        pytest.param(
            "PodTopologySpread",
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": "zone",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": None,
                    }
                ],
            },
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                ],
            },
            id="a selector that is null is none",
        ),
        pytest.param(
            "InterPodAffinity",
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "InterPodAffinityArgs",
                "hardPodAffinityWeight": None,
            },
            {},
            id="the type may be written and null is unset",
        ),
        pytest.param(
            "NodeResourcesFit",
            {
                "scoringStrategy": {
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": {"shape": [{}, {"utilization": 100, "score": 10}]},
                }
            },
            {
                "scoringStrategy": {
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": {
                        "shape": [
                            {"utilization": 0, "score": 0},
                            {"utilization": 100, "score": 10},
                        ]
                    },
                }
            },
            id="a coordinate that is left out is 0",
        ),
        pytest.param(
            "DynamicResources",
            {"filterTimeout": "0"},
            {"filterTimeout": "0"},
            id="no filter timeout",
        ),
        pytest.param(
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1},
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1},
            id="one of the two candidate numbers may be 0",
        ),
    ],
)
def test_equal_meaning(plugin: str, written: JsonObject, meant: JsonObject) -> None:
    assert args(plugin, written) == args(plugin, meant)


def test_added_affinity_comes_out_as_a_pod_writes_it() -> None:
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "scheduler-profile", "operator": "In", "values": ["foo"]},
                        {"key": "cores", "operator": "Gt", "values": ["8"]},
                        {"key": "old", "operator": "DoesNotExist", "values": []},
                    ],
                    "matchFields": [
                        {"key": "metadata.name", "operator": "NotIn", "values": ["bad-node"]}
                    ],
                }
            ]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 50, "preference": {"matchExpressions": [], "matchFields": []}}
        ],
    }
    assert dump("NodeAffinity", {"addedAffinity": affinity}) == {"addedAffinity": affinity}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("5s", 5), ("1m30s", 90), ("1.5h", 5400), ("250ms", 0.25), ("-2s", -2), ("+3s", 3)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "5 s", "s", "1d", "5s!", "--5s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 999))
def test_a_duration_is_the_sum_of_its_parts(hours: int, minutes: int, millis: int) -> None:
    text = f"{hours}h{minutes}m{millis}ms"
    assert parse_duration(text) == pytest.approx(hours * 3600 + minutes * 60 + millis / 1000)


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("cpu", True),
        ("example.com/gpu", True),
        ("a_B.c-9", True),
        ("a" * 63, True),
        ("", False),
        ("a" * 64, False),
        ("-a", False),
        ("a-", False),
        ("Example.com/gpu", False),
        ("/gpu", False),
        ("a/b/c", False),
        ("a b", False),
    ],
)
def test_qualified_names(name: str, valid: bool) -> None:  # noqa: FBT001
    assert is_qualified_name(name) is valid


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        ("example.com/gpu", True),
        ("cpu", False),
        ("kubernetes.io/gpu", False),
        ("sub.kubernetes.io/gpu", False),
        ("requests.example.com/gpu", False),
        ("example.com/", False),
    ],
)
def test_extended_resources(name: str, extended: bool) -> None:  # noqa: FBT001
    assert is_extended_resource(name) is extended


def test_label_values_may_be_empty() -> None:
    assert is_label_value("")
    assert not is_label_value("a b")


def test_suggestions() -> None:
    assert suggestion("nodeports", ["NodePorts", "NodeName"]) == '; did you mean "NodePorts"?'
    assert suggestion("Completely", ["NodePorts"]) == ""
