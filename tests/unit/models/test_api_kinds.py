"""Kinds have one form, in whichever version they are read; a later version needs one word."""

from dataclasses import replace
from typing import Any

import pytest

from stellwerk.models.api_kinds import (
    API_KINDS,
    chosen_version,
    newest_form,
    own_form,
    unreadable_versions,
)
from stellwerk.models.pod_group import POD_GROUP_INITIALLY_SCHEDULED, parse_pod_group
from stellwerk_kube.compatibility import Release, release_named, release_of_server

EXACT = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
ALTERNATIVES = [{"name": "a", "deviceClassName": "large"}, {"name": "b", "deviceClassName": "gpu"}]
STATUS: dict[str, Any] = {"allocation": {"devices": {"results": []}}}


def claim(version: str, *requests: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": list(requests), "constraints": [{"requests": ["r"]}]}},
        "status": STATUS,
    }


def of_devices(version: str, *devices: dict[str, Any]) -> dict[str, Any]:
    spec = {"driver": "d", "devices": list(devices)}
    return {"apiVersion": f"resource.k8s.io/{version}", "metadata": {"name": "s"}, "spec": spec}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            claim("v1beta1", {"name": "r", **EXACT}),
            claim("v1beta1", {"name": "r", "exactly": EXACT}),
            id="a request",
        ),
        pytest.param(
            claim("v1beta1", {"name": "r", "firstAvailable": ALTERNATIVES}),
            claim("v1beta1", {"name": "r", "firstAvailable": ALTERNATIVES}),
            id="alternatives",
        ),
        pytest.param(
            of_devices("v1beta1", {"name": "g", "basic": {"attributes": {"a": {"int": 1}}}}),
            of_devices("v1beta1", {"name": "g", "attributes": {"a": {"int": 1}}}),
            id="a device",
        ),
        pytest.param(
            {"apiVersion": "resource.k8s.io/v1beta1", "metadata": {"name": "gone"}},
            {"apiVersion": "resource.k8s.io/v1beta1", "metadata": {"name": "gone"}},
            id="an object that is gone",
        ),
    ],
)
def test_an_old_form_is_read_as_the_newest_and_sent_as_it_was(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert newest_form(old) == new
    assert own_form(newest_form(old)) == old


def test_a_class_of_alternatives_that_is_empty_is_none() -> None:
    # As API servers of v1beta1 write a request that has alternatives.
    written = {"name": "r", "deviceClassName": "", "firstAvailable": ALTERNATIVES}
    read = newest_form(claim("v1beta1", written))
    assert read == claim("v1beta1", {"name": "r", "firstAvailable": ALTERNATIVES})


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_newer_versions_have_that_form_already(version: str) -> None:
    found = claim(version, {"name": "r", "exactly": EXACT})
    assert newest_form(found) is found
    assert own_form(found) is found


@pytest.mark.parametrize(
    ("versions", "in_use", "expected"),
    [
        pytest.param(("v1",), "", "v1", id="v1 alone, as 1.38 serves it"),
        pytest.param(("v1beta1", "v1alpha3"), "", "v1beta1", id="v1beta1, as 1.37 serves it"),
        pytest.param(("v1alpha3", "v1beta1", "v1"), "", "v1", id="the newest of all"),
        pytest.param(("v1", "v1beta1"), "v1beta1", "v1beta1", id="what is in use stays"),
        pytest.param(("v1",), "v1beta1", "v1", id="what was in use is gone"),
        pytest.param(("v1beta1",), "v1", "v1beta1", id="back to an older server"),
        pytest.param(("v2",), "", None, id="a version of the future"),
        pytest.param((), "v1", None, id="none"),
    ],
)
@pytest.mark.parametrize("kind", ["PodGroup", "Workload"])
def test_groups_are_read_in_the_newest_version_that_is_served(
    kind: str, versions: tuple[str, ...], in_use: str, expected: str | None
) -> None:
    row = API_KINDS[kind]
    served = dict.fromkeys(versions, (row.plural,))
    assert chosen_version(row.plural, row.versions, served, in_use) == expected
    unreadable = unreadable_versions(row.plural, row.versions, served)
    assert unreadable == (["v2"] if "v2" in versions else [])


def test_v1_is_served_with_priority_classes_alone() -> None:
    """1.36 and 1.37 serve scheduling.k8s.io/v1 for PriorityClasses: it counts for no groups."""
    row = API_KINDS["PodGroup"]
    served = {"v1": ("priorityclasses",), "v1beta1": ("podgroups", "workloads")}
    assert chosen_version(row.plural, row.versions, served) == "v1beta1"


def test_groups_of_v1_are_read_and_written_as_those_of_v1beta1() -> None:
    row = API_KINDS["PodGroup"]
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}}}
    metadata = {"name": "g", "namespace": "default", "uid": "u"}
    groups = [
        parse_pod_group(
            {"apiVersion": f"{row.group}/{version}", "metadata": metadata, "spec": spec}
        )
        for version in ("v1beta1", "v1")
    ]
    assert {each.scheduled_type for each in groups} == {POD_GROUP_INITIALLY_SCHEDULED}
    assert [each.version for each in groups] == ["v1beta1", "v1"]
    assert replace(groups[1], version="v1beta1") == groups[0]


def test_a_release_to_come_is_followed_as_the_newest_that_is_known() -> None:
    newest = max(Release)
    assert release_of_server(f"v1.{newest + 1}.3") == release_named(str(newest))
