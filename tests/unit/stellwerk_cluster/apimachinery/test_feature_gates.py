import pytest

from stellwerk_cluster.apimachinery.feature_gates import (
    GANG_SCHEDULING,
    GENERIC_WORKLOAD,
    NEEDS,
    feature_gates,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", set(), id="no gate is on by default"),
        pytest.param("GenericWorkload=true", {GENERIC_WORKLOAD}, id="one gate"),
        pytest.param(
            " GenericWorkload=True, GangScheduling=true,",
            {GENERIC_WORKLOAD, GANG_SCHEDULING},
            id="spaces and capitals",
        ),
        pytest.param("AllAlpha=true", set(NEEDS), id="all gates at once"),
        pytest.param(
            "WorkloadWithJob=false,AllAlpha=true",
            set(NEEDS) - {"WorkloadWithJob"},
            id="all gates but one that is named",
        ),
    ],
)
def test_a_text_names_gates(text: str, expected: set[str]) -> None:
    assert feature_gates(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Gangs=true", "no gate Gangs; there are GenericWorkload,", id="unknown"),
        pytest.param("GenericWorkload", "expected GenericWorkload=true or", id="no value"),
        pytest.param("GenericWorkload=yes", "GenericWorkload=yes: expected", id="no truth value"),
        pytest.param(
            "GangScheduling=true",
            r"GangScheduling is enabled, but depends on features that are disabled: "
            r"\[GenericWorkload\]",
            id="without what it needs",
        ),
    ],
)
def test_a_text_that_names_no_set_of_gates_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        feature_gates(text)
