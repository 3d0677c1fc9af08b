"""The load, NUMA, quota and simple plugins decide as the real ones did in kube-scheduler."""

import pytest

from stellwerk_simulation.cases.plugin_cases import decide_plugin_case
from tests.flows.recorded_plugins import SUITES, cases, differences


@pytest.mark.parametrize("suite", SUITES)
def test_every_recorded_decision_agrees(suite: str) -> None:
    different = {}
    for case in cases(suite):
        fields = differences(case, decide_plugin_case(case))
        if fields:
            different[case["id"]] = fields
    assert different == {}
