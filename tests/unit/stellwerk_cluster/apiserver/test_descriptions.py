"""`kubectl explain` has a line of its own for what a scheduler's user looks at."""

import tomllib
from collections import Counter
from importlib import resources

import pytest

from stellwerk_cluster.apimachinery.schema import types
from stellwerk_cluster.apiserver.descriptions import describe_field, describe_type

LOOKED_AT = (
    *("PodSpec", "PodStatus", "Container", "ObjectMeta", "OwnerReference", "PodCondition"),
    *("Affinity", "NodeAffinity", "PodAffinity", "PodAntiAffinity", "PodAffinityTerm"),
    *("WeightedPodAffinityTerm", "PreferredSchedulingTerm", "NodeSelector", "NodeSelectorTerm"),
    *("NodeSelectorRequirement", "LabelSelector", "LabelSelectorRequirement", "Toleration"),
    *("Taint", "TopologySpreadConstraint", "ResourceRequirements", "ContainerPort", "PodOS"),
    *("PodSchedulingGate", "PodSchedulingGroup", "PodResourceClaim", "VolumeMount", "EnvVar"),
    *("NodeSpec", "NodeStatus", "NodeCondition", "ContainerImage", "PriorityClass"),
    *("PodDisruptionBudgetSpec", "PodDisruptionBudgetStatus", "ResourceQuotaSpec"),
    *("ResourceQuotaStatus", "LimitRangeItem", "PersistentVolumeClaimSpec", "StorageClass"),
    *("RuntimeClass", "Overhead", "Scheduling", "LeaseSpec", "Event"),
    *("PodGroupSpec", "PodGroupStatus", "PodGroupSchedulingPolicy", "GangSchedulingPolicy"),
    *("PodGroupSchedulingConstraints", "TopologyConstraint", "WorkloadSpec", "PodGroupTemplate"),
)


@pytest.mark.parametrize("type_name", LOOKED_AT)
def test_every_field_of_a_type_that_is_looked_at_is_described(type_name: str) -> None:
    assert describe_type(type_name)
    fields = types()[type_name]
    assert [name for name in fields if not describe_field(type_name, name)] == []


def test_no_description_stands_twice_and_none_is_of_something_else() -> None:
    file = resources.files("stellwerk_cluster.apiserver").joinpath("descriptions.toml")
    described = tomllib.loads(file.read_text("utf-8"))
    texts = Counter([*described["types"].values(), *described["fields"].values()])
    assert [text for text, times in texts.items() if times > 1] == []
    assert set(described["types"]) <= set(types())
    known = {name for fields in types().values() for name in fields}
    for name in described["fields"]:
        type_name, dot, field = name.rpartition(".")
        assert field in (types()[type_name] if dot else known), name
