"""KubeletConfigurations: thresholds with their defaults, and what they leave to pods."""

from typing import Any

import pytest

from stellwerk_cluster.hollow.eviction_thresholds import (
    KubeletConfiguration,
    ThresholdValue,
    binary_quantity,
    parse_configuration,
)
from stellwerk_kube.errors import ConfigurationError

GI = 1 << 30
MI = 1 << 20


def configured(**fields: Any) -> KubeletConfiguration:
    return parse_configuration({"kind": "KubeletConfiguration", **fields}, "f")


def hard(configuration: KubeletConfiguration) -> dict[str, ThresholdValue]:
    return {each.signal: each.amount for each in configuration.thresholds if each.hard}


def test_without_any_hard_threshold_the_five_defaults_hold() -> None:
    capacity = 100 * GI
    amounts = {signal: amount.of(capacity) for signal, amount in hard(configured()).items()}
    assert amounts == {
        "memory.available": 100 * MI,
        "nodefs.available": 10 * GI,
        "nodefs.inodesFree": 5 * GI,
        "imagefs.available": 15 * GI,
        "imagefs.inodesFree": 5 * GI,
    }
    assert configured().transition_seconds == 300


def test_one_hard_threshold_switches_the_others_off() -> None:
    assert set(hard(configured(evictionHard={"memory.available": "500Mi"}))) == {"memory.available"}
    zero = configured(evictionHard={"memory.available": "0", "pid.available": "10%"})
    assert set(hard(zero)) == {"pid.available"}


def test_a_share_and_a_quantity_name_the_same_threshold() -> None:
    share = configured(evictionHard={"memory.available": "10%"}).thresholds[0]
    quantity = configured(evictionHard={"memory.available": "1Gi"}).thresholds[0]
    assert share.amount.of(10 * GI) == quantity.amount.of(10 * GI) == GI
    for threshold in (share, quantity):
        assert threshold.is_met(GI - 1, 10 * GI)
        assert not threshold.is_met(GI, 10 * GI)


@pytest.mark.parametrize(
    ("signal", "until"),
    [("nodefs.available", 1524 * MI), ("imagefs.available", 102 * GI)],
)
def test_the_documented_minimum_reclaim(signal: str, until: int) -> None:
    configuration = configured(
        evictionHard={
            "memory.available": "500Mi",
            "nodefs.available": "1Gi",
            "imagefs.available": "100Gi",
        },
        evictionMinimumReclaim={
            "memory.available": "0Mi",
            "nodefs.available": "500Mi",
            "imagefs.available": "2Gi",
        },
    )
    assert len(configuration.thresholds) == 3
    (threshold,) = (each for each in configuration.thresholds if each.signal == signal)
    assert threshold.is_met(until - 1, 200 * GI, until_reclaimed=True)
    assert not threshold.is_met(until, 200 * GI, until_reclaimed=True)
    assert not threshold.is_met(until - 1, 200 * GI)


def test_allocatable_is_capacity_less_reservations_and_the_hard_threshold() -> None:
    configuration = configured(
        evictionHard={"memory.available": "500Mi"},
        systemReserved={"memory": "1.5Gi", "cpu": "500m"},
        kubeReserved={"cpu": "1"},
    )
    allocatable = configuration.allocatable({"memory": "10Gi", "cpu": "4", "pods": "110"})
    assert allocatable == {"memory": "8204Mi", "cpu": "2500m", "pods": "110"}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        pytest.param(
            {"evictionSoft": {"memory.available": "1.5Gi"}},
            "grace period must be specified for the soft eviction threshold memory.available",
            id="a soft threshold needs a grace period",
        ),
        pytest.param(
            {"evictionHard": {"disk.available": "1"}}, "disk.available is none of", id="no signal"
        ),
        pytest.param({"evictionHard": {"memory.available": "110%"}}, "between 0%", id="too much"),
        pytest.param({"evictionHard": {"memory.available": "-1Gi"}}, "positive", id="too little"),
        pytest.param({"evictionHard": {"memory.available": "much"}}, "quantity", id="no amount"),
        pytest.param({"evictionPressureTransitionPeriod": "soon"}, "duration", id="no duration"),
        pytest.param({"evictionHard": "all"}, "f: ", id="no mapping"),
    ],
)
def test_what_a_kubelet_would_not_start_with(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        configured(**fields)


def test_another_document_is_no_configuration() -> None:
    with pytest.raises(ConfigurationError, match="KubeletConfiguration"):
        parse_configuration({"kind": "Pod"}, "f")


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0"), (1023, "1023"), (100 * MI, "100Mi"), (3 * GI // 2, "1536Mi")]
)
def test_quantities_have_the_largest_suffix_that_leaves_them_whole(amount: int, text: str) -> None:
    assert binary_quantity(amount) == text
