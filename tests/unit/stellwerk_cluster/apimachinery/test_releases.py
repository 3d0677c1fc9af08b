import pytest

from stellwerk_cluster.apimachinery.kinds import KindTable, kinds_of_release
from stellwerk_cluster.apimachinery.releases import (
    RELEASES,
    RuntimeConfig,
    exists,
    runtime_config,
    version_document,
)

VERSIONS = {"v1", "apps/v1", "batch/v1", "resource.k8s.io/v1", "resource.k8s.io/v1beta1"}


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        ("", "", ["1.36", "1.37", "1.38"]),
        ("1.37", "", ["1.37", "1.38"]),
        ("", "1.36", ["1.36"]),
        ("1.9", "", ["1.36", "1.37", "1.38"]),
        ("1.100", "", []),
    ],
)
def test_bounds_are_numbers_and_included(since: str, until: str, expected: list[str]) -> None:
    assert [release for release in RELEASES if exists(release, since, until)] == expected


def test_the_version_is_that_of_the_release() -> None:
    shown = version_document("1.37")
    assert (shown["major"], shown["minor"]) == ("1", "37")
    assert shown["minCompatibilityMinor"] == "36"
    assert shown["gitVersion"].startswith("v1.37.")


@pytest.mark.parametrize(
    ("text", "version", "plural", "default", "served"),
    [
        pytest.param("", "apps/v1", "deployments", True, True, id="nothing is said"),
        pytest.param("apps/v1=false", "apps/v1", "deployments", True, False, id="a version"),
        pytest.param("apps/v1=0", "apps/v1", "deployments", True, False, id="as Go reads truth"),
        pytest.param("v1=false", "v1", "pods", True, False, id="the core group"),
        pytest.param("api/beta", "resource.k8s.io/v1beta1", "x", False, True, id="without value"),
        pytest.param("api/beta=true", "apps/v1", "deployments", False, False, id="other stability"),
        pytest.param(
            "api/all=false,api/ga=true", "apps/v1", "deployments", True, True, id="the narrower one"
        ),
        pytest.param(
            "apps/v1=true,api/all=false", "apps/v1", "deployments", True, True, id="not by order"
        ),
        pytest.param(
            "apps/v1/deployments=false,apps/v1=true",
            "apps/v1",
            "deployments",
            True,
            False,
            id="one",
        ),
        pytest.param(
            "apps/v1/deployments=false", "apps/v1", "daemonsets", True, True, id="not its neighbour"
        ),
    ],
)
def test_the_narrowest_setting_counts(
    text: str, version: str, plural: str, *, default: bool, served: bool
) -> None:
    assert runtime_config(text, VERSIONS).serves(version, plural, default=default) == served


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("apps/v1=maybe", "invalid value apps/v1=maybe"),
        ("apps/v9=true", "group version apps/v9 that has not been registered"),
        ("toys/v1=true", "unknown api groups toys/v1"),
        ("apps=true", "invalid key apps"),
        ("apps/v1/Deployments=true", "invalid key apps/v1/Deployments"),
        ("api/all=false", "invalid runtime-config with only api/all=false"),
    ],
)
def test_what_is_no_version_is_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        runtime_config(text, VERSIONS)


@pytest.mark.parametrize(
    ("release", "groups", "devices"),
    [
        ("1.36", ["v1", "v1alpha2"], ["v1"]),
        ("1.37", ["v1", "v1beta1"], ["v1"]),
        ("1.38", ["v1"], ["v1"]),
    ],
)
def test_a_release_serves_its_versions(release: str, groups: list[str], devices: list[str]) -> None:
    served = KindTable({"GenericWorkload"}, release).groups()
    assert served["scheduling.k8s.io"] == groups
    assert served["resource.k8s.io"] == devices
    without = KindTable((), release).groups()
    assert without["scheduling.k8s.io"] == ["v1"]


@pytest.mark.parametrize(
    ("release", "groups", "rules"),
    [
        ("1.36", ["v1", "v1alpha2"], ["v1beta2", "v1alpha3"]),
        ("1.37", ["v1", "v1beta1", "v1alpha3"], ["v1", "v1beta2", "v1alpha3"]),
        ("1.38", ["v1", "v1beta1", "v1alpha3"], ["v1", "v1beta2", "v1alpha3"]),
    ],
)
def test_runtime_config_serves_the_others(
    release: str, groups: list[str], rules: list[str]
) -> None:
    every = runtime_config("api/all=true", {kind.api_version for kind in kinds_of_release(release)})
    table = KindTable({"GenericWorkload"}, release, every)
    assert table.groups()["scheduling.k8s.io"] == groups
    assert [row.version for row in table if row.kind == "DeviceTaintRule"] == rules
    older = ["v1beta2"] if release == "1.38" else ["v1beta2", "v1beta1"]
    assert [row.version for row in table if row.kind == "ResourceClaim"] == ["v1", *older]


def test_what_no_client_is_served_is_there_for_the_cluster() -> None:
    nothing = RuntimeConfig((("batch/v1", False),))
    table = KindTable((), "1.36", nothing)
    assert "batch" not in table.groups()
    assert table.resource("jobs", "batch").kind == "Job"


@pytest.mark.parametrize("release", ["1.37", "1.38"])
def test_a_version_that_is_stored_in_another_one_is_like_it(release: str) -> None:
    for kind in kinds_of_release(release):
        if kind.stored:
            same = next(
                each
                for each in kinds_of_release(release)
                if (each.group, each.plural, each.version) == (kind.group, kind.plural, kind.stored)
            )
            assert (kind.namespaced, kind.subresources, kind.gate, kind.fields) == (
                same.namespaced,
                same.subresources,
                same.gate,
                same.fields,
            ), kind.api_version
