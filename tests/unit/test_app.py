import logging

import pytest

from stellwerk.wiring import beside_server
from stellwerk_kube.compatibility import Compatibility, FeatureGates, PatchRelease, Release
from tests.support.in_process import InProcess


def test_auto_is_the_release_of_the_server() -> None:
    expected = Compatibility.with_server(PatchRelease(Release.V1_37, 0))
    assert beside_server("v1.37.0", FeatureGates()) == expected


def test_auto_is_the_release_that_the_server_emulates() -> None:
    found = beside_server("v1.38.0, emulating 1.37", FeatureGates())
    assert found == Compatibility.with_server(Release.V1_37)


def test_a_server_without_a_version_counts_as_1_36_2(caplog: pytest.LogCaptureFixture) -> None:
    assert str(beside_server("unknown", FeatureGates()).version) == "1.36.2"
    assert "the API server reports no Kubernetes version: unknown" in caplog.text


def test_gates_that_the_server_does_not_take_are_named_and_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gates = FeatureGates.parse("WorkloadAwarePreemption=true,DRADerivedAttributes=true")
    with caplog.at_level(logging.WARNING):
        found = beside_server("v1.37.0", gates)
    assert found.rules == Compatibility.with_server(Release.V1_37).rules
    assert "unrecognized feature gate: WorkloadAwarePreemption" in caplog.text
    assert "feature gate DRADerivedAttributes has no effect" in caplog.text


async def test_decisions_wait_for_the_lists_of_groups_of_both_apis() -> None:
    # Pods that are listed before their group would be passed by pods that came later.
    missing = InProcess().operator.barrier.unready()
    assert missing is not None
    kinds = missing.removeprefix("waiting for the first list of ").split(", ")
    assert {"PodGroup", "CoschedulingPodGroup", "Pod"} <= set(kinds)
