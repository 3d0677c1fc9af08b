"""Every recorded decision of kube-scheduler v1.36, decided again, node by node."""

import pytest

from stellwerk.cases.decide import decide
from tests.support.corpus import SUITES, differences, read_suite


@pytest.mark.parametrize("suite", SUITES)
def test_every_recorded_decision_is_ours_too(suite: str) -> None:
    wrong = {
        recording.id: found
        for recording in read_suite(suite)
        if (found := differences(recording.expected, decide(recording.case)))
    }
    assert wrong == {}
