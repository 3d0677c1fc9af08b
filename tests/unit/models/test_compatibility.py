from typing import Any

import pytest

from stellwerk.errors import ConfigurationError
from stellwerk.models.compatibility import (
    AS_RECORDED,
    GATES,
    ROWS,
    Compatibility,
    FeatureGates,
    Release,
    ReleaseRule,
    Sort,
    release_named,
    release_of_server,
    server_version,
)

OLD, NEW = Release.V1_36, Release.V1_37
MENDS = {row.rule for row in ROWS if row.sort is Sort.MEND}


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("v1.36.2", Release.V1_36),
        ("v1.37.0-rc.1+stellwerk", Release.V1_37),
        ("v1.34.5-eks-abc", Release.V1_34),
        ("v1.37+", Release.V1_37),
        pytest.param("v1.28.3", Release.V1_33, id="an older one is decided as the oldest"),
        ("v1.38.0-alpha.2", Release.V1_38),
        pytest.param("v1.40.0", max(Release), id="a newer one is decided as the newest"),
        pytest.param("v1.38.0, emulating 1.37", Release.V1_37, id="an emulated one goes before"),
        pytest.param("v1.37.0, emulating 1.20", Release.V1_33, id="an emulated one, too old"),
        ("unknown", None),
        ("v2.0.0", None),
    ],
)
def test_the_release_of_a_server(version: str, release: Release | None) -> None:
    assert release_of_server(version) is release


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"gitVersion": "v1.36.2"}, "v1.36.2"),
        pytest.param(
            {"gitVersion": "v1.38.0", "emulationMajor": "1", "emulationMinor": "38"},
            "v1.38.0",
            id="most servers name one version twice",
        ),
        pytest.param(
            {"gitVersion": "v1.38.0", "emulationMajor": "1", "emulationMinor": "37"},
            "v1.38.0, emulating 1.37",
            id="--emulated-version",
        ),
        pytest.param(
            {"gitVersion": "v1.38.0-x", "emulationMajor": "1", "emulationMinor": "37+"},
            "v1.38.0-x, emulating 1.37",
            id="as clouds mark their builds",
        ),
        pytest.param(
            {"gitVersion": "v1.38.0", "emulationMajor": "1", "emulationMinor": "9" * 99},
            "v1.38.0",
            id="no number of a release",
        ),
        pytest.param(
            {"gitVersion": "v1.38.0", "emulationMajor": [], "emulationMinor": {"a": 1}},
            "v1.38.0",
            id="no texts",
        ),
        pytest.param(
            {"gitVersion": "banana", "emulationMajor": "1", "emulationMinor": "37"},
            "banana",
            id="no version at all",
        ),
        ({"gitVersion": ""}, "unknown"),
        ({}, "unknown"),
        ({"gitVersion": "v1.38.0" + "x" * 1000}, "v1.38.0" + "x" * 249),
    ],
)
def test_a_server_says_its_version_and_the_one_that_it_emulates(
    document: dict[str, Any], expected: str
) -> None:
    assert server_version(document) == expected


def test_a_release_is_named_by_its_number() -> None:
    assert release_named("1.37") is NEW
    with pytest.raises(ConfigurationError, match=r"'1\.32' is none of the releases"):
        release_named("1.32")


def test_behaviour_follows_the_release() -> None:
    rule = ReleaseRule.COUNT_IMAGE_VOLUMES
    assert rule not in Compatibility.with_release(OLD)
    assert rule not in Compatibility.with_server(OLD)
    assert rule in Compatibility.with_release(NEW)
    assert rule in Compatibility.with_server(NEW)


def test_mends_are_on_with_auto_whatever_the_server() -> None:
    for release in Release:
        assert Compatibility.with_server(release).rules >= MENDS
    assert not MENDS & AS_RECORDED.rules
    assert Compatibility.with_release(NEW).rules >= MENDS


def test_a_profile_that_names_a_release_has_its_faults_beside_any_server() -> None:
    auto = Compatibility.with_server(NEW)
    assert auto.of("auto") is auto
    assert auto.of("1.36") == AS_RECORDED


