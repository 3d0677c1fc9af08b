from typing import Any

import pytest

from stellwerk_kube.compatibility import (
    AS_RECORDED,
    GATES,
    NEWEST_PATCHES,
    RECORDED,
    ROWS,
    Compatibility,
    Effect,
    FeatureGates,
    PatchRelease,
    Release,
    ReleaseRule,
    Row,
    Sort,
    patches_of,
    patches_text,
    release_named,
    release_of_server,
    server_version,
)
from stellwerk_kube.errors import ConfigurationError

OLD, NEW = Release.V1_36, Release.V1_37
MENDS = {row.rule for row in ROWS if row.sort is Sort.MEND}
NEWEST_1_37 = str(PatchRelease(NEW, NEWEST_PATCHES[NEW]))
NEWEST_1_36 = PatchRelease(OLD, NEWEST_PATCHES[OLD])


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("v1.36.2", "1.36.2"),
        ("v1.37.0-rc.1+stellwerk", "1.37.0"),
        ("v1.34.5-eks-abc", "1.34.5"),
        pytest.param("v1.36+", str(NEWEST_1_36), id="without a patch: the newest of its minor"),
        pytest.param("v1.36.999", str(NEWEST_1_36), id="a later patch: the newest that is known"),
        pytest.param("v1.28.3", "1.33.0", id="an older one is decided as the oldest"),
        pytest.param(
            "v1.40.0", str(release_named(str(max(Release)))), id="a newer one as the newest"
        ),
        ("v1.38.0-alpha.2", "1.38.0"),
        pytest.param("v1.38.0, emulating 1.37", NEWEST_1_37, id="an emulated one goes before"),
        pytest.param("v1.37.0, emulating 1.20", "1.33.0", id="an emulated one, too old"),
        ("unknown", "None"),
        ("v2.0.0", "None"),
    ],
)
def test_the_release_of_a_server(version: str, release: str) -> None:
    assert str(release_of_server(version)) == release


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


