"""Every recorded decision of kube-scheduler v1.36.2, decided again, node by node.

Where a later patch release repairs one, the repaired value stands beside it, with the number of
the repair, in `tests/data/corpus-1.36.5.json`: all of them are decisions about devices.
"""

import json

import pytest

from stellwerk_kube.compatibility import ROWS, Compatibility, Release, release_named
from stellwerk_simulation.cases.decide import decide
from tests.support.corpus import SUITES, differences, read_suite
from tests.support.repository import ROOT

REPAIRED = json.loads((ROOT / "tests" / "data" / "corpus-1.36.5.json").read_text())


@pytest.mark.parametrize("suite", SUITES)
def test_every_recorded_decision_is_ours_too(suite: str) -> None:
    wrong = {
        recording.id: found
        for recording in read_suite(suite)
        if (found := differences(recording.expected, decide(recording.case)))
    }
    assert wrong == {}


@pytest.mark.long
def test_repairs_of_1_36_change_the_decisions_that_are_named_and_no_other() -> None:
    newest, changed = Compatibility.with_release(Release.V1_36), {}
    assert newest.version == release_named("1.36.5"), "name the file by the patch release"
    for recording in (each for suite in SUITES for each in read_suite(suite)):
        result = decide(recording.case, newest)
        if differences(recording.expected, result):
            refused = [
                name for name, why in result["allFilters"].items() if "DynamicResources" in why
            ]
            changed[recording.id] = {"refused": sorted(refused), "selected": result["selected"]}
    numbers = {each.pop("repair") for each in (dict(case) for case in REPAIRED.values())}
    assert changed == {
        name: {key: value for key, value in case.items() if key != "repair"}
        for name, case in REPAIRED.items()
    }
    assert numbers <= {row.source for row in ROWS if Release.V1_36 in row.picks}