def test_a_gate_turns_a_rule_on_before_its_release_and_off_after_it() -> None:
    rule = ReleaseRule.SCORE_STORAGE_CAPACITY
    on = FeatureGates.parse("StorageCapacityScoring=true")
    off = FeatureGates.parse("StorageCapacityScoring=false")
    assert rule in Compatibility.with_release(OLD, on)
    assert rule not in Compatibility.with_release(NEW, off)
    mend = ReleaseRule.FRACTIONAL_RANGES
    gates = FeatureGates.parse("DRAFractionalCapacityRange=false")
    assert mend not in Compatibility.with_server(OLD, gates)


def test_a_named_release_keeps_the_gates_of_the_flag() -> None:
    gates = FeatureGates.parse("StorageCapacityScoring=true")
    assert ReleaseRule.SCORE_STORAGE_CAPACITY in Compatibility.with_server(NEW, gates).of("1.36")


def test_all_alpha_and_all_beta_set_what_is_not_named() -> None:
    gates = FeatureGates.parse("AllAlpha=true,TaintTolerationComparisonOperators=false")
    enabled = gates.enabled(OLD)
    assert "StorageCapacityScoring" in enabled
    assert "TaintTolerationComparisonOperators" not in enabled
    beta = FeatureGates.parse("AllBeta=false").enabled(NEW)
    assert "StorageCapacityScoring" not in beta
    assert "DRADeviceTaintRules" in beta


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Wrong=true", "unrecognized feature gate: Wrong"),
        ("VolumeLimitScaling", "missing bool value for VolumeLimitScaling"),
        (
            "VolumeLimitScaling=yes",
            (
                "invalid value of VolumeLimitScaling=yes, err: strconv.ParseBool: "
                'parsing "yes": invalid syntax'
            ),
        ),
    ],
)
def test_a_text_that_sets_no_gate(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        FeatureGates.parse(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("text", "release", "problems"),
    [
        (" VolumeLimitScaling = false ,", NEW, []),
        pytest.param(
            "GangScheduling=true,GenericWorkload=true",
            NEW,
            ["unrecognized feature gate: GangScheduling"],
            id="a gate that the release has no more",
        ),
        pytest.param(
            "CompositePodGroup=false",
            OLD,
            ["unrecognized feature gate: CompositePodGroup"],
            id="a gate that the release does not have yet",
        ),
        pytest.param(
            "NodeDeclaredFeatures=false",
            NEW,
            [
                "cannot set feature gate NodeDeclaredFeatures to false, feature is locked to true",
            ],
            id="a gate that is locked",
        ),
        pytest.param(
            "CompositePodGroup=true",
            NEW,
            [
                (
                    "CompositePodGroup is enabled, but depends on features that are disabled: "
                    "[GenericWorkload TopologyAwareWorkloadScheduling]"
                ),
            ],
            id="a gate that needs two others",
        ),
    ],
)
def test_gates_that_a_release_refuses(text: str, release: Release, problems: list[str]) -> None:
    gates = FeatureGates.parse(text)
    assert list(gates.problems(release)) == problems
    assert "CompositePodGroup" not in gates.enabled(release)


def test_gates_are_written_as_they_are_read() -> None:
    gates = FeatureGates.parse("StorageCapacityScoring=True,VolumeLimitScaling=0")
    assert str(gates) == "StorageCapacityScoring=true,VolumeLimitScaling=false"
    assert FeatureGates.parse(str(gates)) == gates


def test_a_gate_without_effect_is_named_where_it_is_on() -> None:
    gates = FeatureGates.parse("DRADerivedAttributes=true")
    assert list(gates.left_out(NEW)) == ["DRADerivedAttributes"]
    assert list(FeatureGates().left_out(NEW)) == []


def test_every_rule_has_one_row_and_every_gate_is_one() -> None:
    assert sorted(row.rule for row in ROWS) == sorted(ReleaseRule)
    assert {row.gate for row in ROWS} - {""} <= GATES.keys()
    for gate in GATES.values():
        assert gate.needs == tuple(need for need in gate.needs if need in GATES)
        assert [step.since for step in gate.steps] == sorted(step.since for step in gate.steps)