@pytest.mark.parametrize(
    ("text", "release"),
    [
        pytest.param("1.36", NEWEST_1_36, id="a minor release means its newest patch"),
        pytest.param("1.36.2", PatchRelease(OLD, 2), id="a patch release means just that"),
        pytest.param("1.36.0", PatchRelease(OLD, 0), id="the first patch release is one"),
    ],
)
def test_a_release_is_named_by_its_number(text: str, release: PatchRelease) -> None:
    assert release_named(text) == release
    assert str(release_named(str(release))) == str(release)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1.32", "'1.32' is none of the releases"),
        ("1.36.", "'1.36.' is none of the releases"),
        ("1.36.02", "'1.36.02' is none of the releases"),
        ("v1.36.2", "'v1.36.2' is none of the releases"),
        ("1.036", "'1.036' is none of the releases"),
        ("1.36.99", f"'1.36.99' is later than {NEWEST_1_36}, the newest patch release of 1.36"),
    ],
)
def test_a_name_of_no_release_that_is_known(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        release_named(text)
    assert str(refused.value).startswith(message)


def test_a_repair_is_on_from_the_first_patch_release_that_has_it() -> None:
    rule = ReleaseRule.GIVE_COUNTERS_BACK
    before, first = PatchRelease(OLD, 2), PatchRelease(OLD, 3)
    assert rule not in Compatibility.with_release(before)
    assert rule in Compatibility.with_release(first)
    assert rule in Compatibility.with_release(OLD)
    assert rule not in Compatibility.with_release(Release.V1_35)
    assert rule in Compatibility.with_server(before)


def test_a_regression_has_not_begun_in_the_releases_before_it() -> None:
    row = Row(ReleaseRule.GIVE_COUNTERS_BACK, Sort.MEND, faulty_since=Release.V1_34)
    assert row.holds_in(PatchRelease(Release.V1_33, 0))
    assert not row.holds_in(PatchRelease(Release.V1_34, 12))
    assert row.holds_in(PatchRelease(Release.V1_37, 0))
    assert not row.known_to({Release.V1_33: 9, Release.V1_34: 9})
    assert row.known_to({Release.V1_37: 0})


def test_every_minor_release_has_a_newest_patch_and_picks_are_not_later() -> None:
    assert set(NEWEST_PATCHES) == set(Release)
    for row in ROWS:
        for release, patch in row.picks.items():
            assert release < row.since
            assert patch <= NEWEST_PATCHES[release]


def test_patch_releases_are_written_as_they_are_read() -> None:
    text = patches_text(NEWEST_PATCHES)
    assert f",{NEWEST_1_36}," in text
    assert patches_of(text) == NEWEST_PATCHES


def test_patch_releases_of_another_version_of_stellwerk() -> None:
    assert patches_of("1.36.4,1.37.99,1.99.1") == {OLD: 4, NEW: NEWEST_PATCHES[NEW]}
    assert patches_of("")[OLD] == RECORDED.patch
    with pytest.raises(
        ConfigurationError, match=r"'1\.36' is not a patch release such as 1\.36\.2"
    ):
        patches_of("1.36")


def test_minor_releases_and_mends_mean_what_they_meant_to_the_recorder() -> None:
    then = patches_of("")
    auto = Compatibility.with_server(RECORDED, patches=then)
    assert auto.of("1.36") == Compatibility.with_release(RECORDED, patches=then)
    assert auto.of("1.36.3").rules > auto.of("1.36").rules
    unknown_then = max(Release)
    assert auto.of(str(unknown_then)).version == release_named(str(unknown_then))
    assert Compatibility.with_server(unknown_then, patches=then).release is unknown_then
    in_1_37_0 = Compatibility.with_release(PatchRelease(NEW, 0)).rules
    assert auto.rules & MENDS == in_1_37_0 & MENDS


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
    assert Compatibility.with_release(max(Release)).rules >= MENDS


def test_a_profile_that_names_a_release_has_its_faults_beside_any_server() -> None:
    auto = Compatibility.with_server(NEW)
    assert auto.of("auto") is auto
    assert auto.of("1.36.2") == AS_RECORDED
    assert auto.of("1.36") == Compatibility.with_release(OLD)


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
    assert list(gates.without_effect(NEW)) == [
        "feature gate DRADerivedAttributes has no effect: Stellwerk leaves it out"
    ]
    for release in Release:
        assert list(FeatureGates().without_effect(release)) == []


def test_a_gate_that_is_kept_on_is_named_where_the_user_turns_it_off() -> None:
    gates = FeatureGates.parse("SchedulerPopFromBackoffQ=false,DRAExtendedResource=false")
    assert list(gates.without_effect(OLD)) == [
        "feature gate SchedulerPopFromBackoffQ=false has no effect: Stellwerk keeps it on"
    ]
    of_all = list(FeatureGates.parse("AllBeta=false").without_effect(OLD))
    assert "feature gate PodLevelResources=false has no effect: Stellwerk keeps it on" in of_all
    assert not any("DRAExtendedResource" in message for message in of_all)


def test_every_gate_that_can_be_turned_off_has_its_effect_or_a_warning() -> None:
    """No decision depends on the others: they are of speed alone, or of other components."""
    silent = {
        gate.name
        for gate in GATES.values()
        if gate.effect is Effect.NONE
        and any((step := gate.at(release)) and step.on and not step.locked for release in Release)
    }
    assert silent <= OF_SPEED | OF_OTHERS


OF_SPEED = {"OpportunisticBatching", "SchedulerAsyncPreemption", "SchedulerPreQueueingHints"}
OF_OTHERS = {
    "PodLevelResourcesFixDefaulting",
    "PodLevelResourcesFixKubeletQOSClass",
    "DRAResourceClaimDeviceStatus",
    "ClearingNominatedNodeNameAfterBinding",
    "PodTopologyLabelsAdmission",
    "EtcdRangeStream",
    "WatchListCompression",
    "ConcurrentWatchObjectDecode",
    "KubeletTracing",
    "SeparateTaintEvictionController",
}
"""Of the API server, its storage, the kubelet, and controllers."""


def test_every_rule_has_one_row_and_every_gate_is_one() -> None:
    assert sorted(row.rule for row in ROWS) == sorted(ReleaseRule)
    assert {row.gate for row in ROWS} - {""} <= GATES.keys()
    for gate in GATES.values():
        assert gate.needs == tuple(need for need in gate.needs if need in GATES)
        assert [step.since for step in gate.steps] == sorted(step.since for step in gate.steps)
