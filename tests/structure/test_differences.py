"""What docs/differences.md says of kubelets is shown by tests, row by row."""

from typing import Final

import pytest

from tests.support.repository import ROOT

_HOLLOW: Final = "tests/unit/stellwerk_cluster/hollow"
SHOWN_BY: Final = {
    "default hard eviction thresholds": (
        f"{_HOLLOW}/test_eviction_thresholds.py",
        "test_without_any_hard_threshold_the_five_defaults_hold",
    ),
    "grace period of a hard eviction": (
        f"{_HOLLOW}/test_node_pressure.py",
        "test_a_hard_threshold_gives_a_pod_one_second",
    ),
    "eviction of a pod below its request": (
        f"{_HOLLOW}/test_node_pressure.py",
        "test_a_pod_below_its_request_goes_after_all_others",
    ),
    "`nodeName` with a `nodeSelector` that does not match": (
        "tests/flows/test_node_examples.py",
        "test_a_node_name_does_not_override_a_node_selector",
    ),
}
"""Subject of a row → the file and the name of the test that shows what holds."""


@pytest.mark.parametrize("subject", SHOWN_BY)
def test_a_row_about_kubelets_is_shown(subject: str) -> None:
    file, test = SHOWN_BY[subject]
    assert f"\n| {subject} |" in (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8")


def test_every_row_that_speaks_of_eviction_by_kubelets_is_listed() -> None:
    text = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    subjects = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines()]
    of_kubelets = [
        subject
        for subject in subjects
        if "eviction" in subject and subject != "status of a successful eviction"
    ]
    assert set(of_kubelets) <= SHOWN_BY.keys()
