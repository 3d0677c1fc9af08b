import pytest

from stellwerk_cluster.apimachinery.feature_gates import (
    GANG_SCHEDULING,
    GENERIC_WORKLOAD,
    TOPOLOGY,
    default_gates,
    feature_gates,
    gates_of,
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
        pytest.param("AllAlpha=true", set(gates_of("1.36")), id="all gates at once"),
        pytest.param(
            "WorkloadWithJob=false,AllAlpha=true",
            set(gates_of("1.36")) - {"WorkloadWithJob"},
            id="all gates but one that is named",
        ),
    ],
)
def test_a_text_names_gates(text: str, expected: set[str]) -> None:
    assert feature_gates(text, "1.36") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "Gangs=true", "no gate Gangs in 1.36; there are GenericWorkload,", id="unknown"
        ),
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
        feature_gates(text, "1.36")


def test_gates_of_a_release_that_are_on_can_be_turned_off() -> None:
    assert default_gates("1.36") == frozenset()
    unused = "PersistentVolumeClaimUnusedSinceTime"
    assert default_gates("1.37") == {"VolumeLimitScaling", unused}
    assert feature_gates("VolumeLimitScaling=false", "1.37") == {unused}


def test_stability_is_that_of_the_release() -> None:
    assert GENERIC_WORKLOAD in feature_gates("AllBeta=true", "1.37")
    assert GENERIC_WORKLOAD not in feature_gates("AllBeta=true", "1.36")
    with pytest.raises(ValueError, match=r"depends on features that are disabled"):
        feature_gates("AllAlpha=true", "1.37")


def test_what_is_on_where_nothing_is_said_can_be_chosen() -> None:
    chosen = frozenset({GENERIC_WORKLOAD})
    assert feature_gates("", "1.36", chosen) == chosen
    assert feature_gates("GenericWorkload=false", "1.36", chosen) == frozenset()


def test_what_is_ga_is_on_by_default_and_left_alone_by_the_wide_switches() -> None:
    assert GENERIC_WORKLOAD in default_gates("1.38")
    assert GENERIC_WORKLOAD in feature_gates("AllAlpha=false,AllBeta=false", "1.38")
    assert GENERIC_WORKLOAD not in feature_gates("GenericWorkload=false", "1.38")
    assert TOPOLOGY in feature_gates("AllBeta=true", "1.38")
    assert TOPOLOGY not in feature_gates("AllBeta=true", "1.37")
